//! Which nodes a client cannot reach though the pool can: nothing of that client is placed there while there is room elsewhere.
//!
//! **Problem.** A route is gone between one client and one node. The node pings and answers the master, so it keeps its
//! place in the pool, and every write of that client that is placed there fails.
//!
//! **Rule.** The client says so ([`Catalog::note_cut`]), and its word counts for its own writes only. They go elsewhere for
//! [`FIRST`], in case it was a moment's trouble, and for [`AGAIN`] when it says so again. Fewer replicas that can be written are
//! better than a write that fails; where nothing else has room, the place is what it would have been.
//!
//! **Bounds.** [`NODES_MAX`] nodes of a client, [`CUTS_MAX`] in all, each forgotten after [`KEPT`]. A node that starts again is
//! another client, so nothing is held against it. While no cut is known, a write reads one word.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::{ClientId, MonotonicTime};

use crate::catalog::Catalog;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How long the first word counts: longer than clients of ours wait with the next one.
const FIRST: Duration = Duration::from_secs(3);
/// How long the next ones do.
const AGAIN: Duration = Duration::from_secs(10);
/// A word that comes so long after the last one is a first one.
const KEPT: Duration = Duration::from_secs(20);
/// Nodes that are remembered for one client.
const NODES_MAX: usize = 64;
/// Cuts that are remembered in all.
const CUTS_MAX: usize = 4096;

/// A client and a node that it does not reach.
#[derive(Clone, Copy, Debug)]
struct Cut {
    node: ClientId,
    told: MonotonicTime,
    /// Whether it was told before.
    again: bool,
}

impl Cut {
    fn counts(&self, now: MonotonicTime) -> bool {
        now.since(self.told) < if self.again { AGAIN } else { FIRST }
    }

    fn is_kept(&self, now: MonotonicTime) -> bool {
        now.since(self.told) < KEPT
    }
}

/// All that are known.
#[derive(Default)]
pub(crate) struct Cuts {
    /// How many, so that the usual case (none) takes no lock.
    count: AtomicU64,
    by_client: Mutex<BTreeMap<ClientId, Vec<Cut>>>,
}

impl Cuts {
    /// Remembers one. Answers whether it is news.
    fn note(&self, client: ClientId, node: ClientId, now: MonotonicTime) -> bool {
        let mut all = self.by_client.lock();
        let old = all.get_mut(&client).and_then(|cuts| cuts.iter_mut().find(|cut| cut.node == node));
        if let Some(cut) = old.filter(|cut| cut.is_kept(now)) {
            *cut = Cut { node, told: now, again: true };
            return false;
        }
        forget(&mut all, now);
        let known: usize = all.values().map(Vec::len).sum();
        let is_room = known < CUTS_MAX && all.get(&client).is_none_or(|cuts| cuts.len() < NODES_MAX);
        if is_room {
            all.entry(client).or_default().push(Cut { node, told: now, again: false });
        }
        self.count.store((known + usize::from(is_room)) as u64, Ordering::Relaxed);
        is_room
    }

    /// The nodes that nothing of the client is to go to now.
    #[inline]
    pub fn of(&self, client: ClientId, now: MonotonicTime) -> Box<[ClientId]> {
        if self.count.load(Ordering::Relaxed) == 0 { Box::default() } else { self.look(client, now) }
    }

    #[cold]
    fn look(&self, client: ClientId, now: MonotonicTime) -> Box<[ClientId]> {
        let all = self.by_client.lock();
        let cuts = all.get(&client).map_or(&[][..], Vec::as_slice);
        cuts.iter().filter(|cut| cut.counts(now)).map(|cut| cut.node).collect()
    }

    /// Forgets old ones, so that writes look for none any more.
    pub fn sweep(&self, now: MonotonicTime) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut all = self.by_client.lock();
            forget(&mut all, now);
            self.count.store(all.values().map(Vec::len).sum::<usize>() as u64, Ordering::Relaxed);
        }
    }
}

fn forget(all: &mut BTreeMap<ClientId, Vec<Cut>>, now: MonotonicTime) {
    all.retain(|_, cuts| {
        cuts.retain(|cut| cut.is_kept(now));
        !cuts.is_empty()
    });
}

impl Catalog {
    /// A client says that it cannot reach a node. Its writes go elsewhere for a while, where there is room; nothing changes
    /// for others. Answers whether that was news.
    pub fn note_cut(&self, client: ClientId, node: ClientId, now: MonotonicTime) -> bool {
        client != node && self.cuts.note(client, node, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::Uuid;

    const AT: fn(u64) -> MonotonicTime = MonotonicTime::from_millis;

    fn id(number: u64) -> ClientId {
        ClientId(Uuid { first: number, second: 0 })
    }

    #[test]
    fn a_word_counts_for_its_client_and_longer_when_it_is_said_again() {
        let cuts = Cuts::default();
        assert!(cuts.note(id(1), id(9), AT(1000)));
        assert_eq!(*cuts.of(id(1), AT(3999)), [id(9)]);
        assert!(cuts.of(id(2), AT(1000)).is_empty() && cuts.of(id(1), AT(4000)).is_empty());
        assert!(!cuts.note(id(1), id(9), AT(5000)), "that is no news");
        assert_eq!(*cuts.of(id(1), AT(14_999)), [id(9)]);
        assert!(cuts.of(id(1), AT(15_000)).is_empty());
        assert!(cuts.note(id(1), id(9), AT(25_000)), "after a long silence it is");
        assert!(cuts.of(id(1), AT(28_000)).is_empty());
    }

    #[test]
    fn their_number_is_bounded_and_old_ones_go() {
        let cuts = Cuts::default();
        let of_one = (0..2 * NODES_MAX as u64).filter(|node| cuts.note(id(1), id(100 + node), AT(0))).count();
        assert_eq!((of_one, cuts.of(id(1), AT(1)).len()), (NODES_MAX, NODES_MAX));
        let of_all = (2..10_000).filter(|client| cuts.note(id(*client), id(1), AT(1))).count();
        assert_eq!(of_all, CUTS_MAX - NODES_MAX);
        assert!(cuts.note(id(1), id(1), AT(20_000)), "old ones make room");
        cuts.sweep(AT(40_000));
        assert_eq!((cuts.count.load(Ordering::Relaxed), cuts.by_client.lock().len()), (0, 0));
    }
}
