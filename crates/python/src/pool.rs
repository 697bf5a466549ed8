//! `BufferPool` and its leases: registered memory on loan, with the buffer protocol.
//!
//! Invariants: memory is given back only when no view of it exists; waiting releases the interpreter and lets signals
//! through; the memory outlives a store that was closed under a lease.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use yb_client::{BufferLease as Lease, BufferPool as Pool, PoolConfig, PoolError};

use crate::convert::Unsigned;
use crate::engine::SLICE;
use crate::store::Store;

/// Smallest step of sizes, so that no two leases share a cache line.
const SMALLEST_GRANULE: u64 = 64;
/// What counts as for ever.
const FOREVER: Duration = Duration::from_secs(1 << 32);

fn failed(text: impl ToString) -> PyErr {
    PyRuntimeError::new_err(text.to_string())
}

/// Seconds, not negative; what is too long is for ever.
fn patience(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds >= 0.0 => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(FOREVER))),
        Some(_) => Err(failed("timeout must be non-negative")),
        None => Ok(None),
    }
}

/// Registered buffers of a store, used again and again.
///
/// `max_bytes`: bytes of all leases together; 0: twice the store's local buffer; at least the local buffer in any case.
/// Lengths are rounded up to `min_size_class` (a power of two), and leases start at multiples of it. `alignment` is that
/// of the whole range. `max_regions`: most leases at a time. `max_size_class` bounds nothing: memory of every size is kept
/// and reused. Timeouts are seconds, None is for ever. All failures are `RuntimeError`.
#[pyclass(module = "mooncake.store", frozen, weakref)]
pub(crate) struct BufferPool {
    pool: Pool,
    waits: bool,
    patience: Option<Duration>,
}

#[pymethods]
#[expect(clippy::too_many_arguments, reason = "the peer's signatures")]
impl BufferPool {
    #[new]
    #[pyo3(signature = (store, max_bytes=Unsigned(0), min_size_class=Unsigned(65536), max_size_class=None,
        alignment=Unsigned(8388608), block_on_exhaustion=true, default_timeout=None, max_regions=None,
        prewarm_size=None, prewarm_count=Unsigned(0)), text_signature = "(store, max_bytes=0, min_size_class=65536, max_size_class=None, alignment=8388608, block_on_exhaustion=True, default_timeout=None, max_regions=None, prewarm_size=None, prewarm_count=0)")]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, PyAny>,
        max_bytes: Unsigned,
        min_size_class: Unsigned,
        max_size_class: Option<Unsigned>,
        alignment: Unsigned,
        block_on_exhaustion: bool,
        default_timeout: Option<f64>,
        max_regions: Option<Unsigned>,
        prewarm_size: Option<Unsigned>,
        prewarm_count: Unsigned,
    ) -> PyResult<Self> {
        let _ = max_size_class;
        let patience = patience(default_timeout)?;
        if min_size_class.0 == 0 || alignment.0 == 0 {
            return Err(failed("min_size_class and alignment must be positive"));
        }
        if !alignment.0.is_power_of_two() || alignment.0 < size_of::<usize>() as u64 {
            return Err(failed("alignment must be a power of two and at least sizeof(void*)"));
        }
        let live = Store::live_of(store)?.ok_or_else(|| failed("MooncakeDistributedStore is not initialized"))?;
        let local = live.client().config().local_buffer_size;
        if local == 0 || live.dummy().is_some() {
            return Err(failed("BufferPool requires a store configured with a local buffer"));
        }
        let config = PoolConfig {
            capacity: if max_bytes.0 == 0 { local.saturating_mul(2) } else { max_bytes.0.max(local) },
            granule: min_size_class.0.checked_next_power_of_two().unwrap_or(1 << 63).max(SMALLEST_GRANULE),
            alignment: alignment.0,
            most_leases: max_regions.map(|most| most.0),
        };
        let made = py.detach(|| {
            let pool = Pool::new(live.client(), config)?;
            match prewarm_size {
                Some(size) => pool.prewarm(size.0, prewarm_count.0).map(|()| pool),
                None => Ok(pool),
            }
        });
        Ok(BufferPool { pool: made.map_err(failed)?, waits: block_on_exhaustion, patience })
    }

    /// A buffer of `size` bytes. `block`: whether to wait for it (None: as the pool was made to); `timeout`: seconds,
    /// None: the pool's. `RuntimeError`: "buffer pool is exhausted", "timed out waiting for buffer", "requested buffer
    /// size exceeds pool capacity", "buffer pool is closed". Those who wait are served in their order.
    #[pyo3(signature = (size, block=None, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        size: Unsigned,
        block: Option<bool>,
        timeout: Option<f64>,
    ) -> PyResult<BufferLease> {
        let patience = patience(timeout)?.or(self.patience).unwrap_or(FOREVER);
        let lease = if block.unwrap_or(self.waits) {
            self.wait(py, size.0, patience)?
        } else {
            self.pool.try_acquire(size.0).map_err(failed)?
        };
        Ok(BufferLease { lease: Mutex::new(Some(lease)), views: AtomicUsize::new(0) })
    }

    /// Same as `acquire`.
    #[pyo3(signature = (size, block=None, timeout=None))]
    fn buffer(
        &self,
        py: Python<'_>,
        size: Unsigned,
        block: Option<bool>,
        timeout: Option<f64>,
    ) -> PyResult<BufferLease> {
        self.acquire(py, size, block, timeout)
    }

    /// Touches the pages of `count` buffers of `size` bytes, so that later leases find them there. `RuntimeError`: so
    /// many do not fit.
    fn prewarm(&self, py: Python<'_>, size: Unsigned, count: Unsigned) -> PyResult<()> {
        py.detach(|| self.pool.prewarm(size.0, count.0)).map_err(failed)
    }

    /// Gives the memory back; again: nothing. `RuntimeError` while there are leases.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.pool.close()).map_err(failed)
    }
}

impl BufferPool {
    /// Waits in slices, between which signals are let through.
    fn wait(&self, py: Python<'_>, size: u64, patience: Duration) -> PyResult<Lease> {
        let mut turn = self.pool.queue(size).map_err(failed)?;
        let mut left = patience;
        loop {
            let slice = left.min(SLICE);
            if let Some(lease) = py.detach(|| turn.wait(slice)) {
                return lease.map_err(failed);
            }
            py.check_signals()?;
            left = left.saturating_sub(slice);
            if left.is_zero() {
                return Err(failed(PoolError::TimedOut));
            }
        }
    }
}

/// Registered memory on loan. Goes back with `release`, at the end of a `with` block, or with the object.
#[pyclass(module = "mooncake.store", frozen, weakref)]
pub(crate) struct BufferLease {
    lease: Mutex<Option<Lease>>,
    views: AtomicUsize,
}

impl BufferLease {
    /// First address and bytes.
    fn range(&self) -> PyResult<(u64, u64)> {
        let lease = self.lease.lock();
        lease.as_ref().map(|lease| (lease.address(), lease.len())).ok_or_else(|| failed("buffer lease is closed"))
    }
}

#[pymethods]
impl BufferLease {
    /// Address of the first byte.
    #[getter]
    fn ptr(&self) -> PyResult<u64> {
        Ok(self.range()?.0)
    }

    /// Bytes asked for.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.range()?.1)
    }

    /// The bytes as a writable memoryview of format `B`. The lease lasts as long as a view of it.
    #[getter]
    fn buffer<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        let lease = slf.get();
        let held = lease.lease.lock();
        let range = held.as_ref().map(|lease| (lease.address(), lease.len()));
        let (address, len) = range.ok_or_else(|| failed("buffer lease is closed"))?;
        lease.views.fetch_add(1, Ordering::SeqCst);
        drop(held);
        let view = BufferLeaseView { lease: slf.clone().unbind(), address, len };
        let view = Bound::new(slf.py(), view)?;
        PyMemoryView::from(view.as_any())
    }

    /// Gives the buffer back; again: nothing. `RuntimeError` while there are views of it.
    fn release(&self) -> PyResult<()> {
        let mut lease = self.lease.lock();
        if self.views.load(Ordering::SeqCst) > 0 {
            return Err(failed("cannot release buffer while exported views exist"));
        }
        drop(lease.take());
        Ok(())
    }

    fn __repr__(&self) -> String {
        match self.range() {
            Ok((address, len)) => format!("<BufferLease ptr={address:#x} size={len}>"),
            Err(_) => "<BufferLease released>".to_owned(),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().range()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.release()
    }
}

/// What the memoryviews of a lease look at. Has the buffer protocol: one dimension, writable, format `B`.
#[pyclass(module = "mooncake.store", frozen)]
pub(crate) struct BufferLeaseView {
    lease: Py<BufferLease>,
    address: u64,
    len: u64,
}

impl Drop for BufferLeaseView {
    fn drop(&mut self) {
        self.lease.get().views.fetch_sub(1, Ordering::SeqCst);
    }
}

#[pymethods]
impl BufferLeaseView {
    /// The bytes as a writable memoryview of format `B`, as `BufferLease.buffer`.
    #[getter]
    fn buffer<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    fn __len__(&self) -> usize {
        self.len as usize
    }

    fn __repr__(&self) -> String {
        format!("<BufferLeaseView ptr={:#x} size={}>", self.address, self.len)
    }

    /// # Safety
    /// Called by Python with a `view` it owns.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let (memory, len) = (slf.get().address as *mut c_void, slf.get().len as ffi::Py_ssize_t);
        // SAFETY: `view` is Python's to fill; the memory is a lease, which is not given back while this object, that the
        // view keeps alive, is counted as a view of it; the shape and the item size lie inside the view itself.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
