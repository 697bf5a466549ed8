//! What the master counts, under the names of the peer where it has one.

mod page;
mod peer;
mod process;
mod summary;

use std::collections::BTreeMap;
use std::sync::Arc;

use yb_admin::{Operation, Overview};
use yb_catalog::{Absence, PutRefusal};
use yb_metrics::{Bounds, Counter, Counters, Histogram, Lane, Metrics, Schema, Timings};
use yb_types::ErrorCode;
use yb_wire::{Rpc, Service};

pub(crate) use page::{bytes_per_key, write_page};
pub(crate) use process::ProcessMemory;
use summary::Counts;
pub(crate) use summary::{Window, summary, whole_summary};

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
    ("own_write_open", &[PutRefusal::OwnWriteOpen]),
    ("other_group", &[PutRefusal::OtherGroup]),
    ("referenced", &[PutRefusal::Referenced]),
    ("no_space", &[PutRefusal::NoSpace]),
    ("client_share", &[PutRefusal::ShareExceeded]),
    ("nothing_evictable", &[PutRefusal::NothingEvictable]),
    ("no_segment", &[PutRefusal::NoSegment]),
    ("larger_than_any_segment", &[PutRefusal::LargerThanAnySegment]),
    ("catalog_full", &[PutRefusal::CatalogFull]),
    ("tenant_not_registered", &[PutRefusal::TenantNotRegistered]),
    ("quota_exceeded", &[PutRefusal::QuotaExceeded]),
    ("larger_than_quota", &[PutRefusal::LargerThanQuota]),
    ("master_full", &[PutRefusal::MasterFull]),
    ("empty_key", &[PutRefusal::EmptyKey]),
    ("name_too_long", &[PutRefusal::NameTooLong]),
    ("empty_object", &[PutRefusal::EmptyObject]),
    (
        "config",
        &[
            PutRefusal::NoReplicaWanted,
            PutRefusal::DfsRules,
            PutRefusal::DfsUnavailable,
            PutRefusal::NofUnavailable,
            PutRefusal::SoftPinRules,
            PutRefusal::GroupCount,
        ],
    ),
    ("other", &[]),
];

/// The master's metrics and how calls map to them.
#[derive(Debug)]
pub(crate) struct MasterMetrics {
    pub(crate) metrics: Arc<Metrics>,
    families: Vec<(String, Family)>,
    by_rpc: Vec<usize>,
    refusals: Counters,
    value_sizes: Histogram,
    exists: [Counter; 2],
    hits: Counter,
    hit_bytes: Counter,
    cold_hits: Counter,
    cold_hit_bytes: Counter,
    valid_gets: Counter,
    total_gets: Counter,
    get_misses: Counters,
    exist_misses: Counters,
    pub(crate) exist_found: Counter,
    durations: Timings,
    generations: Counters,
    pub(crate) slow_wait: Timings,
    pub(crate) slow_run: Timings,
    pub(crate) eviction_rounds: Timings,
    pub(crate) settings_changes: Counters,
    pub(crate) dial_back_failures: Counter,
    pub(crate) dial_backs: Counter,
    pub(crate) suspects_reported: Counter,
    pub(crate) suspects_confirmed: Counter,
    pub(crate) suspects_refuted: Counter,
    pub(crate) corrupt_reported: Counter,
    pub(crate) corrupt_confirmed: Counter,
    pub(crate) corrupt_refuted: Counter,
    pub(crate) reports_disbelieved: Counter,
    pub(crate) janitor_rounds: Counter,
    pub(crate) deferred_frees_asked: Counter,
    pub(crate) directory_adopted: Counter,
    pub(crate) directory_refused: Counter,
    pub(crate) directory_disbelieved: Counter,
    pub(crate) writers_left: Counter,
    pub(crate) journal_commits: Counter,
    pub(crate) journal_bytes: Counter,
    pub(crate) journal_failures: Counter,
}

impl MasterMetrics {
    /// `lanes`: workers, and one for all other threads. `generations`: one a listener.
    pub(crate) fn new(lanes: usize, generations: &[String]) -> MasterMetrics {
        let mut schema = Schema::default();
        let (families, by_rpc) = declare_calls(&mut schema);
        let labels: Vec<&str> = REFUSALS.iter().map(|(label, _)| *label).collect();
        let refusals = schema.counters("yuebing_put_refusals_total", "Puts refused, by reason", "reason", &labels);
        let value_sizes =
            schema.histogram("master_value_size_bytes", "Object sizes at put start", VALUE_SIZES, Bounds::SixDigits);
        let hits = schema.counter("mem_cache_hit_nums_", "Lookups answered with a memory replica");
        let hit_bytes = schema.counter("mem_cache_hit_bytes_total", "Bytes of these objects");
        let cold_hits = schema.counter("file_cache_hit_nums_", "Lookups answered with copies on disks only");
        let cold_hit_bytes = schema.counter("file_cache_hit_bytes_total", "Bytes of these objects");
        let valid_gets = schema.counter("valid_get_nums_", "Lookups with a readable replica");
        let total_gets = schema.counter("total_get_nums_", "Lookups");
        let dial_backs = schema.counter("yuebing_dial_backs_total", "Connections tried to the data address of a node");
        let dial_back_failures = schema.counter("yuebing_dial_back_failures_total", "Of these, not answered");
        let suspects_reported =
            schema.counter("yuebing_suspects_reported_total", "Times a client told that it cannot reach a node");
        let suspects_confirmed =
            schema.counter("yuebing_suspects_confirmed_total", "Of these, the master could not reach it either");
        let suspects_refuted = schema.counter(
            "yuebing_suspects_refuted_total",
            "Of these, the node answered the master: only the client does not reach it, and its writes go elsewhere for a while",
        );
        let corrupt_reported = schema.counter(
            "yuebing_corrupt_reported_total",
            "Times a client read other bytes of a replica than were written",
        );
        let corrupt_confirmed =
            schema.counter("yuebing_corrupt_confirmed_total", "Replicas taken away for bytes that were not written");
        let corrupt_refuted = schema.counter(
            "yuebing_corrupt_refuted_total",
            "Replicas at which the node found the bytes that were written: the client is sick",
        );
        let reports_disbelieved = schema.counter(
            "yuebing_reports_disbelieved_total",
            "Reports of slow nodes and of corrupt replicas that are not followed: their client was refuted a moment ago, or they are too many",
        );
        let janitor_rounds = schema.counter("yuebing_janitor_rounds_total", "Rounds of the janitor");
        let deferred_frees_asked =
            schema.counter("yuebing_quiesce_questions_total", "Extents whose node was asked to confirm an early free");
        let directory_adopted =
            schema.counter("yuebing_directory_adopted_total", "Replicas of an earlier master that are known again");
        let directory_refused = schema.counter(
            "yuebing_directory_refused_total",
            "Replicas that nodes told and that this master did not take over",
        );
        let directory_disbelieved = schema.counter(
            "yuebing_directory_disbelieved_total",
            "Segments struck out as something was removed or replaced while their node was away",
        );
        let writers_left = schema.counter(
            "yuebing_writers_left_total",
            "Writers that closed their connections; what they left unfinished was given up",
        );
        let journal_commits = schema.counter("yuebing_journal_commits_total", "Writes of the log of the master");
        let journal_bytes = schema.counter("yuebing_journal_bytes_total", "Bytes of these writes");
        let journal_failures = schema.counter(
            "yuebing_journal_failures_total",
            "Times that the log could not be written: it was removed and is not kept any more, or not even that",
        );
        let exists = ["master_put_start", "master_batch_put_start"].map(|name| {
            let name = format!("{name}_object_already_exists_total");
            schema.counter(&name, "Objects that were not put because their key is readable")
        });
        let names: Vec<&str> = MISSES.iter().map(|(name, _)| *name).collect();
        let get_misses = schema.counters(
            "yuebing_get_misses_total",
            "Keys that a get did not find: never_seen, evicted, lost_with_node, removed, being_written, offline (their nodes are silent), bad_tenant",
            "reason",
            &names,
        );
        let exist_misses = schema.counters(
            "yuebing_exist_misses_total",
            "Keys that were asked for and are not there, for the same reasons; one in 16 is looked at and counted 16 times",
            "reason",
            &names,
        );
        let exist_found = schema.counter("yuebing_exist_found_total", "Keys that were asked for and are there");
        let rpcs: Vec<&str> = Rpc::ALL.iter().map(|rpc| rpc.metric_name()).collect();
        let durations = schema.timings(
            "yuebing_rpc_duration_seconds",
            "From the start of the worker's turn to the reply, of one call in 16; without what is answered later",
            "rpc",
            &rpcs,
        );
        let mut shown: Vec<String> = Vec::new();
        for (at, generation) in generations.iter().enumerate() {
            let twice = generations[..at].contains(generation);
            shown.push(if twice { format!("{generation} #{at}") } else { generation.clone() });
        }
        let generations = schema.counters(
            "yuebing_requests_by_generation_total",
            "Calls by the generation of the wire that their port speaks",
            "generation",
            &shown,
        );
        let slow_wait =
            schema.timings("yuebing_slow_lane_wait_seconds", "Waiting of calls that walk over all keys", "lane", SLOW);
        let slow_run = schema.timings("yuebing_slow_lane_run_seconds", "Work of such calls", "lane", SLOW);
        let eviction_rounds =
            schema.timings("yuebing_eviction_round_seconds", "Rounds of the janitor's eviction", "pool", &["memory"]);
        let settings_changes =
            schema.counters("yuebing_settings_changes_total", "Settings at reloads", "result", SETTINGS_CHANGES);
        MasterMetrics {
            metrics: schema.build(lanes),
            exists,
            get_misses,
            exist_misses,
            exist_found,
            durations,
            generations,
            slow_wait,
            slow_run,
            eviction_rounds,
            settings_changes,
            families,
            by_rpc,
            refusals,
            value_sizes,
            hits,
            hit_bytes,
            cold_hits,
            cold_hit_bytes,
            valid_gets,
            total_gets,
            dial_back_failures,
            dial_backs,
            suspects_reported,
            suspects_confirmed,
            suspects_refuted,
            corrupt_reported,
            corrupt_confirmed,
            corrupt_refuted,
            reports_disbelieved,
            janitor_rounds,
            deferred_frees_asked,
            directory_adopted,
            directory_refused,
            directory_disbelieved,
            writers_left,
            journal_commits,
            journal_bytes,
            journal_failures,
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

    /// Counts lookups: all of them, those found with their bytes, and of these those that lie on disks only.
    pub(crate) fn lookups(&self, lane: &Lane, total: u64, found: u64, bytes: u64, cold: (u64, u64)) {
        lane.add(self.total_gets, total);
        if found > 0 {
            lane.add(self.valid_gets, found);
            lane.add(self.hits, found.saturating_sub(cold.0));
            lane.add(self.hit_bytes, bytes.saturating_sub(cold.1));
        }
        if cold.0 > 0 {
            lane.add(self.cold_hits, cold.0);
            lane.add(self.cold_hit_bytes, cold.1);
        }
    }

    /// Counts keys that a get did not find.
    pub(crate) fn get_missed(&self, lane: &Lane, why: Miss, keys: u64) {
        lane.add(self.get_misses.at(why.at()), keys);
    }

    /// Counts a key that is not there and was picked out of 16.
    pub(crate) fn exist_missed(&self, lane: &Lane, why: Miss) {
        lane.add(self.exist_misses.at(why.at()), SAMPLING);
    }

    /// Counts a call by the listener it came through.
    pub(crate) fn arrived(&self, lane: &Lane, tag: u32) {
        lane.add(self.generations.at(tag as usize), 1);
    }

    /// Records how long a call took that was picked out of 16.
    pub(crate) fn took(&self, lane: &Lane, rpc: Rpc, nanos: u64) {
        lane.time(self.durations, rpc as usize, nanos);
    }

    /// Counts objects that were there already; `batch`: of a batch call.
    pub(crate) fn existed(&self, lane: &Lane, batch: bool) {
        lane.add(self.exists[usize::from(batch)], 1);
    }

    pub(crate) fn refused(&self, lane: &Lane, refusal: PutRefusal) {
        let at = REFUSALS.iter().position(|(_, reasons)| reasons.contains(&refusal));
        lane.add(self.refusals.at(at.unwrap_or(REFUSALS.len() - 1)), 1);
    }

    /// Puts refused for good since no memory was to be had for them, whatever the reason.
    fn puts_without_space(&self) -> u64 {
        let starved = |label: &str| {
            let known = REFUSALS.iter().find(|(known, _)| *known == label);
            known.is_some_and(|(_, reasons)| reasons.iter().any(|why| why.code() == ErrorCode::NO_AVAILABLE_HANDLE))
        };
        let refused = self.metrics.by_value(self.refusals);
        refused.into_iter().filter(|(label, _)| starved(label)).map(|(_, puts)| puts).sum()
    }

    pub(crate) fn value_size(&self, lane: &Lane, bytes: u64) {
        lane.observe(&self.metrics, self.value_sizes, bytes);
    }

    /// Calls by kind, for the status page.
    fn operations(&self) -> Vec<Operation> {
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

    /// Numbers of the status page that are counted here.
    pub(crate) fn overview(&self) -> Overview {
        let named = |counters: Counters| -> BTreeMap<String, u64> {
            self.metrics.by_value(counters).into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
        };
        let mut misses = named(self.get_misses);
        for (name, n) in named(self.exist_misses) {
            *misses.entry(name).or_default() += n;
        }
        Overview {
            gets: self.metrics.total(self.total_gets),
            get_hits: self.metrics.total(self.valid_gets),
            exist_asked: self.counts("exist_key").requests
                + self.counts("probe_key").requests
                + self.counts("batch_exist_key").items
                + self.counts("batch_probe_key").items,
            exist_found: self.metrics.total(self.exist_found),
            refusals: named(self.refusals),
            misses,
            generations: named(self.generations),
            operations: self.operations(),
            ..Overview::default()
        }
    }

    /// What the counters of the family with this name say.
    fn counts(&self, name: &str) -> Counts {
        let total = |counter: Counter| self.metrics.total(counter);
        match self.families.iter().find(|(known, _)| known == name).map(|(_, family)| *family) {
            Some(Family::Single { requests, failures }) => {
                Counts { requests: total(requests), failures: total(failures), ..Counts::default() }
            }
            Some(Family::Batch { requests, failures, partial, items, failed }) => Counts {
                requests: total(requests),
                failures: total(failures),
                partial: total(partial),
                items: total(items),
                failed_items: total(failed),
            },
            None => Counts::default(),
        }
    }
}

/// Of so many one is looked at, where looking at each would cost too much.
pub(crate) const SAMPLING: u64 = 16;

/// Label of the one lane of slow calls.
const SLOW: &[&str] = &["slow"];

/// What became of settings at a reload, in the order of the labels.
pub(crate) const SETTINGS_CHANGES: &[&str] = &["applied", "refused"];

/// Why a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It is not there.
    Absent(Absence),
    /// Somebody is writing it, or about to make it readable again.
    BeingWritten,
    /// Its nodes are not offered to readers: nobody hears of them.
    Offline,
    /// The call named a tenant that cannot be.
    BadTenant,
}

const MISSES: &[(&str, Miss)] = &[
    ("never_seen", Miss::Absent(Absence::NeverSeen)),
    ("evicted", Miss::Absent(Absence::Evicted)),
    ("lost_with_node", Miss::Absent(Absence::Lost)),
    ("removed", Miss::Absent(Absence::Removed)),
    ("being_written", Miss::BeingWritten),
    ("offline", Miss::Offline),
    ("bad_tenant", Miss::BadTenant),
];

impl Miss {
    fn at(self) -> usize {
        MISSES.iter().position(|(_, miss)| *miss == self).unwrap_or(0)
    }
}

/// Picks one of 16, without a pattern that calls could fall in step with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// True once in 16 times.
    #[inline]
    pub(crate) fn picks(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 60 == 0
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
        Rpc::EndWrite => "put_end",
        Rpc::BatchEndWrites => "batch_put_end",
        Rpc::BatchRevokeWrites => "batch_put_revoke",
        Rpc::EndCopy => Rpc::CopyEnd.metric_name(),
        Rpc::RevokeCopy => Rpc::CopyRevoke.metric_name(),
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
