//! A window: memory of a dummy that is mapped here.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_alloc::{Alignment, NodeId, OffsetAllocator};
use yb_client::LocalBuffer;
use yb_mem::{MapError, Mapping, PeerView};
use yb_types::ByteLen;

/// Memory of a dummy. Addresses are the dummy's.
#[derive(Debug)]
pub(crate) struct Window {
    base: u64,
    len: u64,
    view: PeerView,
    /// The daemon gives room in it out; `None`: the dummy keeps it for itself.
    loans: Option<Mutex<Loans>>,
}

/// What is given out of a local window.
struct Loans {
    space: OffsetAllocator,
    /// By the dummy's address.
    out: BTreeMap<u64, NodeId>,
}

impl std::fmt::Debug for Loans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loans").field("out", &self.out.len()).finish_non_exhaustive()
    }
}

impl Window {
    /// Maps `len` bytes of the file, which the dummy has at `base`. `trusted`: the dummy runs under our own user.
    pub(crate) fn map(file: &OwnedFd, base: u64, len: u64, is_local: bool, trusted: bool) -> Result<Window, MapError> {
        let view = Mapping::of_neighbour(file, len, trusted)?;
        let space = || OffsetAllocator::new(ByteLen(len), Alignment::CACHE_LINE);
        let loans = is_local.then(|| Mutex::new(Loans { space: space(), out: BTreeMap::new() }));
        Ok(Window { base, len, view, loans })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn overlaps(&self, base: u64, len: u64) -> bool {
        base < self.base.saturating_add(self.len) && self.base < base.saturating_add(len)
    }

    /// The range as memory of ours, if it is wholly inside.
    fn buffer(&self, address: u64, len: u64) -> Option<LocalBuffer<'_>> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let span = self.view.span().ok()?.slice(offset, usize::try_from(len).ok()?).ok()?;
        Some(LocalBuffer::span_of(span))
    }

    /// Room for `size` bytes; its address in the dummy.
    fn lend(&self, size: u64) -> Option<u64> {
        let mut loans = self.loans.as_ref()?.lock();
        let extent = loans.space.allocate(ByteLen(size), 0)?;
        let address = self.base + extent.offset;
        loans.out.insert(address, extent.node);
        Some(address)
    }

    /// Takes a loan back; false when there is none at this address.
    fn take_back(&self, address: u64) -> bool {
        let Some(loans) = &self.loans else { return false };
        let mut loans = loans.lock();
        let Some(node) = loans.out.remove(&address) else { return false };
        loans.space.free(node).is_ok()
    }

    /// Loans that are out.
    pub(crate) fn loans(&self) -> usize {
        self.loans.as_ref().map_or(0, |loans| loans.lock().out.len())
    }
}

/// The windows of one dummy as they were when a call began. They stay mapped as long as this value lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows(Arc<Vec<Arc<Window>>>);

impl Windows {
    /// With one more; `None` when it shares addresses with one that is there.
    pub(crate) fn with(&self, window: Window) -> Option<Windows> {
        if self.0.iter().any(|other| other.overlaps(window.base, window.len)) {
            return None;
        }
        let mut all = Vec::clone(&self.0);
        let at = all.partition_point(|other| other.base < window.base);
        all.insert(at, Arc::new(window));
        Some(Windows(Arc::new(all)))
    }

    /// Without the one that starts at `base`; `None` when none does.
    pub(crate) fn without(&self, base: u64) -> Option<Windows> {
        let at = self.0.binary_search_by_key(&base, |window| window.base).ok()?;
        let mut all = Vec::clone(&self.0);
        all.remove(at);
        Some(Windows(Arc::new(all)))
    }

    /// Whether one starts at `base`.
    pub(crate) fn starts_at(&self, base: u64) -> bool {
        self.0.binary_search_by_key(&base, |window| window.base).is_ok()
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window> {
        self.0.iter().map(Arc::as_ref)
    }

    /// A range of the dummy's addresses as memory of ours, if it lies inside one window. A range of no bytes needs none.
    pub(crate) fn buffer(&self, address: u64, len: u64) -> Option<LocalBuffer<'_>> {
        if len == 0 {
            return Some(LocalBuffer::source(&[]));
        }
        let after = self.0.partition_point(|window| window.base <= address);
        self.0.get(after.checked_sub(1)?)?.buffer(address, len)
    }

    /// Room for `size` bytes in a local window. The loan ends when the guard is dropped, unless it is kept.
    pub(crate) fn lend(&self, size: u64) -> Option<Loan<'_>> {
        self.iter().find_map(|window| Some(Loan { window, address: window.lend(size)?, kept: false }))
    }

    /// Takes a loan back; false when there is none at this address.
    pub(crate) fn take_back(&self, address: u64) -> bool {
        self.iter().any(|window| window.take_back(address))
    }
}

/// Room in a local window while nobody has been told of it.
#[derive(Debug)]
pub(crate) struct Loan<'w> {
    window: &'w Window,
    address: u64,
    kept: bool,
}

impl Loan<'_> {
    /// Its address in the dummy.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The dummy is told: it gives the room back itself.
    pub(crate) fn keep(mut self) -> u64 {
        self.kept = true;
        self.address
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.window.take_back(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_mem::{CopyHint, MemorySegment, SegmentOptions, Span};

    fn window(segment: &MemorySegment, base: u64, is_local: bool) -> Window {
        let file = segment.file().try_clone_to_owned().unwrap();
        Window::map(&file, base, segment.len(), is_local, false).unwrap()
    }

    #[test]
    fn addresses_are_the_dummys_and_stay_inside_one_window() {
        let segment = MemorySegment::create(8192, SegmentOptions::default()).unwrap();
        yb_mem::copy(segment.span().slice(100, 3).unwrap(), Span::source(b"abc"), CopyHint::Cached).unwrap();
        let windows = Windows::default().with(window(&segment, 0x10_0000, false)).unwrap();
        assert!(windows.with(window(&segment, 0x10_1fff, false)).is_none());
        let both = windows.with(window(&segment, 0x10_2000, false)).unwrap();
        assert_eq!(both.buffer(0x10_0064, 3).unwrap().span().to_vec(), b"abc");
        assert_eq!(both.buffer(0x10_2064, 3).unwrap().span().to_vec(), b"abc");
        for (address, len) in [(0xf_ffff, 1), (0x10_1fff, 2), (0x10_4000, 1), (0x10_0000, u64::MAX), (u64::MAX, 2)] {
            assert!(both.buffer(address, len).is_none(), "{address:x}+{len}");
        }
        assert!(both.buffer(0, 0).is_some());
        let less = both.without(0x10_0000).unwrap();
        assert!(less.buffer(0x10_0000, 1).is_none() && both.buffer(0x10_0000, 1).is_some());
    }

    #[test]
    fn loans_come_back_once() {
        let segment = MemorySegment::create(8192, SegmentOptions::default()).unwrap();
        let windows = Windows::default().with(window(&segment, 0x10_0000, true)).unwrap();
        assert!(windows.lend(8193).is_none());
        drop(windows.lend(8192).unwrap());
        let address = windows.lend(5000).unwrap().keep();
        assert!(windows.lend(5000).is_none());
        assert!(!windows.take_back(address + 64) && windows.take_back(address) && !windows.take_back(address));
        assert!(windows.lend(5000).is_some());
    }
}
