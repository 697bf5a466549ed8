//! The scheduler itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use smallvec::SmallVec;
use yb_types::MonotonicTime;

use crate::rails::choice::Tournament;
use crate::rails::cut::Uncut;
use crate::rails::health::Rail;
use crate::rails::{
    Completion, Effect, End, Failure, Fault, Finished, Post, RailEvent, RailId, RailSettings, RailSpec, RailState,
    RailView, SliceId, TransferId, TransferSpec,
};
use crate::slab::Slab;
use crate::{ClassQueue, Item, TrafficClass};

const NEVER: MonotonicTime = MonotonicTime(u64::MAX);

#[derive(Debug)]
struct Transfer {
    uncut: Uncut,
    /// Slices that wait to be posted again, by key; zero = none.
    retry: u64,
    posted: u32,
    bytes: u64,
    done: u64,
    profile: usize,
    class: TrafficClass,
    priority: i8,
    deadline: Option<MonotonicTime>,
    /// How it will end, once nothing of it is posted.
    ending: Option<End>,
    /// Whether it waits for its turn.
    queued: bool,
}

impl Transfer {
    fn has_work(&self) -> bool {
        self.retry != 0 || !self.uncut.is_empty()
    }
}

/// A part of a transfer that was posted at least once.
#[derive(Debug)]
struct Slice {
    transfer: u64,
    rail: usize,
    offset: u64,
    len: u64,
    attempt: u32,
    posted_at: MonotonicTime,
    recalled: bool,
    /// Neighbours among those posted on the rail; `next` also chains those that wait. Zero = none.
    previous: u64,
    next: u64,
}

/// Transfers whose memory is equally far from every rail.
#[derive(Debug)]
struct Profile {
    distances: SmallVec<[u8; 8]>,
    tournament: Tournament,
    /// Transfers whose turn came when no rail took anything.
    parked: Vec<u64>,
    /// Since when no rail works.
    without_rail: Option<MonotonicTime>,
    /// No rail has worked for so long that transfers are given up at once.
    hopeless: bool,
}

/// Something to do at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline,
    Recall,
}

/// Cuts transfers into slices, posts them over the rail that is best for each, and posts again what failed.
///
/// The driver calls [`RailScheduler::poll`] until it gives nothing, does what it says, and tells what happened. Posting a
/// slice takes a time that grows with the logarithm of the number of rails and of waiting transfers, and no memory that
/// was not there before.
#[derive(Debug)]
pub struct RailScheduler {
    settings: RailSettings,
    rails: Vec<Rail>,
    profiles: Vec<Profile>,
    transfers: Slab<Transfer>,
    slices: Slab<Slice>,
    waiting: ClassQueue<u64>,
    timers: BinaryHeap<Reverse<(MonotonicTime, u64, Timer)>>,
    effects: VecDeque<Effect>,
    /// Nothing has to happen by itself before.
    due: MonotonicTime,
}

impl RailScheduler {
    /// A scheduler without rails.
    pub fn new(settings: RailSettings) -> Self {
        RailScheduler {
            settings,
            rails: Vec::new(),
            profiles: Vec::new(),
            transfers: Slab::default(),
            slices: Slab::default(),
            waiting: ClassQueue::new(settings.class_weights),
            timers: BinaryHeap::new(),
            effects: VecDeque::new(),
            due: NEVER,
        }
    }

    /// Adds a rail that works.
    pub fn add_rail(&mut self, now: MonotonicTime, spec: RailSpec) -> RailId {
        self.rails.push(Rail::new(spec, now));
        let rail = self.rails.len() - 1;
        self.refresh(now, rail);
        RailId(rail as u32)
    }

    /// A rail as it is now.
    pub fn rail(&self, rail: RailId) -> Option<RailView> {
        self.rails.get(rail.0 as usize).map(Rail::view)
    }

    /// Transfers that are not over.
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Changes the share that a class of traffic has of the rails.
    pub fn set_class_weight(&mut self, class: TrafficClass, weight: u32) {
        self.waiting.set_weight(class, weight);
    }

    /// Takes a transfer. Its end comes as [`Effect::Finished`].
    pub fn submit(&mut self, now: MonotonicTime, spec: TransferSpec) -> TransferId {
        let TransferSpec { bytes, borders, distances, class, priority, deadline } = spec;
        let transfer = Transfer {
            uncut: Uncut::new(bytes, borders),
            retry: 0,
            posted: 0,
            bytes,
            done: 0,
            profile: self.profile(now, &distances),
            class,
            priority,
            deadline,
            ending: None,
            queued: false,
        };
        let key = self.transfers.insert(transfer);
        let hopeless = self.transfers.get(key).and_then(|transfer| self.profiles.get(transfer.profile));
        if bytes == 0 {
            self.settle(key);
        } else if hopeless.is_some_and(|profile| profile.hopeless) {
            self.end(now, key, End::Failed(Failure::NoRail));
        } else {
            if let Some(deadline) = deadline {
                self.at(deadline, key, Timer::Deadline);
            }
            self.enqueue(key);
        }
        TransferId(key)
    }

    /// Gives a transfer up. It is over when [`Effect::Finished`] says so; bytes that are posted may still arrive.
    /// False when it is over already.
    pub fn cancel(&mut self, now: MonotonicTime, transfer: TransferId) -> bool {
        self.end(now, transfer.0, End::Cancelled)
    }

    /// The driver says that a posted slice is over and how. False when no such slice is posted.
    pub fn completed(&mut self, now: MonotonicTime, slice: SliceId, completion: Completion) -> bool {
        let Some(ended) = self.slices.get(slice.0).filter(|slice| slice.posted_at != NEVER) else { return false };
        let (rail, len, transfer, recalled) = (ended.rail, ended.len, ended.transfer, ended.recalled);
        self.unlink(slice.0);
        if let Some(posted_on) = self.rails.get_mut(rail) {
            posted_on.discharge(len);
            if completion == Completion::Done {
                posted_on.succeeded(now, len);
            }
        }
        if let Some(owner) = self.transfers.get_mut(transfer) {
            owner.posted -= 1;
        }
        let is_rails_fault = match completion {
            Completion::Failed(fault) => fault == Fault::Rail,
            Completion::Flushed => !recalled,
            Completion::Done | Completion::Returned => false,
        };
        if is_rails_fault && self.rails.get_mut(rail).is_some_and(|rail| rail.failed(now, &self.settings)) {
            self.pause(now, rail);
        }
        match completion {
            Completion::Done => {
                self.slices.remove(slice.0);
                if let Some(owner) = self.transfers.get_mut(transfer) {
                    owner.done += len;
                }
                self.settle(transfer);
            }
            Completion::Failed(Fault::Refused) => {
                self.slices.remove(slice.0);
                self.end(now, transfer, End::Failed(Failure::Refused));
                self.settle(transfer);
            }
            Completion::Failed(Fault::Rail) | Completion::Flushed | Completion::Returned => {
                self.retry(now, slice.0, is_rails_fault);
            }
        }
        self.refresh(now, rail);
        true
    }

    /// Something happened to a rail.
    pub fn rail_event(&mut self, now: MonotonicTime, rail: RailId, event: RailEvent) {
        let index = rail.0 as usize;
        let Some(rail) = self.rails.get_mut(index) else { return };
        match (event, rail.state) {
            (RailEvent::Up, RailState::Probing) => rail.heal(now),
            (RailEvent::Up | RailEvent::PortUp, RailState::Paused) => {
                rail.due = rail.due.min(now + self.settings.backoff_min);
                self.due = self.due.min(rail.due);
            }
            (RailEvent::Up | RailEvent::PortUp, RailState::Healthy | RailState::Suspect)
            | (RailEvent::PortUp, RailState::Probing)
            | (RailEvent::Down | RailEvent::Error, RailState::Paused) => return,
            (RailEvent::Down | RailEvent::Error, _) => self.pause(now, index),
        }
        self.refresh(now, index);
    }

    /// When [`RailScheduler::poll`] is to be called at the latest; `None` = not before something is told.
    pub fn next_timeout(&self) -> Option<MonotonicTime> {
        (self.due < NEVER).then_some(self.due)
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self, now: MonotonicTime) -> Option<Effect> {
        if now >= self.due {
            self.fire(now);
        }
        self.effects.pop_front().or_else(|| self.post(now))
    }

    /// Posts the slice whose turn it is.
    fn post(&mut self, now: MonotonicTime) -> Option<Effect> {
        while self.profiles.iter().any(|profile| profile.tournament.best().is_some()) {
            let key = self.waiting.pop()?.value;
            let Some(transfer) = self.transfers.get_mut(key) else { continue };
            transfer.queued = false;
            if transfer.ending.is_some() || !transfer.has_work() {
                continue;
            }
            let retry = transfer.retry;
            let failed_on = self.slices.get(retry).map(|slice| slice.rail);
            let Some(profile) = self.profiles.get_mut(transfer.profile) else { continue };
            let another = failed_on.and_then(|rail| profile.tournament.best_but(rail));
            let Some(rail) = another.or_else(|| profile.tournament.best()) else {
                transfer.queued = true;
                profile.parked.push(key);
                continue;
            };
            let post = self.take_slice(now, key, retry, rail)?;
            self.enqueue(key);
            self.refresh(now, rail);
            return Some(Effect::Post(post));
        }
        None
    }

    /// Takes the slice that waits to be posted again, or cuts a new one, for this rail.
    fn take_slice(&mut self, now: MonotonicTime, key: u64, retry: u64, rail: usize) -> Option<Post> {
        let transfer = self.transfers.get_mut(key)?;
        let slice = match self.slices.get_mut(retry) {
            Some(slice) => {
                transfer.retry = slice.next;
                (slice.rail, slice.posted_at, slice.recalled) = (rail, now, false);
                retry
            }
            None => {
                let (offset, len) = transfer.uncut.take(&self.settings)?;
                let (attempt, recalled, previous, next) = (0, false, 0, 0);
                let posted_at = now;
                let slice = Slice { transfer: key, rail, offset, len, attempt, posted_at, recalled, previous, next };
                self.slices.insert(slice)
            }
        };
        transfer.posted += 1;
        self.link(slice);
        let Slice { offset, len, attempt, .. } = *self.slices.get(slice)?;
        let posted_on = self.rails.get_mut(rail)?;
        posted_on.charge(len);
        self.due = self.due.min(now + self.settings.slice_timeout);
        let rail = RailId(rail as u32);
        Some(Post { slice: SliceId(slice), transfer: TransferId(key), rail, offset, len, attempt })
    }

    /// Appends a slice to those posted on its rail.
    fn link(&mut self, key: u64) {
        let Some(slice) = self.slices.get_mut(key) else { return };
        let Some(rail) = self.rails.get_mut(slice.rail) else { return };
        let last = std::mem::replace(&mut rail.posted.last, key);
        (slice.previous, slice.next) = (last, 0);
        match self.slices.get_mut(last) {
            Some(last) => last.next = key,
            None => rail.posted.first = key,
        }
    }

    /// Takes a slice from those posted on its rail.
    fn unlink(&mut self, key: u64) {
        let Some(slice) = self.slices.get_mut(key) else { return };
        let (rail, previous, next) = (slice.rail, slice.previous, slice.next);
        (slice.previous, slice.next, slice.posted_at) = (0, 0, NEVER);
        let Some(rail) = self.rails.get_mut(rail) else { return };
        match self.slices.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => rail.posted.first = next,
        }
        match self.slices.get_mut(next) {
            Some(next) => next.previous = previous,
            None => rail.posted.last = previous,
        }
    }

    /// A slice is to be posted again, if its transfer still wants it.
    fn retry(&mut self, now: MonotonicTime, key: u64, counts: bool) {
        let Some(slice) = self.slices.get_mut(key) else { return };
        slice.attempt += u32::from(counts);
        let (transfer, attempt, rail) = (slice.transfer, slice.attempt, slice.rail);
        let wanted = self.transfers.get(transfer).is_some_and(|transfer| transfer.ending.is_none());
        if wanted && attempt <= self.settings.max_attempts {
            if let Some(transfer) = self.transfers.get_mut(transfer) {
                slice.next = std::mem::replace(&mut transfer.retry, key);
            }
            return self.enqueue(transfer);
        }
        self.slices.remove(key);
        self.end(now, transfer, End::Failed(Failure::TooManyAttempts(RailId(rail as u32))));
        self.settle(transfer);
    }

    /// Decides how a transfer ends; it does when nothing of it is posted any more.
    fn end(&mut self, now: MonotonicTime, key: u64, end: End) -> bool {
        let Some(transfer) = self.transfers.get_mut(key).filter(|transfer| transfer.ending.is_none()) else {
            return false;
        };
        transfer.ending = Some(end);
        transfer.uncut.drop_rest();
        let mut retry = std::mem::take(&mut transfer.retry);
        let posted = transfer.posted > 0;
        while let Some(slice) = self.slices.remove(retry) {
            retry = slice.next;
        }
        if posted {
            self.at(now + self.settings.recall_after, key, Timer::Recall);
        } else {
            self.settle(key);
        }
        true
    }

    /// Says that a transfer is over, if it is.
    fn settle(&mut self, key: u64) {
        let Some(transfer) = self.transfers.get(key) else { return };
        let all = transfer.done == transfer.bytes;
        let end = if all { Some(End::Completed) } else { transfer.ending };
        let Some(end) = end.filter(|_| transfer.posted == 0) else { return };
        let finished = Finished { transfer: TransferId(key), end, bytes: transfer.done };
        self.effects.push_back(Effect::Finished(finished));
        self.transfers.remove(key);
    }

    /// Gives a transfer with work its place among those that wait.
    fn enqueue(&mut self, key: u64) {
        let Some(transfer) = self.transfers.get_mut(key) else { return };
        if transfer.queued || transfer.ending.is_some() || !transfer.has_work() {
            return;
        }
        transfer.queued = true;
        if self.waiting.len() > 2 * self.transfers.len() + 64 {
            self.waiting.remove_where(|key| self.transfers.get(*key).is_none());
        }
        let Some(transfer) = self.transfers.get(key) else { return };
        let retry = self.slices.get(transfer.retry).map(|slice| slice.len);
        let cost = retry.or(transfer.uncut.peek(&self.settings).map(|(_, len)| len)).unwrap_or(1);
        let Transfer { class, priority, deadline, .. } = *transfer;
        self.waiting.push(Item { class, priority, deadline, cost, value: key });
    }

    /// The profile with these distances, made if there is none.
    fn profile(&mut self, now: MonotonicTime, distances: &SmallVec<[u8; 8]>) -> usize {
        if let Some(found) = self.profiles.iter().position(|profile| profile.distances == *distances) {
            return found;
        }
        let (tournament, parked) = (Tournament::default(), Vec::new());
        self.profiles.push(Profile {
            distances: distances.clone(),
            tournament,
            parked,
            without_rail: None,
            hopeless: false,
        });
        for rail in 0..self.rails.len() {
            self.refresh(now, rail);
        }
        self.look_for_rails(now);
        self.profiles.len() - 1
    }

    /// A rail has changed: its score in every profile follows, and transfers that waited for it get their turn.
    fn refresh(&mut self, now: MonotonicTime, index: usize) {
        let Some(rail) = self.rails.get(index) else { return };
        let usable = rail.is_usable();
        for profile in &mut self.profiles {
            let distance = profile.distances.get(index).copied().unwrap_or(rail.spec.distance);
            profile.tournament.set(index, rail.score(distance, &self.settings));
            if usable && distance != RailSpec::UNREACHABLE {
                (profile.without_rail, profile.hopeless) = (None, false);
            }
            if profile.parked.is_empty() || profile.tournament.best().is_none() {
                continue;
            }
            for key in profile.parked.drain(..) {
                let Some(transfer) = self.transfers.get(key) else { continue };
                let Transfer { class, priority, deadline, .. } = *transfer;
                self.waiting.push(Item { class, priority, deadline, cost: self.settings.slice_bytes, value: key });
            }
        }
        if !usable {
            self.look_for_rails(now);
        }
    }

    /// Notes since when a profile has no rail that works.
    fn look_for_rails(&mut self, now: MonotonicTime) {
        for profile in &mut self.profiles {
            let reaches = |(index, rail): (usize, &Rail)| {
                let distance = profile.distances.get(index).copied().unwrap_or(rail.spec.distance);
                rail.is_usable() && distance != RailSpec::UNREACHABLE
            };
            if self.rails.iter().enumerate().any(reaches) {
                (profile.without_rail, profile.hopeless) = (None, false);
            } else if profile.without_rail.is_none() {
                profile.without_rail = Some(now);
                self.due = self.due.min(now + self.settings.patience);
            }
        }
    }

    /// Takes a rail out of use for a while, and recalls what is posted on it.
    fn pause(&mut self, now: MonotonicTime, index: usize) {
        let Some(rail) = self.rails.get_mut(index) else { return };
        rail.pause(now, &self.settings);
        self.due = self.due.min(rail.due);
        let mut key = rail.posted.first;
        while let Some(slice) = self.slices.get_mut(key) {
            if !std::mem::replace(&mut slice.recalled, true) {
                self.effects.push_back(Effect::Recall { slice: SliceId(key), rail: RailId(index as u32) });
            }
            key = slice.next;
        }
    }

    fn at(&mut self, time: MonotonicTime, transfer: u64, timer: Timer) {
        if self.timers.len() > 2 * self.transfers.len() + 64 {
            self.timers.retain(|Reverse((_, transfer, _))| self.transfers.get(*transfer).is_some());
        }
        self.timers.push(Reverse((time, transfer, timer)));
        self.due = self.due.min(time);
    }

    /// Does what is due, and finds out when the next thing is.
    fn fire(&mut self, now: MonotonicTime) {
        while let Some(Reverse((time, key, timer))) = self.timers.peek().copied() {
            if time > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Deadline => drop(self.end(now, key, End::TimedOut)),
                Timer::Recall => self.recall(key),
            }
        }
        for index in 0..self.rails.len() {
            self.fire_rail(now, index);
        }
        self.give_up_without_rails(now);
        self.due = self.next_due();
    }

    /// Recalls what is posted of a transfer.
    fn recall(&mut self, transfer: u64) {
        for (index, rail) in self.rails.iter().enumerate() {
            let mut key = rail.posted.first;
            while let Some(slice) = self.slices.get_mut(key) {
                if slice.transfer == transfer && !std::mem::replace(&mut slice.recalled, true) {
                    self.effects.push_back(Effect::Recall { slice: SliceId(key), rail: RailId(index as u32) });
                }
                key = slice.next;
            }
        }
    }

    fn fire_rail(&mut self, now: MonotonicTime, index: usize) {
        let Some(rail) = self.rails.get_mut(index) else { return };
        match rail.state {
            RailState::Paused if rail.due <= now => {
                // What was recalled must be over before the rail is used again.
                if rail.is_empty() {
                    rail.probe(now, &self.settings);
                    self.effects.push_back(Effect::Probe(RailId(index as u32)));
                } else {
                    rail.due = now + self.settings.backoff_min;
                }
            }
            RailState::Probing if rail.due <= now => {
                self.pause(now, index);
                self.refresh(now, index);
            }
            RailState::Healthy | RailState::Suspect => {
                let oldest = self.slices.get(rail.posted.first);
                if oldest.is_some_and(|slice| slice.posted_at + self.settings.slice_timeout <= now) {
                    self.pause(now, index);
                    self.refresh(now, index);
                }
            }
            RailState::Paused | RailState::Probing => {}
        }
    }

    fn give_up_without_rails(&mut self, now: MonotonicTime) {
        for profile in 0..self.profiles.len() {
            let since = self.profiles.get(profile).and_then(|profile| profile.without_rail);
            if since.is_none_or(|since| since + self.settings.patience > now) {
                continue;
            }
            for key in self.transfers.keys().collect::<Vec<_>>() {
                if self.transfers.get(key).is_some_and(|transfer| transfer.profile == profile) {
                    self.end(now, key, End::Failed(Failure::NoRail));
                }
            }
            if let Some(profile) = self.profiles.get_mut(profile) {
                profile.hopeless = true;
            }
        }
    }

    fn next_due(&self) -> MonotonicTime {
        let timer = self.timers.peek().map_or(NEVER, |Reverse((time, ..))| *time);
        let rails = self.rails.iter().map(|rail| match rail.state {
            RailState::Paused | RailState::Probing => rail.due,
            RailState::Healthy | RailState::Suspect => {
                let oldest = self.slices.get(rail.posted.first);
                oldest.map_or(NEVER, |slice| slice.posted_at + self.settings.slice_timeout)
            }
        });
        let patience = self
            .profiles
            .iter()
            .filter(|profile| !profile.hopeless)
            .map(|profile| profile.without_rail.map_or(NEVER, |since| since + self.settings.patience));
        rails.chain(patience).fold(timer, MonotonicTime::min)
    }
}
