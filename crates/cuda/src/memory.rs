//! Memory on a GPU, memory of the host that it reaches fast, memory of other processes.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;

use yb_mem::{ForeignMemory, HugePages, MapError, MemorySegment, SegmentOptions, Span};

use crate::symbols::RawHandle;
use crate::{CudaError, Driver};

/// Host memory that is pinned is so for every context.
const PORTABLE: u32 = 1;
/// The only flag of `cuIpcOpenMemHandle`.
const LAZY_PEER_ACCESS: u32 = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`
const DMA_BUF: u32 = 1;

/// Memory of a GPU, freed when dropped.
pub struct GpuMemory {
    driver: Arc<Driver>,
    ordinal: u32,
    address: u64,
    len: u64,
}

/// Memory of the host, pinned for the GPUs where the driver allows it.
pub struct PinnedMemory {
    driver: Arc<Driver>,
    segment: MemorySegment,
    pinned: Option<u32>,
}

/// Memory of a GPU that another process allocated, mapped here; unmapped when dropped.
pub struct ImportedMemory {
    driver: Arc<Driver>,
    ordinal: u32,
    address: u64,
    len: u64,
}

/// Names an allocation of another process on this host. As text, upper-case hex: the form of the peer's descriptions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpcHandle([u8; 64]);

impl Driver {
    /// Allocates memory on a GPU.
    ///
    /// # Errors
    /// The driver's: no such GPU, no memory left.
    pub fn allocate(self: &Arc<Self>, ordinal: u32, len: u64) -> Result<GpuMemory, CudaError> {
        let _current = self.current(ordinal)?;
        let mut address = 0;
        // SAFETY: the result is written to a local of the right type.
        self.check("cuMemAlloc", unsafe { (self.symbols.allocate)(&raw mut address, len as usize) })?;
        Ok(GpuMemory { driver: Arc::clone(self), ordinal, address, len })
    }

    /// Makes memory of the host through which copies of a GPU go. Where it cannot be pinned it is used as it is, slower.
    ///
    /// # Errors
    /// The system's, when it has no memory left.
    pub fn pin(self: &Arc<Self>, ordinal: u32, len: u64) -> Result<PinnedMemory, MapError> {
        let segment = MemorySegment::create(
            len,
            SegmentOptions { huge_pages: HugePages::Never, populate: true, ..SegmentOptions::default() },
        )?;
        let pinned = self.current(ordinal).is_ok_and(|_current| {
            let first = segment.address() as *mut c_void;
            // SAFETY: the range is our own mapping, and it is unregistered before it is unmapped.
            unsafe { (self.symbols.host_register)(first, segment.len() as usize, PORTABLE) == 0 }
        });
        Ok(PinnedMemory { driver: Arc::clone(self), segment, pinned: pinned.then_some(ordinal) })
    }

    /// A handle for the allocation that starts at `address`, to be opened by other processes of this host.
    ///
    /// # Errors
    /// The driver's: memory of a pool or of the virtual memory functions has no such handle.
    pub fn export(&self, address: u64) -> Result<IpcHandle, CudaError> {
        let _current = self.current_for(address)?;
        let mut handle = RawHandle([0; 64]);
        // SAFETY: the result is written to a local of the right type.
        self.check("cuIpcGetMemHandle", unsafe { (self.symbols.ipc_get)(&raw mut handle, address) })?;
        Ok(IpcHandle(handle.0))
    }

    /// Maps an allocation of `len` bytes of another process, on the GPU with that number here.
    ///
    /// # Errors
    /// The driver's: the other process has ended, or is this one, or has its memory on a GPU that is not reached from here.
    pub fn import(self: &Arc<Self>, ordinal: u32, handle: IpcHandle, len: u64) -> Result<ImportedMemory, CudaError> {
        let _current = self.current(ordinal)?;
        let mut address = 0;
        // SAFETY: the result is written to a local of the right type; the driver checks the handle.
        self.check("cuIpcOpenMemHandle", unsafe {
            (self.symbols.ipc_open)(&raw mut address, RawHandle(handle.0), LAZY_PEER_ACCESS)
        })?;
        let imported = ImportedMemory { driver: Arc::clone(self), ordinal, address, len };
        match self.allocation(address) {
            Ok((_, size)) if size >= len => Ok(imported),
            Ok((_, size)) => Err(CudaError::Invalid(format!("the allocation has {size} bytes, not {len}"))),
            Err(error) => Err(error),
        }
    }

    /// A dma-buf of a range of GPU memory, for the registration with a NIC. Both ends must lie on pages of the host.
    ///
    /// # Errors
    /// The driver's; [`CudaError::Library`] before CUDA 11.7.
    pub fn export_dmabuf(&self, address: u64, len: u64) -> Result<OwnedFd, CudaError> {
        let missing = || CudaError::Library("cuMemGetHandleForAddressRange is missing: CUDA 11.7 has it".to_owned());
        let export = self.symbols.range_handle.ok_or_else(missing)?;
        let _current = self.current_for(address)?;
        let mut fd: c_int = -1;
        // SAFETY: for this kind of handle an int is written.
        let status = unsafe { export((&raw mut fd).cast::<c_void>(), address, len as usize, DMA_BUF, 0) };
        self.check("cuMemGetHandleForAddressRange", status)?;
        if fd < 0 {
            return Err(CudaError::Invalid("the driver gave no descriptor".to_owned()));
        }
        // SAFETY: the descriptor is new, and ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl GpuMemory {
    /// Its first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for no bytes (which the driver does not allocate).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// All of it, marked as out of the CPU's reach.
    pub fn span(&self) -> Span<'_> {
        // SAFETY: the allocation lives as long as self.
        unsafe { Span::on_device(self.address, self.len as usize) }
    }

    /// The memory as a region to be registered.
    ///
    /// # Safety
    /// It must be unregistered successfully before self is dropped.
    pub unsafe fn foreign(&self) -> ForeignMemory {
        // SAFETY: passed on to the caller.
        unsafe { ForeignMemory::new(self.address, self.len) }
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if let Ok(_current) = self.driver.current(self.ordinal) {
            // SAFETY: allocated by us, freed once.
            let _ = unsafe { (self.driver.symbols.free)(self.address) };
        }
    }
}

impl PinnedMemory {
    /// All of it.
    pub fn span(&self) -> Span<'_> {
        self.segment.span()
    }

    /// Whether the driver pinned it.
    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let Some(ordinal) = self.pinned
            && let Ok(_current) = self.driver.current(ordinal)
        {
            // SAFETY: registered by us, still mapped, and no copy is under way: scopes that use it have ended.
            let _ = unsafe { (self.driver.symbols.host_unregister)(self.segment.address() as *mut c_void) };
        }
    }
}

impl ImportedMemory {
    /// All of it, marked as out of the CPU's reach. Its owner may free it meanwhile; then copies move old bytes.
    pub fn span(&self) -> Span<'_> {
        // SAFETY: it stays mapped as long as self.
        unsafe { Span::on_device(self.address, self.len as usize) }
    }

    /// The GPU on which it is mapped.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        if let Ok(_current) = self.driver.current(self.ordinal) {
            // SAFETY: opened by us, closed once, and scopes that use it have ended.
            let _ = unsafe { (self.driver.symbols.ipc_close)(self.address) };
        }
    }
}

impl fmt::Display for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpcHandle({self})")
    }
}

impl FromStr for IpcHandle {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let wrong = || CudaError::Invalid("a handle is 128 hex digits".to_owned());
        let mut bytes = [0; 64];
        if text.len() != 128 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(IpcHandle(bytes))
    }
}

macro_rules! debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("span", &self.span()).finish_non_exhaustive()
            }
        }
    )*};
}

debug!(GpuMemory, PinnedMemory, ImportedMemory);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_upper_case_hex() {
        let mut bytes = [0xab; 64];
        bytes[0] = 1;
        let handle = IpcHandle(bytes);
        let text = handle.to_string();
        assert!(text.starts_with("01ABAB") && text.len() == 128);
        assert_eq!(text.parse::<IpcHandle>(), Ok(handle));
        assert_eq!(text.to_lowercase().parse::<IpcHandle>(), Ok(handle));
        for bad in ["", "0", &text[1..], &format!("{text}0"), &text.replace("01", "0g"), &"é".repeat(64)] {
            assert!(bad.parse::<IpcHandle>().is_err(), "{bad}");
        }
    }
}
