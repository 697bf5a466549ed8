//! What one segment's node is still to be told.
//!
//! Pure but for its lock, which is taken after that of a shard, and never together with that of the segment's space.

use std::time::Duration;

use yb_alloc::{Extent, NodeId, Restoring};
use yb_types::{ByteLen, Generation, MonotonicTime};

use super::roster::{Passed, Progress};
use super::{Keeper, Logged};
use crate::planted::{Fault, planted};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An object that became readable, by its place: made into a record when the node asks, if it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    /// Shard and slot.
    pub member: u64,
    /// 0: whatever is there.
    pub generation: u64,
}

/// An extent that comes free when its node has struck it out, and its leases have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    pub extent: Extent,
    pub generation: Generation,
    pub until: MonotonicTime,
}

/// What a node is told at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Everything that it has is struck out first.
    pub clear: bool,
    pub strikes: Vec<Strike>,
    pub mentions: Vec<Mention>,
}

/// How far the directory of a segment is known.
#[derive(Debug)]
pub(super) enum Phase {
    /// It was filled by another master, and not read.
    Unread,
    /// What the node has is of no use, and it was told so: it is struck out as a whole when it has said so.
    Clearing,
    /// It is being read. `None` while a page is worked on.
    Reading(Option<Reading>),
    /// What the node has is what it was told from here.
    Live,
}

impl Phase {
    /// Extents that were not taken over while it was read.
    pub fn refused(self) -> Vec<NodeId> {
        match self {
            Phase::Reading(Some(reading)) => reading.refused,
            _ => Vec::new(),
        }
    }
}

/// The state of a segment that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub at: Restoring,
    /// Not taken over: free after the last page.
    pub refused: Vec<NodeId>,
}

#[derive(Debug)]
pub(super) struct State {
    pub phase: Phase,
    /// Who told what the directory was read with, 0: nobody.
    pub read_from: u64,
    /// The node has followed this very master.
    pub is_followed: bool,
    /// Since then the node says that it follows another one.
    pub doubted: Option<MonotonicTime>,
    /// Whom the node named in its first word.
    pub named: Option<u64>,
    /// The node came back, and was told this batch since: whoever has applied it follows this very master again.
    pub recalled: Option<u64>,
    /// The number of the last batch.
    pub batch: u64,
    /// What that batch says, until it is acknowledged.
    pub in_flight: Batch,
    pub strikes: Vec<Strike>,
    pub mentions: Vec<Mention>,
    /// Strikes that were acknowledged.
    pub acknowledged: u64,
    /// So many waited, or had been acknowledged, at a look at which all of before were.
    waited_for: u64,
    /// For so long they are waited for.
    waiting: Duration,
    /// It is behind until so many are acknowledged.
    owes: Option<u64>,
    /// When a node that brings a directory asked for the first time.
    pub asked: Option<MonotonicTime>,
}

impl State {
    /// Strikes have waited for so long since the last look; `is_silent`: their node has not asked for as long as it may.
    fn wait(&mut self, counted: Duration, is_silent: bool) {
        let all = self.acknowledged + (self.in_flight.strikes.len() + self.strikes.len()) as u64;
        if self.acknowledged >= self.waited_for {
            (self.waited_for, self.waiting) = (all, Duration::ZERO);
        } else {
            self.waiting += counted;
        }
        // A node may ask again and again, and never do what it is told.
        if all > self.acknowledged && (is_silent || self.waiting >= PATIENCE) {
            self.owes = Some(all);
        }
        self.owes = self.owes.filter(|owes| self.acknowledged < *owes);
    }
}

/// The side of the master of one segment's directory.
#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    live: AtomicBool,
    /// Bytes that come free when strikes are acknowledged.
    striking: AtomicU64,
    /// When the node was last here.
    heard: AtomicU64,
    /// It is the log of the master that is told, not the node.
    logged: Option<Logged>,
}

/// After this time without a word from the node, nobody counts on what it has to strike out, nor on what it keeps.
const PATIENCE: Duration = Duration::from_secs(1);

impl Feed {
    pub fn new(keeper: Keeper, logged: Option<Logged>) -> Feed {
        let is_live = keeper != Keeper::Filled || planted(Fault::PlaceUnread);
        let state = State {
            phase: if is_live { Phase::Live } else { Phase::Unread },
            read_from: 0,
            is_followed: false,
            doubted: None,
            named: None,
            recalled: None,
            batch: 0,
            in_flight: Batch::default(),
            strikes: Vec::new(),
            mentions: Vec::new(),
            acknowledged: 0,
            waited_for: 0,
            waiting: Duration::ZERO,
            owes: None,
            asked: None,
        };
        Feed {
            state: Mutex::new(state),
            live: AtomicBool::new(is_live),
            striking: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            logged,
        }
    }

    /// What the segment is to the log, if that is what keeps it.
    pub fn logged(&self) -> Option<Logged> {
        self.logged
    }

    pub fn is_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// Whether objects may be placed in the segment.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// From here on objects may be placed in the segment.
    pub(super) fn begin(&self, state: &mut State) {
        state.phase = Phase::Live;
        self.live.store(true, Ordering::Release);
    }

    pub(super) fn state(&self) -> impl std::ops::DerefMut<Target = State> + '_ {
        self.state.lock()
    }

    /// An object became readable here.
    pub fn mention(&self, mention: Mention) {
        self.state.lock().mentions.push(mention);
    }

    /// An extent is to be struck out.
    pub fn strike(&self, strike: Strike) {
        self.striking.fetch_add(strike.extent.len, Ordering::Relaxed);
        self.state.lock().strikes.push(strike);
    }

    /// These were struck out.
    pub(super) fn count_struck(&self, strikes: &[Strike]) {
        let bytes = strikes.iter().map(|strike| strike.extent.len).sum();
        self.striking.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that wait to be struck out.
    pub fn striking(&self) -> ByteLen {
        ByteLen(self.striking.load(Ordering::Relaxed))
    }

    /// The same, if their node is likely to do it soon.
    pub fn coming_free(&self, now: MonotonicTime) -> ByteLen {
        if self.is_silent(now) { ByteLen(0) } else { self.striking() }
    }

    /// Whether something waits to be struck out, and its node is not likely to do it soon.
    pub fn is_stuck(&self, now: MonotonicTime) -> bool {
        self.striking().0 > 0 && self.is_silent(now)
    }

    fn is_silent(&self, now: MonotonicTime) -> bool {
        now.since(MonotonicTime(self.heard.load(Ordering::Relaxed))) > PATIENCE
    }

    pub(super) fn hear(&self, now: MonotonicTime) {
        self.heard.store(now.0, Ordering::Relaxed);
    }

    /// How far its node follows.
    pub(super) fn progress(&self, passed: &Passed) -> Progress {
        let Passed { counted, held_up, now } = *passed;
        let heard = MonotonicTime(self.heard.load(Ordering::Relaxed));
        // From its mount on a node has time to ask.
        let heard = if heard.0 == 0 { now } else { (heard + held_up).min(now) };
        self.heard.fetch_max(heard.0, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.wait(counted, now.since(heard) >= PATIENCE);
        match state.phase {
            Phase::Unread | Phase::Reading(_) => Progress::Unread,
            Phase::Clearing => Progress::Behind,
            Phase::Live if state.in_flight.clear || state.owes.is_some() => Progress::Behind,
            Phase::Live => Progress::Current,
        }
    }
}
