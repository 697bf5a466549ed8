//! What the engine itself costs: a batch that moves next to nothing, and questions about a batch of many tasks.

use std::time::Duration;

use serde::Serialize;
use yb_env::Clock;
use yb_transfer::{
    BatchError, BatchId, Engine, Opcode, RegistryError, Request, SegmentHandle, TaskState, TransferError,
};
use yb_types::SegmentAddress;

use crate::transfer::sweep::Route;
use crate::transfer::target::{SetUpError, Target};

/// Bytes of the write.
const BYTES: u64 = 64;
/// Tasks of a batch that is filled one by one, before another one is opened.
const ROUND: usize = 1024;
/// Tasks of the batches that are polled.
pub const POLLED: [usize; 2] = [10, 10_000];

/// What was measured; times are nanoseconds, the medians of many rounds.
#[derive(Clone, Debug, Serialize)]
pub struct SubmitReport {
    /// One task: made, submitted to an open batch, and seen completed. 64 bytes inside one process.
    pub submit_complete_ns: f64,
    /// One batch of one task: opened, submitted to, seen completed, released.
    pub batch_ns: f64,
    /// One question about one task, for batches of [`POLLED`] tasks.
    pub poll_task_ns: [f64; 2],
    /// One question about the whole batch, for the same.
    pub poll_batch_ns: [f64; 2],
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// No engine or memory.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// The local range.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The segment.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A task did not complete.
    #[error("a task of 64 bytes ended as {0:?}")]
    NotCompleted(TaskState),
}

struct Bench {
    engine: Engine,
    segment: SegmentHandle,
    local: u64,
    remote: u64,
}

/// Measures for about this long.
///
/// # Errors
/// [`SubmitError`].
pub fn measure(duration: Duration) -> Result<SubmitReport, SubmitError> {
    let target = Target::start(Route::Local.settings(), 1 << 20)?;
    let own = Target::start(Route::Local.settings(), 1 << 20)?;
    let bench = Bench {
        segment: own.engine().open_segment(target.endpoint())?,
        engine: own.engine().clone(),
        local: own.address(),
        remote: target.address(),
    };
    let share = duration / 6;
    let submit_complete_ns = median(share, || bench.fill_one_batch())?;
    let batch_ns = median(share, || bench.batches_of_one())?;
    let mut report = SubmitReport { submit_complete_ns, batch_ns, poll_task_ns: [0.0; 2], poll_batch_ns: [0.0; 2] };
    for (index, tasks) in POLLED.into_iter().enumerate() {
        let batch = bench.batch_of(tasks)?;
        if let Some(slot) = report.poll_task_ns.get_mut(index) {
            *slot = median(share, || bench.poll_tasks(batch, tasks))?;
        }
        if let Some(slot) = report.poll_batch_ns.get_mut(index) {
            *slot = median(share, || bench.poll_batch(batch))?;
        }
        bench.engine.release(batch)?;
    }
    Ok(report)
}

/// The median of nanoseconds that rounds take for one step.
fn median(duration: Duration, mut round: impl FnMut() -> Result<f64, SubmitError>) -> Result<f64, SubmitError> {
    let clock = Clock::real();
    let started = clock.now();
    let mut times = Vec::new();
    while times.len() < 5 || clock.now().since(started) < duration {
        times.push(round()?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Nanoseconds that one of `steps` took.
fn timed(steps: usize, work: impl FnOnce() -> Result<(), SubmitError>) -> Result<f64, SubmitError> {
    let clock = Clock::real();
    let started = clock.now();
    work()?;
    Ok(clock.now().since(started).as_nanos() as f64 / steps as f64)
}

impl Bench {
    fn request(&self) -> Result<Request<'static>, SubmitError> {
        let local = self.engine.local(self.local, BYTES)?;
        Ok(Request::new(Opcode::Write, local, self.segment.clone(), SegmentAddress(self.remote)))
    }

    fn completed(&self, batch: BatchId, task: usize) -> Result<(), SubmitError> {
        match self.engine.task(batch, task)?.state {
            TaskState::Completed => Ok(()),
            TaskState::Waiting => {
                self.engine.wait(batch, self.engine.now() + Duration::from_secs(10))?;
                Ok(())
            }
            other => Err(SubmitError::NotCompleted(other)),
        }
    }

    fn fill_one_batch(&self) -> Result<f64, SubmitError> {
        let batch = self.engine.open_batch(ROUND)?;
        let time = timed(ROUND, || {
            for _ in 0..ROUND {
                let task = self.engine.submit_to(batch, vec![self.request()?])?;
                self.completed(batch, task)?;
            }
            Ok(())
        })?;
        self.engine.release(batch)?;
        Ok(time)
    }

    fn batches_of_one(&self) -> Result<f64, SubmitError> {
        timed(ROUND, || {
            for _ in 0..ROUND {
                let batch = self.engine.open_batch(1)?;
                let task = self.engine.submit_to(batch, vec![self.request()?])?;
                self.completed(batch, task)?;
                self.engine.release(batch)?;
            }
            Ok(())
        })
    }

    /// A terminal batch of so many tasks.
    fn batch_of(&self, tasks: usize) -> Result<BatchId, SubmitError> {
        let batch = self.engine.open_batch(tasks)?;
        let requests = (0..tasks).map(|_| self.request()).collect::<Result<Vec<_>, _>>()?;
        self.engine.submit_to(batch, requests)?;
        self.engine.wait(batch, self.engine.now() + Duration::from_secs(60))?;
        self.completed(batch, tasks - 1)?;
        Ok(batch)
    }

    fn poll_tasks(&self, batch: BatchId, tasks: usize) -> Result<f64, SubmitError> {
        let rounds = ROUND.div_ceil(tasks);
        timed(rounds * tasks, || {
            (0..rounds).try_for_each(|_| (0..tasks).try_for_each(|task| self.completed(batch, task)))
        })
    }

    fn poll_batch(&self, batch: BatchId) -> Result<f64, SubmitError> {
        timed(ROUND, || {
            for _ in 0..ROUND {
                let progress = self.engine.progress(batch)?;
                debug_assert!(progress.is_terminal());
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_measured() {
        let report = measure(Duration::from_millis(20)).unwrap();
        let polls = report.poll_task_ns.iter().chain(&report.poll_batch_ns);
        assert!(report.submit_complete_ns > 0.0 && report.batch_ns > 0.0, "{report:?}");
        assert!(polls.clone().all(|ns| *ns > 0.0), "{report:?}");
        // Scanning the batch would make a question about one of 10,000 tasks a thousand times slower.
        for [small, large] in [report.poll_task_ns, report.poll_batch_ns] {
            assert!(large < 20.0 * small.max(50.0), "{report:?}");
        }
    }
}
