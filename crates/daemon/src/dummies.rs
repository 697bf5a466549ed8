//! The dummies that are attached, and what each of them holds.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use yb_mem::Credentials;
use yb_types::{ClientId, ErrorCode, MonotonicTime};

use crate::window::{Window, Windows};

/// Most dummies of one daemon.
const MOST_DUMMIES: usize = 4096;
/// Most windows of one dummy.
const MOST_WINDOWS: usize = 1024;

/// One dummy.
#[derive(Debug)]
pub(crate) struct Dummy {
    id: ClientId,
    who: Credentials,
    /// Readable when the process has ended; `None`: its end cannot be seen from here.
    process: Option<Arc<OwnedFd>>,
    /// When it last gave a sign.
    last_sign: AtomicU64,
    windows: RwLock<Windows>,
}

impl Dummy {
    fn new(id: ClientId, who: Credentials, now: MonotonicTime) -> Dummy {
        let process = Pid::from_raw(who.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).map(Arc::new);
        Dummy { id, who, process, last_sign: AtomicU64::new(now.0), windows: RwLock::default() }
    }

    /// Its windows as they are now.
    pub(crate) fn windows(&self) -> Windows {
        self.windows.read().clone()
    }

    fn signs(&self, now: MonotonicTime) {
        self.last_sign.store(now.0, Ordering::Relaxed);
    }
}

/// A dummy whose end the kernel tells: its descriptor is readable then.
pub(crate) struct Watched {
    /// Who.
    pub(crate) id: ClientId,
    process: Arc<OwnedFd>,
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

/// All dummies by id.
#[derive(Debug, Default)]
pub(crate) struct Dummies(RwLock<BTreeMap<ClientId, Arc<Dummy>>>);

impl Dummies {
    /// One of them.
    ///
    /// # Errors
    /// `INVALID_PARAMS`: not attached; it has to hand its windows over first.
    pub(crate) fn get(&self, id: ClientId) -> Result<Arc<Dummy>, ErrorCode> {
        self.0.read().get(&id).cloned().ok_or(ErrorCode::INVALID_PARAMS)
    }

    /// Adds a window; its dummy is known from then on.
    ///
    /// # Errors
    /// `INVALID_PARAMS` when it shares addresses with another window, or the dummy has too many of them;
    /// `ILLEGAL_CLIENT` when the id belongs to another user.
    pub(crate) fn add(
        &self,
        id: ClientId,
        who: Credentials,
        window: Window,
        now: MonotonicTime,
    ) -> Result<(), ErrorCode> {
        let dummy = self.attach(id, who, now)?;
        dummy.signs(now);
        let mut windows = dummy.windows.write();
        if windows.iter().count() >= MOST_WINDOWS {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        *windows = windows.with(window).ok_or(ErrorCode::INVALID_PARAMS)?;
        Ok(())
    }

    fn attach(&self, id: ClientId, who: Credentials, now: MonotonicTime) -> Result<Arc<Dummy>, ErrorCode> {
        let mut dummies = self.0.write();
        if let Some(dummy) = dummies.get(&id) {
            return if dummy.who.uid == who.uid { Ok(Arc::clone(dummy)) } else { Err(ErrorCode::ILLEGAL_CLIENT) };
        }
        if dummies.len() >= MOST_DUMMIES {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let dummy = Arc::new(Dummy::new(id, who, now));
        tracing::info!(client = %id, pid = who.pid, uid = who.uid, "a dummy client attached");
        dummies.insert(id, Arc::clone(&dummy));
        Ok(dummy)
    }

    /// Takes a window off; it is unmapped when no call uses it any more. False when none starts there.
    pub(crate) fn remove_window(&self, id: ClientId, base: u64) -> bool {
        let Ok(dummy) = self.get(id) else { return false };
        let mut windows = dummy.windows.write();
        match windows.without(base) {
            Some(fewer) => {
                *windows = fewer;
                true
            }
            None => false,
        }
    }

    /// A ping: whether the dummy is known.
    pub(crate) fn ping(&self, id: ClientId, now: MonotonicTime) -> bool {
        self.get(id).is_ok_and(|dummy| {
            dummy.signs(now);
            true
        })
    }

    /// Forgets a dummy: its loans end, its windows are unmapped when no call uses them any more. False when it is not known.
    pub(crate) fn forget(&self, id: ClientId, why: &'static str) -> bool {
        let Some(dummy) = self.0.write().remove(&id) else { return false };
        let windows = dummy.windows();
        let bytes: u64 = windows.iter().map(Window::len).sum();
        let loans: usize = windows.iter().map(Window::loans).sum();
        tracing::info!(client = %id, pid = dummy.who.pid, why, windows = windows.iter().count(), bytes, loans,
            "a dummy client is gone");
        true
    }

    /// Forgets those whose process ended.
    pub(crate) fn forget_ended(&self, ended: impl IntoIterator<Item = ClientId>) {
        for id in ended {
            self.forget(id, "its process ended");
        }
    }

    /// Forgets those that gave no sign for `patience` and whose process cannot be seen. One that lives and is silent may
    /// still be looking at a loan.
    pub(crate) fn forget_silent(&self, now: MonotonicTime, patience: Duration) {
        let silent = |dummy: &Dummy| now.since(MonotonicTime(dummy.last_sign.load(Ordering::Relaxed))) > patience;
        let unseen: Vec<Arc<Dummy>> =
            self.0.read().values().filter(|dummy| dummy.process.is_none()).map(Arc::clone).collect();
        for dummy in unseen.into_iter().filter(|dummy| silent(dummy)) {
            self.forget(dummy.id, "it gave no sign");
        }
    }

    /// Those whose end the kernel tells.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let dummies = self.0.read();
        let watched = |dummy: &Arc<Dummy>| Some(Watched { id: dummy.id, process: dummy.process.clone()? });
        dummies.values().filter_map(watched).collect()
    }

    /// How many are attached, their windows, and the bytes of these.
    pub(crate) fn totals(&self) -> (usize, usize, u64) {
        let dummies = self.0.read();
        let mut totals = (dummies.len(), 0, 0);
        for windows in dummies.values().map(|dummy| dummy.windows()) {
            totals.1 += windows.iter().count();
            totals.2 += windows.iter().map(Window::len).sum::<u64>();
        }
        totals
    }
}
