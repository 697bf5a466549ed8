//! The driver, its GPUs, and where memory is.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::CudaError;
use crate::stream::Stream;
use crate::symbols::{Context, Status, Symbols};

const ATTRIBUTE_MEMORY_TYPE: c_int = 2;
const ATTRIBUTE_IS_MANAGED: c_int = 8;
const ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
const MEMORY_TYPE_DEVICE: u32 = 2;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number in this process: `cuda:ordinal`.
    pub ordinal: u32,
    /// Its model.
    pub name: String,
    /// `0000:3b:00.0`
    pub bus_id: String,
    /// Bytes of its memory.
    pub memory: u64,
}

/// The CUDA driver.
pub struct Driver {
    pub(crate) symbols: Symbols,
    version: u32,
    gpus: Vec<Place>,
}

/// What is kept of a GPU.
struct Place {
    device: c_int,
    context: OnceLock<Held>,
    /// Streams that nobody uses now.
    pub(crate) streams: Mutex<Vec<Stream>>,
}

/// A primary context, held for the life of the process.
#[derive(Clone, Copy)]
struct Held(Context);

// SAFETY: a context is a handle that any thread may make current.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Driver {
    /// Opens and initialises the driver: `library`, or the one that the system has.
    ///
    /// # Errors
    /// [`CudaError::Library`] when there is none, or it lacks a function; [`CudaError::Call`] when it finds no GPU.
    pub fn open(library: Option<&OsStr>) -> Result<Arc<Self>, CudaError> {
        Driver::of(Symbols::open(library)?)
    }

    /// The driver, if this process has it loaded: otherwise no memory of it can be on a GPU.
    pub fn loaded() -> Option<Arc<Self>> {
        Driver::of(Symbols::loaded()?).ok()
    }

    fn of(symbols: Symbols) -> Result<Arc<Self>, CudaError> {
        let mut driver = Driver { symbols, version: 0, gpus: Vec::new() };
        let (mut version, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: the results are written to locals of the right types.
        unsafe {
            driver.check("cuInit", (driver.symbols.init)(0))?;
            driver.check("cuDriverGetVersion", (driver.symbols.driver_version)(&raw mut version))?;
            driver.check("cuDeviceGetCount", (driver.symbols.device_count)(&raw mut count))?;
        }
        driver.version = u32::try_from(version).unwrap_or(0);
        for ordinal in 0..count {
            let mut device = 0;
            // SAFETY: as above.
            driver.check("cuDeviceGet", unsafe { (driver.symbols.device_get)(&raw mut device, ordinal) })?;
            driver.gpus.push(Place { device, context: OnceLock::new(), streams: Mutex::new(Vec::new()) });
        }
        Ok(Arc::new(driver))
    }

    /// The newest CUDA that the driver serves, as major and minor number.
    pub fn version(&self) -> (u32, u32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    /// The GPUs that this process may use.
    ///
    /// # Errors
    /// The driver's.
    pub fn gpus(&self) -> Result<Vec<Gpu>, CudaError> {
        self.gpus.iter().enumerate().map(|(ordinal, place)| self.gpu(ordinal as u32, place.device)).collect()
    }

    fn gpu(&self, ordinal: u32, device: c_int) -> Result<Gpu, CudaError> {
        let (mut name, mut bus, mut memory) = ([0 as c_char; 256], [0 as c_char; 64], 0_usize);
        // SAFETY: the lengths are those of the arrays, less one so that a zero is always at the end.
        unsafe {
            self.check("cuDeviceGetName", (self.symbols.device_name)(name.as_mut_ptr(), 255, device))?;
            self.check("cuDeviceGetPCIBusId", (self.symbols.device_bus_id)(bus.as_mut_ptr(), 63, device))?;
            self.check("cuDeviceTotalMem", (self.symbols.device_memory)(&raw mut memory, device))?;
        }
        // SAFETY: both arrays end with a zero.
        let text = |chars: &[c_char]| unsafe { CStr::from_ptr(chars.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Gpu { ordinal, name: text(&name), bus_id: text(&bus).to_lowercase(), memory: memory as u64 })
    }

    /// The GPU whose memory `address` is; `None` for memory that the CPU can reach (ordinary, pinned, managed).
    pub fn locate(&self, address: u64) -> Option<u32> {
        let attribute = |which: c_int| {
            let mut value = 0_u64;
            // SAFETY: the attributes asked for are of four bytes; an address that the driver does not know is an error.
            let status = unsafe { (self.symbols.pointer_attribute)((&raw mut value).cast::<c_void>(), which, address) };
            (status == 0).then_some(value as u32)
        };
        let on_device = attribute(ATTRIBUTE_MEMORY_TYPE)? == MEMORY_TYPE_DEVICE;
        let managed = attribute(ATTRIBUTE_IS_MANAGED).is_some_and(|managed| managed != 0);
        (on_device && !managed).then(|| attribute(ATTRIBUTE_DEVICE_ORDINAL)).flatten()
    }

    /// First address and length of the allocation that `address` lies in.
    ///
    /// # Errors
    /// When it lies in none.
    pub fn allocation(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let (mut base, mut size) = (0, 0_usize);
        let _current = self.current_for(address)?;
        // SAFETY: the results are written to locals of the right types.
        self.check("cuMemGetAddressRange", unsafe {
            (self.symbols.address_range)(&raw mut base, &raw mut size, address)
        })?;
        Ok((base, size as u64))
    }

    /// Runs `work` when all that was put on `stream` before has ended.
    ///
    /// # Errors
    /// The driver's; `work` does not run then.
    ///
    /// # Safety
    /// `stream` must be a stream of this process (0 is the default one).
    pub unsafe fn launch<F: FnOnce() + Send + 'static>(&self, stream: u64, work: F) -> Result<(), CudaError> {
        unsafe extern "C" fn run<F: FnOnce() + Send + 'static>(argument: *mut c_void) {
            // SAFETY: the pointer was made from a box of this type, and the driver calls once.
            let work = unsafe { Box::from_raw(argument.cast::<F>()) };
            // A panic must not cross the driver.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        }
        let argument = Box::into_raw(Box::new(work));
        // SAFETY: the caller vouches for the stream; the box lives until the function has taken it.
        let status = unsafe { (self.symbols.launch_host)(stream as *mut c_void, run::<F>, argument.cast()) };
        self.check("cuLaunchHostFunc", status).inspect_err(|_| {
            // SAFETY: the driver refused, so nobody else has the box.
            drop(unsafe { Box::from_raw(argument) });
        })
    }

    /// Makes the context of a GPU current on this thread until the value is dropped.
    pub(crate) fn current(&self, ordinal: u32) -> Result<Current<'_>, CudaError> {
        let place = self.place(ordinal)?;
        let context = match place.context.get() {
            Some(context) => *context,
            None => {
                let mut context = std::ptr::null_mut();
                // SAFETY: the result is written to a local of the right type. Retained twice by two threads at once it is
                // held twice, which costs nothing: it is never let go.
                self.check("cuDevicePrimaryCtxRetain", unsafe {
                    (self.symbols.context_retain)(&raw mut context, place.device)
                })?;
                *place.context.get_or_init(|| Held(context))
            }
        };
        // SAFETY: the context is held.
        self.check("cuCtxPushCurrent", unsafe { (self.symbols.context_push)(context.0) })?;
        Ok(Current(self))
    }

    /// As [`Driver::current`], for the GPU that the address belongs to.
    pub(crate) fn current_for(&self, address: u64) -> Result<Current<'_>, CudaError> {
        let ordinal = self.locate(address);
        self.current(ordinal.ok_or_else(|| CudaError::Invalid(format!("{address:#x} is not memory of a GPU")))?)
    }

    fn place(&self, ordinal: u32) -> Result<&Place, CudaError> {
        let gpu = self.gpus.get(ordinal as usize);
        gpu.ok_or_else(|| CudaError::Invalid(format!("there is no GPU {ordinal}, only {}", self.gpus.len())))
    }

    pub(crate) fn idle_streams(&self, ordinal: u32) -> Result<&Mutex<Vec<Stream>>, CudaError> {
        self.place(ordinal).map(|place| &place.streams)
    }

    /// Turns a status into an error.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the result is written to a local; the driver's names are static texts.
        let name = unsafe {
            let known = (self.symbols.error_name)(status, &raw mut name) == 0 && !name.is_null();
            if known { CStr::from_ptr(name).to_string_lossy().into_owned() } else { "unknown".to_owned() }
        };
        Err(CudaError::Call { call, code: status, name })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for place in &self.gpus {
            for stream in place.streams.lock().drain(..) {
                // SAFETY: the stream was made by us, nothing is on it, and nobody uses it any more. The driver may be shut
                // down already at the end of a process, which it says by an error.
                let _ = unsafe { (self.symbols.stream_destroy)(stream.0) };
            }
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("version", &self.version()).field("gpus", &self.gpus.len()).finish()
    }
}

/// A context that is current on this thread.
pub(crate) struct Current<'a>(&'a Driver);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: it was pushed by this thread, and pushes of others between are popped by then.
        let _ = unsafe { (self.0.symbols.context_pop)(&raw mut popped) };
    }
}
