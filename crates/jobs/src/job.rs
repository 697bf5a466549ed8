//! What a drain job sees of the pool.

use yb_types::SegmentStatus;

use crate::JobId;
use crate::drain::DrainRequest;
use crate::queue::TaskId;

/// One object on one segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitName {
    /// Name of the segment.
    pub segment: String,
    /// Whose key.
    pub tenant: String,
    /// The key.
    pub key: Box<[u8]>,
}

/// Why a unit cannot be moved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Its put has not ended. Ends by itself.
    Unfinished,
    /// Another copy, move or write of the object is under way. Ends by itself.
    Busy,
    /// No allowed segment has room, or there is none.
    NoRoom,
    /// Too many tasks wait.
    QueueFull,
}

/// A unit that a scan met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which.
    pub name: UnitName,
    /// Bytes of the object.
    pub size: u64,
    /// What is in the way.
    pub obstacle: Option<Obstacle>,
    /// It was read or written a short time ago, or is pinned.
    pub hot: bool,
    /// Another readable replica is on a segment that stays.
    pub safe: bool,
}

/// Where a scan of a segment goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// A part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// What was met; may be empty although more follows.
    pub units: Vec<Unit>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// The segments of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookout {
    /// How they stand.
    pub status: SegmentStatus,
    /// How many there are.
    pub members: u32,
    /// Whether all that lies in them is known: after a restart of the master some of it may not be told yet.
    pub known: bool,
}

/// What became of the attempt to have a unit moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placing {
    /// A task was given.
    Task(TaskId),
    /// The object has enough replicas elsewhere: the one on the draining segment was dropped.
    Dropped,
    /// It is not there any more.
    Gone,
    /// Not now.
    Blocked(Obstacle),
}

/// The pool as a drain job needs it.
pub trait Grounds {
    /// The mounted segments of a name, `None` when there is none.
    fn look(&mut self, segment: &str) -> Option<Lookout>;
    /// Lets the segments of a name take nothing more, from status `OK`; or gives them back that status, or `DRAINED`.
    fn set_status(&mut self, segment: &str, status: SegmentStatus);
    /// A part of what a segment holds; costs what it looks at.
    fn scan(&mut self, segment: &str, from: Cursor) -> Scan;
    /// Bytes of the largest allowed segment that is in service, full or not; 0 when there is none.
    fn largest_target(&mut self, request: &DrainRequest) -> u64;
    /// Has a unit moved to one of the allowed segments.
    fn send(&mut self, job: JobId, unit: &Unit, request: &DrainRequest) -> Placing;
    /// Takes back a task that nobody has fetched; `false` when somebody has.
    fn withdraw(&mut self, task: TaskId) -> bool;
}
