//! One mounted segment: its description, its space, its gauges.

use std::sync::Arc;
use std::time::Duration;

use yb_alloc::{AdaptiveAllocator, Cutting, Extent, NodeId, Owned, Restoring};
use yb_types::{ByteLen, ClientId, Generation, MonotonicTime, Segment, SegmentStatus};

use crate::deferred::{Deferred, WITHHELD, Withheld};
use crate::directory::{Feed, Strike};
use crate::planted::{Fault, planted};
use crate::room::{Powers, RoomIndex};
use crate::settings::CatalogSettings;
use crate::shares::Account;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

/// Memory that a client gives to the pool, as the catalog keeps it. Shared by reference; never changes identity.
pub struct MountedSegment {
    info: Segment,
    owner: ClientId,
    index: u32,
    /// Number of a [`Reach`]; changed under the space lock.
    reach: AtomicU8,
    /// Held back only because somebody found it slow.
    is_slow: AtomicBool,
    /// Number of a [`SegmentStatus`] while the segment is mounted; changed under the space lock.
    status: AtomicI32,
    /// Nothing is placed here before this time.
    quiet_until: AtomicU64,
    mounted: MonotonicTime,
    /// Quarters of its share of new objects that it gets by now.
    warmth: AtomicU8,
    /// Bits of the share of its owner's local disk that is free.
    disk_free: AtomicU64,
    room: Arc<RoomIndex>,
    /// What its node is told, if that keeps a directory.
    feed: Option<Box<Feed>>,
    busy: Busy,
}

/// How long a new segment gets less than its share of new objects.
const SLOW_START: Duration = Duration::from_secs(8);
/// Quarters of its share that a segment gets after that.
const WARM: u8 = 4;

/// What every allocation changes, on cache lines of its own: lookups read the rest and shall not wait for these.
#[repr(align(128))]
struct Busy {
    space: Mutex<Space>,
    used: AtomicU64,
    largest_free: AtomicU64,
    withheld: AtomicU64,
    next_due: AtomicU64,
    /// Batches that put their objects here now.
    batches: AtomicU64,
}

/// What may be asked of a segment, as far as its client is heard of. Each allows less than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reach {
    /// Its client pings.
    Online,
    /// Its client has been silent for a while: read on, but place nothing more.
    Suspect,
    /// Its client has been silent for its time to live: not offered to readers. All is kept.
    Offline,
    /// Unmounted: what it held is being forgotten.
    Gone,
}

impl Reach {
    fn from_number(number: u8) -> Reach {
        [Reach::Online, Reach::Suspect, Reach::Offline].into_iter().find(|r| *r as u8 == number).unwrap_or(Reach::Gone)
    }
}

/// Whether a mounted segment may go from one status to the other.
fn may_turn(from: SegmentStatus, to: SegmentStatus) -> bool {
    match to {
        SegmentStatus::OK => from == SegmentStatus::DRAINING || from == SegmentStatus::DRAINED,
        SegmentStatus::DRAINED => from == SegmentStatus::DRAINING,
        SegmentStatus::DRAINING => from == SegmentStatus::OK,
        SegmentStatus::GRACEFULLY_UNMOUNTING => from != SegmentStatus::DRAINED,
        _ => false,
    }
}

struct Space {
    allocator: AdaptiveAllocator,
    deferred: Deferred,
    /// What the index of room was told last.
    powers: Powers,
}

/// Where a new segment stands among the others.
pub(crate) struct Place {
    pub index: u32,
    /// Nothing is placed in it before this time.
    pub quiet_until: MonotonicTime,
    pub mounted: MonotonicTime,
    pub room: Arc<RoomIndex>,
    pub feed: Option<Box<Feed>>,
}

/// How an extent leaves its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub generation: Generation,
    /// Free at this time; at once when it has passed.
    pub until: MonotonicTime,
    /// Kept for this writer, not for readers.
    pub writer: Option<Account>,
}

impl MountedSegment {
    pub(crate) fn new(info: Segment, owner: ClientId, place: Place, settings: &CatalogSettings) -> Self {
        let Place { index, quiet_until, mounted, room, feed } = place;
        let cutting = match settings.cutting {
            Cutting::Adaptive if feed.is_some() => Cutting::Whole,
            cutting => cutting,
        };
        let allocator = AdaptiveAllocator::new(ByteLen(info.size), settings.alignment, cutting);
        let segment = MountedSegment {
            owner,
            index,
            reach: AtomicU8::new(Reach::Online as u8),
            is_slow: AtomicBool::new(false),
            status: AtomicI32::new(SegmentStatus::OK.0),
            quiet_until: AtomicU64::new(quiet_until.0),
            mounted,
            warmth: AtomicU8::new(1),
            disk_free: AtomicU64::new(1.0f64.to_bits()),
            room,
            feed,
            busy: Busy {
                space: Mutex::new(Space { allocator, deferred: Deferred::default(), powers: Powers::default() }),
                used: AtomicU64::new(0),
                largest_free: AtomicU64::new(0),
                withheld: AtomicU64::new(0),
                next_due: AtomicU64::new(u64::MAX),
                batches: AtomicU64::new(0),
            },
            info,
        };
        segment.publish_all(&mut segment.busy.space.lock());
        segment
    }

    /// What its client told.
    pub fn info(&self) -> &Segment {
        &self.info
    }

    /// A new segment is empty, and its node has no connections yet: its share of new objects grows in steps. Answers whether it
    /// has grown.
    pub(crate) fn warm_up(&self, now: MonotonicTime) -> bool {
        let quarters = now.since(self.mounted).as_millis() * u128::from(WARM) / SLOW_START.as_millis();
        let warmth = u8::try_from(quarters).unwrap_or(WARM).saturating_add(1).min(WARM);
        self.warmth.swap(warmth, Ordering::Relaxed) != warmth
    }

    /// How likely it is drawn for a new object, beside others.
    pub(crate) fn weight(&self) -> u64 {
        let quarters = u64::from(self.warmth.load(Ordering::Relaxed));
        (self.info.size / u64::from(WARM) * quarters).max(1)
    }

    /// The client that mounted it.
    pub fn owner(&self) -> ClientId {
        self.owner
    }

    /// `OK`, `DRAINING`, `DRAINED` or `GRACEFULLY_UNMOUNTING`; `UNMOUNTING` while what it held is being forgotten.
    pub fn status(&self) -> SegmentStatus {
        if self.is_live() { SegmentStatus(self.status.load(Ordering::Relaxed)) } else { SegmentStatus::UNMOUNTING }
    }

    /// How far it can be used, as far as its client is heard of.
    pub fn reach(&self) -> Reach {
        Reach::from_number(self.reach.load(Ordering::Acquire))
    }

    /// Whether new objects may be placed here.
    pub fn takes_objects(&self) -> bool {
        self.status.load(Ordering::Relaxed) == SegmentStatus::OK.0 && self.reach() == Reach::Online
    }

    /// Whether an object that finds no other place may be placed here: its client lives, and somebody found it slow.
    pub fn takes_as_last_resort(&self) -> bool {
        self.status.load(Ordering::Relaxed) == SegmentStatus::OK.0
            && self.reach() == Reach::Suspect
            && self.is_slow.load(Ordering::Relaxed)
    }

    /// Notes whether its client is held back only because somebody found it slow. Answers whether that is news.
    pub(crate) fn set_slow(&self, is_slow: bool) -> bool {
        self.is_slow.swap(is_slow, Ordering::Relaxed) != is_slow
    }

    /// Bytes in the segment.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.info.size)
    }

    /// Bytes not free: objects with what alignment costs, and withheld extents.
    pub fn used(&self) -> ByteLen {
        ByteLen(self.busy.used.load(Ordering::Relaxed))
    }

    /// Bytes without an owner that a writer or a reader may still touch; part of [`used`](Self::used).
    pub fn withheld(&self) -> ByteLen {
        let striking = self.feed().map_or(0, |feed| feed.striking().0);
        ByteLen(self.busy.withheld.load(Ordering::Relaxed) + striking)
    }

    /// Bytes of [`used`](Self::used) that come free soon: nobody needs them, and their node is about to strike them out.
    pub(crate) fn coming_free(&self, now: MonotonicTime) -> ByteLen {
        self.feed().map_or(ByteLen(0), |feed| feed.coming_free(now))
    }

    /// Whether what is given up here does not come free now: whoever strikes it out is silent.
    pub(crate) fn is_stuck(&self, now: MonotonicTime) -> bool {
        self.feed().is_some_and(|feed| feed.is_stuck(now))
    }

    /// What its node is told, if that keeps a directory.
    pub(crate) fn feed(&self) -> Option<&Feed> {
        self.feed.as_deref()
    }

    /// The largest free extent, exact; takes the segment's lock.
    pub fn largest_free(&self) -> ByteLen {
        let mut space = self.busy.space.lock();
        let largest = space.allocator.largest_free();
        self.busy.largest_free.store(largest.0, Ordering::Relaxed);
        largest
    }

    /// The same as it was last told, without the lock.
    pub(crate) fn about_largest_free(&self) -> ByteLen {
        ByteLen(self.busy.largest_free.load(Ordering::Relaxed))
    }

    /// Whether it is mounted: its extents are accounted for.
    pub(crate) fn is_live(&self) -> bool {
        self.reach() != Reach::Gone
    }

    /// Whether its replicas are offered to readers.
    pub(crate) fn is_readable(&self) -> bool {
        self.reach() <= Reach::Suspect
    }

    /// Whether it is not offered to readers before its node has said that it was nobody else's meanwhile.
    pub(crate) fn awaits_word(&self) -> bool {
        self.reach() == Reach::Offline && self.feed().is_some_and(|feed| !feed.is_logged())
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Share of its owner's local disk that is free, 1 as long as nobody told.
    pub(crate) fn disk_free_share(&self) -> f64 {
        f64::from_bits(self.disk_free.load(Ordering::Relaxed))
    }

    pub(crate) fn set_disk_free_share(&self, share: f64) {
        self.disk_free.store(share.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn free_share(&self) -> f64 {
        1.0 - self.used().0 as f64 / self.info.size.max(1) as f64
    }

    /// A batch is going to put objects here, until it [leaves](Self::leave).
    pub(crate) fn enter(&self) {
        self.busy.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// See [`enter`](Self::enter).
    pub(crate) fn leave(&self) {
        self.busy.batches.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether some batch puts objects here now.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.batches.load(Ordering::Relaxed) > 0
    }

    /// Whether an object of this size is likely to find room.
    pub(crate) fn may_take(&self, size: ByteLen) -> bool {
        self.busy.largest_free.load(Ordering::Relaxed) >= size.0.max(1)
    }

    /// Nothing is placed here before.
    fn quiet_until(&self) -> MonotonicTime {
        MonotonicTime(self.quiet_until.load(Ordering::Relaxed))
    }

    /// Lets it rest until then at least.
    pub(crate) fn rest_until(&self, until: MonotonicTime) {
        self.quiet_until.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Whether nothing is placed here for a while: somebody may still read it, or its directory was not read.
    pub(crate) fn is_resting(&self, now: MonotonicTime) -> bool {
        now < self.quiet_until() || self.feed().is_some_and(|feed| !feed.is_live())
    }

    /// Takes space for one replica; `None` when no free extent is large enough or the segment takes nothing now.
    pub(crate) fn allocate(&self, size: ByteLen, owner: u64, now: MonotonicTime) -> Option<Extent> {
        if self.busy.largest_free.load(Ordering::Relaxed) < size.0.max(1) || now < self.quiet_until() {
            return None;
        }
        if self.feed().is_some_and(|feed| !feed.is_live()) {
            return None;
        }
        let mut space = self.busy.space.lock();
        let takes = self.takes_objects() || self.takes_as_last_resort();
        let extent = if takes { space.allocator.allocate(size, owner) } else { None };
        self.publish(&mut space);
        extent
    }

    /// Frees the extent of a replica. Answers the bytes that are free now.
    pub(crate) fn give_up(&self, node: NodeId) -> ByteLen {
        let mut space = self.busy.space.lock();
        let freed = space.allocator.free(node).unwrap_or_default();
        self.publish(&mut space);
        freed
    }

    /// Gives up the extent of a replica, which comes free later. Answers its bytes.
    pub(crate) fn withhold(&self, node: NodeId, hold: Hold) -> u64 {
        let mut space = self.busy.space.lock();
        let Ok(extent) = space.allocator.set_owner(node, WITHHELD) else { return 0 };
        let Hold { generation, until, writer } = hold;
        space.deferred.insert(Withheld { extent, generation, until, writer });
        self.publish_all(&mut space);
        extent.len
    }

    /// Of what is withheld, the bytes kept for writers.
    pub(crate) fn withheld_for_writers(&self) -> u64 {
        self.busy.space.lock().deferred.bytes_for_writers()
    }

    /// Forgets what is withheld: the segment is gone.
    pub(crate) fn abandon_withheld(&self) -> impl Iterator<Item = Withheld> + use<> {
        self.busy.space.lock().deferred.abandon()
    }

    /// Gives up extents that nobody holds any more.
    pub(crate) fn free(&self, nodes: impl Iterator<Item = NodeId>) {
        let mut space = self.busy.space.lock();
        for node in nodes {
            // Named by an object that had it: it is in use.
            let freed = space.allocator.free(node);
            debug_assert!(freed.is_ok());
        }
        self.publish(&mut space);
    }

    /// Gives up the extent of a readable replica in a segment with a directory: it comes free when its node has struck it
    /// out, and its time has come. Answers the bytes that only wait for the node.
    pub(crate) fn strike(&self, feed: &Feed, node: NodeId, hold: Hold, now: MonotonicTime) -> ByteLen {
        let given_up = self.busy.space.lock().allocator.set_owner(node, WITHHELD);
        let Ok(extent) = given_up else { return ByteLen(0) };
        let Hold { generation, until, .. } = hold;
        feed.strike(Strike { extent, generation, until });
        if until <= now { ByteLen(extent.len) } else { ByteLen(0) }
    }

    /// These extents were struck out by the node.
    pub(crate) fn struck(&self, strikes: &[Strike], now: MonotonicTime) {
        if strikes.is_empty() {
            return;
        }
        let mut space = self.busy.space.lock();
        let Space { allocator, deferred, .. } = &mut *space;
        for Strike { extent, generation, until } in strikes.iter().copied() {
            if until > now {
                deferred.insert(Withheld { extent, generation, until, writer: None });
            } else {
                // It was in use until here.
                let _ = allocator.free(extent.node);
            }
        }
        self.publish_all(&mut space);
    }

    /// Begins to take extents of an earlier life back into use; `None` when some are in use already.
    pub(crate) fn restore(&self) -> Option<Restoring> {
        self.busy.space.lock().allocator.restore()
    }

    /// Takes the next one back: first byte and size.
    pub(crate) fn restore_next(&self, at: &mut Restoring, (offset, size): (u64, u64), owner: u64) -> Option<Extent> {
        let mut space = self.busy.space.lock();
        let extent = space.allocator.restore_next(at, offset, size, owner);
        self.publish(&mut space);
        extent
    }

    /// Frees what was taken back into use in vain.
    pub(crate) fn free_refused(&self, refused: &[NodeId]) {
        let mut space = self.busy.space.lock();
        for node in refused {
            let _ = space.allocator.free(*node);
        }
        self.publish_all(&mut space);
    }

    /// Frees withheld extents whose time has come, at most `limit`, and tells of each; answers how many.
    pub(crate) fn release_due(&self, now: MonotonicTime, limit: u64, tell: impl Fn(Withheld)) -> u64 {
        let now = if planted(Fault::ReuseWithheld) { now + std::time::Duration::from_secs(3600) } else { now };
        if self.busy.next_due.load(Ordering::Relaxed) > now.0 || planted(Fault::LeakWithheld) {
            return 0;
        }
        let mut space = self.busy.space.lock();
        let Space { allocator, deferred, .. } = &mut *space;
        let mut released = 0;
        while released < limit
            && let Some(withheld) = deferred.release_due(allocator, now)
        {
            tell(withheld);
            released += 1;
        }
        self.publish_all(&mut space);
        released
    }

    /// Frees the withheld extent that starts at `offset`, if it still waits for the writer of this generation, and tells of it.
    pub(crate) fn confirm(&self, offset: u64, generation: Generation, tell: impl Fn(Withheld)) -> bool {
        let mut space = self.busy.space.lock();
        let Space { allocator, deferred, .. } = &mut *space;
        let freed = deferred.confirm(allocator, offset, generation);
        self.publish_all(&mut space);
        freed.map(tell).is_some()
    }

    /// Changes the status if the table of transitions allows it; answers whether the segment has it now. From the return
    /// on nothing is allocated unless the status is `OK`.
    pub(crate) fn turn(&self, to: SegmentStatus) -> bool {
        let _space = self.busy.space.lock();
        let from = self.status();
        if may_turn(from, to) {
            self.status.store(to.0, Ordering::Relaxed);
            return true;
        }
        from == to
    }

    /// Follows what is heard of its client; a segment that is gone stays so. Answers whether that changed anything.
    pub(crate) fn set_reach(&self, reach: Reach) -> bool {
        let mut space = self.busy.space.lock();
        let before = self.reach();
        if before == Reach::Gone || before == reach {
            return false;
        }
        if reach == Reach::Gone {
            self.room.note(self.index, space.powers, Powers::default());
            space.powers = Powers::default();
        }
        if reach != Reach::Suspect {
            self.is_slow.store(false, Ordering::Relaxed);
        }
        self.reach.store(reach as u8, Ordering::Release);
        true
    }

    /// The owners' words of some extents in use, see [`AdaptiveAllocator::scan`].
    pub(crate) fn scan(&self, from: u32, limit: u32, found: &mut Vec<Owned>) -> Option<u32> {
        self.busy.space.lock().allocator.scan(from, limit, |owned| {
            if owned.owner != WITHHELD {
                found.push(owned);
            }
        })
    }

    /// Makes known how much is free.
    fn publish(&self, space: &mut Space) {
        let largest = space.allocator.largest_free_bound().0;
        self.busy.used.store(space.allocator.used().0, Ordering::Relaxed);
        self.busy.largest_free.store(largest, Ordering::Relaxed);
        if self.is_live() {
            self.room.note(self.index, space.powers, Powers::of(largest));
            space.powers = Powers::of(largest);
        }
    }

    /// Makes known also what is withheld.
    fn publish_all(&self, space: &mut Space) {
        self.publish(space);
        self.busy.withheld.store(space.deferred.bytes().0, Ordering::Relaxed);
        let due = space.deferred.next_due().map_or(u64::MAX, |due| due.0);
        self.busy.next_due.store(due, Ordering::Relaxed);
    }
}
