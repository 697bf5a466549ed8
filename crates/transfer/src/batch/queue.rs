//! Where chunks wait for a worker.
//!
//! A few workers run chunks at the same time; one more waits behind them. When nothing was taken for a while though
//! something waits, the others are held up, and the one behind takes a chunk too, for a peer that nobody is busy with:
//! a peer that is slow or does not answer holds up only itself.

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
    /// What every worker that runs a chunk is busy with.
    busy: Vec<Option<usize>>,
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
    /// Which peer the chunk is for, to be said when it is over.
    pub(crate) peer: Option<usize>,
    /// Whether one more worker should be started; it is counted already.
    pub(crate) start_another: bool,
}

impl WorkQueue {
    /// An empty queue that shares the workers by these weights.
    pub(crate) fn new(weights: [u32; TrafficClass::COUNT]) -> Self {
        let state = State { chunks: ClassQueue::new(weights), workers: 0, busy: Vec::new(), taken: 0, closed: false };
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
        let waiting = state.workers - state.busy.len();
        for _ in 0..waiting.min(state.chunks.len()) {
            self.work.notify_one();
        }
        let room = (self.regular + 1).saturating_sub(state.workers);
        let wanted = state.chunks.len().saturating_sub(waiting).min(room);
        state.workers += wanted;
        (wanted, Vec::new())
    }

    /// The next chunk for a worker; `None` when the worker should end. `over` = the peer of the one that it ran before.
    pub(crate) fn next(&self, over: Option<Option<usize>>) -> Option<Taken> {
        let mut state = self.state.lock();
        if let Some(at) = over.and_then(|over| state.busy.iter().position(|peer| *peer == over)) {
            state.busy.swap_remove(at);
        }
        loop {
            if state.chunks.is_empty() {
                if state.closed || state.workers > self.regular + 1 {
                    state.workers -= 1;
                    self.ended.notify_all();
                    return None;
                }
                self.work.wait(&mut state);
            } else if state.busy.len() < self.regular || state.closed {
                if let Some(item) = state.chunks.pop() {
                    return Some(Self::taken(&mut state, item.value));
                }
            } else if self.are_held_up(&mut state)
                && let State { chunks, busy, .. } = &mut *state
                && let Some(item) = chunks.pop_where(|chunk| !busy.contains(&chunk.work.peer()))
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
        let peer = chunk.work.peer();
        state.busy.push(peer);
        let nobody_waits = state.busy.len() == state.workers;
        let start_another = nobody_waits && !state.chunks.is_empty() && state.workers < MAX_WORKERS && !state.closed;
        state.workers += usize::from(start_another);
        Taken { chunk, peer, start_another }
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
    use crate::directory::Directory;
    use crate::segment::Segment;
    use crate::{LocalBuffer, Opcode, Request, SegmentHandle};
    use std::sync::Weak;
    use yb_types::{MonotonicTime, SegmentAddress};

    struct Stage {
        queue: WorkQueue,
        batch: Arc<Batch>,
        peers: Vec<SegmentHandle>,
    }

    fn stage() -> Stage {
        let segment = |n: usize| Segment::new(format!("peer:{n}").into(), Weak::new(), Directory::Handshake);
        let peers = (0..10).map(|n| SegmentHandle(Arc::new(segment(n)))).collect();
        Stage { queue: WorkQueue::new(TrafficClass::WEIGHTS), batch: Arc::new(Batch::new(0)), peers }
    }

    impl Stage {
        fn chunk(&self, class: TrafficClass, peer: usize) -> Chunk {
            let segment = self.peers[peer].clone();
            let request = Request::new(Opcode::Write, LocalBuffer::source(&[]), segment, SegmentAddress(0));
            let (batch, work) = (Arc::clone(&self.batch), Work::Whole(vec![(0, request)]));
            Chunk { batch, class, priority: 0, deadline: MonotonicTime(0), cost: 1 << 20, work }
        }
    }

    #[test]
    fn what_is_urgent_overtakes_what_waits() {
        let stage = stage();
        let low = (0..100).map(|_| stage.chunk(TrafficClass::LOW, 0)).collect();
        assert_eq!(stage.queue.push(low).0, stage.queue.regular + 1, "workers and one behind them");
        let mut over = stage.queue.next(None).unwrap().peer;
        stage.queue.push(vec![stage.chunk(TrafficClass::HIGH, 0)]);
        let mut next = || {
            let taken = stage.queue.next(Some(over)).unwrap();
            over = taken.peer;
            taken.chunk.class
        };
        assert!([next(), next()].contains(&TrafficClass::HIGH));
    }

    #[test]
    fn one_more_worker_helps_when_the_others_are_held_up_by_other_peers() {
        let stage = stage();
        stage.queue.push((0..20).map(|_| stage.chunk(TrafficClass::NORMAL, 0)).collect());
        for _ in 0..stage.queue.regular {
            assert!(!stage.queue.next(None).unwrap().start_another, "one waits behind");
        }
        stage.queue.push(vec![stage.chunk(TrafficClass::LOW, 1)]);
        let clock = yb_env::Clock::real();
        let before = clock.now();
        let taken = stage.queue.next(None).unwrap();
        assert_eq!(taken.chunk.class, TrafficClass::LOW, "nobody is busy with its peer");
        assert!(taken.start_another, "nobody waits behind any more");
        assert!(clock.now().since(before) >= HELD_UP);
    }

    #[test]
    fn surplus_workers_end_when_nothing_waits_and_all_when_the_queue_is_closed() {
        let stage = stage();
        let (queue, count) = (&stage.queue, stage.queue.regular + 2);
        queue.push((0..count).map(|peer| stage.chunk(TrafficClass::NORMAL, peer)).collect());
        let mut peers: Vec<Option<usize>> = (0..count).map(|_| queue.next(None).unwrap().peer).collect();
        assert_eq!(queue.state.lock().workers, count);
        assert!(queue.next(peers.pop()).is_none());
        queue.close();
        while let Some(peer) = peers.pop() {
            assert!(queue.next(Some(peer)).is_none());
        }
        queue.join();
        assert_eq!(queue.push(vec![stage.chunk(TrafficClass::LOW, 0)]).1.len(), 1, "given back");
    }
}
