//! Why a write found no room, as far as the master tells.
//!
//! The wire has one number for all of it (-200). A master of ours is asked once for a call that failed so.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::{ByteLen, MonotonicTime};
use yb_wire::messages::RoomReply;

use crate::CallLimits;
use crate::core::Core;
use crate::deadline::Deadline;

/// What a master said is not asked for again for so long: a writer that meets a full pool again and again must not ask twice as
/// much of the master.
const KEPT: Duration = Duration::from_millis(100);
/// How long it is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why no segment took an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRoom {
    /// The master does not say: it is Mooncake's, or did not answer.
    Untold,
    /// Nobody lends memory that takes new objects.
    NoSegment,
    /// It will never fit: it is larger than every segment. Not worth another try.
    LargerThanAnySegment {
        /// Bytes of the object.
        object: u64,
        /// Bytes of the largest segment.
        largest: u64,
    },
    /// After a restart, memory that somebody may still read takes nothing for the time of one lease.
    Resting,
    /// There is room, and not for this write: its client has as much begun and not ended as one may, or what is free lies in
    /// pieces that are too small.
    Denied {
        /// Bytes of the object.
        object: u64,
        /// Bytes free in the segments that take objects.
        free: u64,
    },
    /// What is stored may not be evicted now, or leaves no free piece that is large enough.
    Full {
        /// Bytes of the object.
        object: u64,
        /// Bytes not free in the segments that take objects.
        used: u64,
        /// Bytes of these segments.
        capacity: u64,
    },
}

impl NoRoom {
    /// Whether the same write may succeed later.
    pub fn retryable(&self) -> bool {
        !matches!(self, NoRoom::LargerThanAnySegment { .. })
    }

    fn of(object: u64, room: &RoomReply) -> Self {
        match room {
            RoomReply { segments: 0, .. } => NoRoom::NoSegment,
            RoomReply { largest, .. } if object > *largest => {
                NoRoom::LargerThanAnySegment { object, largest: *largest }
            }
            RoomReply { resting: true, .. } => NoRoom::Resting,
            RoomReply { used, capacity, .. } if has_plenty(object, capacity.saturating_sub(*used), *capacity) => {
                NoRoom::Denied { object, free: capacity.saturating_sub(*used) }
            }
            RoomReply { used, capacity, .. } => NoRoom::Full { object, used: *used, capacity: *capacity },
        }
    }
}

/// Whether a pool with so much free is not what anybody calls full, for an object of this size.
fn has_plenty(object: u64, free: u64, capacity: u64) -> bool {
    free > capacity / 4 && object <= free / 4
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRoom::Untold => f.write_str(
                "the pool has no room for this object: it is larger than every segment, or nothing may be evicted now; \
                 try again later, with fewer replicas, or lend more memory",
            ),
            NoRoom::NoSegment => {
                f.write_str("no segment of the pool takes objects; start a node, or lend memory, then try again")
            }
            NoRoom::LargerThanAnySegment { object, largest } => write!(
                f,
                "the object is larger than every segment of the pool: {}, the largest segment has {}; it never fits: \
                 store it in several objects, or start nodes with larger segments",
                Bytes(*object),
                Bytes(*largest)
            ),
            NoRoom::Resting => f.write_str(
                "the pool's memory takes no objects yet: somebody may still read what lay there before a restart; \
                 try again when one lease is over",
            ),
            NoRoom::Denied { object, free } => write!(
                f,
                "the pool is not full ({} are free), yet has no place for {} of this client: what the client has begun and \
                 not ended, or given up, is as much as one may have (max_unfinished_per_client), or what is free lies in \
                 smaller pieces; end or revoke what is under way, and try again",
                Bytes(*free),
                Bytes(*object)
            ),
            NoRoom::Full { object, used, capacity } => write!(
                f,
                "the pool is full: {} of {} are in use, and no {} in one piece can be evicted now, because objects are \
                 leased, pinned or in use; try again when leases have ended, with fewer replicas, or lend more memory",
                Bytes(*used),
                Bytes(*capacity),
                Bytes(*object)
            ),
        }
    }
}

/// `209715200 bytes (200.00 MiB)`
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1024 => write!(f, "{} bytes", self.0),
            large => write!(f, "{large} bytes ({})", ByteLen(large)),
        }
    }
}

/// The master's last word.
#[derive(Debug, Default)]
pub(crate) struct RoomKnown(Mutex<Option<(MonotonicTime, RoomReply)>>);

impl Core {
    /// Why an object of this size found no room. Asks the master at most once in [`KEPT`].
    pub(crate) fn why_no_room(&self, object: u64) -> NoRoom {
        let now = self.now();
        let kept = self.room_known.0.lock().filter(|(at, _)| now.since(*at) < KEPT);
        let told = kept.or_else(|| {
            let limits = CallLimits { base: PATIENCE, ..self.config.limits };
            let told = self.link.tell_room(&Deadline::start(&self.clock, &limits, 0))?;
            *self.room_known.0.lock() = Some((now, told));
            Some((now, told))
        });
        told.map_or(NoRoom::Untold, |(_, room)| NoRoom::of(object, &room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_would_help() {
        let room = RoomReply { segments: 2, largest: 1 << 20, used: 2 << 20, capacity: 2 << 20, resting: false };
        let too_large = NoRoom::of(2 << 20, &room);
        assert_eq!(too_large, NoRoom::LargerThanAnySegment { object: 2 << 20, largest: 1 << 20 });
        assert!(!too_large.retryable());
        let text = too_large.to_string();
        assert!(text.contains("2097152 bytes (2.00 MiB)") && text.contains("1048576 bytes (1.00 MiB)"), "{text}");
        let full = NoRoom::of(1 << 20, &room);
        assert_eq!(full, NoRoom::Full { object: 1 << 20, used: 2 << 20, capacity: 2 << 20 });
        assert!(full.retryable() && full.to_string().contains("pool is full: 2097152 bytes (2.00 MiB) of"), "{full}");
        let denied = NoRoom::of(1 << 10, &RoomReply { used: 3, ..room });
        assert_eq!(denied, NoRoom::Denied { object: 1 << 10, free: (2 << 20) - 3 });
        let text = denied.to_string();
        assert!(
            denied.retryable() && !text.contains("pool is full") && text.contains("max_unfinished_per_client"),
            "{text}"
        );
        assert_eq!(NoRoom::of(1, &RoomReply { resting: true, ..room }), NoRoom::Resting);
        assert_eq!(NoRoom::of(1, &RoomReply::default()), NoRoom::NoSegment);
    }
}
