//! Transfers cut into slices and spread over rails.
//!
//! A **rail** is one way to a peer: a pair of network ports, a connection. A **transfer** is a range of bytes; it is cut
//! into **slices** when they are posted, not before, so every slice takes the rail that is best at that moment.
//!
//! Invariants:
//! - the slices of a transfer cover its bytes exactly once, and a slice is posted on at most one rail at a time: it goes
//!   out again only after the driver has said that the old one is over;
//! - a transfer is finished only when none of its slices is posted;
//! - while a rail can take a slice and a transfer may use it, [`RailScheduler::poll`] posts one.

mod choice;
mod cut;
mod health;
mod scheduler;

use std::time::Duration;

use smallvec::SmallVec;
use yb_types::MonotonicTime;

pub use scheduler::RailScheduler;

use crate::TrafficClass;

/// A rail, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RailId(pub u32);

/// A transfer that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(pub u64);

/// A slice that is posted. Fits into a work request's id; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceId(pub u64);

/// What is known of a rail before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailSpec {
    /// Speed of the link.
    pub bytes_per_second: u64,
    /// How far it is from the memory, see [`RailSettings::penalties`]; [`RailSpec::UNREACHABLE`] = it cannot be used.
    pub distance: u8,
    /// Most bytes posted on it at a time.
    pub window_bytes: u64,
    /// Most slices posted on it at a time.
    pub window_slices: u32,
}

impl RailSpec {
    /// A distance that says: not over this rail.
    pub const UNREACHABLE: u8 = u8::MAX;

    /// A rail with the usual window: 16 MiB in at most 128 slices.
    pub fn new(bytes_per_second: u64, distance: u8) -> Self {
        RailSpec { bytes_per_second: bytes_per_second.max(1), distance, window_bytes: 16 << 20, window_slices: 128 }
    }
}

/// A range of bytes to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferSpec {
    /// Bytes.
    pub bytes: u64,
    /// Offsets that no slice may reach over: where the memory of either side changes its region.
    pub borders: SmallVec<[u64; 4]>,
    /// How far each rail is from this transfer's memory, by the rail's number; [`RailSpec::distance`] where it ends.
    pub distances: SmallVec<[u8; 8]>,
    /// Which share of the rails it takes.
    pub class: TrafficClass,
    /// Goes first inside its class when larger.
    pub priority: i8,
    /// When it is given up.
    pub deadline: Option<MonotonicTime>,
}

impl TransferSpec {
    /// A range without borders, with nothing special about it.
    pub fn new(bytes: u64) -> Self {
        TransferSpec { bytes, ..TransferSpec::default() }
    }
}

/// A slice for the driver to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// Name it when it is over.
    pub slice: SliceId,
    /// Whose it is.
    pub transfer: TransferId,
    /// Where to post it.
    pub rail: RailId,
    /// First byte, from the start of the transfer.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// How often it failed before.
    pub attempt: u32,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Post a slice, and say later how it ended with [`RailScheduler::completed`].
    Post(Post),
    /// Make sure that a posted slice ends soon: break the connection, flush the queue. It is over when the driver says
    /// [`Completion::Flushed`], or whatever else became of it, with [`RailScheduler::completed`].
    Recall {
        /// The slice.
        slice: SliceId,
        /// Where it is posted.
        rail: RailId,
    },
    /// Find out whether a rail works, for instance by connecting it, and say so with [`RailEvent::Up`] or
    /// [`RailEvent::Error`].
    Probe(RailId),
    /// A transfer is over: nothing of it is posted.
    Finished(Finished),
}

/// A transfer that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which one.
    pub transfer: TransferId,
    /// How it ended.
    pub end: End,
    /// Bytes that have arrived.
    pub bytes: u64,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every byte has arrived.
    Completed,
    /// It was given up.
    Failed(Failure),
    /// Its deadline passed first.
    TimedOut,
    /// It was cancelled first.
    Cancelled,
}

/// Why a transfer was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer refused a slice: no rail helps.
    Refused,
    /// A slice failed too often, last on this rail.
    TooManyAttempts(RailId),
    /// No rail worked for longer than [`RailSettings::patience`].
    NoRail,
}

/// How a posted slice ended. In every case nothing touches its memory any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Its bytes have arrived.
    Done,
    /// It failed.
    Failed(Fault),
    /// It was flushed, because its rail broke or because it was recalled. Whether its bytes arrived is not known.
    Flushed,
    /// It was given back because another slice was refused and broke the connection, or because the peer made a new
    /// one: not its own fault, nor the rail's. Whether its bytes arrived is not known.
    Returned,
}

/// Whose fault a failed slice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rail's: another may do.
    Rail,
    /// The request's: refused wherever it goes.
    Refused,
}

/// Something happened to a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// The port went down.
    Down,
    /// A probe went well.
    Up,
    /// The port came up: whether bytes pass is to be found out soon.
    PortUp,
    /// The connection broke, or a probe failed.
    Error,
}

/// How far a rail is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailState {
    /// It works.
    Healthy,
    /// A slice failed on it lately; it takes less.
    Suspect,
    /// It takes nothing for a while.
    Paused,
    /// The driver finds out whether it works.
    Probing,
}

/// A rail as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailView {
    /// How far it is trusted.
    pub state: RailState,
    /// Bytes posted on it.
    pub bytes: u64,
    /// Slices posted on it.
    pub slices: u32,
    /// What it moves in a second, measured without the time that slices wait for each other.
    pub bytes_per_second: u64,
}

/// How transfers are cut and rails are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailSettings {
    /// Bytes of a slice.
    pub slice_bytes: u64,
    /// A rest of at most this fraction of a slice joins the slice before it.
    pub rest_divisor: u64,
    /// After so many failures of one slice its transfer is given up.
    pub max_attempts: u32,
    /// How many times longer a byte seems to take over a rail of distance 0, 1, 2 and more.
    pub penalties: [u32; 3],
    /// The same for a suspect rail, on top.
    pub suspect_penalty: u32,
    /// So many failures within [`RailSettings::suspect_window`] pause a rail.
    pub suspect_errors: u32,
    /// For how long a failure is held against a rail.
    pub suspect_window: Duration,
    /// How long a rail is paused first; doubled each time that it does not stay healthy.
    pub backoff_min: Duration,
    /// How long a rail is paused at most.
    pub backoff_max: Duration,
    /// How long a probe may take.
    pub probe_timeout: Duration,
    /// How long a slice may be posted before its rail counts as broken.
    pub slice_timeout: Duration,
    /// How long posted slices of a transfer that was given up may take to end by themselves.
    pub recall_after: Duration,
    /// How long transfers wait for a rail that works.
    pub patience: Duration,
    /// A rail takes no more than it moves in this time, and no more than its window.
    pub horizon: Duration,
    /// The weights of the classes.
    pub class_weights: [u32; TrafficClass::COUNT],
}

impl Default for RailSettings {
    fn default() -> Self {
        RailSettings {
            slice_bytes: 64 << 10,
            rest_divisor: 4,
            max_attempts: 8,
            penalties: [1, 5, 10],
            suspect_penalty: 4,
            suspect_errors: 3,
            suspect_window: Duration::from_secs(5),
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(2),
            slice_timeout: Duration::from_secs(4),
            recall_after: Duration::from_millis(200),
            patience: Duration::from_secs(5),
            horizon: Duration::from_millis(5),
            class_weights: TrafficClass::WEIGHTS,
        }
    }
}
