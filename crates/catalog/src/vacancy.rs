//! What a writer that found no room can be told about it.

use yb_types::{ByteLen, MonotonicTime};

use crate::catalog::Catalog;
use crate::segment::MountedSegment;

/// The segments that take new objects, in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// How many there are.
    pub segments: u64,
    /// The largest of them.
    pub largest: ByteLen,
    /// Bytes not free in all of them.
    pub used: ByteLen,
    /// Bytes of all of them.
    pub capacity: ByteLen,
    /// The largest free piece, as far as is known without asking each of them.
    pub largest_free: ByteLen,
    /// Whether all of them take nothing for a while, since somebody may still read there.
    pub resting: bool,
}

impl Catalog {
    /// What the segments that take new objects hold, for somebody who found no room.
    pub fn vacancy(&self, now: MonotonicTime) -> Vacancy {
        let table = self.segments.load();
        let open: Vec<_> = table.iter().filter(|segment| segment.takes_objects()).collect();
        let sum = |bytes: fn(&MountedSegment) -> ByteLen| {
            open.iter().fold(0u64, |sum, segment| sum.saturating_add(bytes(segment).0))
        };
        Vacancy {
            segments: open.len() as u64,
            largest: open.iter().map(|segment| segment.capacity()).max().unwrap_or_default(),
            used: ByteLen(sum(MountedSegment::used)),
            capacity: ByteLen(sum(MountedSegment::capacity)),
            largest_free: open.iter().map(|segment| segment.about_largest_free()).max().unwrap_or_default(),
            resting: !open.is_empty() && open.iter().all(|segment| segment.is_resting(now)),
        }
    }
}
