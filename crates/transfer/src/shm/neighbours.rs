//! Which peers are on this host, and what is mapped of them: shared by the transports that need no network.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::metadata::ShmDesc;
use crate::segment::Segment;
use crate::settings::EngineSettings;
use crate::shm::owner::Owner;
use crate::shm::watch::Watch;
use crate::stats::EngineCounters;
use crate::transport::Limits;

/// Where a segment keeps what is mapped of it.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<SlotState>);

#[derive(Default)]
struct SlotState {
    owner: RwLock<Option<Arc<Owner>>>,
    connecting: Mutex<()>,
    /// One more than the version of the metadata with which mapping was found impossible; 0 = never.
    refused: AtomicU64,
    /// Set when an owner went away: the metadata known of it are stale.
    lost: AtomicBool,
    /// Why the peer is not reached this way.
    reason: Mutex<Option<String>>,
}

impl Slot {
    /// What is mapped of the segment, if its owner is still there.
    pub(crate) fn owner(&self) -> Option<Arc<Owner>> {
        self.0.owner.read().as_ref().filter(|owner| !owner.is_gone()).map(Arc::clone)
    }

    /// Why the segment's memory is not mapped, where that was tried.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.reason.lock().clone()
    }

    /// Empties the slot if it still holds this one.
    pub(crate) fn forget(&self, owner: &Arc<Owner>) {
        let mut held = self.0.owner.write();
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, owner)) {
            *held = None;
            self.0.lost.store(true, Ordering::SeqCst);
        }
    }
}

/// Why a peer's memory is not mapped.
enum Refusal {
    /// The peer offers none: it is no engine of ours, or was told not to.
    NotOffered,
    /// Another boot id: it runs on another machine.
    OtherHost,
    /// Another user id.
    OtherUser,
    /// It was tried.
    Failed(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotOffered => f.write_str("it offers no shared memory"),
            Refusal::OtherHost => f.write_str("it runs on another host"),
            Refusal::OtherUser => f.write_str("it runs under another user"),
            Refusal::Failed(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                write!(f, "its socket is not in this network namespace ({error})")
            }
            Refusal::Failed(error) => write!(f, "mapping its memory failed ({error})"),
        }
    }
}

/// The peers on this host.
pub(crate) struct Neighbours {
    settings: EngineSettings,
    boot_id: String,
    counters: Arc<EngineCounters>,
    pub(crate) watch: Watch,
}

impl Neighbours {
    pub(crate) fn new(settings: EngineSettings, counters: Arc<EngineCounters>) -> Self {
        Neighbours { settings, boot_id: super::boot_id(), counters, watch: Watch::new() }
    }

    /// What is mapped of the segment; maps it if that was not tried yet.
    pub(crate) fn owner(&self, segment: &Segment, limits: &Limits<'_>) -> Option<Arc<Owner>> {
        let slot = &segment.shm.0;
        if let Some(owner) = segment.shm.owner() {
            return Some(owner);
        }
        if slot.refused.load(Ordering::Acquire) == segment.version() + 1 {
            return None;
        }
        let _one_at_a_time = slot.connecting.try_lock_for(limits.deadline.since(limits.clock.now()))?;
        if let Some(owner) = segment.shm.owner() {
            return Some(owner);
        }
        let had_one = slot.owner.write().take().is_some() | slot.lost.swap(false, Ordering::SeqCst);
        // A gone owner's metadata is stale: whoever answers now is another process.
        let desc = segment.desc(&self.settings, had_one, limits).ok()?;
        let version = segment.version();
        let refusal = match self.may_map(desc.shm.as_ref()) {
            Ok(shm) => match self.connect(segment, shm, limits) {
                Ok(owner) => return Some(owner),
                // The call had no time for it; the next one may have.
                Err(_) if limits.over().is_some() => return None,
                Err(error) => Refusal::Failed(error),
            },
            Err(refusal) => refusal,
        };
        self.refuse(segment, &refusal);
        slot.refused.store(version + 1, Ordering::Release);
        None
    }

    fn may_map<'a>(&self, offered: Option<&'a ShmDesc>) -> Result<&'a ShmDesc, Refusal> {
        let shm = offered.ok_or(Refusal::NotOffered)?;
        if shm.boot_id != self.boot_id {
            return Err(Refusal::OtherHost);
        }
        if shm.uid != rustix::process::geteuid().as_raw() {
            return Err(Refusal::OtherUser);
        }
        Ok(shm)
    }

    /// Keeps and tells the reason, once for each that a peer gives.
    fn refuse(&self, segment: &Segment, refusal: &Refusal) {
        let reason = refusal.to_string();
        if segment.shm.0.reason.lock().replace(reason.clone()).as_ref() == Some(&reason) {
            return;
        }
        let endpoint = &*segment.endpoint;
        if let Refusal::Failed(_) = refusal {
            self.counters.shm_fallbacks.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(endpoint, reason, "the peer's memory is not mapped; other transports are used");
        } else {
            tracing::debug!(endpoint, reason, "the peer's memory is not mapped; other transports are used");
        }
    }

    fn connect(&self, segment: &Segment, shm: &ShmDesc, limits: &Limits<'_>) -> io::Result<Arc<Owner>> {
        let owner = Arc::new(Owner::connect(shm, self.settings.client_id, limits)?);
        *segment.shm.0.owner.write() = Some(Arc::clone(&owner));
        if let Err(error) = self.watch.add(&owner, segment.shm.clone()) {
            segment.shm.forget(&owner);
            return Err(error);
        }
        *segment.shm.0.reason.lock() = None;
        let endpoint = &*segment.endpoint;
        match owner.process() {
            Ok(process) => {
                tracing::info!(endpoint, pid = process.pid(), "the peer is on this host: shm and process_vm")
            }
            Err(reason) => tracing::info!(endpoint, %reason, "the peer is on this host: shm, without process_vm"),
        }
        Ok(owner)
    }
}
