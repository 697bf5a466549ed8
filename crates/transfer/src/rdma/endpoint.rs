//! Endpoints: the queue pairs to one device of one peer, and what is outstanding on them.
//!
//! A work request that was posted comes back exactly once: as moved, as failed, or as given back. Given back means that
//! the queue pair has told of it (or of the last word behind it) or was destroyed, so the device no longer touches its
//! memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use yb_types::MonotonicTime;
use yb_verbs::{Completion, LocalBytes, QueuePair, WorkKind, WorkRequest, WorkStatus};

use super::link::{Link, LinkState};
use super::roster::Roster;
use super::settings::RdmaSettings;
use super::stats::RdmaCounters;

/// Names an endpoint for the life of the engine.
pub(crate) type EndpointId = u64;

/// Longest chain for one doorbell.
const CHAIN: usize = 64;
/// How long a broken queue pair may take to give its work back before it is destroyed.
const DRAIN: Duration = Duration::from_secs(5);

/// Our bytes of a piece of work.
#[derive(Clone, Debug)]
pub(crate) enum WorkBytes {
    Registered { address: u64, len: u32, lkey: u32 },
    Inline(Arc<[u8]>),
}

/// A piece of work for a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Work<S> {
    pub(crate) slice: S,
    pub(crate) kind: WorkKind,
    pub(crate) bytes: WorkBytes,
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
}

/// How a piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Moved,
    /// The device or the peer says why.
    Failed(WorkStatus),
    /// Not done, because the rail broke or because it was recalled.
    GivenBack,
    /// Not done, and neither its own fault nor the rail's.
    Returned,
}

/// A piece of work that ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended<S> {
    pub(crate) slice: S,
    pub(crate) ending: Ending,
}

/// Why an endpoint is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The way to the peer, or one of the devices, failed, or was told to stop.
    Rail,
    /// Something that says nothing about the rail: a refused work request, a new connection.
    Other,
}

impl Cause {
    fn ending(self) -> Ending {
        match self {
            Cause::Rail => Ending::GivenBack,
            Cause::Other => Ending::Returned,
        }
    }
}

#[derive(Debug)]
struct Posted<S> {
    serial: u64,
    /// `None` for the last word.
    slice: Option<S>,
}

#[derive(Debug)]
struct Pair<S> {
    qp: QueuePair,
    posted: VecDeque<Posted<S>>,
    since_signal: u32,
    /// The last word has come back, or there is nothing to wait for.
    drained: bool,
}

#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    pub(crate) nic: usize,
    pub(crate) link: Link,
    pairs: Vec<Pair<S>>,
    /// Set when it is taken down: destroyed then at the latest, and why.
    dying: Option<(MonotonicTime, Cause)>,
    next: usize,
}

impl<S> Endpoint<S> {
    pub(crate) fn is_usable(&self) -> bool {
        self.dying.is_none() && self.link.state == LinkState::Connected
    }

    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter().map(|pair| &pair.qp)
    }

    fn is_quiet(&self) -> bool {
        self.link.state == LinkState::Connected && self.pairs.iter().all(|pair| pair.posted.is_empty())
    }
}

/// The key of the endpoint in use between one of our devices and a peer's.
type Key = (usize, Arc<str>);

/// All endpoints of an engine.
#[derive(Debug)]
pub(crate) struct Endpoints<S> {
    by_id: BTreeMap<EndpointId, Endpoint<S>>,
    by_key: BTreeMap<Key, EndpointId>,
    by_pair: BTreeMap<(usize, u32), (EndpointId, usize)>,
    rosters: Vec<Roster<EndpointId>>,
    /// Work requests outstanding on each device, and how many may be.
    outstanding: Vec<(usize, usize)>,
    signal_interval: u32,
    next_id: EndpointId,
    next_serial: u64,
    /// Work of endpoints that were destroyed.
    given_back: Vec<Ended<S>>,
}

impl<S: Clone> Endpoints<S> {
    /// For devices that may each have so many work requests outstanding.
    pub(crate) fn new(budgets: &[usize], settings: &RdmaSettings) -> Self {
        let roster = |_| Roster::new(settings.eviction, settings.max_endpoints);
        Endpoints {
            by_id: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_pair: BTreeMap::new(),
            rosters: budgets.iter().map(roster).collect(),
            outstanding: budgets.iter().map(|budget| (0, *budget)).collect(),
            signal_interval: settings.signal_interval.max(1),
            next_id: 1,
            next_serial: 1,
            given_back: Vec::new(),
        }
    }

    /// The endpoint in use, whatever its state.
    pub(crate) fn find(&self, nic: usize, peer_path: &str) -> Option<(EndpointId, &Endpoint<S>)> {
        let id = *self.by_key.get(&(nic, Arc::from(peer_path)))?;
        self.by_id.get(&id).map(|endpoint| (id, endpoint))
    }

    pub(crate) fn get(&self, id: EndpointId) -> Option<&Endpoint<S>> {
        self.by_id.get(&id)
    }

    /// The link of an endpoint that is not taken down.
    pub(crate) fn link_mut(&mut self, id: EndpointId) -> Option<&mut Link> {
        self.by_id.get_mut(&id).filter(|endpoint| endpoint.dying.is_none()).map(|endpoint| &mut endpoint.link)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Adds an endpoint in place of the one with its key, after making room for it.
    pub(crate) fn add(&mut self, nic: usize, link: Link, qps: Vec<QueuePair>, now: MonotonicTime) -> EndpointId {
        let key = (nic, Arc::clone(&link.peer_path));
        if let Some(old) = self.by_key.get(&key).copied() {
            self.take_down(old, Cause::Other, now);
        }
        let by_id = &self.by_id;
        let quiet = |id: &EndpointId| by_id.get(id).is_some_and(Endpoint::is_quiet);
        if let Some(victim) = self.rosters.get_mut(nic).and_then(|roster| roster.victim(quiet)) {
            tracing::debug!(victim, "an endpoint makes room for another");
            self.destroy(victim);
        }
        let id = self.next_id;
        self.next_id += 1;
        for (index, qp) in qps.iter().enumerate() {
            self.by_pair.insert((nic, qp.number()), (id, index));
        }
        let pair = |qp| Pair { qp, posted: VecDeque::new(), since_signal: 0, drained: false };
        let pairs = qps.into_iter().map(pair).collect();
        self.by_id.insert(id, Endpoint { nic, link, pairs, dying: None, next: 0 });
        self.by_key.insert(key, id);
        if let Some(roster) = self.rosters.get_mut(nic) {
            roster.add(id);
        }
        id
    }

    /// Posts as much as fits from the front of `work`, in chains of one doorbell each. True when the endpoint broke
    /// meanwhile; what was not posted stays in `work`.
    pub(crate) fn post(
        &mut self,
        id: EndpointId,
        work: &mut VecDeque<Work<S>>,
        counters: &RdmaCounters,
        now: MonotonicTime,
    ) -> bool {
        loop {
            let Some(endpoint) = self.by_id.get_mut(&id).filter(|endpoint| endpoint.is_usable()) else { return true };
            let Some((used, budget)) = self.outstanding.get_mut(endpoint.nic) else { return true };
            if let Some(roster) = self.rosters.get_mut(endpoint.nic) {
                roster.touch(&id);
            }
            let count = endpoint.pairs.len();
            // One place of each queue stays free for the last word.
            let room = |pair: &Pair<S>| (pair.qp.sizes().send as usize - 1).saturating_sub(pair.posted.len());
            let emptiest = (0..count).map(|step| (endpoint.next + step) % count.max(1));
            let Some(at) = emptiest.max_by_key(|at| endpoint.pairs.get(*at).map_or(0, room)) else { return true };
            let Some(pair) = endpoint.pairs.get_mut(at) else { return true };
            let len = work.len().min(room(pair)).min(budget.saturating_sub(*used)).min(CHAIN);
            if len == 0 {
                return false;
            }
            endpoint.next = at + 1;
            let chain: Vec<Work<S>> = work.drain(..len).collect();
            let first = self.next_serial;
            self.next_serial += len as u64;
            let flags = signals(&mut pair.since_signal, len, self.signal_interval);
            let requests: Vec<WorkRequest<'_>> =
                (first..).zip(&chain).zip(flags).map(|((serial, work), flag)| raw(serial, work, flag)).collect();
            let result = pair.qp.post(&requests);
            let posted = result.as_ref().map_or_else(|error| error.posted, |()| len);
            counters.posted(posted as u64);
            *used += posted;
            let mut chain = chain.into_iter();
            for (serial, work) in (first..).zip(chain.by_ref().take(posted)) {
                pair.posted.push_back(Posted { serial, slice: Some(work.slice) });
            }
            if let Err(error) = result {
                tracing::warn!(%error, peer = &*endpoint.link.peer_path, "posting failed");
                for left in chain.rev() {
                    work.push_front(left);
                }
                self.take_down(id, Cause::Rail, now);
                return true;
            }
        }
    }

    /// Notes a completion of a device. Says which endpoint broke, if one did for the first time.
    pub(crate) fn complete(
        &mut self,
        nic: usize,
        completion: &Completion,
        ended: &mut Vec<Ended<S>>,
        now: MonotonicTime,
    ) -> Option<EndpointId> {
        let (id, index) = *self.by_pair.get(&(nic, completion.qp_num))?;
        let endpoint = self.by_id.get_mut(&id)?;
        let pair = endpoint.pairs.get_mut(index)?;
        // A completion of an earlier queue pair with this number covers nothing.
        let covered = pair.posted.binary_search_by_key(&completion.id, |posted| posted.serial).ok()? + 1;
        let done = completion.status == WorkStatus::Done;
        let refused = matches!(completion.status, WorkStatus::Refused(_) | WorkStatus::Local(_));
        let cause = if refused { Cause::Other } else { Cause::Rail };
        for posted in pair.posted.drain(..covered) {
            if let Some((used, _)) = self.outstanding.get_mut(nic) {
                *used -= 1;
            }
            let Some(slice) = posted.slice else {
                pair.drained = true;
                continue;
            };
            let ending = match completion.status {
                WorkStatus::Done => Ending::Moved,
                status if posted.serial == completion.id && status != WorkStatus::Flushed => Ending::Failed(status),
                // Also unsignalled work before a failure: most likely done, but nobody said so.
                _ => endpoint.dying.map_or(cause, |(_, cause)| cause).ending(),
            };
            ended.push(Ended { slice, ending });
        }
        let broke = !done && endpoint.dying.is_none();
        if broke {
            self.take_down(id, cause, now);
        } else if endpoint.dying.is_some() {
            self.bury(id);
        }
        broke.then_some(id)
    }

    /// Stops an endpoint: it takes nothing new, and what is outstanding comes back.
    pub(crate) fn take_down(&mut self, id: EndpointId, cause: Cause, now: MonotonicTime) {
        let Some(endpoint) = self.by_id.get_mut(&id).filter(|endpoint| endpoint.dying.is_none()) else { return };
        endpoint.dying = Some((now + DRAIN, cause));
        let (nic, key) = (endpoint.nic, (endpoint.nic, Arc::clone(&endpoint.link.peer_path)));
        for pair in &mut endpoint.pairs {
            if pair.posted.is_empty() {
                pair.drained = true;
                continue;
            }
            let serial = self.next_serial;
            self.next_serial += 1;
            // The last word stands behind everything else in the queue, so its coming back says that all is over.
            let last = WorkRequest {
                id: serial,
                kind: WorkKind::Write,
                local: LocalBytes::Inline(&[]),
                remote: 0,
                rkey: 0,
                signalled: true,
            };
            let stopped = pair.qp.stop().map_err(|error| error.to_string());
            match stopped.and_then(|()| pair.qp.post(&[last]).map_err(|error| error.to_string())) {
                Ok(()) => {
                    pair.posted.push_back(Posted { serial, slice: None });
                    if let Some((used, _)) = self.outstanding.get_mut(nic) {
                        *used += 1;
                    }
                }
                Err(error) => {
                    tracing::warn!(error, "a queue pair cannot be drained and is destroyed");
                    endpoint.dying = Some((now, cause));
                }
            }
        }
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        if let Some(roster) = self.rosters.get_mut(nic) {
            roster.remove(&id);
        }
        self.bury(id);
    }

    /// Takes down everything on a device.
    pub(crate) fn take_down_all(&mut self, nic: usize, now: MonotonicTime) {
        let on_nic = self.by_id.iter().filter(|(_, endpoint)| endpoint.nic == nic && endpoint.dying.is_none());
        for id in on_nic.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take_down(id, Cause::Rail, now);
        }
    }

    /// Whether such a piece of work is outstanding on the endpoint.
    pub(crate) fn holds(&self, id: EndpointId, is_it: impl Fn(&S) -> bool) -> bool {
        let slices = |pair: &Pair<S>| pair.posted.iter().any(|posted| posted.slice.as_ref().is_some_and(&is_it));
        self.by_id.get(&id).is_some_and(|endpoint| endpoint.pairs.iter().any(slices))
    }

    /// The endpoint that a queue pair belongs to.
    pub(crate) fn of_pair(&self, nic: usize, number: u32) -> Option<EndpointId> {
        self.by_pair.get(&(nic, number)).map(|(id, _)| *id)
    }

    /// Destroys endpoints whose time has come, takes down those whose peer never said that it is ready, and gives back
    /// the work of what was destroyed. Returns when to look again.
    pub(crate) fn sweep(&mut self, ended: &mut Vec<Ended<S>>, now: MonotonicTime) -> Option<MonotonicTime> {
        let unready = |endpoint: &Endpoint<S>| match endpoint.link.state {
            LinkState::WaitingForReady { until } => endpoint.dying.is_none() && until <= now,
            _ => false,
        };
        let late = self.by_id.iter().filter(|(_, endpoint)| unready(endpoint));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            tracing::info!(id, "a peer never said that its queue pairs are ready");
            self.take_down(id, Cause::Rail, now);
        }
        let over = self.by_id.iter().filter(|(_, endpoint)| endpoint.dying.is_some_and(|(by, _)| by <= now));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.destroy(id);
        }
        ended.append(&mut self.given_back);
        let times = self.by_id.values().filter_map(|endpoint| match (endpoint.dying, endpoint.link.state) {
            (Some((by, _)), _) => Some(by),
            (None, LinkState::WaitingForReady { until }) => Some(until),
            _ => None,
        });
        times.min()
    }

    /// Destroys everything and gives its work back.
    pub(crate) fn destroy_all(&mut self, ended: &mut Vec<Ended<S>>) {
        for id in self.by_id.keys().copied().collect::<Vec<_>>() {
            self.destroy(id);
        }
        ended.append(&mut self.given_back);
    }

    /// Forgets an endpoint that was taken down once all of its work is back.
    fn bury(&mut self, id: EndpointId) {
        let over = |endpoint: &Endpoint<S>| endpoint.pairs.iter().all(|pair| pair.drained || pair.posted.is_empty());
        if self.by_id.get(&id).is_some_and(over) {
            self.destroy(id);
        }
    }

    fn destroy(&mut self, id: EndpointId) {
        let Some(endpoint) = self.by_id.remove(&id) else { return };
        let key = (endpoint.nic, Arc::clone(&endpoint.link.peer_path));
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        if let Some(roster) = self.rosters.get_mut(endpoint.nic) {
            roster.remove(&id);
        }
        for pair in endpoint.pairs {
            self.by_pair.remove(&(endpoint.nic, pair.qp.number()));
            // A destroyed queue pair does not touch memory any more.
            drop(pair.qp);
            if let Some((used, _)) = self.outstanding.get_mut(endpoint.nic) {
                *used -= pair.posted.len();
            }
            let back = pair.posted.into_iter().filter_map(|posted| posted.slice);
            let ending = endpoint.dying.map_or(Cause::Rail, |(_, cause)| cause).ending();
            self.given_back.extend(back.map(|slice| Ended { slice, ending }));
        }
    }
}

/// Which of the next `len` work requests of a queue are signalled: one in `interval`, and the last.
fn signals(since: &mut u32, len: usize, interval: u32) -> Vec<bool> {
    (1..=len)
        .map(|place| {
            *since += 1;
            let signal = *since >= interval || place == len;
            if signal {
                *since = 0;
            }
            signal
        })
        .collect()
}

fn raw<S>(serial: u64, work: &Work<S>, signalled: bool) -> WorkRequest<'_> {
    let local = match &work.bytes {
        WorkBytes::Registered { address, len, lkey } => {
            LocalBytes::Registered { address: *address, len: *len, lkey: *lkey }
        }
        WorkBytes::Inline(bytes) => LocalBytes::Inline(bytes),
    };
    WorkRequest { id: serial, kind: work.kind, local, remote: work.remote, rkey: work.rkey, signalled }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_signalled_and_the_last_always() {
        let mut since = 0;
        assert_eq!(signals(&mut since, 5, 2), [false, true, false, true, true]);
        assert_eq!(signals(&mut since, 1, 16), [true]);
        let flags = signals(&mut since, 33, 16);
        let told: Vec<usize> = flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(at, _)| at).collect();
        assert_eq!(told, [15, 31, 32]);
        assert_eq!(signals(&mut since, 3, 1), [true; 3]);
    }
}
