//! Registered regions: the only memory that transfers may touch by address.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use crate::{MemoryDevice, MemorySegment, Span, SpanError};

/// Memory that belongs to somebody outside Rust: an interpreter's buffer, a C library's allocation.
#[derive(Debug)]
pub struct ForeignMemory {
    address: u64,
    len: u64,
    /// Keeps memory of a device mapped.
    device: Option<Arc<MemoryDevice>>,
    on_device: bool,
}

impl ForeignMemory {
    /// Says that `address..address+len` is memory that may be read and written.
    ///
    /// # Safety
    /// The range must stay mapped, readable and writable as long as this value lives and until the region made from it
    /// is unregistered successfully, and no Rust reference to its bytes may live while transfers use it.
    pub unsafe fn new(address: u64, len: u64) -> Self {
        ForeignMemory { address, len, device: None, on_device: false }
    }

    /// Memory of this process that is never given back to the system: for programs that serve it until they end.
    pub fn leaked(len: usize) -> Self {
        // Written, so that every page is there. Nobody has a reference to it from here on.
        let first = Box::leak(vec![1_u8; len].into_boxed_slice()).as_mut_ptr();
        ForeignMemory { address: first as u64, len: len as u64, device: None, on_device: false }
    }

    /// A part of a mapped memory device, which stays mapped for as long as this value, and what is made of it, lives.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`] when it is not wholly inside.
    pub fn of_device(device: Arc<MemoryDevice>, offset: u64, len: u64) -> Result<Self, SpanError> {
        let address = device.span(offset, len)?.address();
        Ok(ForeignMemory { address, len, device: Some(device), on_device: false })
    }

    /// The same memory, marked as that of a device which the CPU cannot reach.
    pub fn on_device(mut self) -> Self {
        self.on_device = true;
        self
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a range of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The range as local memory of one transfer, without registering it; a null range has no bytes.
    pub fn lend(&self) -> LocalBuffer<'_> {
        LocalBuffer::span_of(self.span())
    }

    fn span(&self) -> Span<'_> {
        let first = NonNull::new(self.address as *mut u8);
        let len = if first.is_some() { self.len as usize } else { 0 };
        // SAFETY: the range is what `new` was promised, or a part of the device that self holds, for the borrow of self; a range of no bytes is always valid.
        unsafe { Span::from_raw(first.unwrap_or(NonNull::dangling()), len, true) }.marked(self.on_device)
    }
}

/// Who may name addresses of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only this process: a source or destination of its own transfers.
    Local,
    /// Peers too: the region is published and served.
    Remote,
}

/// Why a region or a range was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// A region of no bytes, or one that wraps around the address space.
    #[error("{address:#x}+{len} is not a range of memory")]
    NotARange {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// The range shares bytes with a registered region.
    #[error("{address:#x}+{len} overlaps a registered region")]
    Overlap {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// No registered region holds the whole range.
    #[error("{address:#x}+{len} is not inside one registered region")]
    NotRegistered {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// A device or a transport cannot use the memory. Nothing is registered.
    #[error("{address:#x}+{len} cannot be registered: {reason}")]
    Refused {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
        /// Who refused, and why.
        reason: String,
    },
    /// Transfers still use the region. It takes no new ones; ask again.
    #[error("region {address:#x} is still used by {users} transfers; unregister it again later")]
    Busy {
        /// First address.
        address: u64,
        /// Open transfers.
        users: usize,
    },
}

impl RegistryError {
    /// The peer's number for this error.
    pub fn code(&self) -> i32 {
        match self {
            RegistryError::NotARange { .. } => -1,
            RegistryError::Overlap { .. } => -7,
            RegistryError::NotRegistered { .. } => -3,
            RegistryError::Refused { .. } => -202,
            RegistryError::Busy { .. } => -4,
        }
    }
}

#[derive(Debug)]
enum Backing {
    Segment(Arc<MemorySegment>),
    Foreign(Option<Arc<MemoryDevice>>),
}

#[derive(Debug)]
struct Region {
    info: RegionInfo,
    backing: Backing,
    /// Set when everybody who has to know of the region does.
    published: AtomicBool,
    closed: AtomicBool,
    users: AtomicUsize,
    idle: Mutex<()>,
    became_idle: Condvar,
}

/// Where memory lives, as text: `cpu:0` is a NUMA node, `cuda:1` a device, `*` is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(Arc<str>);

impl Location {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when nothing is known.
    pub fn is_unknown(&self) -> bool {
        &*self.0 == "*"
    }
}

impl Default for Location {
    fn default() -> Self {
        Location("*".into())
    }
}

impl From<&str> for Location {
    fn from(text: &str) -> Self {
        if text.is_empty() { Location::default() } else { Location(text.into()) }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a region, for publication. Only a [`Registry`] makes one, so its range was declared to be memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// First address in this process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Who may name its addresses.
    pub access: Access,
    /// Where the memory lives.
    pub location: Location,
    /// Whether it is memory of a device that the CPU cannot reach.
    pub on_device: bool,
}

impl RegionInfo {
    fn end(&self) -> u64 {
        self.address + self.len
    }

    /// The region's bytes, for devices that are told of them in advance. The range was declared to be memory until the
    /// region is removed; whoever keeps the right to it lets go when the region is (`Registry::remove_after`).
    pub fn span(&self) -> Span<'_> {
        let first = NonNull::new(self.address as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: only a registry makes a value of this type, and it refuses the address zero. The range stays mapped
        // and writable until the region is removed (see `ForeignMemory::new`; a segment owns its mapping).
        unsafe { Span::from_raw(first, self.len as usize, true) }.marked(self.on_device)
    }
}

/// A region that a peer on this host can map.
#[derive(Clone, Debug)]
pub struct ShareableRegion {
    /// First address in this process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The memory behind it.
    pub segment: Arc<MemorySegment>,
}

/// All regions of an engine, ordered by address and free of overlap.
#[derive(Debug, Default)]
pub struct Registry {
    regions: RwLock<Vec<Arc<Region>>>,
}

fn end_of(address: u64, len: u64) -> Option<u64> {
    address.checked_add(len).filter(|_| len > 0 && address > 0)
}

impl Registry {
    /// Registers a segment of our own.
    ///
    /// # Errors
    /// [`RegistryError::Overlap`] when it is registered already.
    pub fn add_segment(&self, segment: Arc<MemorySegment>, access: Access) -> Result<(), RegistryError> {
        let info = self.prepare_segment(segment, access, Location::default())?;
        self.publish(info.address);
        Ok(())
    }

    /// Registers memory of somebody else.
    ///
    /// # Errors
    /// [`RegistryError::NotARange`], [`RegistryError::Overlap`].
    pub fn add_foreign(&self, memory: ForeignMemory, access: Access) -> Result<(), RegistryError> {
        let info = self.prepare_foreign(memory, access, Location::default())?;
        self.publish(info.address);
        Ok(())
    }

    /// As [`Registry::add_segment`], but nobody can use or see the region before [`Registry::publish`].
    ///
    /// # Errors
    /// [`RegistryError::Overlap`] when it is registered already.
    pub fn prepare_segment(
        &self,
        segment: Arc<MemorySegment>,
        access: Access,
        location: Location,
    ) -> Result<RegionInfo, RegistryError> {
        let (address, len) = (segment.address(), segment.len());
        self.prepare(RegionInfo { address, len, access, location, on_device: false }, Backing::Segment(segment))
    }

    /// As [`Registry::add_foreign`], but nobody can use or see the region before [`Registry::publish`].
    ///
    /// # Errors
    /// [`RegistryError::NotARange`], [`RegistryError::Overlap`].
    pub fn prepare_foreign(
        &self,
        memory: ForeignMemory,
        access: Access,
        location: Location,
    ) -> Result<RegionInfo, RegistryError> {
        self.prepare(
            RegionInfo { address: memory.address, len: memory.len, access, location, on_device: memory.on_device },
            Backing::Foreign(memory.device),
        )
    }

    /// Opens a prepared region for use.
    pub fn publish(&self, address: u64) {
        if let Some(region) = self.starting_at(address) {
            region.published.store(true, Ordering::SeqCst);
        }
    }

    /// Forgets a region that was prepared and not published.
    pub fn abandon(&self, address: u64) {
        let mut regions = self.regions.write();
        let at = regions.partition_point(|region| region.info.address < address);
        let unused = |region: &Region| region.info.address == address && !region.published.load(Ordering::SeqCst);
        if regions.get(at).is_some_and(|region| unused(region)) {
            regions.remove(at);
        }
    }

    fn starting_at(&self, address: u64) -> Option<Arc<Region>> {
        let regions = self.regions.read();
        let found = regions.binary_search_by_key(&address, |region| region.info.address);
        found.ok().and_then(|i| regions.get(i)).cloned()
    }

    fn prepare(&self, info: RegionInfo, backing: Backing) -> Result<RegionInfo, RegistryError> {
        let (address, len) = (info.address, info.len);
        let end = end_of(address, len).ok_or(RegistryError::NotARange { address, len })?;
        let mut regions = self.regions.write();
        let at = regions.partition_point(|region| region.info.address < address);
        let overlaps_next = regions.get(at).is_some_and(|next| next.info.address < end);
        let before = at.checked_sub(1).and_then(|i| regions.get(i));
        if overlaps_next || before.is_some_and(|before| before.info.end() > address) {
            return Err(RegistryError::Overlap { address, len });
        }
        let region = Region {
            info: info.clone(),
            backing,
            published: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            idle: Mutex::new(()),
            became_idle: Condvar::new(),
        };
        regions.insert(at, Arc::new(region));
        Ok(info)
    }

    /// Closes the region that starts at `address` to new uses, waits until the open ones have ended, and forgets it.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`] when no region starts there; [`RegistryError::Busy`] when uses remain after
    /// `patience`: the region stays closed, its memory must stay mapped, and the call may be repeated.
    pub fn remove(&self, address: u64, patience: Duration) -> Result<(), RegistryError> {
        self.remove_after(address, patience, || {})
    }

    /// As [`Registry::remove`]; `last` runs when nobody uses the region any more, and before its range can be
    /// registered again.
    ///
    /// # Errors
    /// As [`Registry::remove`]; `last` does not run then.
    pub fn remove_after(&self, address: u64, patience: Duration, last: impl FnOnce()) -> Result<(), RegistryError> {
        let region = self.starting_at(address).filter(|region| region.published.load(Ordering::SeqCst));
        let region = region.ok_or(RegistryError::NotRegistered { address, len: 0 })?;
        region.closed.store(true, Ordering::SeqCst);
        region.wait_until_idle(patience).map_err(|users| RegistryError::Busy { address, users })?;
        if region.published.swap(false, Ordering::SeqCst) {
            last();
            let mut regions = self.regions.write();
            let at = regions.partition_point(|other| other.info.address < address);
            if regions.get(at).is_some_and(|found| Arc::ptr_eq(found, &region)) {
                regions.remove(at);
            }
        }
        Ok(())
    }

    /// Closes the region at `address` to new uses without waiting; [`Registry::remove`] completes it.
    pub fn close(&self, address: u64) {
        if let Some(region) = self.starting_at(address).filter(|region| region.published.load(Ordering::SeqCst)) {
            region.closed.store(true, Ordering::SeqCst);
        }
    }

    /// The right to use `address..address+len`, which must lie inside one open region.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`] when it does not, wraps around, is empty, or is local and asked for remotely.
    pub fn pin(&self, address: u64, len: u64, by: Access) -> Result<RegionPin, RegistryError> {
        let refused = RegistryError::NotRegistered { address, len };
        let Some(end) = end_of(address, len) else { return Err(refused) };
        let regions = self.regions.read();
        let after = regions.partition_point(|region| region.info.address <= address);
        let Some(region) = after.checked_sub(1).and_then(|i| regions.get(i)) else { return Err(refused) };
        let allowed = by == Access::Local || region.info.access == Access::Remote;
        if end > region.info.end() || !allowed {
            return Err(refused);
        }
        // The count rises before the flag is read, and `remove` sets the flag before it reads the count: one of the
        // two sees the other.
        region.users.fetch_add(1, Ordering::SeqCst);
        let pin = RegionPin { region: Arc::clone(region), address, len };
        if region.is_open() { Ok(pin) } else { Err(refused) }
    }

    /// The right to use registered memory from `address` to the end of its region.
    ///
    /// # Errors
    /// As [`Registry::pin`].
    pub fn pin_rest(&self, address: u64, by: Access) -> Result<RegionPin, RegistryError> {
        let regions = self.regions.read();
        let after = regions.partition_point(|region| region.info.address <= address);
        let region = after.checked_sub(1).and_then(|i| regions.get(i)).map(|region| region.info.end());
        drop(regions);
        // A region that ends meanwhile refuses the pin.
        self.pin(address, region.map_or(0, |end| end.saturating_sub(address)), by)
    }

    /// Foreign memory as our side of one transfer: pinned when it lies inside one region or in neighbouring ones. Memory
    /// that was never registered is used on the word given to [`ForeignMemory::new`].
    ///
    /// # Errors
    /// [`RegistryError::NotARange`]; [`RegistryError::NotRegistered`] when it starts in a region and reaches over its end
    /// into memory that is none, or a region of it is being released.
    pub fn lend(&self, memory: ForeignMemory) -> Result<LocalBuffer<'static>, RegistryError> {
        let (address, len) = (memory.address, memory.len);
        if len == 0 {
            return Ok(memory.into());
        }
        let end = end_of(address, len).ok_or(RegistryError::NotARange { address, len })?;
        if let Ok(pin) = self.pin(address, len, Access::Local) {
            return Ok(pin.into());
        }
        let (mut pins, mut covered) = (Vec::new(), address);
        while covered < end {
            match self.end_around(covered) {
                None if covered == address => return Ok(memory.into()),
                None => return Err(RegistryError::NotRegistered { address, len }),
                Some(region_end) => {
                    let part = region_end.min(end) - covered;
                    pins.push(self.pin(covered, part, Access::Local)?);
                    covered += part;
                }
            }
        }
        Ok(LocalBuffer(Owner::Joined { memory, _pins: pins }))
    }

    /// One past the last address of the region that has this address, open or not.
    fn end_around(&self, address: u64) -> Option<u64> {
        let regions = self.regions.read();
        let after = regions.partition_point(|region| region.info.address <= address);
        let region = after.checked_sub(1).and_then(|i| regions.get(i))?;
        Some(region.info.end()).filter(|end| *end > address)
    }

    /// Every open region, in order of address.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let regions = self.regions.read();
        regions.iter().filter(|region| region.is_open()).map(|region| region.info.clone()).collect()
    }

    /// The open remote regions that a peer on this host can map.
    pub fn shareable(&self) -> Vec<ShareableRegion> {
        let regions = self.regions.read();
        let open = regions.iter().filter(|region| region.info.access == Access::Remote && region.is_open());
        open.filter_map(|region| match &region.backing {
            Backing::Segment(segment) => {
                let (address, len) = (region.info.address, region.info.len);
                Some(ShareableRegion { address, len, segment: Arc::clone(segment) })
            }
            Backing::Foreign(_) => None,
        })
        .collect()
    }
}

impl Registry {
    /// The open remote regions in allocations of somebody else, as address and length, that lie in ordinary memory: a peer
    /// on this host reaches them through the kernel.
    pub fn readable(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.read();
        let open = regions.iter().filter(|region| region.info.access == Access::Remote && region.is_open());
        let foreign = open.filter(|region| {
            let location = &region.info.location;
            let ordinary = location.is_unknown() || location.as_str().starts_with("cpu");
            ordinary && !region.info.on_device && matches!(region.backing, Backing::Foreign(None))
        });
        foreign.map(|region| (region.info.address, region.info.len)).collect()
    }
}

impl Region {
    fn is_open(&self) -> bool {
        self.published.load(Ordering::SeqCst) && !self.closed.load(Ordering::SeqCst)
    }

    fn wait_until_idle(&self, patience: Duration) -> Result<(), usize> {
        let mut idle = self.idle.lock();
        let wait = self.became_idle.wait_while_for(&mut idle, |()| self.users.load(Ordering::SeqCst) > 0, patience);
        if wait.timed_out() { Err(self.users.load(Ordering::SeqCst)) } else { Ok(()) }
    }
}

/// A range inside one registered region; the region is not released while the pin lives.
#[derive(Debug)]
pub struct RegionPin {
    region: Arc<Region>,
    address: u64,
    len: u64,
}

impl RegionPin {
    /// The bytes of the range.
    pub fn span(&self) -> Span<'_> {
        let first = std::ptr::NonNull::new(self.address as *mut u8).unwrap_or(std::ptr::NonNull::dangling());
        // SAFETY: the range lies inside a registered region, which stays mapped and writable until `Registry::remove`
        // has seen this pin dropped (for segments the region also owns the mapping). The address is not zero, because
        // `end_of` refused zero.
        unsafe { Span::from_raw(first, self.len as usize, true) }.marked(self.region.info.on_device)
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a range of no bytes (which is never given out).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when the region is to be released and waits for its users: let go soon.
    pub fn is_wanted_back(&self) -> bool {
        self.region.closed.load(Ordering::SeqCst)
    }
}

impl Drop for RegionPin {
    fn drop(&mut self) {
        if self.region.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.region.closed.load(Ordering::SeqCst) {
            let _idle = self.region.idle.lock();
            self.region.became_idle.notify_all();
        }
    }
}

/// Local memory of one transfer: a registered range that it keeps pinned, or a borrowed slice.
#[derive(Debug)]
pub struct LocalBuffer<'a>(Owner<'a>);

#[derive(Debug)]
enum Owner<'a> {
    Pinned(RegionPin),
    Borrowed(Span<'a>),
    Foreign(ForeignMemory),
    /// Over neighbouring regions.
    Joined {
        memory: ForeignMemory,
        _pins: Vec<RegionPin>,
    },
}

impl<'a> LocalBuffer<'a> {
    /// Bytes to send.
    pub fn source(bytes: &'a [u8]) -> Self {
        LocalBuffer(Owner::Borrowed(Span::source(bytes)))
    }

    /// Where received bytes go.
    pub fn destination(bytes: &'a mut [u8]) -> Self {
        LocalBuffer(Owner::Borrowed(Span::destination(bytes)))
    }

    /// Part of a span that the caller keeps alive.
    pub fn span_of(span: Span<'a>) -> Self {
        LocalBuffer(Owner::Borrowed(span))
    }

    /// The bytes.
    pub fn span(&self) -> Span<'_> {
        match &self.0 {
            Owner::Pinned(pin) => pin.span(),
            Owner::Borrowed(span) => *span,
            Owner::Foreign(memory) | Owner::Joined { memory, .. } => memory.span(),
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Owner::Pinned(pin) => pin.len(),
            Owner::Borrowed(span) => span.len() as u64,
            Owner::Foreign(memory) | Owner::Joined { memory, .. } => memory.span().len() as u64,
        }
    }

    /// True for a buffer of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The range is used for as long as the buffer lives, on the word given to [`ForeignMemory::new`].
impl From<ForeignMemory> for LocalBuffer<'static> {
    fn from(memory: ForeignMemory) -> Self {
        LocalBuffer(Owner::Foreign(memory))
    }
}

impl From<RegionPin> for LocalBuffer<'static> {
    fn from(pin: RegionPin) -> Self {
        LocalBuffer(Owner::Pinned(pin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentOptions;

    fn registry() -> (Registry, Arc<MemorySegment>) {
        let registry = Registry::default();
        let segment = Arc::new(MemorySegment::create(8192, SegmentOptions::default()).unwrap());
        registry.add_segment(Arc::clone(&segment), Access::Remote).unwrap();
        (registry, segment)
    }

    #[test]
    fn foreign_memory_is_lent_without_being_registered() {
        let mut bytes = vec![7u8; 100];
        // SAFETY: the vector outlives the value, and is not looked at before the copy is over.
        let memory = unsafe { ForeignMemory::new(bytes.as_mut_ptr() as u64, 100) };
        crate::copy(memory.lend().span(), Span::source(&[9; 100]), crate::CopyHint::Cached).unwrap();
        assert_eq!(bytes, [9; 100]);
        // SAFETY: a null range has no bytes.
        assert!(unsafe { ForeignMemory::new(0, 100) }.lend().is_empty());
    }

    #[test]
    fn only_ranges_inside_one_region_are_given_out() {
        let (registry, segment) = registry();
        let base = segment.address();
        assert_eq!(registry.pin(base, 8192, Access::Remote).unwrap().len(), 8192);
        assert!(registry.pin(base + 8191, 1, Access::Remote).is_ok());
        for (address, len) in [(base, 8193), (base - 1, 2), (base + 8192, 1), (base, 0), (base, u64::MAX), (0, 1)] {
            assert!(registry.pin(address, len, Access::Remote).is_err(), "{address:#x}+{len}");
        }
    }

    #[test]
    fn memory_is_lent_unless_it_reaches_over_a_region() {
        let registry = Registry::default();
        let mut bytes = vec![0_u8; 4096];
        let base = bytes.as_mut_ptr() as u64;
        // SAFETY: the vector outlives everything here, and nothing is copied.
        let foreign = |address, len| unsafe { ForeignMemory::new(address, len) };
        registry.add_foreign(foreign(base + 1024, 1024), Access::Local).unwrap();
        registry.add_foreign(foreign(base + 2048, 1024), Access::Local).unwrap();
        for (offset, len) in [(0, 10), (0, 1500), (1024, 1024), (1030, 1500), (1024, 2048), (3072, 1024), (5, 0)] {
            assert_eq!(registry.lend(foreign(base + offset, len)).unwrap().len(), len, "{offset}+{len}");
        }
        assert_eq!(registry.lend(foreign(base + 1030, 3000)).unwrap_err().code(), -3);
        assert_eq!(registry.lend(foreign(0, 1)).unwrap_err().code(), -1);
        assert_eq!(registry.lend(foreign(u64::MAX, 2)).unwrap_err().code(), -1);
        let over_both = registry.lend(foreign(base + 2000, 100)).unwrap();
        let busy = registry.remove(base + 2048, Duration::ZERO);
        assert!(matches!(busy, Err(RegistryError::Busy { users: 1, .. })), "both regions are pinned");
        drop(over_both);
        assert_eq!(registry.remove(base + 2048, Duration::ZERO), Ok(()));
        let pinned = registry.lend(foreign(base + 1024, 8)).unwrap();
        assert!(registry.remove(base + 1024, Duration::ZERO).is_err(), "a lent range of a region pins it");
        assert!(registry.lend(foreign(base + 1024, 8)).is_err(), "a region on its way out takes no new users");
        drop(pinned);
        registry.remove(base + 1024, Duration::ZERO).unwrap();
    }

    #[test]
    fn overlap_and_nonsense_are_refused_with_the_peers_numbers() {
        let (registry, segment) = registry();
        let base = segment.address();
        assert_eq!(registry.add_segment(segment, Access::Remote).unwrap_err().code(), -7);
        for (address, len, code) in [(base + 100, 1, -7), (base - 10, 11, -7), (base, 0, -1), (u64::MAX, 2, -1)] {
            // SAFETY: the registration fails, so the range is never used.
            let memory = unsafe { ForeignMemory::new(address, len) };
            assert_eq!(registry.add_foreign(memory, Access::Local).unwrap_err().code(), code);
        }
        assert_eq!(registry.remove(base + 1, Duration::ZERO).unwrap_err().code(), -3);
    }

    #[test]
    fn a_region_is_released_only_when_its_users_are_gone() {
        let (registry, segment) = registry();
        let base = segment.address();
        let pin = registry.pin(base, 10, Access::Local).unwrap();
        assert_eq!(registry.remove(base, Duration::ZERO).unwrap_err().code(), -4);
        assert!(pin.is_wanted_back());
        assert!(registry.pin(base, 10, Access::Local).is_err(), "a closed region takes no new users");
        drop(pin);
        registry.remove(base, Duration::ZERO).unwrap();
        assert!(registry.regions().is_empty());
    }

    #[test]
    fn local_regions_are_not_served() {
        let (registry, _) = registry();
        let mut bytes = vec![0_u8; 100];
        // SAFETY: the vector outlives the registry and is not touched otherwise.
        let memory = unsafe { ForeignMemory::new(bytes.as_mut_ptr() as u64, 100) };
        let address = memory.address;
        registry.add_foreign(memory, Access::Local).unwrap();
        assert!(registry.pin(address, 100, Access::Local).is_ok());
        assert!(registry.pin(address, 100, Access::Remote).is_err());
        assert_eq!(registry.shareable().len(), 1);
        assert!(registry.readable().is_empty());
        let mut bytes = [vec![0_u8; 100], vec![0_u8; 100]];
        for (bytes, location) in bytes.iter_mut().zip(["cpu:0", "cuda:0"]) {
            // SAFETY: as above.
            let memory = unsafe { ForeignMemory::new(bytes.as_mut_ptr() as u64, 100) };
            let info = registry.prepare_foreign(memory, Access::Remote, location.into()).unwrap();
            registry.publish(info.address);
        }
        assert_eq!(registry.readable(), [(bytes[0].as_ptr() as u64, 100)], "only ordinary memory");
    }
}
