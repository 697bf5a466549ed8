//! Batches of this API: room for a number of tasks, filled by any number of submissions, polled by index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_transfer::{BatchError, BatchId, Notification, Opcode, Request, RequestOptions, TaskState as EngineState};
use yb_types::{MonotonicTime, SegmentAddress};

use crate::memory::BufferEntry;
use crate::status::{ClassicError, StatusCode, TaskState, TransferStatus};
use crate::{ClassicEngine, SegmentId};

/// One range to move, as the peer's users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// Direction, seen from here.
    pub opcode: Opcode,
    /// First address of our memory. It need not be registered where no device is involved.
    pub source: u64,
    /// The other side.
    pub target: SegmentId,
    /// First address in the owner's process.
    pub target_offset: u64,
    /// Bytes.
    pub length: u64,
}

/// What may be said about a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitOptions {
    /// Left with the owner of the first request's segment when the whole batch has completed. The message of a later
    /// submission to the same batch takes the place of one not sent yet.
    pub notify: Option<Notification>,
    /// The local device to prefer; ignored where it is not known.
    pub nic_hint: Option<Arc<str>>,
}

/// What is remembered of an open batch besides the engine's own account.
#[derive(Clone, Copy, Debug)]
struct Entry {
    submitted: MonotonicTime,
    bytes: u64,
}

/// Open batches, and those that were freed while the engine was not done with them: their numbers are errors already.
#[derive(Debug, Default)]
pub(crate) struct BatchLedger {
    open: Mutex<BTreeMap<u64, Entry>>,
    freed: Mutex<BTreeSet<u64>>,
    /// How many are in `freed`, so that the usual case takes no lock.
    leaving: AtomicUsize,
}

impl BatchLedger {
    fn submitted(&self, batch: BatchId, at: MonotonicTime, bytes: u64) {
        let mut open = self.open.lock();
        let entry = open.entry(batch.0).or_insert(Entry { submitted: at, bytes: 0 });
        entry.submitted = at;
        entry.bytes = entry.bytes.saturating_add(bytes);
    }

    /// When the batch was last submitted to, and how many bytes it has.
    pub(crate) fn submission(&self, batch: BatchId) -> Option<(MonotonicTime, u64)> {
        self.open.lock().get(&batch.0).map(|entry| (entry.submitted, entry.bytes))
    }

    /// The owner has no use for the batch any more.
    fn leave(&self, batch: BatchId) {
        let mut freed = self.freed.lock();
        freed.insert(batch.0);
        self.leaving.store(freed.len(), Ordering::SeqCst);
    }

    /// That the batch was not freed by its owner.
    fn check(&self, batch: BatchId) -> Result<(), ClassicError> {
        let left = self.leaving.load(Ordering::SeqCst) > 0 && self.freed.lock().contains(&batch.0);
        if left { Err(BatchError::Released.into()) } else { Ok(()) }
    }

    /// Tries again to release what was freed too early for the engine.
    fn sweep(&self, mut release: impl FnMut(BatchId) -> Result<(), BatchError>) {
        if self.leaving.load(Ordering::SeqCst) > 0 {
            let mut freed = self.freed.lock();
            freed.retain(|batch| release(BatchId(*batch)) == Err(BatchError::Busy));
            self.leaving.store(freed.len(), Ordering::SeqCst);
        }
    }
}

impl ClassicEngine {
    /// A batch with room for so many tasks.
    ///
    /// # Errors
    /// `InvalidArgument` after shutdown; `TooManyRequests` when 65,536 batches are open.
    pub fn allocate_batch(&self, capacity: usize) -> Result<BatchId, ClassicError> {
        self.0.ledger.sweep(|batch| self.0.engine.release(batch));
        Ok(self.0.engine.open_batch(capacity)?)
    }

    /// Adds tasks to a batch and starts them; gives back the index of the first. They are all checked before any starts.
    ///
    /// # Errors
    /// `TooManyRequests` when the batch has no room for all of them; `InvalidArgument` for a batch or a segment that does
    /// not exist; `AddressNotRegistered` for memory of ours that reaches over a registered range. Nothing was started.
    ///
    /// # Safety
    /// The memory named by every request must stay mapped, readable, and writable for a read, until its task is
    /// terminal, and no Rust reference to its bytes may live meanwhile.
    pub unsafe fn submit(
        &self,
        batch: BatchId,
        requests: &[TransferRequest],
        options: &SubmitOptions,
    ) -> Result<usize, ClassicError> {
        let now = self.0.engine.now();
        let deadline = self.0.environment.slice_timeout.map(|timeout| now + timeout);
        let common = RequestOptions { deadline, nic_hint: options.nic_hint.clone(), ..RequestOptions::default() };
        let mut ready = Vec::with_capacity(requests.len());
        for request in requests {
            // SAFETY: the caller's promise.
            ready.push(unsafe { self.engine_request(request) }?.with(common.clone()));
        }
        let bytes = requests.iter().map(|request| request.length).sum();
        self.0.ledger.check(batch)?;
        let engine = &self.0.engine;
        let first = match (&options.notify, requests.first()) {
            (Some(notify), Some(request)) => {
                engine.submit_with_notify(batch, ready, &self.handle(request.target)?, notify.clone())?
            }
            _ => engine.submit_to(batch, ready)?,
        };
        self.0.ledger.submitted(batch, now, bytes);
        Ok(first)
    }

    /// # Safety
    /// As [`ClassicEngine::submit`].
    unsafe fn engine_request(&self, request: &TransferRequest) -> Result<Request<'static>, ClassicError> {
        let entry = BufferEntry { address: request.source, len: request.length };
        let segment = self.handle(request.target)?;
        // SAFETY: the caller's promise; the buffer is dropped when the task is terminal.
        let local = unsafe { self.lend(entry) }?;
        Ok(Request::new(request.opcode, local, segment, SegmentAddress(request.target_offset)))
    }

    /// Where a task stands.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that does not exist or an index without a task.
    pub fn task_status(&self, batch: BatchId, task: usize) -> Result<TransferStatus, ClassicError> {
        self.0.ledger.check(batch)?;
        let status = self.0.engine.task(batch, task)?;
        let state = match &status.state {
            EngineState::Waiting => TaskState::Waiting,
            EngineState::Completed => TaskState::Completed,
            EngineState::Failed(error) => TaskState::of_failure(error.kind()),
            EngineState::TimedOut => TaskState::TimedOut,
            EngineState::Cancelled => TaskState::Canceled,
        };
        Ok(TransferStatus { state, bytes: status.bytes })
    }

    /// Where a batch stands: completed when every task is (an empty one too); terminal only when all tasks are. Of
    /// different ends the worst counts: failed, timed out, cancelled.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that does not exist.
    pub fn batch_status(&self, batch: BatchId) -> Result<TransferStatus, ClassicError> {
        self.0.ledger.check(batch)?;
        let progress = self.0.engine.progress(batch)?;
        let state = if progress.done < progress.total {
            TaskState::Waiting
        } else if progress.failed == 0 {
            TaskState::Completed
        } else {
            self.worst(batch, progress.total)?
        };
        Ok(TransferStatus { state, bytes: progress.bytes })
    }

    fn worst(&self, batch: BatchId, tasks: usize) -> Result<TaskState, ClassicError> {
        let rank = |state: TaskState| match state {
            TaskState::Failed => 3,
            TaskState::TimedOut => 2,
            TaskState::Canceled => 1,
            _ => 0,
        };
        let mut worst = TaskState::Completed;
        for task in 0..tasks {
            let state = self.task_status(batch, task)?.state;
            if rank(state) > rank(worst) {
                worst = state;
            }
        }
        Ok(worst)
    }

    /// Why a task of a batch failed, in words: the first one that did.
    pub fn batch_failure(&self, batch: BatchId) -> Option<ClassicError> {
        let progress = self.0.engine.progress(batch).ok()?;
        (0..progress.total).find_map(|task| match self.0.engine.task(batch, task).ok()?.state {
            EngineState::Failed(error) => Some(error.into()),
            EngineState::TimedOut => {
                Some(ClassicError::new(StatusCode::Socket, format!("task {task}: deadline passed")))
            }
            EngineState::Cancelled => Some(ClassicError::new(StatusCode::Socket, format!("task {task}: cancelled"))),
            _ => None,
        })
    }

    /// Waits until the batch is terminal, at most so long, and says where it stands. The thread sleeps meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that does not exist.
    pub fn wait_batch(&self, batch: BatchId, patience: Duration) -> Result<TransferStatus, ClassicError> {
        self.0.ledger.check(batch)?;
        self.0.engine.wait(batch, self.0.engine.now() + patience)?;
        self.batch_status(batch)
    }

    /// Asks a batch to stop; it is terminal when its status says so.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that does not exist.
    pub fn cancel_batch(&self, batch: BatchId) -> Result<(), ClassicError> {
        self.0.ledger.check(batch)?;
        Ok(self.0.engine.cancel(batch)?)
    }

    /// Frees a batch whose tasks are all terminal, polled or not; its number is an error from then on. A notification
    /// that is still on its way is delivered all the same.
    ///
    /// # Errors
    /// `BatchBusy` when something of it is in flight; `InvalidArgument` for a batch that does not exist.
    pub fn free_batch(&self, batch: BatchId) -> Result<(), ClassicError> {
        self.0.ledger.check(batch)?;
        let progress = self.0.engine.progress(batch)?;
        if progress.done < progress.total {
            return Err(BatchError::Busy.into());
        }
        self.abandon(batch);
        Ok(())
    }

    /// Frees a batch now, or as soon as the engine is done with it: its owner goes away.
    pub(crate) fn abandon(&self, batch: BatchId) {
        self.0.ledger.open.lock().remove(&batch.0);
        if self.0.engine.release(batch) == Err(BatchError::Busy) {
            self.0.ledger.leave(batch);
        }
    }
}
