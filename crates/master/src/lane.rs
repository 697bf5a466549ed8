//! A thread for work that walks over the whole table, so that no RPC worker does.

use std::io;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use yb_env::spawn_thread;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

type Job = Box<dyn FnOnce() + Send>;

/// Most jobs that may wait.
const QUEUE: usize = 256;

/// Runs jobs one after another.
pub(crate) struct SlowLane {
    queue: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SlowLane {
    pub(crate) fn start() -> io::Result<SlowLane> {
        let (queue, jobs) = sync_channel::<Job>(QUEUE);
        let thread = spawn_thread("yb-slow", move || work(&jobs))?;
        Ok(SlowLane { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    /// Queues a job; false when too many wait, or at the end.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(Box::new(job)).is_ok())
    }

    /// Drops what waits and joins the thread after the job it is at.
    pub(crate) fn stop(&self) {
        drop(self.queue.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the slow lane panicked");
        }
    }
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        job();
    }
}
