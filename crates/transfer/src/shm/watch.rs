//! One thread per engine that waits for the end of the owners whose memory is mapped.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::reactor::Reactor;
use crate::shm::client::{Mapped, Slot};

/// The watched owners and the thread that watches; the thread is started with the first owner.
pub(crate) struct Watch {
    inner: Mutex<Option<(Arc<Watched>, JoinHandle<()>)>>,
}

struct Watched {
    reactor: Reactor,
    owners: Mutex<BTreeMap<u64, (Weak<Mapped>, Slot)>>,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Watch { inner: Mutex::new(None) }
    }

    /// Empties the slot when the owner's socket closes.
    pub(crate) fn add(&self, mapped: &Arc<Mapped>, slot: Slot) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let watched = match &*inner {
            Some((watched, _)) => Arc::clone(watched),
            None => {
                let watched = Arc::new(Watched {
                    reactor: Reactor::new()?,
                    owners: Mutex::default(),
                    next: AtomicU64::new(0),
                    stop: AtomicBool::new(false),
                });
                let body = Arc::clone(&watched);
                let thread = yb_env::spawn_thread("yb-shm-watch", move || body.run())?;
                *inner = Some((Arc::clone(&watched), thread));
                watched
            }
        };
        let token = watched.next.fetch_add(1, Ordering::Relaxed);
        watched.owners.lock().insert(token, (Arc::downgrade(mapped), slot));
        watched.reactor.add_end_of(mapped.socket(), token)
    }

    pub(crate) fn stop(&self) {
        if let Some((watched, thread)) = self.inner.lock().take() {
            watched.stop.store(true, Ordering::SeqCst);
            watched.reactor.wake();
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn run(&self) {
        let mut ready = Vec::new();
        while !self.stop.load(Ordering::SeqCst) {
            if let Err(error) = self.reactor.wait(&mut ready, None) {
                tracing::error!(%error, "the end of owners of mapped memory is not watched any more");
                return;
            }
            for token in &ready {
                let Some((owner, slot)) = self.owners.lock().remove(token) else { continue };
                if let Some(owner) = owner.upgrade() {
                    self.reactor.remove(owner.socket());
                    owner.mark_gone();
                    slot.forget(&owner);
                }
            }
        }
    }
}
