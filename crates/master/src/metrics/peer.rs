//! Metrics of the peer that this master has no use for yet: they are shown as zero, so that dashboards and alerts made
//! for the peer find every name.
//!
//! Whoever builds a feature writes its families before this table is written, and takes the names out of it.

use yb_metrics::TextWriter;

/// Names that belong together, with the reason why they stay zero.
struct Unfed {
    reason: &'static str,
    counters: &'static [&'static str],
    gauges: &'static [&'static str],
    histograms: &'static [&'static str],
}

/// Labelled families: name, kind, label, values.
const LABELLED: &[(&str, &str, &str, &[&str])] = &[
    ("ha_snapshot_skip_reason", "gauge", "reason", SKIPS),
    ("ha_snapshot_skips_total", "counter", "reason", SKIPS),
    ("ha_snapshot_operations_total", "counter", "operation", STEPS),
    ("ha_snapshot_errors_total", "counter", "operation", STEPS),
    ("ha_snapshot_duration_us_total", "counter", "operation", STEPS),
];

const SKIPS: &[&str] = &[
    "none",
    "disabled",
    "interval",
    "in_flight",
    "stopped",
    "promotion",
    "no_new_batch",
    "catch_up",
    "lease_busy",
    "capture_unavailable",
    "no_fallback",
    "invalid_pair",
    "floor_ahead",
];

const STEPS: &[&str] = &["schedule", "upload", "bootstrap", "replay", "publish", "gc", "prune", "rebootstrap"];

const UNFED: &[Unfed] = &[
    Unfed {
        reason: "storage tiers: not counted",
        counters: &[
            "master_promotion_cancelled_total",
            "master_promotion_candidate_admission_rejected_total",
            "master_promotion_candidate_admitted_total",
            "master_promotion_candidate_expired_evaluated_total",
            "master_promotion_candidate_expired_unevaluated_total",
        ],
        gauges: &[
            "file_cache_nums_",
            "master_dfs_allocated_bytes",
            "master_dfs_file_count",
            "master_dfs_total_capacity_bytes",
        ],
        histograms: &[],
    },
    Unfed {
        reason: "high availability, operation log, snapshots: not built",
        counters: &[
            "ha_oplog_applied_entries_total",
            "ha_oplog_batch_commits_total",
            "ha_oplog_checksum_failures_total",
            "ha_oplog_dropped_put_end_total",
            "ha_oplog_etcd_write_failures_total",
            "ha_oplog_etcd_write_retries_total",
            "ha_oplog_gap_resolve_attempts_total",
            "ha_oplog_gap_resolve_success_total",
            "ha_oplog_skipped_entries_total",
            "ha_oplog_sync_batch_commits_total",
            "ha_oplog_watch_disconnections_total",
            "ha_snapshot_floor_advances_total",
            "ha_snapshot_lease_lost_total",
            "ha_state_transitions_total",
            "ha_writer_retry_count",
            "master_snapshot_fail",
            "master_snapshot_success",
        ],
        gauges: &[
            "ha_oplog_applied_sequence_id",
            "ha_oplog_last_sequence_id",
            "ha_oplog_pending_entries",
            "ha_oplog_standby_lag",
            "ha_pending_mutation_queue_size",
            "ha_snapshot_active",
            "ha_snapshot_applied_batch",
            "ha_snapshot_bytes",
            "ha_snapshot_candidate_floor",
            "ha_snapshot_capture_pause_us",
            "ha_snapshot_catch_up_target_batch",
            "ha_snapshot_catch_up_target_sequence",
            "ha_snapshot_chunk_bytes",
            "ha_snapshot_chunk_count",
            "ha_snapshot_compaction_floor",
            "ha_snapshot_count",
            "ha_snapshot_durable_batch",
            "ha_snapshot_enabled",
            "ha_snapshot_fallback_age_seconds",
            "ha_snapshot_fallback_batch",
            "ha_snapshot_fallback_present",
            "ha_snapshot_gc_deleted_prefixes",
            "ha_snapshot_gc_orphan_prefixes",
            "ha_snapshot_latest_age_seconds",
            "ha_snapshot_latest_batch",
            "ha_snapshot_latest_present",
            "ha_snapshot_suffix_batches",
            "ha_snapshot_uncompacted_batches",
            "ha_standby_state",
            "ha_writer_accepting",
            "ha_writer_callback_queue_depth",
            "ha_writer_committed_queue_depth",
            "ha_writer_durable_batch_id",
            "ha_writer_durable_sequence",
            "ha_writer_last_error",
            "ha_writer_retry_delay_ms",
            "ha_writer_stuck_first_sequence",
            "ha_writer_stuck_last_sequence",
            "ha_writer_waiting_slots",
        ],
        histograms: &["ha_oplog_apply_latency_us", "ha_oplog_etcd_write_latency_us", "master_snapshot_duration_ms"],
    },
    Unfed {
        reason: "NVMe-oF segments: not built",
        counters: &[
            "master_attempted_evictions_nof",
            "master_evicted_key_count_nof",
            "master_evicted_size_bytes_nof",
            "master_nof_heartbeat_failure_total",
            "master_nof_heartbeat_success_total",
            "master_nof_heartbeat_timeout_total",
            "master_nof_segments_unmounted_by_heartbeat_total",
            "master_successful_evictions_nof",
        ],
        gauges: &["master_nof_allocated_bytes", "master_total_nof_capacity_bytes"],
        histograms: &["master_nof_heartbeat_probe_latency_ms"],
    },
    Unfed {
        reason: "clients leave in steps that need no queue",
        counters: &["master_client_offboarding_alerts_total", "master_client_offboarding_retries_total"],
        gauges: &["master_client_offboarding_queue_depth"],
        histograms: &["master_client_offboarding_duration_ms"],
    },
    Unfed {
        reason: "managed weights: nothing is reconciled",
        counters: &["master_weight_reconciliation_failures_total"],
        gauges: &[],
        histograms: &[],
    },
    Unfed {
        reason: "this program does not use jemalloc",
        counters: &[
            "mooncake_jemalloc_dirty_madvises_total",
            "mooncake_jemalloc_dirty_purge_runs_total",
            "mooncake_jemalloc_dirty_purged_pages_total",
            "mooncake_jemalloc_muzzy_madvises_total",
            "mooncake_jemalloc_muzzy_purge_runs_total",
            "mooncake_jemalloc_muzzy_purged_pages_total",
            "mooncake_jemalloc_small_allocations_total",
            "mooncake_jemalloc_small_deallocations_total",
        ],
        gauges: &[
            "mooncake_jemalloc_active_bytes",
            "mooncake_jemalloc_allocated_bytes",
            "mooncake_jemalloc_arenas",
            "mooncake_jemalloc_background_threads",
            "mooncake_jemalloc_dirty_bytes",
            "mooncake_jemalloc_enabled",
            "mooncake_jemalloc_large_allocated_bytes",
            "mooncake_jemalloc_mapped_bytes",
            "mooncake_jemalloc_metadata_bytes",
            "mooncake_jemalloc_muzzy_bytes",
            "mooncake_jemalloc_opt_dirty_decay_ms",
            "mooncake_jemalloc_opt_muzzy_decay_ms",
            "mooncake_jemalloc_resident_bytes",
            "mooncake_jemalloc_retained_bytes",
            "mooncake_jemalloc_small_allocated_bytes",
        ],
        histograms: &[],
    },
];

/// Writes what nobody wrote before.
pub(super) fn write_unfed(out: &mut TextWriter) {
    for Unfed { reason, counters, gauges, histograms } in UNFED {
        let help = format!("Always 0 here ({reason})");
        for name in *counters {
            write_zero(out, name, "counter", &help);
        }
        for name in *gauges {
            write_zero(out, name, "gauge", &help);
        }
        for name in *histograms {
            write_empty_histogram(out, name, &help);
        }
    }
    for (name, kind, label, values) in LABELLED {
        if !out.has(name) {
            out.family(name, kind, "Always 0 here (snapshots: not built)");
            values.iter().for_each(|value| out.sample(name, &[(label, value)], 0));
        }
    }
}

fn write_zero(out: &mut TextWriter, name: &str, kind: &str, help: &str) {
    if !out.has(name) {
        out.family(name, kind, help);
        out.sample(name, &[], 0);
    }
}

fn write_empty_histogram(out: &mut TextWriter, name: &str, help: &str) {
    if !out.has(name) {
        out.family(name, "histogram", help);
        out.sample(&format!("{name}_bucket"), &[("le", "+Inf")], 0);
        out.sample(&format!("{name}_sum"), &[], 0);
        out.sample(&format!("{name}_count"), &[], 0);
    }
}
