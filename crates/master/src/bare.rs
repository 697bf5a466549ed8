//! A master without threads and sockets: whoever holds it brings requests and time. For simulations.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use yb_catalog::Catalog;
use yb_rpc::{Answered, Desk, ListenerTag, Request};
use yb_types::WireVersion;

use crate::config::MasterConfig;
use crate::janitor::Janitor;
use crate::master::{MasterError, shared};
use crate::service::MasterService;
use crate::shared::SharedRef;

/// The master's functions on its catalog, one call at a time. Nothing happens by itself: requests are handed in, and the
/// janitor works when it is told. What needs a thread of its own (patterns, removal of everything, dial-back) is
/// refused.
pub struct BareMaster {
    shared: SharedRef,
    desk: Desk<MasterService>,
    janitor: Janitor,
}

impl BareMaster {
    /// A master on the clock of `config`; all that is random in it comes from `seed` and the seeds of its catalog.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn new(config: &MasterConfig, seed: u64) -> Result<BareMaster, MasterError> {
        let shared = Arc::new(shared(config, &[WireVersion::V0_3_14])?);
        shared.worker_seed.store(seed, Ordering::Relaxed);
        let desk = Desk::new(Arc::new(MasterService { shared: Arc::clone(&shared) }))?;
        let janitor = Janitor::new(&shared);
        Ok(BareMaster { shared, desk, janitor })
    }

    /// Answers a request of the main port now, over a connection of this number; `None` when its answer comes
    /// [late](Self::late).
    pub fn call(&mut self, connection: u32, (function, body): (u32, &[u8]), sequence: u32) -> Option<Answered> {
        let now = self.shared.clock.now();
        let request = Request { function, body, attachment: &[], tag: ListenerTag(0), peer: None, now };
        self.desk.call_over(connection, request, sequence)
    }

    /// A connection has ended.
    pub fn hang_up(&mut self, connection: u32) {
        self.desk.hang_up(connection);
    }

    /// Answers that were given since the last look.
    pub fn late(&mut self) -> Vec<Answered> {
        self.desk.late()
    }

    /// A round of the janitor; answers how long it would sleep now.
    pub fn janitor_round(&mut self) -> Duration {
        self.janitor.round(&self.shared)
    }

    /// What it knows.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }
}
