//! Where chunks wait for a worker.

use parking_lot::{Condvar, Mutex};
use yb_sched::{ClassQueue, Item, TrafficClass};

use crate::batch::plan::{Chunk, NEVER};

/// Most threads that run chunks.
const MAX_WORKERS: usize = 4;

struct State {
    chunks: ClassQueue<Chunk>,
    workers: usize,
    idle: usize,
    closed: bool,
}

/// The chunks of all batches, and who takes them.
pub(crate) struct WorkQueue {
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
}

impl WorkQueue {
    /// An empty queue that shares the workers by these weights.
    pub(crate) fn new(weights: [u32; TrafficClass::COUNT]) -> Self {
        let state = State { chunks: ClassQueue::new(weights), workers: 0, idle: 0, closed: false };
        WorkQueue { state: Mutex::new(state), work: Condvar::new(), ended: Condvar::new() }
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
        for _ in 0..state.idle.min(state.chunks.len()) {
            self.work.notify_one();
        }
        let wanted = state.chunks.len().saturating_sub(state.idle).min(MAX_WORKERS - state.workers);
        state.workers += wanted;
        (wanted, Vec::new())
    }

    /// The next chunk for a worker; `None` when the worker should end.
    pub(crate) fn next(&self) -> Option<Chunk> {
        let mut state = self.state.lock();
        loop {
            if let Some(item) = state.chunks.pop() {
                return Some(item.value);
            }
            if state.closed {
                state.workers -= 1;
                self.ended.notify_all();
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// A worker could not be started. Where none is left, gives back what waits.
    pub(crate) fn worker_failed(&self) -> Vec<Chunk> {
        let mut state = self.state.lock();
        state.workers -= 1;
        self.ended.notify_all();
        if state.workers == 0 { state.chunks.remove_where(|_| true) } else { Vec::new() }
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
