//! What the master counts, under the names of the peer where it has one.

use std::sync::Arc;

use yb_admin::Operation;
use yb_catalog::PutRefusal;
use yb_metrics::{Counter, Counters, Histogram, Lane, Metrics, Schema};
use yb_types::ErrorCode;
use yb_wire::{Rpc, Service};

/// How a call is counted.
#[derive(Clone, Copy, Debug)]
enum Family {
    Single { requests: Counter, failures: Counter },
    Batch { requests: Counter, failures: Counter, partial: Counter, items: Counter, failed: Counter },
}

/// Upper bounds of the value size histogram, those of the peer.
const VALUE_SIZES: &[u64] = &[4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// The reasons of a refused put, in the order of the labels.
const REFUSALS: &[(&str, &[PutRefusal])] = &[
    ("exists", &[PutRefusal::Exists]),
    ("busy", &[PutRefusal::Busy]),
    ("no_space", &[PutRefusal::NoSpace]),
    ("no_segment", &[PutRefusal::NoSegment]),
    ("larger_than_any_segment", &[PutRefusal::LargerThanAnySegment]),
    ("catalog_full", &[PutRefusal::CatalogFull]),
    ("tenant_not_registered", &[PutRefusal::TenantNotRegistered]),
    ("quota_exceeded", &[PutRefusal::QuotaExceeded]),
    ("larger_than_quota", &[PutRefusal::LargerThanQuota]),
    ("empty_key", &[PutRefusal::EmptyKey]),
    ("empty_object", &[PutRefusal::EmptyObject]),
    ("config", &[]),
];

/// The master's metrics and how calls map to them.
#[derive(Debug)]
pub(crate) struct MasterMetrics {
    pub(crate) metrics: Arc<Metrics>,
    families: Vec<(String, Family)>,
    by_rpc: Vec<usize>,
    refusals: Counters,
    value_sizes: Histogram,
    hits: Counter,
    hit_bytes: Counter,
    valid_gets: Counter,
    total_gets: Counter,
    pub(crate) dial_back_failures: Counter,
    pub(crate) dial_backs: Counter,
    pub(crate) janitor_rounds: Counter,
    pub(crate) deferred_frees_asked: Counter,
}

impl MasterMetrics {
    /// `lanes`: workers, and one for all other threads.
    pub(crate) fn new(lanes: usize) -> MasterMetrics {
        let mut schema = Schema::default();
        let (families, by_rpc) = declare_calls(&mut schema);
        let labels: Vec<&str> = REFUSALS.iter().map(|(label, _)| *label).collect();
        let refusals = schema.counters("yuebing_put_refusals_total", "Puts refused, by reason", "reason", &labels);
        let value_sizes = schema.histogram("master_value_size_bytes", "Object sizes at put start", VALUE_SIZES);
        let hits = schema.counter("mem_cache_hit_nums_", "Lookups answered with a memory replica");
        let hit_bytes = schema.counter("mem_cache_hit_bytes_total", "Bytes of these objects");
        let valid_gets = schema.counter("valid_get_nums_", "Lookups with a readable replica");
        let total_gets = schema.counter("total_get_nums_", "Lookups");
        let dial_backs = schema.counter("yuebing_dial_backs_total", "Connections tried to the data address of a node");
        let dial_back_failures = schema.counter("yuebing_dial_back_failures_total", "Of these, not answered");
        let janitor_rounds = schema.counter("yuebing_janitor_rounds_total", "Rounds of the janitor");
        let deferred_frees_asked =
            schema.counter("yuebing_quiesce_questions_total", "Extents whose node was asked to confirm an early free");
        MasterMetrics {
            metrics: schema.build(lanes),
            families,
            by_rpc,
            refusals,
            value_sizes,
            hits,
            hit_bytes,
            valid_gets,
            total_gets,
            dial_back_failures,
            dial_backs,
            janitor_rounds,
            deferred_frees_asked,
        }
    }

    /// The lane of threads that are no RPC workers.
    pub(crate) fn shared_lane(&self) -> &Lane {
        self.metrics.lane(usize::MAX)
    }

    /// Counts a call with this many items, of which so many failed. A single call is one item.
    pub(crate) fn call(&self, lane: &Lane, rpc: Rpc, items: u64, failed: u64) {
        let Some((_, family)) = self.by_rpc.get(rpc as usize).and_then(|at| self.families.get(*at)) else { return };
        match *family {
            Family::Single { requests, failures } => {
                lane.add(requests, items);
                if failed > 0 {
                    lane.add(failures, failed);
                }
            }
            Family::Batch { requests, failures, partial, items: all, failed: bad } => {
                lane.add(requests, 1);
                lane.add(all, items);
                if failed > 0 {
                    lane.add(if failed >= items { failures } else { partial }, 1);
                    lane.add(bad, failed);
                }
            }
        }
    }

    /// Counts lookups: all of them, those found, and the bytes of those.
    pub(crate) fn lookups(&self, lane: &Lane, total: u64, found: u64, bytes: u64) {
        lane.add(self.total_gets, total);
        if found > 0 {
            lane.add(self.valid_gets, found);
            lane.add(self.hits, found);
            lane.add(self.hit_bytes, bytes);
        }
    }

    pub(crate) fn refused(&self, lane: &Lane, refusal: PutRefusal) {
        let at = REFUSALS.iter().position(|(_, reasons)| reasons.contains(&refusal));
        lane.add(self.refusals.at(at.unwrap_or(REFUSALS.len() - 1)), 1);
    }

    pub(crate) fn value_size(&self, lane: &Lane, bytes: u64) {
        lane.observe(&self.metrics, self.value_sizes, bytes);
    }

    /// Calls by kind, for the status page.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        let counted = self.families.iter().map(|(name, family)| {
            let (requests, failures) = match *family {
                Family::Single { requests, failures } => (requests, failures),
                Family::Batch { requests, failures, .. } => (requests, failures),
            };
            Operation {
                name: name.clone(),
                requests: self.metrics.total(requests),
                failures: self.metrics.total(failures),
            }
        });
        counted.collect()
    }

    /// Requests and failures of the family with this name.
    pub(crate) fn of(&self, name: &str) -> (u64, u64) {
        self.operations().into_iter().find(|o| o.name == name).map_or((0, 0), |o| (o.requests, o.failures))
    }
}

/// The name of the peer's counter family that a call belongs to.
fn family_name(rpc: Rpc) -> &'static str {
    match rpc {
        Rpc::UpsertStart => "put_start",
        Rpc::UpsertEnd => "put_end",
        Rpc::UpsertRevoke => "put_revoke",
        Rpc::BatchUpsertStart => "batch_put_start",
        Rpc::BatchUpsertEnd => "batch_put_end",
        Rpc::BatchUpsertRevoke => "batch_put_revoke",
        Rpc::GracefulUnmountSegment => "unmount_segment",
        Rpc::ReMountSegment => "remount_segment",
        Rpc::MountNofSegment => "mount_nof_segment",
        Rpc::ReMountNofSegment => "remount_nof_segment",
        Rpc::UnmountNofSegment => "unmount_nof_segment",
        Rpc::GetAllNofSegments => "get_all_nof_segments",
        Rpc::GetNofSegmentsByName => "get_nof_segments_by_name",
        Rpc::BatchRemove => "remove",
        Rpc::BatchEvictDiskReplica => "evict_disk_replica",
        Rpc::MarkTaskToComplete => "update_task",
        other => other.metric_name(),
    }
}

fn declare_calls(schema: &mut Schema) -> (Vec<(String, Family)>, Vec<usize>) {
    let mut families: Vec<(String, Family)> = Vec::new();
    let mut by_rpc = Vec::with_capacity(Rpc::ALL.len());
    for rpc in Rpc::ALL {
        if rpc.service() == Service::Client {
            by_rpc.push(usize::MAX);
            continue;
        }
        let name = family_name(*rpc);
        let at = families.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            families.push((name.to_owned(), declare_family(schema, name)));
            families.len() - 1
        });
        by_rpc.push(at);
    }
    (families, by_rpc)
}

fn declare_family(schema: &mut Schema, name: &str) -> Family {
    let mut counter =
        |suffix: &str, help: &str| schema.counter(&format!("master_{name}_{suffix}_total"), &format!("{name}: {help}"));
    if name.starts_with("batch_") {
        return Family::Batch {
            requests: counter("requests", "calls"),
            failures: counter("failures", "calls in which every item failed"),
            partial: counter("partial_successes", "calls in which some items failed"),
            items: counter("items", "items"),
            failed: counter("failed_items", "items that failed"),
        };
    }
    Family::Single { requests: counter("requests", "calls"), failures: counter("failures", "calls that failed") }
}

/// A reply that knows how many of its items failed.
pub(crate) trait Tally {
    /// Items, and how many of them failed.
    fn tally(&self) -> (u64, u64);
}

impl<T, E: Copy> Tally for Result<T, E> {
    fn tally(&self) -> (u64, u64) {
        (1, u64::from(self.is_err()))
    }
}

impl<T> Tally for Vec<Result<T, ErrorCode>> {
    fn tally(&self) -> (u64, u64) {
        (self.len() as u64, self.iter().filter(|item| item.is_err()).count() as u64)
    }
}

impl Tally for i64 {
    fn tally(&self) -> (u64, u64) {
        (1, 0)
    }
}
