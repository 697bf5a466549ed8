//! What the daemon was given: windows that it has mapped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use yb_client::{Error, Result};
use yb_mem::{MemorySegment, SharedMemory};
use yb_types::ErrorCode;
use yb_wire::call;
use yb_wire::messages::{ErrorOr, LocalNumberArgs};

use crate::core::Core;
use crate::stage::Stage;

/// A window and why it is there.
#[derive(Debug)]
struct Held {
    segment: Arc<MemorySegment>,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    /// Values are staged in it.
    Stage(Arc<Stage>),
    /// The caller's memory, with the number of its registrations.
    Callers(usize),
}

/// The windows by address.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    held: RwLock<BTreeMap<u64, Held>>,
    /// Held while windows are handed over or withdrawn, so that none is twice.
    handing: Mutex<()>,
    /// How often the daemon was given again what it did not have any more.
    given_again: AtomicU64,
    /// The caller's registrations: address to bytes and the window.
    registered: Mutex<BTreeMap<u64, u64>>,
}

impl Windows {
    /// Whether the daemon has all of the range.
    fn covers(&self, address: u64, len: u64) -> bool {
        let held = self.held.read();
        let Some((base, window)) = held.range(..=address).next_back() else { return false };
        address.checked_add(len).is_some_and(|end| end <= base + window.segment.len())
    }
}

impl Core {
    /// Whether the daemon reaches the range. The caller's shared memory is handed over when it is seen first.
    pub(crate) fn reaches(&self, address: u64, len: u64) -> bool {
        if self.windows.covers(address, len) {
            return true;
        }
        let Some(segment) = SharedMemory::of_process().around(address, len) else { return false };
        match self.hand_over(&segment, Reason::Callers(0)) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "shared memory could not be handed to the daemon; its bytes are copied");
                false
            }
        }
    }

    /// Hands a stage over.
    pub(crate) fn hand_over_stage(&self, stage: &Arc<Stage>) -> Result<()> {
        self.hand_over(stage.segment(), Reason::Stage(Arc::clone(stage)))
    }

    /// Lists a stage that the daemon gets with the next look at it.
    pub(crate) fn list_stage(&self, stage: &Arc<Stage>) {
        let held = Held { segment: Arc::clone(stage.segment()), reason: Reason::Stage(Arc::clone(stage)) };
        self.windows.held.write().insert(stage.segment().address(), held);
    }

    fn hand_over(&self, segment: &Arc<MemorySegment>, reason: Reason) -> Result<()> {
        let _alone = self.windows.handing.lock();
        let base = segment.address();
        if self.windows.held.read().contains_key(&base) {
            return Ok(());
        }
        if self.link.is_silent() {
            return Err(Error::Setup {
                stage: "handing memory to the daemon",
                reason: format!("the daemon at {} answers no pings", self.link.address()),
            });
        }
        self.side.hand_over(segment.file(), base, segment.len())?;
        self.windows.held.write().insert(base, Held { segment: Arc::clone(segment), reason });
        Ok(())
    }

    /// Takes a window back. A daemon that is gone has none.
    fn withdraw(&self, base: u64) {
        let _alone = self.windows.handing.lock();
        let Some(_held) = self.windows.held.write().remove(&base) else { return };
        let args = LocalNumberArgs { number: base, client_id: self.id };
        if let Err(error) = self.link.control::<call::UnregisterShmBufferInternal, ()>(&args) {
            tracing::debug!(%error, "a window could not be withdrawn");
        }
    }

    /// Gives the daemon every window that it does not have: how many. It has none when it was restarted.
    pub(crate) fn hand_over_again(&self) -> Result<usize> {
        let _alone = self.windows.handing.lock();
        let all: Vec<Arc<MemorySegment>> =
            self.windows.held.read().values().map(|held| Arc::clone(&held.segment)).collect();
        let mut missing = 0;
        for segment in all {
            if !self.has(segment.address())? {
                self.side.hand_over(segment.file(), segment.address(), segment.len())?;
                missing += 1;
            }
        }
        if missing > 0 {
            self.windows.given_again.fetch_add(1, Ordering::SeqCst);
        }
        Ok(missing)
    }

    /// Asks, and once more when the daemon refused because it had lost our windows, and has them again now: nothing was
    /// done the first time.
    pub(crate) fn again_if_forgotten<T>(&self, ask: impl Fn() -> Result<Vec<ErrorOr<T>>>) -> Result<Vec<ErrorOr<T>>> {
        let given = || self.windows.given_again.load(Ordering::SeqCst);
        let before = given();
        let answers = ask();
        let refused = |answer: &ErrorOr<T>| matches!(answer, Err(ErrorCode::INVALID_PARAMS));
        let all_refused = answers.as_ref().is_ok_and(|answers| answers.iter().all(refused));
        // A ping may have been faster, and left nothing that is missing.
        if all_refused && self.hand_over_again().is_ok_and(|missing| missing > 0 || given() != before) {
            return ask();
        }
        answers
    }

    /// Whether the daemon has the window that starts at `base`.
    pub(crate) fn has(&self, base: u64) -> Result<bool> {
        let args = LocalNumberArgs { number: base, client_id: self.id };
        match self.link.control::<call::IsShmMappedInternal, bool>(&args) {
            Ok(mapped) => Ok(mapped),
            // It does not know us at all.
            Err(Error::Refused { .. } | Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes back what nobody needs any more: stages that were replaced and are not in use, memory that was freed.
    pub(crate) fn withdraw_unused(&self) {
        let current = Arc::clone(&self.stage.read());
        let unused = |held: &Held| match &held.reason {
            // One owner is this list.
            Reason::Stage(stage) => !Arc::ptr_eq(stage, &current) && Arc::strong_count(stage) == 1,
            Reason::Callers(registrations) => {
                let freed = SharedMemory::of_process().around(held.segment.address(), 1).is_none();
                *registrations == 0 && freed
            }
        };
        let found: Vec<u64> = {
            let held = self.windows.held.read();
            held.iter().filter(|(_, window)| unused(window)).map(|(base, _)| *base).collect()
        };
        found.into_iter().for_each(|base| self.withdraw(base));
    }

    /// Registers a range of shared memory for calls by address.
    ///
    /// # Errors
    /// [`Error::Refused`] with -1 when it is not inside shared memory of this process; [`Error::Invalid`] when a
    /// registration starts there already.
    pub(crate) fn register(&self, address: u64, len: u64) -> Result<()> {
        let segment = SharedMemory::of_process().around(address, len).filter(|_| len > 0);
        let segment = segment.ok_or_else(|| Error::from_master("register_buffer", ErrorCode::INTERNAL_ERROR))?;
        self.hand_over(&segment, Reason::Callers(0))?;
        let mut registered = self.windows.registered.lock();
        if registered.contains_key(&address) {
            return Err(Error::Invalid("a registration starts at this address".into()));
        }
        registered.insert(address, segment.address());
        self.count_registration(segment.address(), |count| count + 1);
        Ok(())
    }

    /// Ends the registration that starts at `address`; the window goes with the last one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when none starts there.
    pub(crate) fn unregister(&self, address: u64) -> Result<()> {
        let base = self.windows.registered.lock().remove(&address);
        let base = base.ok_or(Error::Invalid("no registered memory starts at this address".into()))?;
        if self.count_registration(base, |count| count.saturating_sub(1)) == Some(0) {
            self.withdraw(base);
        }
        Ok(())
    }

    fn count_registration(&self, base: u64, change: impl FnOnce(usize) -> usize) -> Option<usize> {
        match &mut self.windows.held.write().get_mut(&base)?.reason {
            Reason::Callers(count) => {
                *count = change(*count);
                Some(*count)
            }
            Reason::Stage(_) => None,
        }
    }
}
