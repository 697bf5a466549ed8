//! Why a write found no room, as far as the master tells.
//!
//! The wire has one number for all of it (-200). A master of ours is asked once for a call that failed so.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::{ByteLen, MonotonicTime};
use yb_wire::messages::RoomReply;

/// What a master said is not asked for again for so long: a writer that meets a full pool again and again must not ask twice as
/// much of the master.
const KEPT: Duration = Duration::from_millis(100);

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
    /// The client has begun and not ended, or given up, so much that it may begin nothing more.
    OwnShare {
        /// Bytes of the object, in all its replicas.
        object: u64,
        /// Bytes that it has begun, those of the same call among them.
        begun: u64,
        /// Bytes of these that it may have.
        limit: u64,
    },
    /// What is free lies in pieces that are too small.
    Pieces {
        /// Bytes of the object.
        object: u64,
        /// Bytes free in the segments that take objects.
        free: u64,
        /// Bytes of the largest piece, at most.
        largest_free: u64,
    },
    /// When the master was asked, nothing was in the way any more.
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

    /// In one word; `None` where the master does not say.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            NoRoom::Untold => None,
            NoRoom::NoSegment => Some("no_segment"),
            NoRoom::LargerThanAnySegment { .. } => Some("too_large"),
            NoRoom::OwnShare { .. } => Some("own_share"),
            NoRoom::Resting => Some("resting"),
            NoRoom::Pieces { .. } => Some("pieces"),
            NoRoom::Denied { .. } => Some("nothing_now"),
            NoRoom::Full { .. } => Some("full"),
        }
    }

    /// Bytes in use and those that may be, of what there is too little.
    pub fn usage(&self) -> Option<(u64, u64)> {
        match self {
            NoRoom::LargerThanAnySegment { object, largest } => Some((*object, *largest)),
            NoRoom::OwnShare { begun, limit, .. } => Some((*begun, *limit)),
            NoRoom::Pieces { object, largest_free, .. } => Some((*object, *largest_free)),
            NoRoom::Full { used, capacity, .. } => Some((*used, *capacity)),
            _ => None,
        }
    }

    /// The first reason that is one when the master is asked, in the order in which it looks itself.
    pub(crate) fn of(wanted: &Wanted, room: &RoomReply) -> Self {
        let Wanted { object, all_copies, beside } = *wanted;
        let RoomReply { largest, used, capacity, largest_free, own_begun, own_limit, .. } = *room;
        let begun = own_begun.saturating_add(beside);
        let free = capacity.saturating_sub(used);
        if begun > 0 && begun.saturating_add(all_copies) > own_limit {
            NoRoom::OwnShare { object: all_copies, begun, limit: own_limit }
        } else if room.segments == 0 {
            NoRoom::NoSegment
        } else if object > largest {
            NoRoom::LargerThanAnySegment { object, largest }
        } else if room.resting {
            NoRoom::Resting
        } else if !has_plenty(object, free, capacity) {
            NoRoom::Full { object, used, capacity }
        } else if object > largest_free {
            NoRoom::Pieces { object, free, largest_free }
        } else {
            NoRoom::Denied { object, free }
        }
    }
}

/// What a write wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Bytes of the object.
    pub(crate) object: u64,
    /// Bytes of all its replicas.
    pub(crate) all_copies: u64,
    /// Bytes that the same call had begun to write, and has ended by now.
    pub(crate) beside: u64,
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
            NoRoom::OwnShare { object, begun, limit } => write!(
                f,
                "this client has {} begun and not ended, or given up, and with {} more it would have more than the {} that one may \
                 have (max_unfinished_per_client); end or revoke what is under way, put less at a time, and try again",
                Bytes(*begun),
                Bytes(*object),
                Bytes(*limit)
            ),
            NoRoom::Pieces { object, free, largest_free } => write!(
                f,
                "the pool is not full ({} are free), but no free piece has {}: the largest has {}; try again later",
                Bytes(*free),
                Bytes(*object),
                Bytes(*largest_free)
            ),
            NoRoom::Denied { object, free } => write!(
                f,
                "the pool had no place for {} of this client, and had one again when it was asked why ({} are free); try again",
                Bytes(*object),
                Bytes(*free)
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

impl RoomKnown {
    /// What is still good.
    pub(crate) fn at(&self, now: MonotonicTime) -> Option<RoomReply> {
        self.0.lock().filter(|(at, _)| now.since(*at) < KEPT).map(|(_, room)| room)
    }

    /// The master said so just now.
    pub(crate) fn keep(&self, now: MonotonicTime, room: RoomReply) {
        *self.0.lock() = Some((now, room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_would_help() {
        let room = RoomReply {
            segments: 2,
            largest: 1 << 20,
            used: 2 << 20,
            capacity: 2 << 20,
            largest_free: 0,
            resting: false,
            own_begun: 0,
            own_limit: 1 << 30,
        };
        let of =
            |object: u64, room: &RoomReply| NoRoom::of(&Wanted { object, all_copies: 2 * object, beside: 0 }, room);
        let too_large = of(2 << 20, &room);
        assert_eq!(too_large, NoRoom::LargerThanAnySegment { object: 2 << 20, largest: 1 << 20 });
        assert!(!too_large.retryable());
        let text = too_large.to_string();
        assert!(text.contains("2097152 bytes (2.00 MiB)") && text.contains("1048576 bytes (1.00 MiB)"), "{text}");
        let full = of(1 << 20, &room);
        assert_eq!(full, NoRoom::Full { object: 1 << 20, used: 2 << 20, capacity: 2 << 20 });
        assert!(full.retryable() && full.to_string().contains("pool is full: 2097152 bytes (2.00 MiB) of"), "{full}");
        let free = RoomReply { used: 3, largest_free: 1 << 12, ..room };
        assert_eq!(of(1 << 10, &free), NoRoom::Denied { object: 1 << 10, free: (2 << 20) - 3 });
        let pieces = of(1 << 13, &free);
        assert_eq!(pieces, NoRoom::Pieces { object: 1 << 13, free: (2 << 20) - 3, largest_free: 1 << 12 });
        let begun = RoomReply { own_begun: 1 << 20, own_limit: (1 << 20) + 100, ..free };
        assert_eq!(of(50, &begun), NoRoom::Denied { object: 50, free: (2 << 20) - 3 });
        let share = of(51, &begun);
        assert_eq!(share, NoRoom::OwnShare { object: 102, begun: 1 << 20, limit: (1 << 20) + 100 });
        let text = share.to_string();
        assert!(share.retryable() && text.contains("max_unfinished_per_client"), "{text}");
        let none = RoomReply { own_begun: 0, ..begun };
        let alone = Wanted { object: 1 << 10, all_copies: 2 << 30, beside: 0 };
        assert_eq!(NoRoom::of(&alone, &none).word(), Some("nothing_now"), "one write is always begun");
        let beside = Wanted { object: 50, all_copies: 100, beside: 1 << 20 };
        assert_eq!(NoRoom::of(&beside, &RoomReply { own_limit: 1 << 20, ..none }).word(), Some("own_share"));
        assert_eq!(of(1, &RoomReply { resting: true, ..room }), NoRoom::Resting);
        assert_eq!(of(1, &RoomReply::default()), NoRoom::NoSegment);
    }
}
