//! Calls by name and by list of ranges: synchronous ones with a budget, and asynchronous ones that are asked for later.

use std::sync::Arc;
use std::time::Duration;

use yb_transfer::{BatchId, Notification, Opcode, Request, RequestOptions, TransferError};
use yb_types::{MonotonicTime, SegmentAddress};

use crate::batches::{SubmitOptions, TransferRequest};
use crate::memory::BufferEntry;
use crate::status::{ClassicError, StatusCode, TaskState};
use crate::{ClassicEngine, SegmentId};

/// One range: our address, the peer's address, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address of our memory.
    pub local: u64,
    /// First address in the owner's process.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
}

/// What may be said about a call by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions {
    /// Left with the target when everything has arrived, before the call returns.
    pub notify: Option<Notification>,
    /// The local device to prefer; ignored where it is not known.
    pub nic_hint: Option<Arc<str>>,
}

/// Where an asynchronous call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncState {
    /// Not finished; ask again.
    Running,
    /// All bytes arrived. The number is spent.
    Done,
    /// Something failed. The number is spent.
    Failed,
    /// A deadline passed. The number is spent.
    TimedOut,
}

impl ClassicEngine {
    /// What a call over so many bytes may take: `MC_TRANSFER_TIMEOUT`, and a nanosecond a byte.
    pub fn budget(&self, bytes: u64) -> Duration {
        self.0.environment.transfer_timeout.saturating_add(Duration::from_nanos(bytes))
    }

    /// Moves all ranges to or from the segment and returns when nothing of them is in flight. Ranges that failed are
    /// tried again on other devices, within the budget. The thread sleeps meanwhile.
    ///
    /// # Errors
    /// Of the first range that failed, or of opening the segment; of the notification when all ranges have arrived.
    ///
    /// # Safety
    /// As [`ClassicEngine::submit`], until the call returns.
    pub unsafe fn transfer_sync(
        &self,
        target: &str,
        op: Opcode,
        ranges: &[Range],
        options: &SyncOptions,
    ) -> Result<(), ClassicError> {
        let id = self.open_segment(target)?;
        // SAFETY: the caller's promise.
        unsafe { self.transfer_sync_to(id, op, ranges, options) }
    }

    /// As [`ClassicEngine::transfer_sync`], by the number of the segment.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn transfer_sync_to(
        &self,
        target: SegmentId,
        op: Opcode,
        ranges: &[Range],
        options: &SyncOptions,
    ) -> Result<(), ClassicError> {
        let segment = self.handle(target)?;
        let bytes = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.len));
        let deadline = self.0.engine.now() + self.budget(bytes);
        let common = RequestOptions { nic_hint: options.nic_hint.clone(), ..RequestOptions::default() };
        let mut left = Vec::with_capacity(ranges.len());
        for range in ranges {
            // SAFETY: the caller's promise; the buffer does not outlive this call.
            let local = unsafe { self.lend(BufferEntry { address: range.local, len: range.len }) }?;
            let request = Request::new(op, local, segment.clone(), SegmentAddress(range.remote));
            left.push(request.with(common.clone()));
        }
        self.run(left, deadline)?;
        match &options.notify {
            Some(notification) => Ok(self.0.engine.notify(&segment, notification, deadline)?),
            None => Ok(()),
        }
    }

    fn run(&self, mut left: Vec<Request<'static>>, deadline: MonotonicTime) -> Result<(), TransferError> {
        let mut tries = self.contexts() + 1;
        loop {
            let outcome = self.0.engine.transfer_sync(&left, deadline);
            tries -= 1;
            let Some(first) = outcome.results().iter().find_map(|result| result.as_ref().err()) else { return Ok(()) };
            let hopeless = outcome.results().iter().any(|r| r.as_ref().is_err_and(|error| !error.is_retryable()));
            if tries == 0 || hopeless || self.0.engine.now() >= deadline {
                return Err(first.clone());
            }
            let mut results = outcome.results().iter();
            left.retain(|_| results.next().is_some_and(Result::is_err));
        }
    }

    /// Starts moving all ranges and gives back a number to ask with; [`ClassicEngine::async_state`] or
    /// [`ClassicEngine::await_batches`] frees it.
    ///
    /// # Errors
    /// As [`ClassicEngine::open_segment`] and [`ClassicEngine::submit`]; nothing was started.
    ///
    /// # Safety
    /// As [`ClassicEngine::submit`].
    pub unsafe fn transfer_async(
        &self,
        target: &str,
        op: Opcode,
        ranges: &[Range],
        options: SyncOptions,
    ) -> Result<BatchId, ClassicError> {
        let target = self.open_segment(target)?;
        let requests: Vec<TransferRequest> = ranges
            .iter()
            .map(|range| TransferRequest {
                opcode: op,
                source: range.local,
                target,
                target_offset: range.remote,
                length: range.len,
            })
            .collect();
        let batch = self.allocate_batch(requests.len())?;
        let options = SubmitOptions { notify: options.notify, nic_hint: options.nic_hint };
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.submit(batch, &requests, &options) } {
            self.abandon(batch);
            return Err(error);
        }
        Ok(batch)
    }

    /// Where an asynchronous call stands; anything but `Running` frees the number.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that does not exist or is spent.
    pub fn async_state(&self, batch: BatchId) -> Result<AsyncState, ClassicError> {
        let state = match self.batch_status(batch)?.state {
            TaskState::Waiting | TaskState::Pending => return Ok(AsyncState::Running),
            TaskState::Completed => AsyncState::Done,
            TaskState::TimedOut => AsyncState::TimedOut,
            TaskState::Invalid | TaskState::Canceled | TaskState::Failed => AsyncState::Failed,
        };
        self.free_batch(batch)?;
        Ok(state)
    }

    /// Waits until all of the calls have ended, each within its budget counted from its start, and frees them. One that
    /// uses up its budget is stopped first, so that nothing of it is in flight when this returns. The thread sleeps
    /// meanwhile.
    ///
    /// # Errors
    /// The first failure, in the order of the list. All numbers are spent in any case.
    pub fn await_batches(&self, batches: &[BatchId]) -> Result<(), ClassicError> {
        let mut first = Ok(());
        for batch in batches {
            first = first.and(self.await_one(*batch));
        }
        first
    }

    fn await_one(&self, batch: BatchId) -> Result<(), ClassicError> {
        let now = self.0.engine.now();
        let (submitted, bytes) = self.0.ledger.submission(batch).unwrap_or((now, 0));
        let deadline = submitted + self.budget(bytes);
        let mut state = self.wait_batch(batch, deadline.since(now))?.state;
        if !state.is_terminal() {
            self.cancel_batch(batch)?;
            let grace = self.0.environment.transfer_timeout;
            state = self.wait_batch(batch, grace)?.state;
        }
        let failure = self.batch_failure(batch);
        self.abandon(batch);
        match state {
            TaskState::Completed => Ok(()),
            _ => Err(failure.unwrap_or_else(|| ClassicError::new(StatusCode::Socket, "the batch did not end in time"))),
        }
    }
}
