//! Batches that run behind the caller's back.
//!
//! A slab of slots; an id is slot index and generation, so the id of a released batch never names a later one. A batch
//! is terminal when its worker has returned from the transports: nothing of it is in flight then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use yb_types::MonotonicTime;

use crate::{BatchOutcome, CancelToken, Request};

/// Most batches that may be open at once.
const MAX_BATCHES: usize = 65_536;

/// Names a submitted batch: slot index in the low half, generation in the high half. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId(pub u64);

/// Where a batch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchStatus {
    /// Not started, or in flight.
    Waiting,
    /// Terminal: nothing can touch its memory any more.
    Done(BatchOutcome),
}

/// Why a call about a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The id is of a released batch, or was never given out.
    #[error("no such batch: the id is stale or was never given out")]
    Unknown,
    /// Too many batches are open; release some.
    #[error("{MAX_BATCHES} batches are open; release some")]
    TooMany,
    /// The batch is not terminal; wait for it or cancel it first.
    #[error("the batch is still in flight; wait for it or cancel it first")]
    Busy,
    /// The engine is shutting down, or could not start a thread.
    #[error("the engine takes no more batches")]
    Closed,
}

impl BatchError {
    /// Mooncake's number for this failure.
    pub fn code(self) -> i32 {
        match self {
            BatchError::Unknown | BatchError::Closed => -1,
            BatchError::TooMany => -2,
            BatchError::Busy => -4,
        }
    }
}

/// A batch on its way to a worker.
pub(crate) struct Work {
    pub(crate) id: BatchId,
    pub(crate) requests: Vec<Request<'static>>,
    pub(crate) deadline: MonotonicTime,
    pub(crate) cancel: Arc<CancelToken>,
}

struct Slot {
    generation: u32,
    batch: Option<Batch>,
}

struct Batch {
    cancel: Arc<CancelToken>,
    outcome: Option<BatchOutcome>,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<u32>,
    queue: VecDeque<Work>,
    workers: usize,
    idle: usize,
    closed: bool,
}

/// What [`BatchTable::push`] wants of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// A worker will take it.
    Taken(BatchId),
    /// As above, and one more worker should be started; it was counted already.
    StartWorker(BatchId),
}

#[derive(Default)]
pub(crate) struct BatchTable {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

impl State {
    fn slot(&mut self, id: BatchId) -> Result<&mut Batch, BatchError> {
        let (index, generation) = ((id.0 & 0xffff_ffff) as usize, (id.0 >> 32) as u32);
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation);
        slot.and_then(|slot| slot.batch.as_mut()).ok_or(BatchError::Unknown)
    }

    fn insert(&mut self, batch: Batch) -> Result<BatchId, BatchError> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_BATCHES => {
                self.slots.push(Slot { generation: 1, batch: None });
                (self.slots.len() - 1) as u32
            }
            None => return Err(BatchError::TooMany),
        };
        let slot = self.slots.get_mut(index as usize).ok_or(BatchError::TooMany)?;
        slot.batch = Some(batch);
        Ok(BatchId(u64::from(slot.generation) << 32 | u64::from(index)))
    }
}

impl BatchTable {
    /// Queues a batch.
    pub(crate) fn push(
        &self,
        requests: Vec<Request<'static>>,
        deadline: MonotonicTime,
        max_workers: usize,
    ) -> Result<Pushed, BatchError> {
        let cancel = Arc::new(CancelToken::new());
        let mut state = self.state.lock();
        if state.closed {
            return Err(BatchError::Closed);
        }
        let id = state.insert(Batch { cancel: Arc::clone(&cancel), outcome: None })?;
        state.queue.push_back(Work { id, requests, deadline, cancel });
        self.work.notify_one();
        if state.queue.len() > state.idle && state.workers < max_workers {
            state.workers += 1;
            return Ok(Pushed::StartWorker(id));
        }
        Ok(Pushed::Taken(id))
    }

    /// Registers a batch that is terminal already.
    pub(crate) fn push_done(&self, outcome: BatchOutcome) -> Result<BatchId, BatchError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BatchError::Closed);
        }
        state.insert(Batch { cancel: Arc::new(CancelToken::new()), outcome: Some(outcome) })
    }

    /// A worker could not be started. True when none is left to take the queue.
    pub(crate) fn worker_failed(&self) -> bool {
        let mut state = self.state.lock();
        state.workers -= 1;
        state.workers == 0
    }

    /// The next batch for a worker; `None` when the worker should end.
    pub(crate) fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                return Some(work);
            }
            if state.closed {
                state.workers -= 1;
                self.done.notify_all();
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Makes a batch terminal.
    pub(crate) fn finish(&self, id: BatchId, outcome: BatchOutcome) {
        let mut state = self.state.lock();
        if let Ok(batch) = state.slot(id) {
            batch.outcome = Some(outcome);
        }
        self.done.notify_all();
    }

    pub(crate) fn status(&self, id: BatchId) -> Result<BatchStatus, BatchError> {
        let mut state = self.state.lock();
        let outcome = state.slot(id)?.outcome.clone();
        Ok(outcome.map_or(BatchStatus::Waiting, BatchStatus::Done))
    }

    /// Waits at most `patience` for the batch to become terminal.
    pub(crate) fn wait(&self, id: BatchId, patience: Duration) -> Result<BatchStatus, BatchError> {
        let mut state = self.state.lock();
        let waits = |state: &mut State| state.slot(id).is_ok_and(|batch| batch.outcome.is_none());
        self.done.wait_while_for(&mut state, waits, patience);
        let outcome = state.slot(id)?.outcome.clone();
        Ok(outcome.map_or(BatchStatus::Waiting, BatchStatus::Done))
    }

    pub(crate) fn cancel(&self, id: BatchId) -> Result<(), BatchError> {
        let mut state = self.state.lock();
        state.slot(id)?.cancel.cancel();
        Ok(())
    }

    /// Forgets a terminal batch; its id is stale from now on.
    pub(crate) fn release(&self, id: BatchId) -> Result<(), BatchError> {
        let mut state = self.state.lock();
        if state.slot(id)?.outcome.is_none() {
            return Err(BatchError::Busy);
        }
        let index = (id.0 & 0xffff_ffff) as u32;
        if let Some(slot) = state.slots.get_mut(index as usize) {
            slot.batch = None;
            slot.generation = slot.generation.wrapping_add(1).max(1);
        }
        state.free.push(index);
        Ok(())
    }

    /// Cancels everything and lets the workers end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        for batch in state.slots.iter().filter_map(|slot| slot.batch.as_ref()) {
            batch.cancel.cancel();
        }
        self.work.notify_all();
    }

    /// Waits until the workers have ended, after [`BatchTable::close`]: nothing of any batch is in flight then.
    pub(crate) fn join(&self) {
        let mut state = self.state.lock();
        self.done.wait_while(&mut state, |state| state.workers > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(table: &BatchTable) -> BatchId {
        match table.push(Vec::new(), MonotonicTime(0), 0).unwrap() {
            Pushed::Taken(id) | Pushed::StartWorker(id) => id,
        }
    }

    #[test]
    fn a_released_id_is_stale_for_ever() {
        let table = BatchTable::default();
        let first = push(&table);
        assert_eq!(table.release(first), Err(BatchError::Busy));
        table.finish(first, BatchOutcome::default());
        table.release(first).unwrap();
        let second = push(&table);
        assert_ne!(first, second);
        assert_eq!(second.0 & 0xffff_ffff, first.0 & 0xffff_ffff, "the slot is reused");
        for stale in [first, BatchId(0), BatchId(u64::MAX), BatchId(second.0 + 1)] {
            assert_eq!(table.status(stale), Err(BatchError::Unknown));
            assert_eq!(table.cancel(stale), Err(BatchError::Unknown));
        }
        assert_eq!(table.status(second), Ok(BatchStatus::Waiting));
    }

    #[test]
    fn waiting_ends_with_patience() {
        let table = BatchTable::default();
        let id = push(&table);
        assert_eq!(table.wait(id, Duration::from_millis(1)), Ok(BatchStatus::Waiting));
        table.finish(id, BatchOutcome::default());
        assert_eq!(table.wait(id, Duration::from_secs(10)), Ok(BatchStatus::Done(BatchOutcome::default())));
    }
}
