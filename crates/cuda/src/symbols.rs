//! The functions of the driver that are used here, with the types of `cuda.h`.

use std::ffi::{OsStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::dl_phdr_info;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::CudaError;

/// `CUresult`
pub(crate) type Status = c_int;
/// `CUdeviceptr`
pub(crate) type Pointer = u64;
pub(crate) type Context = *mut c_void;
pub(crate) type RawStream = *mut c_void;
/// `CUhostFn`
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// `CUipcMemHandle`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawHandle(pub(crate) [u8; 64]);

/// Only where the library is loaded already.
const RTLD_NOLOAD: c_int = 4;
/// The name under which every program loads the driver.
const NAME: &str = "libcuda.so.1";

macro_rules! symbols {
    ($($field:ident: $name:literal = fn($($argument:ty),* $(,)?);)*) => {
        pub(crate) struct Symbols {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> Status,)*
            /// Since CUDA 11.7; absent in older drivers.
            pub(crate) range_handle: Option<unsafe extern "C" fn(*mut c_void, Pointer, usize, c_uint, u64) -> Status>,
            /// Kept open for as long as its functions are used.
            _library: Library,
        }

        impl Symbols {
            fn of(library: Library) -> Result<Self, CudaError> {
                let missing = |error: libloading::Error| CudaError::Library(error.to_string());
                // SAFETY: the names and types are those of the driver's stable ABI (`cuda.h`, the versions that the suffixes
                // name); the library stays open as long as the pointers, in the same value.
                unsafe {
                    Ok(Symbols {
                        $($field: *library.get($name).map_err(missing)?,)*
                        range_handle: library.get(b"cuMemGetHandleForAddressRange\0").ok().map(|symbol| *symbol),
                        _library: library,
                    })
                }
            }
        }
    };
}

symbols! {
    init: b"cuInit\0" = fn(c_uint);
    driver_version: b"cuDriverGetVersion\0" = fn(*mut c_int);
    error_name: b"cuGetErrorName\0" = fn(Status, *mut *const c_char);
    device_count: b"cuDeviceGetCount\0" = fn(*mut c_int);
    device_get: b"cuDeviceGet\0" = fn(*mut c_int, c_int);
    device_name: b"cuDeviceGetName\0" = fn(*mut c_char, c_int, c_int);
    device_bus_id: b"cuDeviceGetPCIBusId\0" = fn(*mut c_char, c_int, c_int);
    device_memory: b"cuDeviceTotalMem_v2\0" = fn(*mut usize, c_int);
    context_retain: b"cuDevicePrimaryCtxRetain\0" = fn(*mut Context, c_int);
    context_push: b"cuCtxPushCurrent_v2\0" = fn(Context);
    context_pop: b"cuCtxPopCurrent_v2\0" = fn(*mut Context);
    pointer_attribute: b"cuPointerGetAttribute\0" = fn(*mut c_void, c_int, Pointer);
    address_range: b"cuMemGetAddressRange_v2\0" = fn(*mut Pointer, *mut usize, Pointer);
    allocate: b"cuMemAlloc_v2\0" = fn(*mut Pointer, usize);
    free: b"cuMemFree_v2\0" = fn(Pointer);
    host_register: b"cuMemHostRegister_v2\0" = fn(*mut c_void, usize, c_uint);
    host_unregister: b"cuMemHostUnregister\0" = fn(*mut c_void);
    stream_create: b"cuStreamCreate\0" = fn(*mut RawStream, c_uint);
    stream_destroy: b"cuStreamDestroy_v2\0" = fn(RawStream);
    stream_synchronize: b"cuStreamSynchronize\0" = fn(RawStream);
    copy: b"cuMemcpyAsync\0" = fn(Pointer, Pointer, usize, RawStream);
    ipc_get: b"cuIpcGetMemHandle\0" = fn(*mut RawHandle, Pointer);
    ipc_open: b"cuIpcOpenMemHandle_v2\0" = fn(*mut Pointer, RawHandle, c_uint);
    ipc_close: b"cuIpcCloseMemHandle\0" = fn(Pointer);
    launch_host: b"cuLaunchHostFunc\0" = fn(RawStream, HostFunction, *mut c_void);
}

impl Symbols {
    /// Opens a library, by path or by the name that the linker searches for.
    pub(crate) fn open(library: Option<&OsStr>) -> Result<Self, CudaError> {
        // SAFETY: the initialisers of the CUDA driver may run in any program that may use a GPU.
        let opened = unsafe { Library::open(Some(library.unwrap_or(OsStr::new(NAME))), RTLD_NOW | RTLD_LOCAL) };
        Symbols::of(opened.map_err(|error| CudaError::Library(error.to_string()))?)
    }

    /// The driver, if this process has it loaded. Cheap to ask before every transfer: the linker, which looks through
    /// folders for a library that is not there, is asked again only when the process has loaded something since.
    pub(crate) fn loaded() -> Option<Self> {
        static WITHOUT: AtomicU64 = AtomicU64::new(0);
        let loads = libraries_loaded();
        if loads != 0 && WITHOUT.load(Ordering::Relaxed) == loads {
            return None;
        }
        // SAFETY: with RTLD_NOLOAD nothing is loaded, so no code of it runs.
        let opened = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_NOLOAD) };
        if opened.is_err() {
            WITHOUT.store(loads, Ordering::Relaxed);
        }
        Symbols::of(opened.ok()?).ok()
    }
}

/// How many libraries the process has loaded so far, those it closed again counted too; 0 when that is not known.
fn libraries_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut dl_phdr_info, size: usize, loads: *mut c_void) -> c_int {
        if size >= std::mem::offset_of!(dl_phdr_info, dlpi_subs) {
            // SAFETY: the linker hands over a valid entry of `size` bytes, and the pointer given below.
            unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
        }
        // Every entry says the same.
        1
    }
    let mut loads = 0_u64;
    // SAFETY: the callback writes to the local variable during the call only.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}
