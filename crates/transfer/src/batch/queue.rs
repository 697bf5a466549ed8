//! Where chunks wait for a worker.
//!
//! A few workers run chunks at the same time; one more waits behind them. When nothing was taken for a while though
//! something waits, the others are held up, by peers that do not answer, and the one behind takes a chunk too.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use yb_sched::{ClassQueue, Item, TrafficClass};

use crate::batch::plan::{Chunk, NEVER};
use crate::batch::tasks::Batch;

/// Most threads, held up or not.
const MAX_WORKERS: usize = 64;

/// Workers that run chunks at the same time while none is held up.
const REGULAR: std::ops::RangeInclusive<usize> = 2..=4;

/// After this time without a chunk taken the workers count as held up.
const HELD_UP: Duration = Duration::from_millis(50);

struct State {
    chunks: ClassQueue<Chunk>,
    workers: usize,
    /// Workers that run a chunk.
    busy: usize,
    /// Chunks taken since the start.
    taken: u64,
    closed: bool,
}

/// The chunks of all batches, and who takes them.
pub(crate) struct WorkQueue {
    state: Mutex<State>,
    regular: usize,
    work: Condvar,
    ended: Condvar,
}

/// A chunk for a worker.
pub(crate) struct Taken {
    pub(crate) chunk: Chunk,
    /// Whether one more worker should be started; it is counted already.
    pub(crate) start_another: bool,
}

impl WorkQueue {
    /// An empty queue that shares the workers by these weights.
    pub(crate) fn new(weights: [u32; TrafficClass::COUNT]) -> Self {
        let state = State { chunks: ClassQueue::new(weights), workers: 0, busy: 0, taken: 0, closed: false };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        WorkQueue {
            state: Mutex::new(state),
            regular: cores.clamp(*REGULAR.start(), *REGULAR.end()),
            work: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Changes the share of a class.
    pub(crate) fn set_weight(&self, class: TrafficClass, weight: u32) {
        self.state.lock().chunks.set_weight(class, weight);
    }

    /// Queues chunks, and says how many workers should be started; they are counted already. Chunks that come after the
    /// queue was closed are given back: nobody will take them.
    pub(crate) fn push(&self, chunks: Vec<Chunk>) -> (usize, Vec<Chunk>) {
        let mut state = self.state.lock();
        if state.closed {
            return (0, chunks);
        }
        for chunk in chunks {
            let Chunk { class, priority, cost, .. } = chunk;
            let deadline = (chunk.deadline < NEVER).then_some(chunk.deadline);
            state.chunks.push(Item { class, priority, deadline, cost, value: chunk });
        }
        let waiting = state.workers - state.busy;
        for _ in 0..waiting.min(state.chunks.len()) {
            self.work.notify_one();
        }
        let room = (self.regular + 1).saturating_sub(state.workers);
        let wanted = state.chunks.len().saturating_sub(waiting).min(room);
        state.workers += wanted;
        (wanted, Vec::new())
    }

    /// The next chunk for a worker; `None` when the worker should end. `again` = it ran one before.
    pub(crate) fn next(&self, again: bool) -> Option<Taken> {
        let mut state = self.state.lock();
        state.busy -= usize::from(again);
        loop {
            if state.chunks.is_empty() {
                if state.closed || state.workers > self.regular + 1 {
                    state.workers -= 1;
                    self.ended.notify_all();
                    return None;
                }
                self.work.wait(&mut state);
            } else if (state.busy < self.regular || state.closed || self.are_held_up(&mut state))
                && let Some(item) = state.chunks.pop()
            {
                return Some(Self::taken(&mut state, item.value));
            }
        }
    }

    /// Waits behind the busy workers, and says whether they are held up.
    fn are_held_up(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let taken = state.taken;
        self.work.wait_for(state, HELD_UP).timed_out() && state.taken == taken
    }

    fn taken(state: &mut State, chunk: Chunk) -> Taken {
        state.taken += 1;
        state.busy += 1;
        let nobody_waits = state.busy == state.workers;
        let start_another = nobody_waits && !state.chunks.is_empty() && state.workers < MAX_WORKERS && !state.closed;
        state.workers += usize::from(start_another);
        Taken { chunk, start_another }
    }

    /// A worker could not be started. Where none is left, gives back what waits.
    pub(crate) fn worker_failed(&self) -> Vec<Chunk> {
        let mut state = self.state.lock();
        state.workers -= 1;
        self.ended.notify_all();
        if state.workers == 0 { state.chunks.remove_where(|_| true) } else { Vec::new() }
    }

    /// Takes out what waits of a batch, or of one task of it, but for its notification.
    pub(crate) fn withdraw(&self, batch: &Arc<Batch>, task: Option<usize>) -> Vec<Chunk> {
        let concerns = |chunk: &Chunk| Arc::ptr_eq(&chunk.batch, batch) && chunk.work.concerns_only(task);
        self.state.lock().chunks.remove_where(concerns)
    }

    /// Lets the workers end when they have emptied the queue.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    /// Waits until the workers have ended, after [`WorkQueue::close`]: nothing of any batch is in flight then.
    pub(crate) fn join(&self) {
        let mut state = self.state.lock();
        self.ended.wait_while(&mut state, |state| state.workers > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::Work;
    use yb_types::MonotonicTime;

    fn chunk(batch: &Arc<Batch>, class: TrafficClass, task: usize) -> Chunk {
        let work = Work::Whole(vec![]);
        Chunk {
            batch: Arc::clone(batch),
            class,
            priority: 0,
            deadline: MonotonicTime(task as u64),
            cost: 1 << 20,
            work,
        }
    }

    fn queue() -> (WorkQueue, Arc<Batch>) {
        (WorkQueue::new(TrafficClass::WEIGHTS), Arc::new(Batch::new(0)))
    }

    #[test]
    fn what_is_urgent_overtakes_what_waits() {
        let (queue, batch) = queue();
        let low = (0..100).map(|n| chunk(&batch, TrafficClass::LOW, n)).collect();
        assert_eq!(queue.push(low).0, queue.regular + 1, "workers and one behind them");
        queue.next(false).unwrap();
        queue.push(vec![chunk(&batch, TrafficClass::HIGH, 0)]);
        let next: Vec<TrafficClass> = (0..2).map(|_| queue.next(true).unwrap().chunk.class).collect();
        assert!(next.contains(&TrafficClass::HIGH), "{next:?}");
    }

    #[test]
    fn one_more_worker_helps_when_the_others_are_held_up() {
        let (queue, batch) = queue();
        queue.push((0..20).map(|n| chunk(&batch, TrafficClass::NORMAL, n)).collect());
        for _ in 0..queue.regular {
            assert!(!queue.next(false).unwrap().start_another, "one waits behind");
        }
        let clock = yb_env::Clock::real();
        let before = clock.now();
        assert!(queue.next(false).unwrap().start_another, "nobody waits behind any more");
        assert!(clock.now().since(before) >= HELD_UP);
    }

    #[test]
    fn surplus_workers_end_when_nothing_waits_and_all_when_the_queue_is_closed() {
        let (queue, batch) = queue();
        queue.push((0..queue.regular + 2).map(|n| chunk(&batch, TrafficClass::NORMAL, n)).collect());
        for _ in 0..queue.regular + 2 {
            queue.next(false).unwrap();
        }
        assert_eq!(queue.state.lock().workers, queue.regular + 2);
        assert!(queue.next(true).is_none());
        queue.close();
        for _ in 0..queue.regular + 1 {
            assert!(queue.next(true).is_none());
        }
        queue.join();
        assert_eq!(queue.push(vec![chunk(&batch, TrafficClass::LOW, 0)]).1.len(), 1, "given back");
    }
}
