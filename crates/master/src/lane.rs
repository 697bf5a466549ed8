//! A thread for work that walks over the whole table, so that no RPC worker does.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use yb_env::{Clock, spawn_thread};
use yb_metrics::{Lane, Timings};
use yb_types::MonotonicTime;

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// A job in steps: each answers whether there is more to do. Steps of several jobs take turns, so that a long one does
/// not keep the others waiting.
type Steps = Box<dyn FnMut() -> bool + Send>;

/// A job and when it was queued.
type Job = (Steps, MonotonicTime);

/// Most jobs that may wait or run.
const QUEUE: usize = 256;

/// Runs jobs on one thread.
pub(crate) struct SlowLane {
    waiting: Arc<AtomicUsize>,
    clock: Clock,
    queue: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SlowLane {
    pub(crate) fn start(clock: Clock, meter: SlowMeter) -> io::Result<SlowLane> {
        let (queue, jobs) = sync_channel::<Job>(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (left, time) = (Arc::clone(&waiting), clock.clone());
        let thread = spawn_thread("yb-slow", move || work(&jobs, &left, &time, &meter))?;
        Ok(SlowLane { waiting, clock, queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    /// A lane without a thread: it takes no job.
    pub(crate) fn closed(clock: Clock) -> SlowLane {
        SlowLane { waiting: Arc::default(), clock, queue: Mutex::new(None), thread: Mutex::new(None) }
    }

    /// Jobs that wait or run.
    pub(crate) fn depth(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a job; false when too many wait, or at the end.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut job = Some(job);
        self.submit_steps(move || {
            if let Some(job) = job.take() {
                job();
            }
            false
        })
    }

    /// Queues a job in steps, each of which answers whether there is more to do; false when too many wait, or at the
    /// end.
    pub(crate) fn submit_steps(&self, steps: impl FnMut() -> bool + Send + 'static) -> bool {
        let job: Job = (Box::new(steps), self.clock.now());
        // Jobs that have begun count as well: they share the thread.
        let has_room = self.waiting.fetch_add(1, Ordering::Relaxed) < QUEUE;
        let queued = has_room && self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(job).is_ok());
        self.waiting.fetch_sub(usize::from(!queued), Ordering::Relaxed);
        queued
    }

    /// Drops what waits and joins the thread after the step it is at.
    pub(crate) fn stop(&self) {
        drop(self.queue.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the slow lane panicked");
        }
    }
}

/// Where the lane records how long its jobs waited and ran.
pub(crate) struct SlowMeter {
    pub(crate) lane: Lane,
    pub(crate) wait: Timings,
    pub(crate) run: Timings,
}

/// A job that has begun.
struct Begun {
    steps: Steps,
    nanos: u64,
}

fn work(jobs: &Receiver<Job>, waiting: &AtomicUsize, clock: &Clock, meter: &SlowMeter) {
    let nanos = |from: MonotonicTime, to: MonotonicTime| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
    let mut running: VecDeque<Begun> = VecDeque::new();
    loop {
        let next =
            if running.is_empty() { jobs.recv().map_err(|_| TryRecvError::Disconnected) } else { jobs.try_recv() };
        match next {
            Ok((steps, queued)) => {
                meter.lane.time(meter.wait, 0, nanos(queued, clock.now()));
                running.push_front(Begun { steps, nanos: 0 });
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        let Some(mut job) = running.pop_front() else { continue };
        let begun = clock.now();
        let more = (job.steps)();
        job.nanos += nanos(begun, clock.now());
        if more {
            running.push_back(job);
        } else {
            meter.lane.time(meter.run, 0, job.nanos);
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
