//! The table of segments: read without a lock, changed by copy.
//!
//! Invariants:
//! - a replica holds an index into the table; the index is given to another segment only after every replica with it is
//!   gone, so a table loaded *after* the lock of a replica's shard was taken always resolves it;
//! - a segment that is being unmounted takes no new extents before its sweep begins, so the sweep meets all it held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use yb_types::{ByteLen, ClientId, MonotonicTime, Segment, SegmentId};

use crate::directory::Keepers;
use crate::placement::PlacementView;
use crate::room::RoomIndex;
use crate::segment::{MountedSegment, Reach};
use crate::standing::Standings;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// An immutable state of the table.
#[derive(Default)]
pub(crate) struct SegmentTable {
    by_index: Vec<Option<Arc<MountedSegment>>>,
    pub view: PlacementView,
}

impl SegmentTable {
    pub fn get(&self, index: u32) -> Option<&Arc<MountedSegment>> {
        self.by_index.get(index as usize)?.as_ref()
    }

    /// The segment of an index if it is mounted.
    pub fn live(&self, index: u32) -> Option<&Arc<MountedSegment>> {
        self.get(index).filter(|segment| segment.is_live())
    }

    /// The segment of an index if its replicas are offered to readers.
    pub fn readable(&self, index: u32) -> Option<&Arc<MountedSegment>> {
        self.get(index).filter(|segment| segment.is_readable())
    }

    /// Every segment, those being unmounted too.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<MountedSegment>> {
        self.by_index.iter().flatten()
    }
}

/// What only mounts and unmounts need.
#[derive(Default)]
pub(crate) struct Registry {
    by_id: BTreeMap<SegmentId, Arc<MountedSegment>>,
    /// Indexes of the table that no replica mentions.
    vacant: Vec<u32>,
    lost: Vec<LostRange>,
    keepers: Keepers,
    standings: Standings,
    /// When the master began to answer; leases of its forerunner are older.
    born: Option<MonotonicTime>,
}

/// Memory of a segment that went with its client, whose readers and writers may not know it yet.
struct LostRange {
    endpoint: String,
    base: u64,
    size: u64,
    quiet_until: MonotonicTime,
}

impl Registry {
    pub fn get(&self, id: SegmentId) -> Option<&Arc<MountedSegment>> {
        self.by_id.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<MountedSegment>> {
        self.by_id.values()
    }

    /// The segments of a name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<MountedSegment>> {
        self.by_id.values().filter(move |segment| segment.info().name == name)
    }

    /// Segments whose memory is, by address, the same memory.
    pub fn overlapping(&self, segment: &Segment) -> Vec<Arc<MountedSegment>> {
        let overlaps = |other: &&Arc<MountedSegment>| {
            let info = other.info();
            info.te_endpoint == segment.te_endpoint && ranges_meet(info.base, info.size, segment.base, segment.size)
        };
        self.by_id.values().filter(overlaps).cloned().collect()
    }

    /// Other clients with a segment at the same `host:port`, as data address or as name. Names without a port say nothing.
    pub fn at_the_address_of(&self, segment: &Segment, client: ClientId) -> BTreeSet<ClientId> {
        let same = |a: &str, b: &str| a == b && has_port(a);
        let is_there = |other: &&Arc<MountedSegment>| {
            let info = other.info();
            same(&info.te_endpoint, &segment.te_endpoint) || same(&info.name, &segment.name)
        };
        let others = self.by_id.values().filter(|other| other.owner() != client);
        others.filter(is_there).map(|other| other.owner()).collect()
    }

    /// What a forerunner of this master emptied.
    pub fn standings(&mut self) -> &mut Standings {
        &mut self.standings
    }

    /// The clients that keep directories.
    pub fn keepers(&mut self) -> &mut Keepers {
        &mut self.keepers
    }

    /// From now on clients are answered; nobody gave out leases in this pool's name before and still does.
    pub fn set_born(&mut self, now: MonotonicTime) {
        self.born = Some(now);
    }

    /// The latest time at which somebody else may have given out a lease on memory that this master never had.
    pub fn born_by(&self, now: MonotonicTime) -> MonotonicTime {
        self.born.unwrap_or(now).min(now)
    }

    /// When memory that was lost with a client may be used again.
    pub fn quiet_until(&self, segment: &Segment) -> MonotonicTime {
        let same = |lost: &&LostRange| {
            lost.endpoint == segment.te_endpoint && ranges_meet(lost.base, lost.size, segment.base, segment.size)
        };
        self.lost.iter().filter(same).map(|lost| lost.quiet_until).max().unwrap_or_default()
    }

    pub fn remember_lost(&mut self, segment: &Segment, now: MonotonicTime, quiet_until: MonotonicTime) {
        self.lost.retain(|lost| lost.quiet_until > now);
        let endpoint = segment.te_endpoint.clone();
        self.lost.push(LostRange { endpoint, base: segment.base, size: segment.size, quiet_until });
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
}

pub(crate) fn ranges_meet(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

#[derive(Default)]
pub(crate) struct Segments {
    current: ArcSwap<SegmentTable>,
    registry: Mutex<Registry>,
    capacity: AtomicU64,
    /// Segments that are closed and whose replicas are not all forgotten.
    going: AtomicU64,
    /// 1 once a segment was mounted whose node keeps a directory.
    fed: AtomicU64,
    /// Counts the changes of the table.
    version: AtomicU64,
    room: Arc<RoomIndex>,
}

impl Segments {
    /// Whether a replica may lie in a segment that is gone. When none does, nobody has to look for it.
    pub fn is_any_going(&self) -> bool {
        self.going.load(Ordering::SeqCst) > 0
    }

    /// Whether a node may have to be told of objects.
    #[inline]
    pub fn is_any_fed(&self) -> bool {
        self.fed.load(Ordering::Relaxed) > 0
    }

    /// A segment is about to be mounted, with a feed or without.
    pub fn note_feed(&self, has_feed: bool) {
        if has_feed {
            self.fed.store(1, Ordering::SeqCst);
        }
    }

    /// How often the table was changed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn load(&self) -> Guard<Arc<SegmentTable>> {
        self.current.load()
    }

    pub fn table(&self) -> Arc<SegmentTable> {
        self.current.load_full()
    }

    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }

    /// Bytes of all segments that are mounted.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.capacity.load(Ordering::Relaxed))
    }

    /// Where its segments say whether they have room.
    pub fn room(&self) -> &Arc<RoomIndex> {
        &self.room
    }

    /// Adds a segment; `build` gets the index it will have.
    pub fn add(&self, registry: &mut Registry, build: impl FnOnce(u32) -> MountedSegment) -> Arc<MountedSegment> {
        let mut by_index = self.current.load().by_index.clone();
        let index = registry.vacant.pop().unwrap_or(by_index.len() as u32);
        let segment = Arc::new(build(index));
        if index as usize == by_index.len() {
            by_index.push(None);
        }
        by_index[index as usize] = Some(Arc::clone(&segment));
        registry.by_id.insert(segment.info().id, Arc::clone(&segment));
        self.replace(by_index);
        segment
    }

    /// Closes a segment and takes its id out of use; its index stays until [`forget`](Self::forget). To be followed by
    /// [`refresh`](Self::refresh), once for many.
    pub fn detach(&self, registry: &mut Registry, id: SegmentId) -> Option<Arc<MountedSegment>> {
        let segment = registry.by_id.remove(&id)?;
        self.going.fetch_add(1, Ordering::SeqCst);
        segment.set_reach(Reach::Gone);
        Some(segment)
    }

    /// Gives the index of a detached segment free: no replica mentions it any more.
    pub fn forget(&self, registry: &mut Registry, segment: &MountedSegment) {
        let mut by_index = self.current.load().by_index.clone();
        if let Some(place) = by_index.get_mut(segment.index() as usize) {
            *place = None;
            registry.vacant.push(segment.index());
        }
        self.replace(by_index);
        self.going.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tells placement of segments that went, that take objects now and did not before, or the other way round. Costs a
    /// walk over all segments, so one call is to follow many changes.
    pub fn refresh(&self, _registry: &mut Registry) {
        self.replace(self.current.load().by_index.clone());
    }

    fn replace(&self, by_index: Vec<Option<Arc<MountedSegment>>>) {
        let view = PlacementView::new(by_index.iter().flatten(), &self.room);
        let live = by_index.iter().flatten().filter(|segment| segment.is_live());
        self.capacity.store(live.map(|segment| segment.capacity().0).sum(), Ordering::Relaxed);
        self.current.store(Arc::new(SegmentTable { by_index, view }));
        self.version.fetch_add(1, Ordering::Release);
    }
}
