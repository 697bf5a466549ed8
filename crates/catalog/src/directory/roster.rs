//! Whose directories are up to date: what went while a node was away must not come back with it under the next master.
//!
//! The master numbers its rosters and every node keeps the last one that it heard. A master that starts believes a directory if
//! it is in the freshest roster that anybody tells it. Pure but for its lock, the last of all: nothing else is locked under it.

use std::collections::BTreeSet;
use std::time::Duration;

use yb_types::{ClientId, ErrorCode, MonotonicTime, SegmentId};

use crate::catalog::Catalog;
use crate::planted::{Fault, planted};
use crate::segments::Registry;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The segments whose directories were up to date, as a master said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The life of the master that made it.
    pub incarnation: u64,
    /// Larger than those of the masters before it that it knew of.
    pub term: u64,
    /// Which of the rosters of its master; 0: there is none.
    pub number: u64,
    /// In ascending order, each once.
    pub members: Vec<SegmentId>,
}

impl Roster {
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.number != 0
    }

    /// Whether the directory of a segment was up to date.
    pub fn has(&self, segment: SegmentId) -> bool {
        self.members.binary_search(&segment).is_ok()
    }

    fn age(&self) -> (u64, u64) {
        (self.term, self.number)
    }
}

/// How far the directory of a mounted segment follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing has waited in it for long.
    Current,
    /// It is of an earlier master, and not read to its end.
    Unread,
    /// Something went, and its node has not heard of it in time; or what it has is being struck out.
    Behind,
}

/// What a segment that brings a directory of an earlier master is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To ask again.
    Wait,
    Believe,
    Disbelieve,
}

/// A master that starts waits no longer than this for nodes that know more.
const WAIT: Duration = Duration::from_secs(3);
/// Nor less than this if all that it hears names one segment only, which may have been alone long ago. Clients ping every
/// second: whoever else lives is heard of by then.
const LONE_WAIT: Duration = Duration::from_millis(1500);
/// From this age on, a master counts on nobody who has not come: what is written under it may be newer than what he has.
const SETTLED: Duration = Duration::from_secs(5);
/// Between two looks no more than this is counted: the master itself was held up.
const COUNTED: Duration = Duration::from_millis(500);
/// No honest term or number comes near it.
const AGE_MAX: u64 = 1 << 48;

/// The time since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// As much of it as nodes had to ask.
    pub counted: Duration,
    /// For so long the master could not have heard anybody.
    pub held_up: Duration,
    pub now: MonotonicTime,
}

#[derive(Debug, Default)]
struct State {
    own: Roster,
    /// Of earlier masters.
    freshest: Roster,
    /// It is not decided yet which one is the freshest.
    waits: bool,
    /// Since the master began to answer, as far as it was not held up.
    age: Duration,
    born: Option<MonotonicTime>,
    looked: MonotonicTime,
    /// Segments whose nodes told what they had heard last.
    introduced: BTreeSet<SegmentId>,
    /// The term has grown: the next roster says so, whoever is in it.
    is_raised: bool,
    /// Members of the freshest roster that have not been mounted under this master.
    absent: Vec<SegmentId>,
}

impl State {
    /// Whether nobody is left who may know of a fresher one.
    fn is_complete(&self) -> bool {
        let members = &self.freshest.members;
        let is_long_enough = members.len() > 1 || self.age >= LONE_WAIT;
        self.freshest.is_some() && is_long_enough && members.iter().all(|id| self.introduced.contains(id))
    }

    fn decide(&mut self) {
        self.waits = false;
        self.own.term = self.freshest.term + 1;
        self.absent = self.freshest.members.clone();
    }

    fn hear(&mut self, told: Roster) {
        if told.age() <= self.freshest.age() || told.incarnation == self.own.incarnation {
            return;
        }
        if !self.waits && told.term >= self.own.term {
            // Its own are the freshest from the next one on.
            (self.own.term, self.is_raised) = (told.term + 1, true);
        }
        self.freshest = told;
    }
}

/// The master's roster, and what it heard of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    /// Of the present roster, 0: it is not decided yet.
    number: AtomicU64,
    state: Mutex<State>,
}

impl Roll {
    /// What the log of the master says.
    fn expect(&self, roster: Roster) {
        let mut state = self.state.lock();
        state.freshest = roster;
        if state.waits {
            state.decide();
        }
    }

    /// Clients are answered from now on.
    pub fn begin(&self, incarnation: u64, now: MonotonicTime) {
        let mut state = self.state.lock();
        (state.own.incarnation, state.looked, state.waits) = (incarnation, now, true);
        state.born = Some(now);
        if state.freshest.is_some() {
            state.decide();
        }
    }

    /// When clients were answered first, at the latest now.
    pub(super) fn born_by(&self, now: MonotonicTime) -> MonotonicTime {
        self.state.lock().born.unwrap_or(now).min(now)
    }

    /// The number that goes with what nodes are told.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// What becomes of a directory of an earlier master. `is_late`: its node has had the time to tell what it heard.
    pub(super) fn verdict(&self, segment: SegmentId, is_late: bool) -> Verdict {
        let state = self.state.lock();
        match () {
            () if planted(Fault::IgnoreRoster) => Verdict::Believe,
            () if state.waits || !(is_late || state.introduced.contains(&segment)) => Verdict::Wait,
            () if !state.freshest.is_some() || state.freshest.has(segment) => Verdict::Believe,
            () => Verdict::Disbelieve,
        }
    }

    /// A node tells the last roster that it heard.
    fn introduce(&self, segment: SegmentId, told: Roster) {
        let mut state = self.state.lock();
        state.introduced.insert(segment);
        if told.is_some() && told.term < AGE_MAX && told.number < AGE_MAX {
            state.hear(told);
        }
    }

    /// Time goes on. Answers how much of it counts, and for how long the master was held up.
    fn pass(&self, now: MonotonicTime) -> Passed {
        let mut state = self.state.lock();
        let passed = now.since(state.looked);
        state.looked = state.looked.max(now);
        state.age += passed.min(COUNTED);
        Passed { counted: passed.min(COUNTED), held_up: passed.saturating_sub(COUNTED), now }
    }

    /// Looks at all segments whose nodes keep directories, in order of id. `takes_over`: what comes now may still be.
    fn look(&self, mounted: &[(SegmentId, Progress)], takes_over: bool) {
        let mut state = self.state.lock();
        if state.waits && (state.age >= WAIT || state.is_complete()) {
            state.decide();
        }
        if state.waits || state.own.term == 0 {
            return;
        }
        let place = |id: &SegmentId| mounted.binary_search_by_key(id, |(id, _)| *id);
        state.absent.retain(|id| place(id).is_err());
        if state.introduced.len() > mounted.len() {
            state.introduced.retain(|id| place(id).is_ok());
        }
        let counts_on_absent = takes_over && state.age < SETTLED;
        if !counts_on_absent {
            state.absent.clear();
        }
        let is_member = |(id, progress): &&(SegmentId, Progress)| match progress {
            Progress::Current => true,
            Progress::Unread => counts_on_absent && (!state.freshest.is_some() || state.freshest.has(*id)),
            Progress::Behind => false,
        };
        let mut members: Vec<SegmentId> = mounted.iter().filter(is_member).map(|(id, _)| *id).collect();
        members.extend(&state.absent);
        members.sort_unstable();
        if std::mem::take(&mut state.is_raised) || state.own.number == 0 || state.own.members != members {
            state.own.members = members;
            state.own.number += 1;
            self.number.store(state.own.number, Ordering::Release);
        }
    }

    fn own(&self) -> Roster {
        self.state.lock().own.clone()
    }
}

impl Catalog {
    /// The freshest roster that the log of the master knows. To be called before anybody is answered.
    pub fn expect_roster(&self, roster: Roster) {
        self.roll.expect(roster);
    }

    /// Sees whose directories are up to date; to be called about four times a second. When the calls themselves are late, the
    /// time of the delay counts against nobody.
    pub fn call_roll(&self, now: MonotonicTime) {
        self.look_at_roll(&mut self.segments.registry(), now);
    }

    /// The same, while the registry is locked.
    pub(crate) fn look_at_roll(&self, registry: &mut Registry, now: MonotonicTime) {
        let passed = self.roll.pass(now);
        if !self.segments.is_any_fed() {
            return;
        }
        let progress = registry.iter().filter_map(|segment| {
            let feed = segment.feed().filter(|feed| !feed.is_logged())?;
            Some((segment.info().id, feed.progress(&passed)))
        });
        let mounted: Vec<_> = progress.collect();
        self.roll.look(&mounted, self.relearning.look(now));
    }

    /// A node tells the last roster that it heard, and gets the present one; of number 0 while there is none.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND` when the segment is not mounted by this client; `UNAVAILABLE_IN_CURRENT_STATUS` when its node keeps
    /// no directory.
    pub fn introduce(
        &self,
        (client, segment): (ClientId, SegmentId),
        mut told: Roster,
        now: MonotonicTime,
    ) -> Result<Roster, ErrorCode> {
        let mounted = self.kept_segment(client, segment)?;
        mounted.feed().filter(|feed| !feed.is_logged()).ok_or(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)?;
        if told.members.len() > self.settings.segments_max {
            told = Roster::default();
        }
        told.members.sort_unstable();
        told.members.dedup();
        self.roll.introduce(segment, told);
        self.call_roll(now);
        Ok(self.roll.own())
    }

    /// The number of the present roster: it changes whenever the roster does. 0: there is none yet.
    pub fn roster_number(&self) -> u64 {
        self.roll.number()
    }

    /// The present roster; of number 0 while there is none.
    pub fn roster(&self) -> Roster {
        self.roll.own()
    }
}
