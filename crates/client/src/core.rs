//! What all calls of one client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::Clock;
use yb_transfer::{Access, ForeignMemory, LocalBuffer, MemorySegment, RegistryError, SegmentOptions};
use yb_types::{ClientId, MonotonicTime};

use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::executor::Executor;
use crate::heartbeat::Membership;
use crate::link::MasterLink;
use crate::ops::Sessions;
use crate::suspects::Suspects;
use crate::{CallLimits, ClientConfig, Error, Health, MemoryRange, Result};

/// Time that a client without a segment gives the master to show that it lives.
const PROBE_TIME: Duration = Duration::from_millis(500);

/// The inside of a client.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: ClientConfig,
    pub(crate) clock: Clock,
    pub(crate) client_id: ClientId,
    pub(crate) hostname: String,
    pub(crate) link: Arc<MasterLink>,
    pub(crate) engine: yb_transfer::Engine,
    pub(crate) suspects: Suspects,
    pub(crate) counters: Arc<Counters>,
    pub(crate) executor: Executor,
    pub(crate) membership: Mutex<Option<Membership>>,
    pub(crate) closed: AtomicBool,
    pub(crate) sessions: Sessions,
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

    /// The caller's registered memory.
    pub(crate) fn local(&self, range: MemoryRange) -> Result<LocalBuffer<'static>> {
        let refused = |error: RegistryError| Error::invalid(error.to_string());
        self.engine.local(range.address, range.len).map_err(refused)
    }

    pub(crate) fn register(&self, memory: ForeignMemory) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let registered = self.engine.register_memory(memory, Access::Local);
        registered.map_err(|error| Error::invalid(error.to_string()))
    }

    pub(crate) fn allocate(&self, len: u64) -> Result<Arc<MemorySegment>> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let made = self.engine.allocate(len, SegmentOptions::default(), Access::Local);
        made.map_err(|error| Error::invalid(format!("{len} bytes of registered memory: {error}")))
    }

    /// Registered memory from `address` to the end of its registration.
    pub(crate) fn local_rest(&self, address: u64) -> Result<LocalBuffer<'static>> {
        self.engine.local_rest(address).map_err(|error| Error::invalid(error.to_string()))
    }

    /// Waits for the calls that use the memory, but no longer than a call may take.
    pub(crate) fn unregister(&self, address: u64) -> Result<()> {
        let released = self.engine.unregister(address, self.config.limits.base);
        released.map_err(|error| Error::invalid(error.to_string()))
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
        self.executor.close();
        self.close_sessions();
        let membership = self.membership.lock().take();
        if let Some(membership) = membership {
            membership.leave(&self.link);
        }
        self.engine.shutdown();
        self.link.shutdown();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}
