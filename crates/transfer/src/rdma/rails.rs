//! The rails to one peer: what the scheduler says about them, done with endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use yb_sched::TrafficClass;
use yb_sched::rails::{
    Completion as SliceEnd, Effect, End, Failure as WhyNot, Fault, Finished, Post, RailEvent, RailId, RailScheduler,
    RailSettings, RailSpec, RailState, SliceId, TransferSpec,
};
use yb_types::MonotonicTime;
use yb_verbs::{WorkKind, WorkStatus};

use super::connectors::Connectors;
use super::endpoint::{Cause, Ended, Ending, Work, WorkBytes};
use super::hub::Hub;
use super::memory::Keys;
use super::peer::Route;
use super::settings::RdmaSettings;
use super::stats::RailStats;
use super::ticket::{Failure, Ticket};
use crate::TransferErrorKind;

/// Names the rails to a peer for as long as the driver knows it.
pub(crate) type RouteKey = u64;

/// Speed of a port that does not tell it.
const UNKNOWN_SPEED: u64 = 1_000_000_000;

/// What a work request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceRef {
    /// A part of a move.
    Slice { route: RouteKey, rail: usize, transfer: u64, slice: SliceId, len: u64 },
    /// A look whether the rail works: a write of no bytes.
    Probe { route: RouteKey, rail: usize },
}

impl SliceRef {
    pub(crate) fn route(&self) -> RouteKey {
        match self {
            SliceRef::Slice { route, .. } | SliceRef::Probe { route, .. } => *route,
        }
    }
}

/// A part of a job, with memory of one piece on each side.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) ticket: Arc<Ticket>,
    /// The job's place in its call.
    pub(crate) job: usize,
    pub(crate) route: Arc<Route>,
    pub(crate) kind: WorkKind,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) len: u64,
    /// By our device; empty for inline bytes.
    pub(crate) lkeys: Arc<Keys>,
    /// By the peer's device.
    pub(crate) rkeys: Arc<Keys>,
    /// Bytes small enough to be sent inside of the work request.
    pub(crate) inline: Option<Arc<[u8]>>,
    /// Where our side's memory is.
    pub(crate) location: String,
    /// Where the peer's is.
    pub(crate) remote_location: String,
    /// The device of ours that the caller would like.
    pub(crate) hint: Option<usize>,
    pub(crate) class: TrafficClass,
    pub(crate) priority: i8,
    /// The last thing that went wrong.
    pub(crate) failure: Option<(TransferErrorKind, String)>,
    /// Why its caller does not wait any longer.
    pub(crate) given_up: Option<TransferErrorKind>,
}

#[derive(Debug)]
struct Rail {
    nic: usize,
    device: usize,
    peer_path: Arc<str>,
    /// Work that waits for the endpoint, or for room in it.
    parked: VecDeque<Work<SliceRef>>,
    connecting: bool,
    was_connected: bool,
    probing: bool,
    /// Its place in the list of counters.
    stats: usize,
}

/// The rails to one peer.
#[derive(Debug)]
pub(crate) struct Rails {
    key: RouteKey,
    pub(crate) route: Arc<Route>,
    scheduler: RailScheduler,
    rails: Vec<Rail>,
    moves: BTreeMap<u64, Move>,
    pub(crate) idle_since: MonotonicTime,
}

fn scheduler_settings(settings: &RdmaSettings) -> RailSettings {
    let defaults = RailSettings::default();
    RailSettings {
        slice_bytes: settings.slice,
        rest_divisor: settings.fragment_ratio,
        max_attempts: settings.retries,
        backoff_max: settings.rail_pause,
        // A device answers for itself when packets are lost; the scheduler steps in only when it does not.
        slice_timeout: settings.slice_timeout,
        probe_timeout: settings.slice_timeout,
        horizon: settings.horizon,
        patience: settings.patience,
        ..defaults
    }
}

impl Rails {
    pub(crate) fn new(key: RouteKey, route: Arc<Route>, hub: &Hub, now: MonotonicTime) -> Self {
        let mut scheduler = RailScheduler::new(scheduler_settings(&hub.settings));
        let mut rails = Vec::new();
        for (nic, local) in hub.nics.list.iter().enumerate() {
            let Ok(open) = &local.open else { continue };
            for (device, remote) in route.devices.iter().enumerate().filter(|(_, device)| device.works()) {
                let peer_path: Arc<str> = format!("{}@{}", route.server, remote.name).into();
                let speed = u64::from(open.port.read().gbps()) * 125_000_000;
                let mut spec = RailSpec::new(if speed > 0 { speed } else { UNKNOWN_SPEED }, 0);
                spec.window_slices = (open.sizes.send - 1) * hub.settings.pairs_per_endpoint as u32;
                let id = scheduler.add_rail(now, spec);
                if !open.is_active() {
                    scheduler.rail_event(now, id, RailEvent::Down);
                }
                let stats = register_stats(hub, &local.name, &peer_path, open.is_active());
                let (parked, connecting, was_connected, probing) = (VecDeque::new(), false, false, false);
                rails.push(Rail { nic, device, peer_path, parked, connecting, was_connected, probing, stats });
            }
        }
        Rails { key, route, scheduler, rails, moves: BTreeMap::new(), idle_since: now }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    pub(crate) fn next_timeout(&self) -> Option<MonotonicTime> {
        if self.is_idle() { None } else { self.scheduler.next_timeout() }
    }

    pub(crate) fn submit(&mut self, part: Move, hub: &Hub, now: MonotonicTime) {
        let distances = self.rails.iter().map(|rail| distance(rail, &part, hub, &self.route)).collect();
        let (class, priority) = (part.class, part.priority);
        let spec = TransferSpec { distances, class, priority, ..TransferSpec::new(part.len) };
        let transfer = self.scheduler.submit(now, spec);
        self.moves.insert(transfer.0, part);
    }

    /// Gives up what belongs to the ticket.
    pub(crate) fn give_up(&mut self, ticket: &Arc<Ticket>, kind: TransferErrorKind, now: MonotonicTime) {
        let mut ids = Vec::new();
        for (id, part) in self.moves.iter_mut().filter(|(_, part)| Arc::ptr_eq(&part.ticket, ticket)) {
            part.given_up = Some(kind);
            ids.push(*id);
        }
        for id in ids {
            self.scheduler.cancel(now, yb_sched::rails::TransferId(id));
        }
    }

    /// Does all that the scheduler says now. True when there was something.
    pub(crate) fn pump(&mut self, hub: &Hub, connectors: &Arc<Connectors>, now: MonotonicTime) -> bool {
        let mut busy = false;
        while let Some(effect) = self.scheduler.poll(now) {
            busy = true;
            match effect {
                Effect::Post(post) => self.park(&post),
                Effect::Recall { slice, rail } => self.recall(slice, rail, hub, now),
                Effect::Probe(rail) => {
                    self.probe(rail, now, hub);
                    self.publish_states(hub);
                }
                Effect::Finished(finished) => self.finish(&finished, now),
            }
        }
        for index in 0..self.rails.len() {
            busy |= self.flush(index, hub, connectors, now);
        }
        busy
    }

    fn park(&mut self, post: &Post) {
        let index = post.rail.0 as usize;
        let (Some(rail), Some(part)) = (self.rails.get_mut(index), self.moves.get(&post.transfer.0)) else { return };
        let whole = post.offset == 0 && post.len == part.len;
        let bytes = match part.inline.as_ref().filter(|_| whole) {
            Some(bytes) => WorkBytes::Inline(Arc::clone(bytes)),
            None => WorkBytes::Registered {
                address: part.local + post.offset,
                len: post.len as u32,
                lkey: part.lkeys.get(rail.nic).copied().unwrap_or(0),
            },
        };
        rail.parked.push_back(Work {
            slice: SliceRef::Slice {
                route: self.key,
                rail: index,
                transfer: post.transfer.0,
                slice: post.slice,
                len: post.len,
            },
            kind: part.kind,
            bytes,
            remote: part.remote + post.offset,
            rkey: part.rkeys.get(rail.device).copied().unwrap_or(0),
        });
    }

    fn recall(&mut self, slice: SliceId, rail: RailId, hub: &Hub, now: MonotonicTime) {
        let Some(rail) = self.rails.get_mut(rail.0 as usize) else { return };
        let is_it = |work: &SliceRef| matches!(work, SliceRef::Slice { slice: other, .. } if *other == slice);
        if let Some(at) = rail.parked.iter().position(|work| is_it(&work.slice)) {
            rail.parked.remove(at);
            self.scheduler.completed(now, slice, SliceEnd::Flushed);
            return;
        }
        let mut endpoints = hub.endpoints.lock();
        let current = endpoints.find(rail.nic, &rail.peer_path).map(|(id, _)| id);
        // Work of an endpoint that is taken down already comes back by itself.
        if let Some(id) = current.filter(|id| endpoints.holds(*id, is_it)) {
            endpoints.take_down(id, Cause::Rail, now);
        }
    }

    fn probe(&mut self, rail: RailId, now: MonotonicTime, hub: &Hub) {
        let index = rail.0 as usize;
        let Some(state) = self.rails.get_mut(index) else { return };
        if hub.nics.active(state.nic).is_none() {
            self.scheduler.rail_event(now, rail, RailEvent::Error);
            return;
        }
        if !std::mem::replace(&mut state.probing, true) {
            state.parked.push_front(Work {
                slice: SliceRef::Probe { route: self.key, rail: index },
                kind: WorkKind::Write,
                bytes: WorkBytes::Inline(Arc::from([])),
                remote: 0,
                rkey: 0,
            });
        }
    }

    fn finish(&mut self, finished: &Finished, now: MonotonicTime) {
        let Some(mut part) = self.moves.remove(&finished.transfer.0) else { return };
        if self.moves.is_empty() {
            self.idle_since = now;
        }
        let last = part.failure.take();
        let failure = match finished.end {
            End::Completed => None,
            End::Failed(why) => {
                let words = match why {
                    WhyNot::Refused => "refused",
                    WhyNot::TooManyAttempts(_) => "tried too often",
                    WhyNot::NoRail => "no rail works",
                };
                let (kind, detail) = last.unwrap_or((TransferErrorKind::Unreachable, "no answer".to_owned()));
                Some((kind, format!("{words}: {detail}")))
            }
            End::TimedOut => Some((TransferErrorKind::TimedOut, "the deadline passed".to_owned())),
            End::Cancelled => {
                let last = last.map_or_else(String::new, |(_, detail)| format!("; last: {detail}"));
                let kind = part.given_up.unwrap_or(TransferErrorKind::Cancelled);
                Some((kind, format!("given up while rails were at work{last}")))
            }
        };
        part.ticket.finish(failure.map(|(kind, detail)| Failure { job: part.job, kind, detail }));
    }

    /// Posts what waits on a rail, after connecting it.
    fn flush(&mut self, index: usize, hub: &Hub, connectors: &Arc<Connectors>, now: MonotonicTime) -> bool {
        let Some(rail) = self.rails.get_mut(index) else { return false };
        if rail.parked.is_empty() || rail.connecting {
            return false;
        }
        let mut endpoints = hub.endpoints.lock();
        match endpoints.find(rail.nic, &rail.peer_path).map(|(id, endpoint)| (id, endpoint.is_usable())) {
            Some((id, true)) => {
                let before = rail.parked.len();
                endpoints.post(id, &mut rail.parked, &hub.counters, now);
                rail.parked.len() != before
            }
            // The peer is just connecting to us: its word wakes the driver.
            Some((_, false)) => false,
            None => {
                rail.connecting = true;
                hub.counters.connecting(rail.was_connected);
                connectors.connect(&self.route, rail.nic, rail.device, &rail.peer_path);
                true
            }
        }
    }

    /// A connector is done with a rail.
    pub(crate) fn connected(
        &mut self,
        (nic, peer_path): (usize, &str),
        result: &Result<(), String>,
        now: MonotonicTime,
    ) {
        let found = self.rails.iter_mut().enumerate();
        for (index, rail) in found.filter(|(_, rail)| rail.nic == nic && *rail.peer_path == *peer_path) {
            if !std::mem::replace(&mut rail.connecting, false) {
                continue;
            }
            let Err(reason) = result else {
                rail.was_connected = true;
                continue;
            };
            tracing::info!(peer = peer_path, reason, "a rail cannot be connected");
            rail.probing = false;
            let parked = std::mem::take(&mut rail.parked);
            let slices = parked.iter().filter_map(|work| match work.slice {
                SliceRef::Slice { slice, .. } => Some(slice),
                SliceRef::Probe { .. } => None,
            });
            for slice in slices.collect::<Vec<_>>() {
                self.scheduler.completed(now, slice, SliceEnd::Failed(Fault::Rail));
            }
            for part in self.moves.values_mut() {
                part.failure = Some((TransferErrorKind::Unreachable, reason.clone()));
            }
            self.scheduler.rail_event(now, RailId(index as u32), RailEvent::Error);
        }
    }

    /// A work request is over.
    pub(crate) fn ended(&mut self, ended: &Ended<SliceRef>, hub: &Hub, now: MonotonicTime) {
        let (index, transfer, slice, len) = match ended.slice {
            SliceRef::Probe { rail, .. } => {
                if let Some(state) = self.rails.get_mut(rail) {
                    state.probing = false;
                }
                let event = if ended.ending == Ending::Moved { RailEvent::Up } else { RailEvent::Error };
                self.scheduler.rail_event(now, RailId(rail as u32), event);
                self.publish_states(hub);
                return;
            }
            SliceRef::Slice { rail, transfer, slice, len, .. } => (rail, transfer, slice, len),
        };
        let moved = ended.ending == Ending::Moved;
        if let Some(rail) = self.rails.get(index) {
            hub.counters.rail(rail.stats, |stats| {
                stats.bytes += if moved { len } else { 0 };
                stats.slices += u64::from(moved);
                stats.errors += u64::from(!moved);
            });
        }
        let end = match ended.ending {
            Ending::Moved => SliceEnd::Done,
            Ending::GivenBack => SliceEnd::Flushed,
            Ending::Returned => SliceEnd::Returned,
            Ending::Failed(status) => {
                let (fault, kind) = blame(status);
                self.note(transfer, index, kind, &format!("work request ended with {status:?}"));
                SliceEnd::Failed(fault)
            }
        };
        if !moved {
            hub.counters.retried();
        }
        self.scheduler.completed(now, slice, end);
    }

    /// Remembers what went wrong with a slice of a move.
    fn note(&mut self, transfer: u64, rail: usize, kind: TransferErrorKind, detail: &str) {
        let path = self.rails.get(rail).map_or("", |rail| &*rail.peer_path);
        if let Some(part) = self.moves.get_mut(&transfer) {
            part.failure = Some((kind, format!("{path}: {detail}")));
        }
    }

    /// One of our ports went down or came up.
    pub(crate) fn port(&mut self, nic: usize, up: bool, hub: &Hub, now: MonotonicTime) {
        for (index, rail) in self.rails.iter_mut().enumerate().filter(|(_, rail)| rail.nic == nic) {
            let id = RailId(index as u32);
            if up {
                // Whether packets pass is found out by a probe, not believed.
                self.scheduler.rail_event(now, id, RailEvent::Error);
                continue;
            }
            rail.probing = false;
            for work in std::mem::take(&mut rail.parked) {
                if let SliceRef::Slice { slice, .. } = work.slice {
                    self.scheduler.completed(now, slice, SliceEnd::Flushed);
                }
            }
            self.scheduler.rail_event(now, id, RailEvent::Down);
        }
        self.publish_states(hub);
    }

    /// Brings the counters up to date with the scheduler.
    pub(crate) fn publish_states(&self, hub: &Hub) {
        for (index, rail) in self.rails.iter().enumerate() {
            let state = self.scheduler.rail(RailId(index as u32)).map(|view| view.state);
            let up = matches!(state, Some(RailState::Healthy | RailState::Suspect));
            hub.counters.rail(rail.stats, |stats| stats.up = up);
        }
    }

    /// The engine is closing and every endpoint is destroyed: what is left has failed.
    pub(crate) fn close(&mut self) {
        for part in std::mem::take(&mut self.moves).into_values() {
            let (kind, detail) = (TransferErrorKind::Closed, "the engine was shut down".to_owned());
            part.ticket.finish(Some(Failure { job: part.job, kind, detail }));
        }
    }
}

/// Whose fault a failed work request is, and what the caller is told when it is the last word.
fn blame(status: WorkStatus) -> (Fault, TransferErrorKind) {
    match status {
        // 9 and 10: the peer's device does not know the key, or the range is not inside of its memory.
        WorkStatus::Refused(9 | 10) => (Fault::Refused, TransferErrorKind::RemoteRefused),
        // 1, 4 and 8: our own device says the same of our side.
        WorkStatus::Local(1 | 4 | 8) => (Fault::Refused, TransferErrorKind::LocalNotRegistered),
        WorkStatus::NoAnswer(_) => (Fault::Rail, TransferErrorKind::ConnectionLost),
        _ => (Fault::Rail, TransferErrorKind::ConnectionLost),
    }
}

fn register_stats(hub: &Hub, local: &str, peer: &str, up: bool) -> usize {
    let mut rails = hub.counters.rails.lock();
    if let Some(known) = rails.iter().position(|rail| rail.local == local && rail.peer == peer) {
        return known;
    }
    rails.push(RailStats { local: local.to_owned(), peer: peer.to_owned(), up, ..RailStats::default() });
    rails.len() - 1
}

/// How far a rail is from both ends of a move, or that it cannot carry it.
fn distance(rail: &Rail, part: &Move, hub: &Hub, route: &Route) -> u8 {
    let has_key = |keys: &Keys, at: usize| keys.get(at).is_some_and(|key| *key != 0);
    let (inline, lkey) = (part.inline.is_some(), has_key(&part.lkeys, rail.nic));
    if !has_key(&part.rkeys, rail.device) || !(inline || lkey) {
        return RailSpec::UNREACHABLE;
    }
    let step = |matrix: &yb_topology::Matrix, location: &str, name: &str| {
        let row = matrix.of(location);
        // Without a near device, the others are as good as near ones.
        u8::from(!row.preferred.is_empty() && !row.preferred.iter().any(|near| near == name))
    };
    let ours = hub.nics.list.get(rail.nic).map_or("", |nic| nic.name.as_str());
    let theirs = route.devices.get(rail.device).map_or("", |device| device.name.as_str());
    let near = step(&hub.nics.matrix, &part.location, ours) + step(&route.matrix, &part.remote_location, theirs);
    let unwanted = part.hint.is_some_and(|hint| hint != rail.nic);
    near + 2 * u8::from(unwanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(blame(WorkStatus::Refused(10)), (Fault::Refused, TransferErrorKind::RemoteRefused));
        assert_eq!(blame(WorkStatus::Local(4)), (Fault::Refused, TransferErrorKind::LocalNotRegistered));
        assert_eq!(blame(WorkStatus::Local(2)).0, Fault::Rail);
        assert_eq!(blame(WorkStatus::NoAnswer(12)).0, Fault::Rail);
        assert_eq!(blame(WorkStatus::Device(19)).0, Fault::Rail);
    }
}
