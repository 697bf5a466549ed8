//! What callers see of an object: borrowed from the catalog while its shard is locked, nothing copied.

use yb_types::{Generation, MonotonicTime, ObjectDataType, ReplicaId, ReplicaStatus};

use crate::entry::{Entry, Replica, flag};
use crate::extras::SoftPin;
use crate::segment::MountedSegment;
use crate::segments::SegmentTable;

/// One object, for the time of a callback.
#[derive(Clone, Copy)]
pub struct ObjectView<'a> {
    entry: &'a Entry,
    table: &'a SegmentTable,
    only_readable: bool,
}

/// One copy of it.
#[derive(Clone, Copy)]
pub struct ReplicaView<'a> {
    /// Its id.
    pub id: ReplicaId,
    /// `PROCESSING` or `COMPLETE`.
    pub status: ReplicaStatus,
    /// Where it lies.
    pub segment: &'a MountedSegment,
    /// Absolute address in the process that owns the segment.
    pub address: u64,
    /// Bytes of the object.
    pub size: u64,
}

impl<'a> ObjectView<'a> {
    /// Shows every replica.
    pub(crate) fn whole(entry: &'a Entry, table: &'a SegmentTable) -> Self {
        ObjectView { entry, table, only_readable: false }
    }

    /// Shows the replicas that can be read; `None` when there is none.
    pub(crate) fn readable(entry: &'a Entry, table: &'a SegmentTable) -> Option<Self> {
        let view = ObjectView { entry, table, only_readable: true };
        (entry.is_finished() && view.replicas().next().is_some()).then_some(view)
    }

    /// The key, without its tenant.
    pub fn key(&self) -> &'a [u8] {
        self.entry.key.as_slice()
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.entry.size
    }

    /// Which write made it.
    pub fn generation(&self) -> Generation {
        self.entry.generation()
    }

    /// CRC-64 that the writer gave, if any.
    pub fn checksum(&self) -> Option<u64> {
        self.entry.checksum()
    }

    /// What the bytes are, as the writer said.
    pub fn data_type(&self) -> ObjectDataType {
        ObjectDataType(self.entry.data_type)
    }

    /// The group that the writer named.
    pub fn group(&self) -> Option<&'a str> {
        self.entry.membership().map(|membership| membership.group.id())
    }

    /// Whether eviction never takes it.
    pub fn is_hard_pinned(&self) -> bool {
        self.entry.has(flag::HARD_PIN)
    }

    /// When its soft pin ends; `None` without one, and before the write has ended.
    pub fn soft_pin_end(&self) -> Option<MonotonicTime> {
        match self.entry.soft_pin() {
            Some(SoftPin::Until(until)) if self.entry.is_finished() => Some(until),
            _ => None,
        }
    }

    /// When the last lease ends; `None` before the put has ended.
    pub fn lease_end(&self) -> Option<MonotonicTime> {
        self.entry.is_finished().then(|| self.entry.lease_end())
    }

    /// Its replicas in storage order. In the answer to a lookup only those that can be read.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaView<'a>> + use<'a> {
        let ObjectView { entry, table, only_readable } = *self;
        let shown = move |replica: &Replica| !only_readable || replica.is_complete();
        entry.replicas.as_slice().iter().filter(move |replica| shown(replica)).filter_map(move |replica| {
            let segment = table.readable(replica.segment)?;
            Some(ReplicaView {
                id: replica.id(),
                status: replica.status(),
                segment,
                address: segment.info().base + replica.offset,
                size: entry.size,
            })
        })
    }
}
