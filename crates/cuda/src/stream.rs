//! Copies that run beside the CPU, and have ended when their scope ends.

use std::marker::PhantomData;

use yb_mem::{Span, SpanError};

use crate::symbols::RawStream;
use crate::{CudaError, Driver};

/// Work that waits for nothing on the default stream.
const NON_BLOCKING: u32 = 1;

/// A stream of our own.
pub(crate) struct Stream(pub(crate) RawStream);

// SAFETY: a stream is a handle that any thread may use.
unsafe impl Send for Stream {}

/// Starts copies of `'env` spans. They may be looked at after [`Scope::wait`], or when the scope has ended.
pub struct Scope<'scope, 'env: 'scope> {
    driver: &'scope Driver,
    ordinal: u32,
    stream: RawStream,
    /// As of `std::thread::Scope`: `'env` neither grows nor shrinks.
    env: PhantomData<&'scope mut &'env ()>,
}

impl Driver {
    /// Runs `body`, which may start copies on a stream of the GPU. Nothing of them is under way when this returns.
    ///
    /// # Errors
    /// When there is no such GPU or no stream can be made; `body` does not run then. And when the copies that were under
    /// way at the end of the body failed.
    pub fn scope<'env, T>(
        &self,
        ordinal: u32,
        body: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
    ) -> Result<T, CudaError> {
        let idle = self.idle_streams(ordinal)?;
        let known = idle.lock().pop();
        let stream = match known {
            Some(stream) => stream,
            None => self.new_stream(ordinal)?,
        };
        let scope = Scope { driver: self, ordinal, stream: stream.0, env: PhantomData };
        let value = body(&scope);
        scope.wait()?;
        // One whose copies failed is not used again; it goes with its context.
        idle.lock().push(stream);
        Ok(value)
    }

    fn new_stream(&self, ordinal: u32) -> Result<Stream, CudaError> {
        let _current = self.current(ordinal)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the result is written to a local of the right type.
        self.check("cuStreamCreate", unsafe { (self.symbols.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream))
    }
}

impl<'env> Scope<'_, 'env> {
    /// Starts a copy between memory of GPUs and of the host, in any combination, after those that were started before.
    ///
    /// # Errors
    /// [`CudaError::Invalid`] when the lengths differ or the target may not be written; the driver's.
    pub fn copy(&self, target: Span<'env>, source: Span<'env>) -> Result<(), CudaError> {
        let refused = |error: SpanError| CudaError::Invalid(error.to_string());
        if target.len() != source.len() {
            let (dst, src) = (target.len() as u64, source.len() as u64);
            return Err(refused(SpanError::LengthMismatch { dst, src }));
        }
        if !target.is_writable() {
            return Err(refused(SpanError::ReadOnly));
        }
        if target.is_empty() {
            return Ok(());
        }
        let _current = self.driver.current(self.ordinal)?;
        // SAFETY: both spans are mapped, on the host or on a GPU, for 'env, which outlives the scope, and the scope waits
        // for the stream before it ends.
        self.driver.check("cuMemcpyAsync", unsafe {
            (self.driver.symbols.copy)(target.address(), source.address(), target.len(), self.stream)
        })
    }

    /// Waits until all copies that were started have ended.
    ///
    /// # Errors
    /// The driver's, also of copies that failed meanwhile.
    pub fn wait(&self) -> Result<(), CudaError> {
        let _current = self.driver.current(self.ordinal)?;
        // SAFETY: the stream is ours.
        self.driver.check("cuStreamSynchronize", unsafe { (self.driver.symbols.stream_synchronize)(self.stream) })
    }
}

impl Drop for Scope<'_, '_> {
    /// For a body that panics, and for failures before the end. A stream that cannot be waited for has lost its context,
    /// and with it everything that was on it.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
