//! Threads that connect: they wait for peers, so that nobody else has to.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::hub::{Hub, Order};
use super::peer::Route;

/// Most peers asked at the same time.
const MOST: usize = 8;

#[derive(Debug)]
struct Task {
    route: Arc<Route>,
    nic: usize,
    device: usize,
    peer_path: Arc<str>,
}

#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Task>,
    workers: usize,
    closed: bool,
}

/// The executor. Its threads end when there is nothing to do.
#[derive(Debug)]
pub(crate) struct Connectors {
    hub: Arc<Hub>,
    queue: Mutex<Queue>,
    ended: Condvar,
}

impl Connectors {
    pub(crate) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Connectors { hub, queue: Mutex::default(), ended: Condvar::new() })
    }

    /// Connects one of our devices with one of the peer's. The driver gets [`Order::Connected`] in every case.
    pub(crate) fn connect(self: &Arc<Self>, route: &Arc<Route>, nic: usize, device: usize, peer_path: &Arc<str>) {
        let task = Task { route: Arc::clone(route), nic, device, peer_path: Arc::clone(peer_path) };
        let mut queue = self.queue.lock();
        queue.tasks.push_back(task);
        if queue.workers >= MOST || queue.closed {
            return;
        }
        queue.workers += 1;
        drop(queue);
        let worker = Arc::clone(self);
        if let Err(error) = yb_env::spawn_thread("yb-rdma-connect", move || worker.work()) {
            let mut queue = self.queue.lock();
            queue.workers -= 1;
            // With other threads at work, one of them takes the task.
            let stranded = if queue.workers == 0 { std::mem::take(&mut queue.tasks) } else { VecDeque::new() };
            drop(queue);
            for task in stranded {
                self.done(&task, Err(format!("starting a thread: {error}")));
            }
        }
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let Some(task) = queue.tasks.pop_front().filter(|_| !queue.closed) else {
                queue.workers -= 1;
                self.ended.notify_all();
                return;
            };
            drop(queue);
            let result = self.hub.connect(&task.route, task.nic, task.device);
            self.done(&task, result);
        }
    }

    fn done(&self, task: &Task, result: Result<(), String>) {
        self.hub.order(Order::Connected { nic: task.nic, peer_path: Arc::clone(&task.peer_path), result });
    }

    /// Takes nothing new and waits for the threads.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.tasks.clear();
        self.ended.wait_while(&mut queue, |queue| queue.workers > 0);
    }
}
