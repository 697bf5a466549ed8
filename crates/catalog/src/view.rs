//! What callers see of an object: borrowed from the catalog while its shard is locked, nothing copied.

use std::num::NonZeroU64;

use yb_types::{ClientId, Generation, MonotonicTime, ObjectDataType, ReplicaId, ReplicaStatus};

use crate::entry::{Entry, Replica, flag};
use crate::extras::SoftPin;
use crate::segment::MountedSegment;
use crate::segments::SegmentTable;
use crate::tiers::Record;

/// One object, for the time of a callback.
#[derive(Clone, Copy)]
pub struct ObjectView<'a> {
    entry: Option<&'a Entry>,
    disk: Option<&'a Record>,
    table: &'a SegmentTable,
    only_readable: bool,
}

/// A copy of it on the disk of a client.
#[derive(Clone, Copy, Debug)]
pub struct DiskView<'a> {
    /// Its id.
    pub id: ReplicaId,
    /// Whose disk.
    pub owner: ClientId,
    /// Where the owner answers readers, `host:port`.
    pub endpoint: &'a str,
    /// Bytes of the object.
    pub size: u64,
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
        ObjectView { entry: Some(entry), disk: None, table, only_readable: false }
    }

    /// Shows the replicas that can be read; `None` when there is none.
    pub(crate) fn readable(entry: &'a Entry, table: &'a SegmentTable) -> Option<Self> {
        let view = ObjectView { entry: Some(entry), disk: None, table, only_readable: true };
        (entry.is_finished() && view.replicas().next().is_some()).then_some(view)
    }

    /// Shows what lies on disks only; `None` when no copy can be read.
    pub(crate) fn on_disk(record: &'a Record, table: &'a SegmentTable) -> Option<Self> {
        let view = ObjectView { entry: None, disk: Some(record), table, only_readable: true };
        record.is_readable().then_some(view)
    }

    /// Shows copies on disks too, if they are of this write.
    pub(crate) fn and_on_disk(self, record: Option<&'a Record>) -> Self {
        let disk = record.filter(|record| record.generation == self.generation().0.get());
        ObjectView { disk, ..self }
    }

    /// Whether it lies on disks only.
    pub fn is_cold(&self) -> bool {
        self.entry.is_none()
    }

    /// The key, without its tenant.
    pub fn key(&self) -> &'a [u8] {
        self.pick(|entry| entry.key.as_slice(), |record| &record.key, &[])
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.pick(|entry| entry.size, |record| record.size, 0)
    }

    /// Which write made it.
    pub fn generation(&self) -> Generation {
        let stored = |record: &Record| Generation(NonZeroU64::new(record.generation).unwrap_or(NonZeroU64::MIN));
        self.pick(Entry::generation, stored, Generation(NonZeroU64::MIN))
    }

    /// CRC-64 that the writer gave, if any.
    pub fn checksum(&self) -> Option<u64> {
        self.pick(Entry::checksum, |record| record.checksum, None)
    }

    /// What the bytes are, as the writer said.
    pub fn data_type(&self) -> ObjectDataType {
        ObjectDataType(self.pick(|entry| entry.data_type, |record| record.data_type, 0))
    }

    /// The group that the writer named.
    pub fn group(&self) -> Option<&'a str> {
        self.entry?.membership().map(|membership| membership.group.id())
    }

    /// Whether eviction never takes it.
    pub fn is_hard_pinned(&self) -> bool {
        self.entry.is_some_and(|entry| entry.has(flag::HARD_PIN))
    }

    /// When its soft pin ends; `None` without one, and before the write has ended.
    pub fn soft_pin_end(&self) -> Option<MonotonicTime> {
        match self.entry?.soft_pin() {
            Some(SoftPin::Until(until)) if self.entry?.is_finished() => Some(until),
            _ => None,
        }
    }

    /// When the last lease ends; `None` before the put has ended.
    pub fn lease_end(&self) -> Option<MonotonicTime> {
        self.pick(|entry| entry.is_finished().then(|| entry.lease_end()), |record| Some(record.lease_end()), None)
    }

    /// Its replicas in storage order. In the answer to a lookup only those that can be read.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaView<'a>> + use<'a> {
        let ObjectView { entry, table, only_readable, .. } = *self;
        let (replicas, size) = entry.map_or((&[][..], 0), |entry| (entry.replicas.as_slice(), entry.size));
        let shown = move |replica: &Replica| !only_readable || replica.is_complete();
        replicas.iter().filter(move |replica| shown(replica)).filter_map(move |replica| {
            let segment = table.readable(replica.segment)?;
            Some(ReplicaView {
                id: replica.id(),
                status: replica.status(),
                segment,
                address: segment.info().base + replica.offset,
                size,
            })
        })
    }

    /// Its copies on disks that can be read, after those in memory.
    pub fn disk_copies(&self) -> impl Iterator<Item = DiskView<'a>> + use<'a> {
        self.disk.into_iter().flat_map(|record| {
            record.readable().map(|copy| DiskView {
                id: copy.id,
                owner: copy.disk.owner,
                endpoint: &copy.endpoint,
                size: record.size,
            })
        })
    }

    fn pick<T>(&self, hot: impl FnOnce(&'a Entry) -> T, cold: impl FnOnce(&'a Record) -> T, none: T) -> T {
        match (self.entry, self.disk) {
            (Some(entry), _) => hot(entry),
            (None, Some(record)) => cold(record),
            (None, None) => none,
        }
    }
}
