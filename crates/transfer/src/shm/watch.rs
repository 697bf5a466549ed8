//! One thread per engine that waits for the end of the owners whose memory is mapped, and that fills page tables of
//! mapped memory meanwhile, so that the first copies do not pay for page faults.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use yb_mem::POPULATE_PART;

use crate::handshake::session::Wants;
use crate::reactor::{Reactor, Ready};
use crate::shm::neighbours::Slot;
use crate::shm::owner::{Owner, View};

/// The watched owners and the thread that watches; the thread is started with the first owner.
pub(crate) struct Watch {
    inner: Mutex<Option<(Arc<Watched>, JoinHandle<()>)>>,
}

struct Watched {
    reactor: Reactor,
    owners: Mutex<BTreeMap<u64, (Weak<Owner>, Slot)>>,
    /// Views to populate, and how far they are.
    unfilled: Mutex<VecDeque<(Weak<View>, usize)>>,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Watch { inner: Mutex::new(None) }
    }

    /// Empties the slot when the owner's socket closes.
    pub(crate) fn add(&self, owner: &Arc<Owner>, slot: Slot) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let watched = match &*inner {
            Some((watched, _)) => Arc::clone(watched),
            None => {
                let watched = Arc::new(Watched {
                    reactor: Reactor::new()?,
                    owners: Mutex::default(),
                    unfilled: Mutex::default(),
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
        watched.owners.lock().insert(token, (Arc::downgrade(owner), slot));
        if let Some(life) = owner.life() {
            watched.reactor.add(life, token, Wants::Read)?;
        }
        watched.reactor.add_end_of(owner.socket(), token)
    }

    /// Has the page tables of these views filled in the background.
    pub(crate) fn populate(&self, views: Vec<Arc<View>>) {
        if views.is_empty() {
            return;
        }
        if let Some((watched, _)) = &*self.inner.lock() {
            watched.unfilled.lock().extend(views.iter().map(|view| (Arc::downgrade(view), 0)));
            watched.reactor.wake();
        }
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
        let mut ready = Ready::default();
        while !self.stop.load(Ordering::SeqCst) {
            let busy = !self.unfilled.lock().is_empty();
            if let Err(error) = self.reactor.wait(&mut ready, busy.then_some(Duration::ZERO)) {
                tracing::error!(%error, "the end of owners of mapped memory is not watched any more");
                return;
            }
            for token in ready.tokens() {
                let Some((owner, slot)) = self.owners.lock().remove(&token) else { continue };
                if let Some(owner) = owner.upgrade() {
                    self.reactor.remove(owner.socket());
                    owner.life().inspect(|life| self.reactor.remove(life));
                    owner.mark_gone();
                    slot.forget(&owner);
                }
            }
            self.fill_a_part();
        }
    }

    fn fill_a_part(&self) {
        let Some((view, offset)) = self.unfilled.lock().pop_front() else { return };
        if view.upgrade().is_some_and(|view| view.populate(offset)) {
            self.unfilled.lock().push_back((view, offset + POPULATE_PART));
        }
    }
}
