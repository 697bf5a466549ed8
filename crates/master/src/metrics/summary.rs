//! The line of `/metrics/summary` and of the periodic log, in the peer's form: scripts that read it find every field at
//! its place.

use std::fmt::Write;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

use super::MasterMetrics;
use crate::shared::Shared;

/// Single calls in the order of the line: label, counter family.
const SINGLE: &[(&str, &str)] = &[
    ("PutStart", "put_start"),
    ("PutEnd", "put_end"),
    ("PutRevoke", "put_revoke"),
    ("Get", "get_replica_list"),
    ("Exist", "exist_key"),
    ("Del", "remove"),
    ("DelAll", "remove_all"),
    ("Ping", "ping"),
    ("CopyStart", "copy_start"),
    ("CopyEnd", "copy_end"),
    ("CopyRevoke", "copy_revoke"),
    ("MoveStart", "move_start"),
    ("MoveEnd", "move_end"),
    ("MoveRevoke", "move_revoke"),
    ("EvictDiskReplica", "evict_disk_replica"),
];

/// Batch calls in the order of the line.
const BATCH: &[(&str, &str)] = &[
    ("PutStart", "batch_put_start"),
    ("PutEnd", "batch_put_end"),
    ("PutRevoke", "batch_put_revoke"),
    ("Get", "batch_get_replica_list"),
    ("ExistKey", "batch_exist_key"),
    ("QueryIp", "batch_query_ip"),
    ("Clear", "batch_replica_clear"),
];

/// Calls about tasks, which the line shows after the batches.
const TASKS: &[(&str, &str)] = &[
    ("CreateMoveTask", "create_move_task"),
    ("CreateCopyTask", "create_copy_task"),
    ("QueryTask", "query_task"),
    ("FetchTasks", "fetch_tasks"),
    ("MarkTaskToComplete", "update_task"),
];

/// What the counters of a family say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) partial: u64,
    pub(crate) items: u64,
    pub(crate) failed_items: u64,
}

impl Counts {
    fn since(self, old: Counts) -> Counts {
        Counts {
            requests: self.requests.saturating_sub(old.requests),
            failures: self.failures.saturating_sub(old.failures),
            partial: self.partial.saturating_sub(old.partial),
            items: self.items.saturating_sub(old.items),
            failed_items: self.failed_items.saturating_sub(old.failed_items),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Snapshot {
    at: Option<MonotonicTime>,
    counts: Vec<Counts>,
    alloc_failures: u64,
    partial_allocations: u64,
}

/// The window that rates are counted over: it begins where the last periodic line ended.
#[derive(Debug, Default)]
pub(crate) struct Window(Mutex<Snapshot>);

fn families() -> impl Iterator<Item = &'static str> {
    SINGLE.iter().chain(BATCH).chain(TASKS).map(|(_, name)| *name)
}

impl Window {
    fn snapshot(shared: &Shared, metrics: &MasterMetrics, now: MonotonicTime) -> Snapshot {
        let stats = shared.catalog.stats();
        Snapshot {
            at: Some(now),
            counts: families().map(|name| metrics.counts(name)).collect(),
            alloc_failures: metrics.puts_without_space(),
            partial_allocations: stats.partial_allocations,
        }
    }

    /// Begins the next window.
    pub(crate) fn advance(&self, shared: &Shared, now: MonotonicTime) {
        let snapshot = Self::snapshot(shared, &shared.metrics, now);
        *self.0.lock() = snapshot;
    }
}

/// One line about everything. Reading it does not move the window.
pub(crate) fn summary(shared: &Shared) -> String {
    let now = shared.clock.now();
    let (before, after) = (shared.window.0.lock().clone(), Window::snapshot(shared, &shared.metrics, now));
    let seconds = now.since(before.at.unwrap_or(shared.started)).as_secs_f64().max(1e-3);
    let delta = |at: usize| after.counts[at].since(before.counts.get(at).copied().unwrap_or_default());
    let stats = shared.catalog.stats();
    let rate = |count: u64| count as f64 / seconds;
    let mut line = format!(
        "Mem Storage: {} | NVMe-oF SSD: 0 B / 0 B | SSD Storage: {} | Keys: {} (soft-pinned: {}) | Clients: {}",
        share(stats.allocated_bytes, stats.capacity_bytes),
        share(stats.disk_bytes, stats.disk_capacity_bytes),
        stats.keys,
        stats.soft_pins,
        stats.clients,
    );
    line.push_str(" | Requests (Success/Total per sec): ");
    for (at, (label, _)) in SINGLE.iter().enumerate() {
        let c = delta(at);
        let done = c.requests.saturating_sub(c.failures);
        let _ = write!(line, "{}{label}={:.2}/{:.2}", comma(at), rate(done), rate(c.requests));
    }
    line.push_str(" | Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): ");
    for (at, (label, _)) in BATCH.iter().enumerate() {
        let c = delta(SINGLE.len() + at);
        let done = c.requests.saturating_sub(c.failures + c.partial);
        let (good, items) = (rate(c.items.saturating_sub(c.failed_items)), rate(c.items));
        let _ = write!(line, "{}{label}:(Req={:.2}/", comma(at), rate(done));
        let _ = write!(line, "{:.2}/{:.2}, Item={good:.2}/{items:.2})", rate(c.partial), rate(c.requests));
    }
    for (at, (label, _)) in TASKS.iter().enumerate() {
        let c = delta(SINGLE.len() + BATCH.len() + at);
        let done = c.requests.saturating_sub(c.failures);
        let _ = write!(line, ", {label}:(Req={:.2}/{:.2})", rate(done), rate(c.requests));
    }
    let evicted = format!("Success/Attempts={}/{}", stats.evictions_successful, stats.evictions_attempted);
    let freed = format!("keys={}, size={}", stats.evicted_keys, size(stats.evicted_bytes));
    let _ = write!(
        line,
        " | Eviction: {evicted}, AllocFail={}, PartialAlloc={}, {freed} | Mem Eviction: {evicted}, {freed} | \
         NoF Eviction: Success/Attempts=0/0, keys=0, size=0 B | Discard: Released/Total={}/{}, StagingSize={}",
        after.alloc_failures.saturating_sub(before.alloc_failures),
        after.partial_allocations.saturating_sub(before.partial_allocations),
        stats.released,
        stats.discarded,
        size(stats.withheld_bytes),
    );
    let _ = write!(
        line,
        " | Promotion: in_flight={}, admitted={}, completed={}, failed={}, cancelled=0, expired={}, bytes={}, \
         rejected(freq/wm/cap)={}/{}/{} | Snapshots: Success=0, Fail=0",
        stats.promotions_running,
        stats.promotions_admitted,
        stats.promotions_completed,
        stats.promotions_failed,
        stats.promotions_expired,
        size(stats.promotions_completed_bytes),
        stats.promotions_cold,
        stats.promotions_no_room,
        stats.promotions_capped,
    );
    line
}

/// What `/metrics/summary` shows: the line among the state of the process.
pub(crate) fn whole_summary(shared: &Shared) -> String {
    format!(
        "role=leader, state=serving, service_ready=true, master={{{}}}, ha={{HA Metrics Summary: last_seq=0, \
         applied_seq=0, lag=0, pending=0, mutation_queue=0, batch_commits=0, sync_commits=0, skipped=0, \
         checksum_fail=0, etcd_fail=0, watch_disconn=0, state=0, writer_accepting=false, writer_retry_count=0, \
         writer_retry_delay_ms=0, writer_waiting_slots=0, writer_committed_queue=0, writer_callback_queue=0, \
         writer_durable_batch=0, writer_durable_seq=0, writer_last_error=0}}",
        summary(shared)
    )
}

fn comma(at: usize) -> &'static str {
    if at == 0 { "" } else { ", " }
}

/// `used / capacity (percent)`; without the percentage when there is no capacity.
fn share(used: u64, capacity: u64) -> String {
    let text = format!("{} / {}", size(used), size(capacity));
    if capacity == 0 { text } else { format!("{text} ({:.1}%)", used as f64 * 100.0 / capacity as f64) }
}

/// Bytes as the peer writes them: binary steps under decimal names.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1024.0 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_the_peers_words() {
        assert_eq!((size(0), size(1023), size(64 << 20)), ("0 B".into(), "1023 B".into(), "64.00 MB".into()));
        assert_eq!(size(5 << 50), "5120.00 TB");
        assert_eq!(share(0, 0), "0 B / 0 B");
        assert_eq!(share(900, 64 << 20), "900 B / 64.00 MB (0.0%)");
    }
}
