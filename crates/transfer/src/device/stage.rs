//! Jobs whose local memory is on a GPU, over transports that know only memory of the host.

use yb_cuda::{CudaError, Scope};
use yb_mem::{Span, SpanError};

use crate::device::{CHUNK, Gpus};
use crate::transport::{Job, Limits};
use crate::{Opcode, TransferErrorKind};

/// What ends a job early.
enum Stop {
    /// The GPU failed, or the range makes no sense.
    Own(TransferErrorKind, String),
    /// A chunk on its way failed, with this outcome.
    Chunk(crate::TransferError),
}

impl From<CudaError> for Stop {
    fn from(error: CudaError) -> Self {
        Stop::Own(TransferErrorKind::Storage, error.to_string())
    }
}

impl From<SpanError> for Stop {
    fn from(error: SpanError) -> Self {
        Stop::Own(TransferErrorKind::InvalidRequest, error.to_string())
    }
}

/// Gives the job an outcome. `run` moves a job whose local memory is the host's.
pub(crate) fn stage(gpus: &Gpus, job: &mut Job<'_>, limits: &Limits<'_>, run: &dyn Fn(&mut Job<'_>)) {
    match staged(gpus, job, limits, run) {
        Ok(()) => job.outcome = Some(Ok(())),
        Err(Stop::Own(kind, detail)) => job.fail(kind, detail),
        Err(Stop::Chunk(error)) => job.outcome = Some(Err(error)),
    }
}

fn staged(gpus: &Gpus, job: &Job<'_>, limits: &Limits<'_>, run: &dyn Fn(&mut Job<'_>)) -> Result<(), Stop> {
    let lost = || Stop::Own(TransferErrorKind::InvalidRequest, "the local memory is on no GPU any more".to_owned());
    let driver = gpus.driver().ok_or_else(lost)?;
    let ordinal = driver.locate(job.local.address()).ok_or_else(lost)?;
    let pair = gpus.pair(&driver, ordinal, limits).map_err(|kind| Stop::Own(kind, "before a chunk".to_owned()))?;
    let chunks = Chunks { job, host: pair.span(), run };
    driver.scope(ordinal, |scope| match job.op {
        Opcode::Write => chunks.send(scope),
        Opcode::Read => chunks.receive(scope),
    })?
}

struct Chunks<'j, 'a> {
    job: &'j Job<'a>,
    /// Two chunks of host memory, used in turn.
    host: Span<'j>,
    run: &'j dyn Fn(&mut Job<'_>),
}

impl<'j> Chunks<'j, '_> {
    fn count(&self) -> u64 {
        self.job.len().div_ceil(CHUNK)
    }

    /// First byte and length of a chunk.
    fn range(&self, index: u64) -> (u64, u64) {
        let first = index * CHUNK;
        (first, CHUNK.min(self.job.len() - first))
    }

    fn host(&self, index: u64) -> Result<Span<'j>, SpanError> {
        self.host.slice((index % 2 * CHUNK) as usize, self.range(index).1 as usize)
    }

    fn gpu(&self, index: u64) -> Result<Span<'j>, SpanError> {
        let (first, len) = self.range(index);
        self.job.local.slice(first as usize, len as usize)
    }

    /// Moves a chunk between the host's memory and the peer.
    fn moved(&self, index: u64) -> Result<(), Stop> {
        let remote = self.job.remote + self.range(index).0;
        let mut part = Job::new(self.job.op, self.host(index)?, self.job.segment, remote, self.job.options);
        (self.run)(&mut part);
        match part.outcome {
            Some(Err(error)) => Err(Stop::Chunk(error)),
            _ => Ok(()),
        }
    }

    /// While a chunk is on its way, the GPU copies the next one.
    fn send(&self, scope: &Scope<'_, 'j>) -> Result<(), Stop> {
        scope.copy(self.host(0)?, self.gpu(0)?)?;
        for index in 0..self.count() {
            scope.wait()?;
            if index + 1 < self.count() {
                scope.copy(self.host(index + 1)?, self.gpu(index + 1)?)?;
            }
            self.moved(index)?;
        }
        Ok(())
    }

    /// While the GPU copies a chunk, the next one is on its way.
    fn receive(&self, scope: &Scope<'_, 'j>) -> Result<(), Stop> {
        for index in 0..self.count() {
            self.moved(index)?;
            scope.wait()?;
            scope.copy(self.gpu(index)?, self.host(index)?)?;
        }
        scope.wait()?;
        Ok(())
    }
}
