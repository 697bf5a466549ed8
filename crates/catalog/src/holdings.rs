//! What a segment holds, read from the segment itself: its extents name their owners.

use std::sync::Arc;

use yb_types::{MonotonicTime, SegmentStatus};

use crate::catalog::Catalog;
use crate::entry::{Entry, Replica, flag};
use crate::key::Tenant;
use crate::segment::MountedSegment;

/// How an object on a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Readable.
    Ready,
    /// Its write has not ended.
    Unfinished,
    /// Readable, but being copied or moved, or a copy that is being written.
    Busy,
}

/// An object on a segment.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Whose key.
    pub tenant: Tenant,
    /// The key.
    pub key: &'a [u8],
    /// Bytes.
    pub size: u64,
    /// How it stands.
    pub held: Held,
    /// Until when it is leased to readers, or was; of one that nobody read yet, when its write ended.
    pub read_until: MonotonicTime,
    /// Pinned, softly or hard.
    pub pinned: bool,
    /// Another readable replica is on a segment that is in service.
    pub safe: bool,
}

/// Where a walk over the segments of a name goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingsCursor(pub u64);

/// Extents looked at in one step.
const STEP: u32 = 256;

impl Catalog {
    /// Hands out the objects of a small part of those segments of a name that take nothing more. Answers where to go on,
    /// `None` at the end. A walk sees every object that is there all the time.
    pub fn holdings(
        &self,
        name: &str,
        from: HoldingsCursor,
        mut sink: impl FnMut(Holding<'_>),
    ) -> Option<HoldingsCursor> {
        let (member, extent) = ((from.0 >> 32) as usize, from.0 as u32);
        let is_emptied = |segment: &&Arc<MountedSegment>| segment.status() != SegmentStatus::OK;
        let segments: Vec<_> = self.segments.registry().named(name).filter(is_emptied).cloned().collect();
        let segment = segments.get(member)?;
        let mut found = Vec::with_capacity(STEP as usize);
        let next = segment.scan(extent, STEP, &mut found);
        let table = self.segments.load();
        for owned in found {
            let (shard, slot) = ((owned.owner >> 32) as usize, owned.owner as u32);
            let Some(shard) = self.shards.get(shard) else { continue };
            let state = shard.state.read();
            let Some(entry) = state.slab.get(slot) else { continue };
            if let Some(held) = held(entry, segment.index(), owned.extent.offset) {
                let stays = |r: &Replica| table.get(r.segment).is_some_and(|segment| segment.takes_objects());
                let is_other = |r: &&Replica| r.segment != segment.index() && r.is_complete();
                sink(Holding {
                    tenant: entry.tenant,
                    key: entry.key.as_slice(),
                    size: entry.size,
                    held,
                    read_until: if entry.is_finished() { entry.kept_until() } else { MonotonicTime(0) },
                    pinned: entry.has(flag::HARD_PIN) || entry.has(flag::SOFT_PIN),
                    safe: entry.replicas.as_slice().iter().filter(is_other).any(stays),
                });
            }
        }
        match next {
            Some(extent) => Some(HoldingsCursor((member as u64) << 32 | u64::from(extent))),
            None if member + 1 < segments.len() => Some(HoldingsCursor((member as u64 + 1) << 32)),
            None => None,
        }
    }
}

/// The slot may belong to another object by now.
fn held(entry: &Entry, segment: u32, offset: u64) -> Option<Held> {
    let replica = entry.replicas.as_slice().iter().find(|r| (r.segment, r.offset) == (segment, offset))?;
    Some(if !entry.is_finished() {
        Held::Unfinished
    } else if entry.is_referenced() || !replica.is_complete() {
        Held::Busy
    } else {
        Held::Ready
    })
}
