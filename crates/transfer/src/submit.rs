//! The engine's batches: submitting, running chunks on workers, asking.

use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use yb_mem::Crc64;
use yb_types::MonotonicTime;

use crate::batch::plan::{Chunk, NEVER, Work, cut};
use crate::batch::tasks::Batch;
use crate::batch::{BatchProgress, MAX_TASKS, TaskStatus};
use crate::engine::{Engine, Shared};
use crate::transport::{Job, Limits};
use crate::{
    BatchError, BatchId, BatchOutcome, BatchStatus, CancelToken, Notification, Opcode, Request, SegmentHandle,
    TrafficClass, TransferError, TransferErrorKind,
};

/// A submission below this size that needs no socket is copied at once, in the caller.
const INLINE_BYTES: u64 = 256 << 10;

/// How long a peer may take to accept the notification of a batch.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

impl Engine {
    /// Opens a batch with room for `capacity` tasks.
    ///
    /// # Errors
    /// [`BatchError::TooMany`], [`BatchError::TooLarge`], [`BatchError::Closed`].
    pub fn open_batch(&self, capacity: usize) -> Result<BatchId, BatchError> {
        if capacity > MAX_TASKS {
            return Err(BatchError::TooLarge(capacity));
        }
        self.0.shared.batches.insert(Arc::new(Batch::new(capacity)))
    }

    /// Starts more tasks of a batch: the index of the first. Each has its own outcome; small ones that need no socket are
    /// done when this returns. Without a deadline in its options a task waits as long as its transport lets it.
    ///
    /// # Errors
    /// [`BatchError::Full`], [`BatchError::Closed`], or the id is not of an open batch; nothing was started then.
    pub fn submit_to(&self, id: BatchId, requests: Vec<Request<'static>>) -> Result<usize, BatchError> {
        let (batch, first) = self.0.shared.reserve(id, requests.len())?;
        self.0.shared.start(&batch, first, requests, NEVER);
        Ok(first)
    }

    /// As [`Engine::submit_to`], and once every task of the batch has completed, a worker leaves `notification` with
    /// the peer. It is sent once. A second one replaces the first while that was not sent.
    /// [`BatchProgress::notification`] says what became of it.
    ///
    /// # Errors
    /// As [`Engine::submit_to`].
    pub fn submit_with_notify(
        &self,
        id: BatchId,
        requests: Vec<Request<'static>>,
        segment: &SegmentHandle,
        notification: Notification,
    ) -> Result<usize, BatchError> {
        let shared = &self.0.shared;
        let (batch, first) = shared.reserve(id, requests.len())?;
        batch.set_notice((segment.clone(), notification));
        let nothing = requests.is_empty();
        shared.start(&batch, first, requests, NEVER);
        if nothing {
            shared.ended(&batch, true);
        }
        Ok(first)
    }

    /// Opens a batch, starts all of its tasks and gives them up at `deadline`.
    ///
    /// # Errors
    /// As [`Engine::open_batch`].
    pub fn submit(&self, requests: Vec<Request<'static>>, deadline: MonotonicTime) -> Result<BatchId, BatchError> {
        let shared = &self.0.shared;
        if requests.len() > MAX_TASKS {
            return Err(BatchError::TooLarge(requests.len()));
        }
        let batch = Arc::new(Batch::new(requests.len()));
        let first = batch.reserve(requests.len())?;
        let id = shared.batches.insert(Arc::clone(&batch))?;
        shared.start(&batch, first, requests, deadline);
        Ok(id)
    }

    /// Where one task stands. The cost does not depend on the number of tasks.
    ///
    /// # Errors
    /// [`BatchError::NoSuchTask`], or the id is not of an open batch.
    pub fn task(&self, id: BatchId, index: usize) -> Result<TaskStatus, BatchError> {
        self.0.shared.batches.with(id, |batch| batch.task(index))?
    }

    /// How far a batch is. The cost does not depend on the number of tasks.
    ///
    /// # Errors
    /// When the id is not of an open batch.
    pub fn progress(&self, id: BatchId) -> Result<BatchProgress, BatchError> {
        self.0.shared.batches.with(id, |batch| batch.progress())
    }

    /// Why the notification of a batch failed, where it did.
    ///
    /// # Errors
    /// When the id is not of an open batch.
    pub fn notification_error(&self, id: BatchId) -> Result<Option<TransferError>, BatchError> {
        self.0.shared.batches.with(id, |batch| batch.notice_error())
    }

    /// Where a batch stands, with the outcome of every task once it is terminal.
    ///
    /// # Errors
    /// When the id is not of an open batch.
    pub fn status(&self, id: BatchId) -> Result<BatchStatus, BatchError> {
        self.0.shared.batches.with(id, |batch| batch.outcome().map_or(BatchStatus::Waiting, BatchStatus::Done))
    }

    /// Waits until the batch is terminal or the time has come, and says where it stands.
    ///
    /// # Errors
    /// When the id is not of an open batch.
    pub fn wait(&self, id: BatchId, until: MonotonicTime) -> Result<BatchStatus, BatchError> {
        let batch = self.0.shared.batches.get(id)?;
        batch.wait(until.since(self.now()));
        Ok(batch.outcome().map_or(BatchStatus::Waiting, BatchStatus::Done))
    }

    /// Asks a batch to stop. It is terminal when its status says so.
    ///
    /// # Errors
    /// When the id is not of an open batch.
    pub fn cancel(&self, id: BatchId) -> Result<(), BatchError> {
        self.0.shared.cancel(id, None)
    }

    /// Asks one task to stop. It is terminal when its status says so; bytes that are in flight with those of other tasks
    /// still arrive.
    ///
    /// # Errors
    /// [`BatchError::NoSuchTask`], or the id is not of an open batch.
    pub fn cancel_task(&self, id: BatchId, index: usize) -> Result<(), BatchError> {
        self.0.shared.cancel(id, Some(index))
    }

    /// Changes the share that a traffic class has of the workers, from now on.
    pub fn set_class_weight(&self, class: TrafficClass, weight: u32) {
        self.0.shared.queue.set_weight(class, weight);
    }

    /// Forgets a terminal batch.
    ///
    /// # Errors
    /// [`BatchError::Busy`] when it is not terminal, [`BatchError::Released`] when it was released before.
    pub fn release(&self, id: BatchId) -> Result<(), BatchError> {
        self.0.shared.batches.release(id)
    }
}

impl Shared {
    /// Room in a batch, which is not released meanwhile.
    fn reserve(&self, id: BatchId, wanted: usize) -> Result<(Arc<Batch>, usize), BatchError> {
        if self.is_closed() {
            return Err(BatchError::Closed);
        }
        self.batches.with(id, |batch| Ok((Arc::clone(batch), batch.reserve(wanted)?)))?
    }

    /// Stops a batch or one task of it. What waits ends at once, without a worker.
    fn cancel(self: &Arc<Self>, id: BatchId, task: Option<usize>) -> Result<(), BatchError> {
        let batch = self.batches.get(id)?;
        batch.cancel(task)?;
        for chunk in self.queue.withdraw(&batch, task) {
            self.run_chunk(chunk);
        }
        Ok(())
    }

    /// Starts tasks that have their room.
    fn start(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        first: usize,
        requests: Vec<Request<'static>>,
        deadline: MonotonicTime,
    ) {
        let total: u64 = requests.iter().map(|request| request.local.len()).fold(0, u64::saturating_add);
        let immediate = |r: &Request<'_>| self.paths.is_immediate(&r.segment, r.remote.0, r.local.len());
        if total <= INLINE_BYTES && !batch.is_cancelled() && requests.iter().all(immediate) {
            return self.run_here(batch, first, requests, deadline);
        }
        self.enqueue(cut(batch, first, requests, deadline, self.settings.chunk_bytes));
    }

    fn run_here(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        first: usize,
        requests: Vec<Request<'static>>,
        deadline: MonotonicTime,
    ) {
        for task in first..first + requests.len() {
            batch.expect(task, 1);
        }
        let outcome = self.run(&requests, deadline, None);
        let lens: SmallVec<[u64; 8]> = requests.iter().map(|request| request.local.len()).collect();
        drop(requests);
        for (index, (len, result)) in lens.into_iter().zip(outcome.results).enumerate() {
            let last = batch.chunk_ended(first + index, len, result);
            self.ended(batch, last);
        }
    }

    /// Hands chunks to the workers, and starts as many as are wanted.
    fn enqueue(self: &Arc<Self>, chunks: Vec<Chunk>) {
        let (wanted, mut left) = self.queue.push(chunks);
        left.extend((0..wanted).flat_map(|_| self.start_worker()));
        // The engine is closed, or no thread can be had: what is left is run here.
        for chunk in left {
            self.run_chunk(chunk);
        }
    }

    /// Starts a worker that was counted; gives back what waits if there is none to take it.
    fn start_worker(self: &Arc<Self>) -> Vec<Chunk> {
        let worker = Arc::clone(self);
        match yb_env::spawn_thread("yb-batch", move || worker.serve_batches()) {
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "a thread for batches cannot be started");
                self.queue.worker_failed()
            }
        }
    }

    /// The body of a worker.
    fn serve_batches(self: &Arc<Self>) {
        let mut over = None;
        while let Some(taken) = self.queue.next(over) {
            if taken.start_another {
                // This worker goes on, so what waits is not given back.
                let _ = self.start_worker();
            }
            self.run_chunk(taken.chunk);
            over = Some(taken.peer);
        }
    }

    fn run_chunk(self: &Arc<Self>, chunk: Chunk) {
        let Chunk { batch, deadline, work, .. } = chunk;
        match work {
            Work::Whole(requests) => self.run_whole(&batch, requests, deadline),
            Work::Part { task, request, offset, len } => {
                let result = self.run_part(&batch, task, (&request, offset, len), deadline);
                drop(request);
                let last = batch.chunk_ended(task, len, result);
                self.ended(&batch, last);
            }
            Work::Notify => {
                if let Some((segment, notification)) = batch.take_notice() {
                    let until = self.clock.now() + NOTIFY_TIMEOUT;
                    batch.notified(self.notify(&segment, &notification, until.min(deadline)));
                }
            }
        }
    }

    fn run_whole(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        requests: Vec<(usize, Request<'static>)>,
        deadline: MonotonicTime,
    ) {
        let mut ends: Vec<(usize, u64, Result<(), TransferError>)> = Vec::with_capacity(requests.len());
        let mut live: Vec<(usize, Request<'static>)> = Vec::with_capacity(requests.len());
        for (task, request) in requests {
            match batch.stopped(task) {
                Some(kind) => ends.push((task, 0, Err(request.segment.error(kind, "before it was started")))),
                None => live.push((task, request)),
            }
        }
        let only = if let [(task, _)] = &*live { Some(*task) } else { None };
        let cancel = batch.start_chunk(only);
        let (tasks, requests): (Vec<usize>, Vec<Request<'static>>) = live.into_iter().unzip();
        let outcome = self.run(&requests, deadline, Some(&cancel));
        batch.end_chunk(&cancel);
        let lens: Vec<u64> = requests.iter().map(|request| request.local.len()).collect();
        drop(requests);
        let done = tasks.into_iter().zip(lens).zip(outcome.results);
        ends.extend(done.map(|((task, len), result)| (task, len, result)));
        for (task, len, result) in ends {
            let last = batch.chunk_ended(task, len, result);
            self.ended(batch, last);
        }
    }

    fn run_part(
        &self,
        batch: &Batch,
        task: usize,
        (request, offset, len): (&Request<'static>, u64, u64),
        deadline: MonotonicTime,
    ) -> Result<(), TransferError> {
        if let Some(kind) = batch.stopped(task) {
            return Err(request.segment.error(kind, "before this part was started"));
        }
        self.check(request)?;
        let local = request.local.span().slice(offset as usize, len as usize);
        let local = local.map_err(|error| request.segment.error(TransferErrorKind::InvalidRequest, error))?;
        let remote = request.remote.0.checked_add(offset);
        let wraps = || request.segment.error(TransferErrorKind::RemoteRefused, "the range wraps around");
        let remote = remote.ok_or_else(wraps)?;
        let cancel = batch.start_chunk(Some(task));
        let limits = Limits { clock: &self.clock, deadline, cancel: Some(&cancel) };
        let mut job = [Job::new(request.op, local, &request.segment, remote, &request.options)];
        self.paths.run(&mut job, &limits);
        batch.end_chunk(&cancel);
        let [job] = job;
        job.outcome.unwrap_or(Ok(()))
    }

    /// After a task has ended: the peer is told if all have.
    fn ended(self: &Arc<Self>, batch: &Arc<Batch>, last: bool) {
        if last && batch.wants_notice() {
            self.enqueue(vec![Chunk::notify(Arc::clone(batch), NEVER)]);
        }
    }

    /// Moves all requests; each has its own result. When this returns, nothing can touch their memory any more.
    pub(crate) fn run(
        &self,
        requests: &[Request<'_>],
        deadline: MonotonicTime,
        cancel: Option<&CancelToken>,
    ) -> BatchOutcome {
        let mut outcome = BatchOutcome { results: smallvec![Ok(()); requests.len()], ..BatchOutcome::default() };
        if requests.iter().any(|request| request.is_summed) {
            // What has no bytes is not moved, and has the checksum of no bytes.
            outcome.sums = requests.iter().map(|request| request.is_summed.then(Crc64::default)).collect();
        }
        let mut jobs: SmallVec<[Job<'_>; 4]> = SmallVec::new();
        for (index, (request, result)) in requests.iter().zip(&mut outcome.results).enumerate() {
            match self.check(request) {
                Ok(true) => {
                    let (local, remote) = (request.local.span(), request.remote.0);
                    let job = Job::new(request.op, local, &request.segment, remote, &request.options);
                    let sum = request.is_summed.then(Crc64::default);
                    jobs.push(Job { index, sum, ..job });
                }
                Ok(false) => {}
                Err(refused) => *result = Err(refused),
            }
        }
        let given_up = |job: &Job<'_>| job.options.deadline.map_or(deadline, |own| own.min(deadline));
        let together = |left: &Job<'_>, right: &Job<'_>| {
            let groups = (left.options.group, right.options.group);
            if groups == (None, None) { given_up(left) == given_up(right) } else { groups.0 == groups.1 }
        };
        for part in jobs.chunk_by_mut(together) {
            let grouped = part.first().is_some_and(|job| job.options.group.is_some());
            if grouped {
                self.run_in_turn(part, |job| Limits { clock: &self.clock, deadline: given_up(job), cancel });
            } else {
                let deadline = part.first().map_or(deadline, given_up);
                self.paths.run(part, &Limits { clock: &self.clock, deadline, cancel });
            }
        }
        for job in &jobs {
            if let Some(sum) = outcome.sums.get_mut(job.index) {
                *sum = if matches!(job.outcome, Some(Ok(()))) { job.whole_sum() } else { None };
            }
        }
        for job in jobs {
            if let (Some(slot), Some(result)) = (outcome.results.get_mut(job.index), job.outcome) {
                *slot = result;
            }
        }
        outcome
    }

    /// Runs the jobs of a group one after another; a failure ends the group.
    fn run_in_turn<'a>(&self, jobs: &mut [Job<'_>], limits: impl Fn(&Job<'_>) -> Limits<'a>) {
        let mut failed = false;
        for job in jobs {
            if failed {
                job.fail(TransferErrorKind::Cancelled, "an earlier request of its group failed");
                continue;
            }
            let limits = limits(job);
            self.paths.run(std::slice::from_mut(job), &limits);
            failed = !matches!(job.outcome, Some(Ok(())));
        }
    }

    /// Whether there is something to move.
    fn check(&self, request: &Request<'_>) -> Result<bool, TransferError> {
        if self.is_closed() {
            return Err(request.segment.error(TransferErrorKind::Closed, "the engine was shut down"));
        }
        if request.op == Opcode::Read && !request.local.span().is_writable() {
            return Err(request.segment.error(TransferErrorKind::InvalidRequest, "a read needs writable memory"));
        }
        Ok(!request.local.is_empty())
    }
}
