//! What all threads of a master share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use yb_admin::{DoorCounts, MetadataLedger};
use yb_catalog::{Catalog, Effects, Keeper, Reach, UnmountCause};
use yb_env::{Clock, Rng};
use yb_metadata::Keys;
use yb_metrics::Lane;
use yb_pack::{Limits, Scratch};
use yb_rpc::{ConnectionLimit, CounterSnapshot};
use yb_types::{MonotonicTime, WireVersion};
use yb_wire::WireProfile;

use crate::attendance::Attendance;
use crate::bulk::Bulk;
use crate::dial::Dialer;
use crate::doubts::Doubts;
use crate::graceful::GracefulUnmounts;
use crate::jobs::{Jobs, Left};
use crate::lane::SlowLane;
use crate::log::LogHandle;
use crate::metrics::{Dice, MasterMetrics, Window};
use crate::nodes::Nodes;
use crate::origins::Origins;
use crate::suspects::Suspects;
use crate::tenants::PolicyStore;
use crate::waiting::WaitingRoom;
use crate::waker::Waker;
use crate::weights::Book;

/// A function that reads the RPC server's counters; set when the server stands.
pub(crate) type ServerCounters = Box<dyn Fn() -> CounterSnapshot + Send + Sync>;

/// Connections of the HTTP servers.
#[derive(Default)]
pub(crate) struct HttpDoors {
    pub(crate) admin: DoorCounts,
    pub(crate) metadata: DoorCounts,
}

pub(crate) struct Shared {
    pub(crate) catalog: Catalog,
    pub(crate) metrics: MasterMetrics,
    pub(crate) nodes: Nodes,
    pub(crate) attendance: Attendance,
    pub(crate) suspects: Suspects,
    pub(crate) doubts: Doubts,
    pub(crate) origins: Origins,
    pub(crate) graceful: GracefulUnmounts,
    pub(crate) jobs: Jobs,
    pub(crate) janitor: Waker,
    /// Of the thread that writes the log.
    pub(crate) journal: Waker,
    /// Whether there is a log, and it is written.
    pub(crate) journal_in_use: AtomicBool,
    /// What became of the log that was there at the start; `None`: no log is kept.
    pub(crate) journal_before: Option<crate::journal::Before>,
    /// When a client at the wrong port was last logged, in nanoseconds; 0: never.
    pub(crate) generation_noted: AtomicU64,
    pub(crate) waiting: WaitingRoom,
    pub(crate) slow: SlowLane,
    /// Bytes of calls on the slow lane.
    pub(crate) bulk: Arc<Bulk>,
    pub(crate) dialer: Option<Dialer>,
    /// By listener tag.
    pub(crate) profiles: Vec<WireProfile>,
    /// Text of every listener, for people.
    pub(crate) listeners: std::sync::OnceLock<Vec<String>>,
    pub(crate) server_counters: std::sync::OnceLock<ServerCounters>,
    /// Who may connect, once the server runs.
    pub(crate) security: std::sync::OnceLock<Option<Arc<yb_secure::Security>>>,
    pub(crate) doors: HttpDoors,
    pub(crate) connection_limit: std::sync::OnceLock<ConnectionLimit>,
    /// Where clients that stopped pinging leave no records, and under which keys.
    pub(crate) cleaned: std::sync::OnceLock<(MetadataLedger, Keys)>,
    /// Managed weight revisions.
    pub(crate) weights: parking_lot::Mutex<Book>,
    /// An import without new objects is given up after this many milliseconds.
    pub(crate) weight_idle_ms: u64,
    /// Where quotas of tenants are kept.
    pub(crate) policies: Option<PolicyStore>,
    pub(crate) message_limits: Limits,
    pub(crate) storage: Mutex<StorageAnswer>,
    /// Whether the summary is logged.
    pub(crate) report: AtomicBool,
    /// The log of this process, if it is this master's.
    pub(crate) log: Option<LogHandle>,
    pub(crate) clock: Clock,
    pub(crate) started: MonotonicTime,
    /// Milliseconds of the lease that lookups announce.
    pub(crate) lease_ttl_ms: AtomicU64,
    pub(crate) workers: usize,
    /// Rates of the summary are counted from here.
    pub(crate) window: Window,
    /// Bytes of its own that this process had before it knew any object.
    pub(crate) memory_at_start: u64,
    pub(crate) worker_seed: AtomicU64,
}

/// What clients are told about a shared filesystem: there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageAnswer {
    pub(crate) enable_disk_eviction: bool,
    pub(crate) quota_bytes: u64,
}

impl Shared {
    /// Carries out what a call of the catalog wants done; empties `effects`.
    pub(crate) fn carry_out(&self, effects: &mut Effects, lane: &Lane) {
        if effects.is_empty() {
            return;
        }
        for gone in effects.segments_gone.drain(..) {
            self.graceful.cancel(gone.id);
            self.origins.leave(gone.id);
            let cause = match gone.cause {
                UnmountCause::Asked => "its client unmounted it",
                UnmountCause::ClientExpired => "its client stopped pinging",
                UnmountCause::Replaced => {
                    "another client mounted the same memory, or mounted at the same address while this one did not ping"
                }
                UnmountCause::Elsewhere => "another master had this node meanwhile, and may have given its memory out",
            };
            tracing::info!(event = "segment_gone", segment = %gone.id, name = gone.name, client = %gone.owner, "segment gone: {cause}");
            if let Some((ledger, keys)) = self.cleaned.get().filter(|_| gone.cause == UnmountCause::ClientExpired)
                && ledger.forget(keys, &gone.name)
            {
                tracing::info!(
                    event = "metadata_cleaned",
                    name = gone.name,
                    "its records in the metadata server are removed"
                );
            }
            self.jobs.note_left(gone.owner, Left::Segment(gone.name));
        }
        for (client, reach) in effects.clients_turned.drain(..) {
            if reach >= Reach::Offline {
                self.jobs.note_left(client, Left::Silent);
            }
            match reach {
                Reach::Online => tracing::info!(event = "client_back", %client, "client pings again: nothing was lost"),
                Reach::Suspect => tracing::info!(
                    event = "client_suspect",
                    %client,
                    "client is silent, or another one cannot reach it: nothing more is placed in its segments"
                ),
                Reach::Offline | Reach::Gone => tracing::warn!(
                    event = "client_offline",
                    %client,
                    "client is silent, or another process or nobody answers at its address: its segments are not offered"
                ),
            }
        }
        for (client, cause) in effects.clients_gone.drain(..) {
            let cause = match cause {
                UnmountCause::Replaced => "another one mounted at the same address, and this one did not ping since",
                UnmountCause::Asked => "it unmounted its last segment, and did not ping since",
                _ => "no ping within client_ttl and client_suspicion_ttl_sec",
            };
            tracing::info!(event = "client_gone", %client, "client gone: {cause}");
            self.nodes.forget(client);
            self.catalog.expect_directory(client, Keeper::No);
            self.jobs.note_left(client, Left::Client);
        }
        if !effects.quiesce.is_empty() {
            let asked = self.nodes.ask(effects.quiesce.drain(..));
            lane.add(self.metrics.deferred_frees_asked, asked);
        }
    }

    /// Who may connect; `None`: everybody, by the plain wire.
    pub(crate) fn security(&self) -> Option<&yb_secure::Security> {
        self.security.get().and_then(Option::as_deref)
    }

    /// The counters of the RPC server; zeros before it stands.
    pub(crate) fn server_counts(&self) -> CounterSnapshot {
        self.server_counters.get().map(|read| read()).unwrap_or_default()
    }

    /// Milliseconds of the lease that lookups announce.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ttl_ms.load(Ordering::Relaxed)
    }

    /// Gives imports of weights up that nothing arrives for; on another thread, as their objects are removed.
    pub(crate) fn look_at_imports(self: &Arc<Self>) {
        let imports = self.weights.lock().imports();
        for identity in imports {
            let mut arrived = 0;
            if let Ok(tenant) = self.catalog.tenants().reader(&identity.tenant) {
                self.catalog.group_members(tenant, &identity.group(), |_| arrived += 1);
            }
            let now_ms = yb_env::epoch_millis();
            if self.weights.lock().look(&identity, arrived, self.weight_idle_ms, now_ms).is_some() {
                tracing::info!("an import of weights is given up: nothing arrived for too long");
                let shared = Arc::clone(self);
                self.slow.submit(move || crate::handlers::discard(&shared, &identity));
            }
        }
    }

    /// Reads the quotas again if their file has changed; on another thread, as a file may be slow.
    pub(crate) fn look_at_quotas(self: &Arc<Self>) {
        if self.policies.is_none() {
            return;
        }
        let shared = Arc::clone(self);
        self.slow.submit(move || {
            if let Some(policies) = &shared.policies {
                policies.look_again(&shared.catalog, shared.clock.now());
            }
        });
    }

    pub(crate) fn profile(&self, tag: u32) -> WireProfile {
        self.profiles.get(tag as usize).copied().unwrap_or_else(WireProfile::main)
    }
}

/// The generation that a listener speaks, for people.
pub(crate) fn generation_text(version: WireVersion) -> String {
    if version >= WireVersion::V0_3_13 { "0.3.13 and 0.3.14".to_owned() } else { version.name().to_owned() }
}

/// State of one RPC worker.
pub(crate) struct WorkerState {
    pub(crate) lane: Lane,
    pub(crate) scratch: Scratch,
    pub(crate) rng: Rng,
    pub(crate) effects: Effects,
    /// Picks the calls and keys that are looked at more closely.
    pub(crate) dice: Dice,
}

/// Shared with threads and the admin server.
pub(crate) type SharedRef = Arc<Shared>;
