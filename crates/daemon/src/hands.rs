//! Threads for calls that wait: for the master, for bytes on their way.
//!
//! A worker of the RPC server must not wait, or every dummy would wait for the slowest. Threads are started when they
//! are needed, up to a bound, and stay.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait for a hand; more are refused.
const MOST_WAITING: usize = 8192;

/// The threads and their queue.
#[derive(Debug)]
pub(crate) struct Hands {
    shared: Arc<Shared>,
    most: usize,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("jobs", &self.jobs.len()).field("threads", &self.threads).finish()
    }
}

impl Hands {
    /// At most `most` threads, none before the first job.
    pub(crate) fn new(most: usize) -> Hands {
        Hands { shared: Arc::default(), most: most.max(1) }
    }

    /// Runs `job` on one of the threads. A job that is refused is dropped.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        if queue.closed || queue.jobs.len() >= MOST_WAITING {
            return;
        }
        if queue.idle <= queue.jobs.len() && queue.threads < self.most {
            let shared = Arc::clone(&self.shared);
            match yb_env::spawn_thread("yb-daemon-hand", move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) => tracing::warn!(%error, "cannot start a thread for the calls of dummy clients"),
            }
        }
        if queue.threads > 0 {
            queue.jobs.push_back(Box::new(job));
        }
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Drops what waits; what runs ends by itself.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.changed.notify_all();
        drop(waiting);
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The call of a job that panics is answered by the drop of its reply.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a call of a dummy client panicked");
                }
                queue = self.queue.lock();
            } else if queue.closed {
                queue.threads -= 1;
                return;
            } else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_job_that_waits_does_not_stop_the_others_and_a_panic_ends_no_thread() {
        let hands = Hands::new(2);
        let (release, released) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel();
        let waits = done.clone();
        hands.run(move || {
            released.recv().unwrap();
            waits.send(1).unwrap();
        });
        hands.run(|| panic!("on purpose"));
        hands.run(move || done.send(2).unwrap());
        assert_eq!(finished.recv().unwrap(), 2);
        release.send(()).unwrap();
        assert_eq!(finished.recv().unwrap(), 1);
    }
}
