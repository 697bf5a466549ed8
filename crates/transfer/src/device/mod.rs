//! Memory of GPUs, which the CPU cannot reach.
//!
//! What is on a GPU is found out by asking the driver when memory is registered or lent; its spans are marked from then on.
//! A job whose local memory is on a GPU goes over a transport that takes such memory, or is staged ([`stage`]): copied by
//! the GPU to and from buffers of the host, chunk after chunk, while other transports move the chunk before. A peer's
//! requests for memory on our GPU are served through a window ([`window`]). Between processes of one host the GPU copies by
//! itself ([`ipc`]).

mod ipc;
mod stage;
mod window;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use yb_cuda::{CudaError, Driver, PinnedMemory};
use yb_mem::{ForeignMemory, Location, Span};

use crate::transport::Limits;
use crate::{RegistryError, TransferErrorKind};

pub(crate) use ipc::IpcTransport;
pub(crate) use stage::stage;
pub(crate) use window::Body;

/// Bytes that are copied, or on their way, at a time.
pub(crate) const CHUNK: u64 = 4 << 20;
/// A page of the host.
const PAGE: u64 = 4096;
/// Most jobs that are staged at the same time; others wait.
const MAX_PAIRS: usize = 8;
/// Bytes of the window of a request, and how many may have one; more have a small one.
const WINDOW: u64 = 1 << 20;
const MAX_WINDOWS: usize = 64;
const SMALL_WINDOW: u64 = 64 << 10;

/// The driver, once somebody needs it, and the host memory through which it copies.
#[derive(Debug)]
pub(crate) struct Gpus {
    /// `None`: the driver that the process has loaded.
    library: Option<PathBuf>,
    driver: OnceLock<Arc<Driver>>,
    pairs: Mutex<Pairs>,
    returned: Condvar,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Pairs {
    idle: Vec<PinnedMemory>,
    made: usize,
}

/// Host memory of windows, as large as they should be.
#[derive(Debug, Default)]
struct Windows {
    idle: Vec<PinnedMemory>,
    made: usize,
}

/// Two chunks of host memory, given back when dropped.
pub(crate) struct Pair<'a> {
    memory: Option<PinnedMemory>,
    gpus: &'a Gpus,
}

impl Gpus {
    /// Nothing is opened before memory on a GPU may be met. `library` is opened then; without one, the driver is used if
    /// the process has loaded it.
    pub(crate) fn new(library: Option<PathBuf>) -> Self {
        Gpus {
            library,
            driver: OnceLock::new(),
            pairs: Mutex::new(Pairs::default()),
            returned: Condvar::new(),
            windows: Mutex::new(Windows::default()),
        }
    }

    /// The driver, if this process has it: without it nothing of ours is on a GPU. While it has none, the loader is asked
    /// at each call.
    pub(crate) fn driver(&self) -> Option<Arc<Driver>> {
        if let Some(driver) = self.driver.get() {
            return Some(Arc::clone(driver));
        }
        let found = match &self.library {
            Some(path) => Driver::open(Some(path.as_os_str()))
                .inspect_err(|error| tracing::warn!(%error, path = %path.display(), "no CUDA driver"))
                .ok(),
            None => Driver::loaded(),
        };
        let found = found?;
        let driver = self.driver.get_or_init(|| {
            let (major, minor) = found.version();
            tracing::info!(major, minor, "memory of GPUs is told apart by the CUDA driver");
            found
        });
        Some(Arc::clone(driver))
    }

    /// The driver, if memory on a GPU was met here, at no cost otherwise.
    pub(crate) fn known(&self) -> Option<Arc<Driver>> {
        self.driver.get().cloned()
    }

    /// Marks memory that is on a GPU, and says where it is if the caller did not.
    ///
    /// # Errors
    /// [`RegistryError::Refused`] when the range is not on one GPU as a whole.
    pub(crate) fn mark(
        &self,
        memory: ForeignMemory,
        location: Location,
    ) -> Result<(ForeignMemory, Location), RegistryError> {
        let (address, len) = (memory.address(), memory.len());
        let Some(last) = len.checked_sub(1).and_then(|more| address.checked_add(more)) else {
            return Ok((memory, location));
        };
        let Some(driver) = self.driver() else { return Ok((memory, location)) };
        match (driver.locate(address), driver.locate(last)) {
            (None, None) => Ok((memory, location)),
            (Some(first), Some(last)) if first == last => {
                let found = Location::from(format!("cuda:{first}").as_str());
                Ok((memory.on_device(), if location.is_unknown() { found } else { location }))
            }
            _ => {
                let reason = "it is not on one GPU as a whole".to_owned();
                Err(RegistryError::Refused { address, len, reason })
            }
        }
    }

    /// Copies between spans of which at least one is on a GPU.
    pub(crate) fn copy(&self, target: Span<'_>, source: Span<'_>) -> Result<(), CudaError> {
        let driver = self.driver().ok_or_else(no_driver)?;
        let ordinal = [target, source].into_iter().filter(Span::is_on_device).find_map(|s| driver.locate(s.address()));
        driver.scope(ordinal.unwrap_or(0), |scope| scope.copy(target, source))?
    }

    /// A dma-buf of the pages that hold a range on a GPU, and where in it the range begins.
    pub(crate) fn dmabuf(&self, address: u64, len: u64) -> Result<(OwnedFd, u64), CudaError> {
        let driver = self.driver().ok_or_else(no_driver)?;
        let first = address & !(PAGE - 1);
        let end = address.saturating_add(len).next_multiple_of(PAGE);
        Ok((driver.export_dmabuf(first, end - first)?, address - first))
    }

    /// Host memory for two chunks; waits while too many are staged already.
    fn pair(&self, driver: &Arc<Driver>, ordinal: u32, limits: &Limits<'_>) -> Result<Pair<'_>, TransferErrorKind> {
        let mut pairs = self.pairs.lock();
        loop {
            if let Some(memory) = pairs.idle.pop() {
                return Ok(Pair { memory: Some(memory), gpus: self });
            }
            if pairs.made < MAX_PAIRS {
                pairs.made += 1;
                break;
            }
            if let Some(kind) = limits.over() {
                return Err(kind);
            }
            let patience = limits.deadline.since(limits.clock.now()).min(std::time::Duration::from_millis(100));
            self.returned.wait_for(&mut pairs, patience);
        }
        drop(pairs);
        match driver.pin(ordinal, 2 * CHUNK) {
            Ok(memory) => Ok(Pair { memory: Some(memory), gpus: self }),
            Err(error) => {
                tracing::warn!(%error, "no host memory to stage through");
                self.pairs.lock().made -= 1;
                Err(TransferErrorKind::Storage)
            }
        }
    }

    /// Host memory for the window of a request.
    fn window(&self, ordinal: u32) -> Option<PinnedMemory> {
        let driver = self.driver()?;
        let mut windows = self.windows.lock();
        if let Some(memory) = windows.idle.pop() {
            return Some(memory);
        }
        if windows.made >= MAX_WINDOWS {
            drop(windows);
            return driver.pin(ordinal, SMALL_WINDOW).ok();
        }
        let memory = driver.pin(ordinal, WINDOW).ok()?;
        windows.made += 1;
        Some(memory)
    }

    /// Keeps the host memory of a window for the next request.
    fn window_closed(&self, memory: PinnedMemory) {
        if memory.span().len() as u64 == WINDOW {
            self.windows.lock().idle.push(memory);
        }
    }
}

fn no_driver() -> CudaError {
    CudaError::Library("the driver is not loaded".to_owned())
}

impl Pair<'_> {
    fn span(&self) -> Span<'_> {
        self.memory.as_ref().map_or(Span::source(&[]), PinnedMemory::span)
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.gpus.pairs.lock().idle.extend(self.memory.take());
        self.gpus.returned.notify_one();
    }
}
