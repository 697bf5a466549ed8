//! Leases of reads that are under way. Pure: who runs it asks the master and tells the time.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::{MonotonicTime, ReplicaDescriptor};

use crate::ops::Lookup;
use crate::replicas::is_still_there;

/// A look that was not answered is repeated after this part of the lease.
const AGAIN: u32 = 8;
/// And not before this time has passed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// A replica that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Place in the caller's list.
    pub(crate) index: usize,
    pub(crate) key: Vec<u8>,
    /// As the master named it.
    pub(crate) replica: ReplicaDescriptor,
    pub(crate) checksum: Option<u64>,
    pub(crate) lease_ends: MonotonicTime,
    pub(crate) lease: Duration,
    /// The master does not name it any more: what arrives may be anything.
    pub(crate) is_lost: bool,
}

/// A key that has to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    flight: u64,
    place: usize,
    pub(crate) key: Vec<u8>,
}

#[derive(Debug)]
struct Flight {
    watched: Vec<Watched>,
    /// When half of the first of its leases is over.
    look_at: MonotonicTime,
}

/// All reads that are watched.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    next: u64,
    open: BTreeMap<u64, Flight>,
}

impl Flights {
    /// A read begins: its number.
    pub(crate) fn begin(&mut self, watched: Vec<Watched>, now: MonotonicTime) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Flight { look_at: first_look(&watched, now), watched });
        self.next
    }

    /// A read has ended: how its leases stand.
    pub(crate) fn end(&mut self, flight: u64) -> Vec<Watched> {
        self.open.remove(&flight).map(|flight| flight.watched).unwrap_or_default()
    }

    /// When the next lease is half over; `None` when nothing is watched.
    pub(crate) fn next_look(&self) -> Option<MonotonicTime> {
        self.open.values().map(|flight| flight.look_at).min()
    }

    /// Keys whose leases are half over, at most `most`; those of a flight together, so that they wait for one answer.
    pub(crate) fn due(&self, now: MonotonicTime, most: usize) -> Vec<Question> {
        let flights = self.open.iter().filter(|(_, flight)| flight.look_at <= now);
        let of_flight = |(number, flight): (&u64, &Flight)| {
            let (number, until) = (*number, now);
            let waning = |watched: &Watched| !watched.is_lost && half_over(watched) <= until;
            let places = flight.watched.iter().enumerate().filter(|(_, watched)| waning(watched));
            places
                .map(|(place, watched)| Question { flight: number, place, key: watched.key.clone() })
                .collect::<Vec<_>>()
        };
        flights.flat_map(of_flight).take(most).collect()
    }

    /// The master's answer to a question: what is there now, or `None` when the object is not to be read.
    pub(crate) fn answer(&mut self, question: &Question, answer: Option<&Lookup>) {
        let flight = self.open.get_mut(&question.flight);
        let Some(watched) = flight.and_then(|flight| flight.watched.get_mut(question.place)) else { return };
        let is_proof = |now: &&Lookup| {
            // An id that is given out again says nothing once the lease was over.
            let in_time =
                watched.replica.id.is_never_reused() || start_of(now.lease_ends, now.lease) < watched.lease_ends;
            in_time && is_still_there(&watched.replica, watched.checksum, now)
        };
        match answer.filter(is_proof) {
            Some(now) => (watched.lease_ends, watched.lease) = (now.lease_ends, now.lease),
            None => watched.is_lost = true,
        }
    }

    /// After all answers to what was [due](Self::due), or none: when to look again.
    pub(crate) fn rest(&mut self, now: MonotonicTime) {
        for flight in self.open.values_mut().filter(|flight| flight.look_at <= now) {
            flight.look_at = first_look(&flight.watched, now);
        }
    }
}

fn start_of(ends: MonotonicTime, lease: Duration) -> MonotonicTime {
    let zero = MonotonicTime(0);
    zero + ends.since(zero + lease)
}

fn half_over(watched: &Watched) -> MonotonicTime {
    start_of(watched.lease_ends, watched.lease / 2)
}

/// When the first lease of a flight is half over; a lease that is so already was asked about in vain.
fn first_look(watched: &[Watched], now: MonotonicTime) -> MonotonicTime {
    let look = |watched: &Watched| match half_over(watched) {
        at if at > now => at,
        _ => now + (watched.lease / AGAIN).max(SHORTEST_PAUSE),
    };
    let far = now + Duration::from_secs(3600);
    watched.iter().filter(|watched| !watched.is_lost).map(look).min().unwrap_or(far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::{BufferDescriptor, MemoryDescriptor, ReplicaId, ReplicaKind, ReplicaStatus};

    fn replica(id: u64, address: u64) -> ReplicaDescriptor {
        let buffer = BufferDescriptor { size: 8, buffer_address: address, ..BufferDescriptor::default() };
        let kind = ReplicaKind::Memory(MemoryDescriptor { buffer });
        ReplicaDescriptor { id: ReplicaId(ReplicaId::NEVER_REUSED + id), kind, status: ReplicaStatus::COMPLETE }
    }

    fn watched(index: usize, lease_ends: MonotonicTime) -> Watched {
        let lease = Duration::from_millis(2000);
        let replica = replica(7, 4096);
        Watched { index, key: vec![index as u8], replica, checksum: None, lease_ends, lease, is_lost: false }
    }

    fn lookup(replica: ReplicaDescriptor, lease_ends: MonotonicTime) -> Lookup {
        Lookup { replicas: vec![replica], lease_ends, lease: Duration::from_millis(2000), checksum: None }
    }

    #[test]
    fn a_lease_is_renewed_at_its_half_for_as_long_as_the_read_lasts() {
        let at = MonotonicTime::from_millis;
        let mut flights = Flights::default();
        assert_eq!(flights.next_look(), None);
        let flight = flights.begin(vec![watched(0, at(2000)), watched(1, at(2600))], at(0));
        assert_eq!((flights.next_look(), flights.due(at(999), 10)), (Some(at(1000)), vec![]));
        let due = flights.due(at(1000), 10);
        assert_eq!(due.iter().map(|question| question.key.as_slice()).collect::<Vec<_>>(), [[0]]);
        flights.answer(&due[0], Some(&lookup(replica(7, 4096), at(3000))));
        flights.rest(at(1001));
        assert_eq!(flights.next_look(), Some(at(1600)));
        // Nobody answers: asked again, and again.
        let due = flights.due(at(1600), 10);
        assert_eq!((due.len(), due[0].key[0]), (1, 1));
        flights.rest(at(1700));
        assert_eq!(flights.next_look(), Some(at(1950)));
        let due = flights.due(at(2100), 10);
        assert_eq!(due.len(), 2);
        for question in &due {
            flights.answer(question, Some(&lookup(replica(7, 4096), at(4100))));
        }
        flights.rest(at(2101));
        let end = flights.end(flight);
        assert!(end.iter().all(|watched| watched.lease_ends == at(4100) && !watched.is_lost));
        assert_eq!((flights.next_look(), flights.end(flight).len()), (None, 0));
    }

    #[test]
    fn another_object_another_place_or_none_is_a_loss() {
        let at = MonotonicTime::from_millis;
        let answers = [
            None,
            Some(lookup(replica(8, 4096), at(9000))),
            Some(lookup(replica(7, 8192), at(9000))),
            Some(Lookup { checksum: Some(1), ..lookup(replica(7, 4096), at(9000)) }),
            Some(Lookup { replicas: vec![], ..lookup(replica(7, 4096), at(9000)) }),
        ];
        for answer in answers {
            let mut flights = Flights::default();
            let flight = flights.begin(vec![watched(0, at(2000))], at(0));
            let due = flights.due(at(1000), 10);
            flights.answer(&due[0], answer.as_ref());
            flights.rest(at(1000));
            assert!(
                flights.due(at(1900), 10).is_empty() && flights.next_look() > Some(at(100_000)),
                "asked for nothing"
            );
            assert!(flights.end(flight)[0].is_lost, "{answer:?}");
        }
    }

    #[test]
    fn an_id_that_may_be_of_other_bytes_proves_nothing_after_the_lease() {
        let at = MonotonicTime::from_millis;
        let reused = ReplicaDescriptor { id: ReplicaId(7), ..replica(7, 4096) };
        for (asked, lost) in [(1900, false), (2000, true)] {
            let mut flights = Flights::default();
            let flight = flights.begin(vec![Watched { replica: reused.clone(), ..watched(0, at(2000)) }], at(0));
            let due = flights.due(at(asked), 10);
            flights.answer(&due[0], Some(&lookup(reused.clone(), at(asked + 2000))));
            assert_eq!(flights.end(flight)[0].is_lost, lost, "{asked}");
        }
    }

    #[test]
    fn an_answer_that_comes_after_the_end_is_dropped() {
        let at = MonotonicTime::from_millis;
        let mut flights = Flights::default();
        let first = flights.begin(vec![watched(0, at(2000))], at(0));
        let due = flights.due(at(1000), 10);
        flights.end(first);
        let second = flights.begin(vec![watched(0, at(2000))], at(1000));
        flights.answer(&due[0], None);
        assert!(!flights.end(second)[0].is_lost);
    }
}
