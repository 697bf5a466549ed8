//! What all calls of one client share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::Clock;
use yb_transfer::{Access, Engine, ForeignMemory, LocalBuffer, MemorySegment, Opcode, RegistryError, SegmentOptions};
use yb_types::{ClientId, MonotonicTime};

use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::directory::Directories;
use crate::executor::Executor;
use crate::heartbeat::Membership;
use crate::hot::HotCache;
use crate::kept::KeptMemory;
use crate::leases::LeaseKeeper;
use crate::lent::Lent;
use crate::link::MasterLink;
use crate::mover::{Moved, Mover};
use crate::ops::Sessions;
use crate::pace::Pace;
use crate::report::Told;
use crate::room::RoomKnown;
use crate::suspects::Suspects;
use crate::why::Questions;
use crate::{CallLimits, ClientConfig, Error, Health, MemoryRange, Result};

/// Time that a client without a segment gives the master to show that it lives.
const PROBE_TIME: Duration = Duration::from_millis(500);

/// Time that the master has to hear of a peer that fails, or of bad bytes: the call that found it waits for it.
const REPORT_TIME: Duration = Duration::from_millis(50);
/// Of a call's base time what it has where the next place of a write depends on it.
const REPORT_SHARE: u32 = 8;

/// The inside of a client.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: ClientConfig,
    pub(crate) clock: Clock,
    pub(crate) client_id: ClientId,
    pub(crate) hostname: String,
    pub(crate) link: Arc<MasterLink>,
    /// Moves this client's bytes.
    pub(crate) engine: Engine,
    /// Serves what this client lends; `engine` itself when that serves.
    pub(crate) lender: OnceLock<Engine>,
    /// `engine` belongs to the caller, who uses it for other things too.
    pub(crate) shares_engine: bool,
    pub(crate) suspects: Suspects,
    pub(crate) pace: Pace,
    /// Renews the leases of long reads.
    pub(crate) leases: LeaseKeeper,
    pub(crate) counters: Arc<Counters>,
    pub(crate) executor: Executor,
    pub(crate) membership: Mutex<Option<Membership>>,
    pub(crate) hot: Option<HotCache>,
    /// Who tells others of this client.
    pub(crate) told: Mutex<Told>,
    pub(crate) lent: Arc<Lent>,
    pub(crate) directories: Arc<Directories>,
    /// The memory that outlives this process.
    pub(crate) kept: Mutex<Option<KeptMemory>>,
    /// First addresses of the memory that was registered through this client.
    pub(crate) registered: Mutex<BTreeSet<u64>>,
    pub(crate) closed: AtomicBool,
    pub(crate) sessions: Sessions,
    pub(crate) room_known: RoomKnown,
    /// How often the master may be asked why calls failed.
    pub(crate) questions: Questions,
    /// Puts under way.
    pub(crate) puts: Arc<AtomicUsize>,
}

impl Core {
    pub(crate) fn now(&self) -> MonotonicTime {
        self.clock.now()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Counts a request that the master did not answer.
    pub(crate) fn count_unanswered(&self, error: &Error) {
        if matches!(error, Error::MasterUnreachable(_)) {
            self.counters.master_failures.add(1);
        }
    }

    /// Runs a transfer batch. What is news of a peer is told to the log, and to the master, before anything else is asked of
    /// it, if the peer is gone, or does not take what is written: it stops placing there at once, and looks for itself.
    pub(crate) fn move_all(&self, mover: Mover<'_>, until: MonotonicTime) -> Moved {
        let moved = mover.run(until);
        for error in &moved.news {
            tracing::warn!(peer = error.endpoint(), %error, "a peer fails: it is asked last, and for a while not at all");
            self.counters.suspicions.add(1);
        }
        let time = if moved.op == Opcode::Write { self.config.limits.base / REPORT_SHARE } else { REPORT_TIME };
        for (how, error) in &moved.reports {
            let (peer, deadline) = (error.endpoint(), self.word(time));
            if let Err(unheard) = self.link.report_suspect(*how, (peer, &error.to_string()), &deadline) {
                tracing::debug!(%unheard, peer, "the master was not told of a peer that fails");
                if matches!(unheard, Error::MasterUnreachable(_)) {
                    self.suspects.unreported(peer);
                }
            }
        }
        moved
    }

    /// The time for telling the master something that the call does not depend on.
    pub(crate) fn short_word(&self) -> Deadline {
        self.word(REPORT_TIME)
    }

    fn word(&self, base: Duration) -> Deadline {
        Deadline::start(&self.clock, &CallLimits { base, ..self.config.limits }, 0)
    }

    /// The engine, and the one that serves what is lent, where that is another one.
    pub(crate) fn engines(&self) -> impl Iterator<Item = &Engine> {
        std::iter::once(&self.engine).chain(self.lender.get())
    }

    /// The caller's registered memory.
    pub(crate) fn local(&self, range: MemoryRange) -> Result<LocalBuffer<'static>> {
        let refused = |error: RegistryError| Error::invalid(error.to_string());
        self.engine.local(range.address, range.len).map_err(refused)
    }

    pub(crate) fn register(&self, memory: ForeignMemory) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let address = memory.address();
        self.engine.register_memory(memory, Access::Local).map_err(|error| Error::invalid(error.to_string()))?;
        self.registered.lock().insert(address);
        Ok(())
    }

    pub(crate) fn allocate(&self, len: u64, options: SegmentOptions) -> Result<Arc<MemorySegment>> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let made = self.engine.allocate(len, options, Access::Local);
        let made = made.map_err(|error| Error::invalid(format!("{len} bytes of registered memory: {error}")))?;
        self.registered.lock().insert(made.address());
        Ok(made)
    }

    /// The caller's memory for one call, registered or not.
    pub(crate) fn lend(&self, memory: ForeignMemory) -> Result<LocalBuffer<'static>> {
        self.engine.lend(memory).map_err(|error| Error::invalid(error.to_string()))
    }

    /// Registered memory from `address` to the end of its registration.
    pub(crate) fn local_rest(&self, address: u64) -> Result<LocalBuffer<'static>> {
        self.engine.local_rest(address).map_err(|error| Error::invalid(error.to_string()))
    }

    /// Waits for the calls that use the memory, but no longer than a call may take.
    pub(crate) fn unregister(&self, address: u64) -> Result<()> {
        // What others registered on a shared engine is theirs to unregister.
        if !self.registered.lock().contains(&address) {
            return Err(Error::invalid(format!("this client has registered no memory at {address:#x}")));
        }
        let released = self.engine.unregister(address, self.config.limits.base);
        released.map_err(|error| Error::invalid(error.to_string()))?;
        self.registered.lock().remove(&address);
        Ok(())
    }

    /// The name under which peers open what this client lends (an address, without a metadata store); `None` while it lends nothing.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.engine.name().or_else(|| self.lender.get().and_then(Engine::name))
    }

    /// Bytes of copies of objects that are read often.
    pub(crate) fn hot_bytes(&self) -> u64 {
        self.hot.as_ref().map_or(0, HotCache::bytes)
    }

    /// What is known of the master; without a heartbeat it is asked.
    pub(crate) fn health(&self) -> Health {
        if self.is_closed() {
            return Health::Closed;
        }
        if let Some(membership) = self.membership.lock().as_ref() {
            return if membership.is_healthy() { Health::Healthy } else { Health::MasterUnreachable };
        }
        let limits = CallLimits { base: PROBE_TIME, ..self.config.limits };
        match self.link.service_ready(&Deadline::start(&self.clock, &limits, 0)) {
            Err(Error::MasterUnreachable(_)) => Health::MasterUnreachable,
            _ => Health::Healthy,
        }
    }

    /// Leaves the pool and refuses further calls. The second time nothing happens.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(std::mem::take(&mut *self.told.lock()));
        self.executor.close();
        self.close_sessions();
        let membership = self.membership.lock().take();
        if let Some(membership) = membership {
            if let Some(path) = &self.config.segment_file {
                tracing::info!(
                    ?path,
                    "the memory stays in this file for the next process that names it with the same size; delete it and \
                     PATH.directory to give the memory back"
                );
                // Another process comes with the same memory; if none does, silence says so.
                membership.hand_over();
                self.directories.close();
            } else {
                membership.leave(&self.link);
            }
        }
        self.let_memory_go();
        if !self.shares_engine {
            self.engine.shutdown();
        }
        if let Some(lender) = self.lender.get() {
            lender.shutdown();
        }
        self.link.shutdown();
        self.leases.stop();
    }

    /// Takes everything out of the engines that this client put in: a shared one lives on.
    fn let_memory_go(&self) {
        let engine = self.lender.get().unwrap_or(&self.engine);
        let lent = self.lent.ids().into_iter().filter_map(|id| self.lent.remove(id));
        let lent: Vec<u64> = lent.collect();
        // Only a shared engine outlives the client; what only the client's own had registered goes with it.
        let registered =
            if self.shares_engine { std::mem::take(&mut *self.registered.lock()) } else { BTreeSet::new() };
        for (engine, address) in lent.iter().map(|a| (engine, a)).chain(registered.iter().map(|a| (&self.engine, a))) {
            if let Err(error) = engine.unregister(*address, PROBE_TIME) {
                tracing::warn!(%error, "memory of a closed client is still in use");
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}
