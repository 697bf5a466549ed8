//! Protection domains and memory that a device may reach.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use yb_mem::{MemorySegment, RegionInfo, RegionPin, Span};

use crate::abi::*;
use crate::{Context, VerbsError};

/// The right to use an address range for as long as the value lives.
///
/// # Safety
/// `span()` must give the same range every time, and that range must stay mapped until the value (or, for clones, the
/// last of them) is dropped.
pub unsafe trait Hold {
    /// The range.
    fn span(&self) -> Span<'_>;
}

// SAFETY: a pin keeps its region, and with it the mapping, until it is dropped.
unsafe impl Hold for RegionPin {
    fn span(&self) -> Span<'_> {
        RegionPin::span(self)
    }
}

// SAFETY: the range of a registered region stays mapped until the region is removed, and what was registered with a device
// is dropped before (the engine's transports are told so).
unsafe impl Hold for RegionInfo {
    fn span(&self) -> Span<'_> {
        RegionInfo::span(self)
    }
}

// SAFETY: the range of a span is mapped for the span's lifetime, which the region borrows.
unsafe impl Hold for Span<'_> {
    fn span(&self) -> Span<'_> {
        *self
    }
}

// SAFETY: a segment owns its mapping.
unsafe impl Hold for MemorySegment {
    fn span(&self) -> Span<'_> {
        MemorySegment::span(self)
    }
}

// SAFETY: the same memory, held by a count.
unsafe impl<H: Hold> Hold for Arc<H> {
    fn span(&self) -> Span<'_> {
        H::span(self)
    }
}

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The device writes what was read from peers.
    pub local_write: bool,
    /// Peers read and write.
    pub remote: bool,
    /// The bus may reorder writes, where the library can ask for it.
    pub relaxed_ordering: bool,
}

impl MemoryAccess {
    fn bits(self, relaxed_allowed: bool) -> c_int {
        let mut bits = 0;
        if self.local_write || self.remote {
            bits |= IBV_ACCESS_LOCAL_WRITE;
        }
        if self.remote {
            bits |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        }
        if self.relaxed_ordering && relaxed_allowed {
            bits |= IBV_ACCESS_RELAXED_ORDERING;
        }
        bits
    }
}

/// A set of memory and queue pairs that may be used together.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: NonNull<ibv_pd>,
}

// SAFETY: the library may be called from any thread, also at the same time.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Makes one.
    ///
    /// # Errors
    /// The system's.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { (context.verbs.0.alloc_pd)(context.raw.as_ptr()) });
        let raw = raw.ok_or_else(|| context.error("ibv_alloc_pd"))?;
        Ok(Arc::new(ProtectionDomain { context: Arc::clone(context), raw }))
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made by `new`, released once; regions and queue pairs hold the domain, so none is left.
        unsafe { (self.context.verbs.0.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory that a device may reach. Dropping it takes the right away: afterwards neither the device nor a peer can touch
/// the range through its keys. (A region that is leaked with `mem::forget` keeps the right for ever.)
#[derive(Debug)]
pub struct MemoryRegion<H: Hold> {
    domain: Arc<ProtectionDomain>,
    raw: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    address: u64,
    len: u64,
    /// Released after the region: fields are dropped after `drop` has run.
    _hold: H,
}

// SAFETY: the library may be called from any thread; what is held is sent along.
unsafe impl<H: Hold + Send> Send for MemoryRegion<H> {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl<H: Hold + Sync> Sync for MemoryRegion<H> {}

impl<H: Hold> MemoryRegion<H> {
    /// Registers `offset..offset+len` of what is held; addresses are those of this process.
    ///
    /// # Errors
    /// The system's: `ENOMEM` when the limit of locked memory is reached; `EINVAL` when the range is not inside.
    pub fn register(
        domain: &Arc<ProtectionDomain>,
        hold: H,
        (offset, len): (u64, u64),
        access: MemoryAccess,
    ) -> Result<Self, VerbsError> {
        let context = &domain.context;
        let part = hold.span().slice(offset as usize, len as usize);
        let invalid = || context.failed("ibv_reg_mr", std::io::Error::from_raw_os_error(libc::EINVAL));
        let address = part.map_err(|_| invalid())?.address();
        let writes = access.local_write || access.remote;
        if len == 0 || (writes && !hold.span().is_writable()) {
            return Err(invalid());
        }
        let functions = &context.verbs.0;
        let (pd, start) = (domain.raw.as_ptr(), address as *mut std::ffi::c_void);
        let raw = match functions.reg_mr_iova2 {
            Some(register) => {
                let bits = access.bits(true) as c_uint;
                // SAFETY: the range is mapped as long as `hold` lives, which the region keeps; the domain is alive.
                unsafe { register(pd, start, len as usize, address, bits) }
            }
            // SAFETY: as above.
            None => unsafe { (functions.reg_mr)(pd, start, len as usize, access.bits(false)) },
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.error("ibv_reg_mr"))?;
        Ok(Self::made(domain, raw, hold, (address, len)))
    }

    /// Registers `len` bytes of a dma-buf from `offset` on, which are at `address` in the process's view.
    ///
    /// # Errors
    /// [`VerbsError::Unsupported`] when the library lacks it; the system's, `EOPNOTSUPP` when the device does.
    pub fn register_dmabuf(
        domain: &Arc<ProtectionDomain>,
        hold: H,
        buffer: BorrowedFd<'_>,
        (offset, address, len): (u64, u64, u64),
        access: MemoryAccess,
    ) -> Result<Self, VerbsError> {
        let context = &domain.context;
        let register = context.verbs.0.reg_dmabuf_mr.ok_or(VerbsError::Unsupported("registration of a dma-buf"))?;
        let bits = access.bits(context.verbs.0.reg_mr_iova2.is_some());
        // SAFETY: the kernel takes its own reference to the buffer; addresses are only names for its bytes.
        let raw = unsafe { register(domain.raw.as_ptr(), offset, len as usize, address, buffer.as_raw_fd(), bits) };
        let raw = NonNull::new(raw).ok_or_else(|| context.error("ibv_reg_dmabuf_mr"))?;
        Ok(Self::made(domain, raw, hold, (address, len)))
    }

    fn made(domain: &Arc<ProtectionDomain>, raw: NonNull<ibv_mr>, hold: H, (address, len): (u64, u64)) -> Self {
        // SAFETY: the library returned the region, whose keys do not change.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        MemoryRegion { domain: Arc::clone(domain), raw, lkey, rkey, address, len, _hold: hold }
    }

    /// The key for our own work requests.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a region of no bytes (which is never made).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<H: Hold> Drop for MemoryRegion<H> {
    fn drop(&mut self) {
        // SAFETY: registered once, released once, before what is held is let go.
        unsafe { (self.domain.context.verbs.0.dereg_mr)(self.raw.as_ptr()) };
    }
}
