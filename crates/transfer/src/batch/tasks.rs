//! A batch and its tasks: counters that workers move and callers read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::batch::{BatchError, BatchProgress, NotificationState, TaskState, TaskStatus, state_of};
use crate::{BatchOutcome, CancelToken, Notification, SegmentHandle, TransferError, TransferErrorKind};

/// One request of a batch.
#[derive(Debug, Default)]
struct Task {
    /// Chunks that have not ended.
    left: AtomicU32,
    done: AtomicBool,
    cancelled: AtomicBool,
    bytes: AtomicU64,
    error: OnceLock<TransferError>,
}

/// A chunk that is with the transports.
#[derive(Debug)]
struct InFlight {
    /// Its task, if it has only one.
    task: Option<usize>,
    cancel: Arc<CancelToken>,
}

/// What a batch tells the peer when all of it has completed.
pub(crate) type Notice = (SegmentHandle, Notification);

#[derive(Debug)]
pub(crate) struct Batch {
    tasks: Box<[Task]>,
    submitted: AtomicUsize,
    done: AtomicUsize,
    failed: AtomicUsize,
    bytes: AtomicU64,
    cancelled: AtomicBool,
    in_flight: Mutex<Vec<InFlight>>,
    notification: AtomicU8,
    notice: Mutex<Option<Notice>>,
    notice_error: OnceLock<TransferError>,
    waiting: Mutex<()>,
    ended: Condvar,
}

impl Batch {
    /// A batch with room for `capacity` tasks.
    pub(crate) fn new(capacity: usize) -> Self {
        Batch {
            tasks: (0..capacity).map(|_| Task::default()).collect(),
            submitted: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            in_flight: Mutex::new(Vec::new()),
            notification: AtomicU8::new(NotificationState::None as u8),
            notice: Mutex::new(None),
            notice_error: OnceLock::new(),
            waiting: Mutex::new(()),
            ended: Condvar::new(),
        }
    }

    /// Room for `wanted` tasks: the index of the first.
    pub(crate) fn reserve(&self, wanted: usize) -> Result<usize, BatchError> {
        let capacity = self.tasks.len();
        let fits = |used: usize| used.checked_add(wanted).filter(|total| *total <= capacity);
        let reserved = self.submitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        reserved.map_err(|used| BatchError::Full { wanted, used, capacity })
    }

    /// Says how many chunks a task has, before the first can end.
    pub(crate) fn expect(&self, task: usize, chunks: u32) {
        if let Some(task) = self.tasks.get(task) {
            task.left.store(chunks, Ordering::Release);
        }
    }

    /// How far the batch is. The tasks are counted before they are added up, so a batch is never seen as terminal
    /// while another thread adds to it.
    pub(crate) fn progress(&self) -> BatchProgress {
        let notification = self.notification();
        let done = self.done.load(Ordering::Acquire);
        BatchProgress {
            done,
            failed: self.failed.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
            total: self.submitted.load(Ordering::Acquire),
            notification,
        }
    }

    fn notification(&self) -> NotificationState {
        use NotificationState as N;
        let state = self.notification.load(Ordering::Acquire);
        [N::Waiting, N::Sent, N::NotSent, N::Failed].into_iter().find(|n| *n as u8 == state).unwrap_or_default()
    }

    /// Where a task stands.
    pub(crate) fn task(&self, index: usize) -> Result<TaskStatus, BatchError> {
        let total = self.submitted.load(Ordering::Acquire);
        let task = self.tasks.get(index).filter(|_| index < total);
        let task = task.ok_or(BatchError::NoSuchTask { index, total })?;
        let done = task.done.load(Ordering::Acquire);
        let state = if done { state_of(task.error.get().map_or(Ok(()), Err)) } else { TaskState::Waiting };
        Ok(TaskStatus { state, bytes: task.bytes.load(Ordering::Acquire) })
    }

    /// Every task's result, once all have one.
    pub(crate) fn outcome(&self) -> Option<BatchOutcome> {
        let progress = self.progress();
        let tasks = self.tasks.iter().take(progress.total);
        let result = |task: &Task| task.error.get().map_or(Ok(()), |error| Err(error.clone()));
        progress.is_terminal().then(|| BatchOutcome { results: tasks.map(result).collect(), ..BatchOutcome::default() })
    }

    /// One chunk of a task has ended, and the chunk's memory was let go. True when this was the last of the batch.
    pub(crate) fn chunk_ended(&self, index: usize, bytes: u64, result: Result<(), TransferError>) -> bool {
        let Some(task) = self.tasks.get(index) else { return false };
        match result {
            Ok(()) => {
                task.bytes.fetch_add(bytes, Ordering::AcqRel);
                self.bytes.fetch_add(bytes, Ordering::AcqRel);
            }
            Err(error) => drop(task.error.set(error)),
        }
        if task.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        if task.error.get().is_some() {
            self.failed.fetch_add(1, Ordering::AcqRel);
        }
        task.done.store(true, Ordering::Release);
        let done = self.done.fetch_add(1, Ordering::AcqRel) + 1;
        let last = done == self.submitted.load(Ordering::Acquire);
        if last {
            self.wake();
        }
        last
    }

    fn wake(&self) {
        drop(self.waiting.lock());
        self.ended.notify_all();
    }

    /// Waits at most `patience` for the batch to become terminal.
    pub(crate) fn wait(&self, patience: Duration) {
        let mut waiting = self.waiting.lock();
        self.ended.wait_while_for(&mut waiting, |()| !self.progress().is_terminal(), patience);
    }

    /// Why a chunk of this task need not run, if it need not.
    pub(crate) fn stopped(&self, index: usize) -> Option<TransferErrorKind> {
        let task = self.tasks.get(index)?;
        if self.is_cancelled() || task.cancelled.load(Ordering::SeqCst) {
            return Some(TransferErrorKind::Cancelled);
        }
        task.error.get().map(TransferError::kind)
    }

    /// Whether all of the batch was asked to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// A chunk goes to the transports: what stops it. `task` where it has only one.
    pub(crate) fn start_chunk(&self, task: Option<usize>) -> Arc<CancelToken> {
        let cancel = Arc::new(CancelToken::new());
        let mut in_flight = self.in_flight.lock();
        in_flight.push(InFlight { task, cancel: Arc::clone(&cancel) });
        // Whoever cancels sets the flag before it looks at the list.
        if task.map_or(self.is_cancelled(), |task| self.stopped(task) == Some(TransferErrorKind::Cancelled)) {
            cancel.cancel();
        }
        cancel
    }

    /// The chunk came back.
    pub(crate) fn end_chunk(&self, cancel: &Arc<CancelToken>) {
        self.in_flight.lock().retain(|chunk| !Arc::ptr_eq(&chunk.cancel, cancel));
    }

    /// Asks everything to stop that was submitted and is not terminal, or one task of it. What is submitted later to a
    /// cancelled batch is cancelled too.
    pub(crate) fn cancel(&self, only: Option<usize>) -> Result<(), BatchError> {
        match only {
            None => self.cancelled.store(true, Ordering::SeqCst),
            Some(index) => {
                self.task(index)?;
                if let Some(task) = self.tasks.get(index) {
                    task.cancelled.store(true, Ordering::SeqCst);
                }
            }
        }
        for chunk in self.in_flight.lock().iter().filter(|chunk| only.is_none() || chunk.task == only) {
            chunk.cancel.cancel();
        }
        Ok(())
    }

    /// The peer is to be told when all of the batch has completed; replaces what was to be told before.
    pub(crate) fn set_notice(&self, notice: Notice) {
        let mut place = self.notice.lock();
        *place = Some(notice);
        self.notification.store(NotificationState::Waiting as u8, Ordering::Release);
    }

    /// Takes the notice when it is due: all tasks are terminal. It is dropped when one of them has failed.
    pub(crate) fn take_notice(&self) -> Option<Notice> {
        let mut place = self.notice.lock();
        let progress = self.progress();
        if progress.done != progress.total {
            return None;
        }
        let notice = place.take()?;
        if progress.failed == 0 {
            return Some(notice);
        }
        drop(place);
        self.notice_ended(NotificationState::NotSent);
        None
    }

    /// Whether somebody should take the notice.
    pub(crate) fn wants_notice(&self) -> bool {
        self.notification() == NotificationState::Waiting
    }

    /// The notice was sent, or not.
    pub(crate) fn notified(&self, sent: Result<(), TransferError>) {
        let state = if sent.is_ok() { NotificationState::Sent } else { NotificationState::Failed };
        if let Err(error) = sent {
            drop(self.notice_error.set(error));
        }
        self.notice_ended(state);
    }

    fn notice_ended(&self, state: NotificationState) {
        let place = self.notice.lock();
        if place.is_none() {
            self.notification.store(state as u8, Ordering::Release);
        }
        drop(place);
        self.wake();
    }

    /// Why the peer did not take the notification.
    pub(crate) fn notice_error(&self) -> Option<TransferError> {
        self.notice_error.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: TransferErrorKind) -> TransferError {
        TransferError::new(kind, "peer:1", "as told")
    }

    #[test]
    fn a_task_is_terminal_with_its_last_chunk_and_a_batch_with_its_last_task() {
        let batch = Batch::new(3);
        assert!(batch.progress().is_terminal(), "nothing was submitted");
        assert_eq!(batch.reserve(2), Ok(0));
        batch.expect(0, 2);
        batch.expect(1, 1);
        assert!(!batch.chunk_ended(0, 10, Ok(())));
        assert_eq!(batch.task(0).unwrap(), TaskStatus { state: TaskState::Waiting, bytes: 10 });
        assert!(!batch.chunk_ended(0, 10, Err(error(TransferErrorKind::TimedOut))));
        assert_eq!(batch.task(0).unwrap(), TaskStatus { state: TaskState::TimedOut, bytes: 10 });
        assert_eq!(batch.outcome(), None);
        assert!(batch.chunk_ended(1, 5, Ok(())));
        let progress = batch.progress();
        assert_eq!((progress.total, progress.done, progress.failed, progress.bytes), (2, 2, 1, 15));
        assert_eq!(batch.task(2), Err(BatchError::NoSuchTask { index: 2, total: 2 }));
        assert_eq!(batch.reserve(2), Err(BatchError::Full { wanted: 2, used: 2, capacity: 3 }));
        assert_eq!(batch.reserve(usize::MAX), Err(BatchError::Full { wanted: usize::MAX, used: 2, capacity: 3 }));
    }

    #[test]
    fn cancelling_reaches_what_is_in_flight_and_what_is_not_yet() {
        let batch = Batch::new(2);
        batch.reserve(2).unwrap();
        let (first, both) = (batch.start_chunk(Some(0)), batch.start_chunk(None));
        batch.cancel(Some(0)).unwrap();
        assert!(first.is_cancelled() && !both.is_cancelled());
        assert_eq!((batch.stopped(0), batch.stopped(1)), (Some(TransferErrorKind::Cancelled), None));
        batch.end_chunk(&first);
        batch.cancel(None).unwrap();
        assert!(both.is_cancelled());
        assert!(batch.start_chunk(Some(1)).is_cancelled(), "too late to start");
        assert_eq!(batch.cancel(Some(2)), Err(BatchError::NoSuchTask { index: 2, total: 2 }));
    }
}
