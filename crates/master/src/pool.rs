//! The master as its admin server sees it.

use std::fmt::Write;
use std::sync::Arc;

use yb_admin::{ClientRow, Cursor, KeyPage, Overview, Pool, SegmentRow};
use yb_catalog::{Force, ListCursor, Stats, Tenant};
use yb_metrics::TextWriter;
use yb_rpc::CounterSnapshot;
use yb_types::{ByteLen, ClientId, ErrorCode, ReplicaDescriptor, SegmentStatus};

use crate::handlers::descriptor;
use crate::shared::Shared;

pub(crate) struct MasterPool(pub(crate) Arc<Shared>);

impl Pool for MasterPool {
    fn metrics(&self) -> String {
        let mut out = TextWriter::default();
        let shared = &self.0;
        write_gauges(&mut out, shared, &shared.catalog.stats());
        shared.metrics.metrics.write(&mut out);
        write_server(&mut out, &server_counters(shared));
        out.into_string()
    }

    fn summary(&self) -> String {
        format!("role=leader, state=serving, service_ready=true, master={{{}}}", summary(&self.0))
    }

    fn overview(&self) -> Overview {
        let shared = &self.0;
        let (stats, server) = (shared.catalog.stats(), server_counters(shared));
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: shared.clock.now().since(shared.started).as_secs(),
            listeners: shared.listeners.get().cloned().unwrap_or_default(),
            keys: stats.keys,
            used_bytes: stats.allocated_bytes,
            capacity_bytes: stats.capacity_bytes,
            connections: server.connections_accepted.saturating_sub(server.connections_closed),
            evicted_keys: stats.evicted_keys,
            evicted_bytes: stats.evicted_bytes,
            clients: client_rows(shared),
            operations: shared.metrics.operations(),
        }
    }

    fn keys(&self, _tenant: &[u8], from: Cursor, limit: usize) -> Result<KeyPage, ErrorCode> {
        let mut keys = Vec::new();
        let from = ListCursor::from_u64(from.0);
        let next = self.0.catalog.list(Tenant::DEFAULT, from, limit, |view| keys.push(view.key().to_vec()));
        Ok(KeyPage { keys, next: next.map(|cursor| Cursor(cursor.to_u64())) })
    }

    fn segments(&self) -> Vec<SegmentRow> {
        let segments = self.0.catalog.segments();
        let rows = segments.iter().map(|segment| SegmentRow {
            segment: segment.info().clone(),
            client: segment.owner(),
            status: segment.status(),
            used: segment.used().0,
        });
        rows.collect()
    }

    fn replicas(&self, _tenant: &[u8], key: &[u8]) -> Result<Vec<ReplicaDescriptor>, ErrorCode> {
        let mut found = Err(ErrorCode::OBJECT_NOT_FOUND);
        self.0.catalog.peek(Tenant::DEFAULT, [key], |_, answer| {
            found = answer.map(|view| view.replicas().map(descriptor).collect());
        });
        found
    }

    fn remove_all(&self, _tenant: Option<&[u8]>, force: bool) -> Result<u64, ErrorCode> {
        Ok(self.0.catalog.remove_all(None, Force::from(force), self.0.clock.now()))
    }
}

fn server_counters(shared: &Shared) -> CounterSnapshot {
    shared.server_counters.get().map(|read| read()).unwrap_or_default()
}

fn client_rows(shared: &Shared) -> Vec<ClientRow> {
    let (segments, now) = (shared.catalog.segments(), shared.clock.now());
    let owned = |client: ClientId| segments.iter().filter(|segment| segment.owner() == client).count();
    let rows = shared.catalog.clients().into_iter().map(|client| ClientRow {
        id: client.id.to_string(),
        segments: owned(client.id),
        silent_ms: u64::try_from(now.since(client.last_seen).as_millis()).unwrap_or(u64::MAX),
    });
    rows.collect()
}

/// Gauges and counters that the catalog keeps, under the peer's names.
fn write_gauges(out: &mut TextWriter, shared: &Shared, stats: &Stats) {
    out.gauge("master_allocated_bytes", "Bytes in use in all segments", stats.allocated_bytes);
    out.gauge("master_total_capacity_bytes", "Bytes of all segments", stats.capacity_bytes);
    write_segments(out, shared);
    out.gauge("master_key_count", "Objects", stats.keys);
    out.gauge("master_soft_pin_key_count", "Objects with a soft pin", stats.soft_pins);
    out.gauge("master_active_clients", "Clients in good standing", stats.clients);
    out.gauge("mem_cache_nums_", "Objects with a memory replica", stats.keys.saturating_sub(stats.unfinished));
    out.gauge(
        "master_put_start_discarded_staging_size",
        "Bytes that wait for a writer or reader",
        stats.withheld_bytes,
    );
    for (name, help, value) in [
        ("master_put_start_alloc_failures_total", "Puts that found no space", stats.alloc_failures),
        ("master_put_start_partial_allocations_total", "Puts with fewer replicas", stats.partial_allocations),
        ("master_attempted_evictions_total", "Rounds of eviction", stats.evictions_attempted),
        ("master_successful_evictions_total", "Rounds that freed something", stats.evictions_successful),
        ("master_evicted_key_count", "Objects evicted", stats.evicted_keys),
        ("master_evicted_size_bytes", "Bytes evicted", stats.evicted_bytes),
        ("master_put_start_discard_cnt", "Extents set aside for a writer", stats.discarded),
        ("master_put_start_release_cnt", "Of these, free again", stats.released),
        ("yuebing_quiesced_total", "Of these, free early on the word of their node", stats.quiesced),
        ("yuebing_lease_deferred_total", "Extents set aside for a reader", stats.lease_deferred),
        ("yuebing_eviction_steps_total", "Objects that eviction looked at", stats.eviction_steps),
        ("yuebing_lost_keys_total", "Objects lost with their last segment", stats.lost_keys),
        ("yuebing_clients_expired_total", "Clients that stopped pinging", stats.clients_expired),
    ] {
        out.counter(name, help, value);
    }
    out.gauge("yuebing_unfinished_puts", "Puts that have not ended", stats.unfinished);
    out.gauge("yuebing_segments", "Mounted segments", stats.segments);
    out.gauge("yuebing_rpc_workers", "RPC worker threads", shared.workers);
    let uptime = shared.clock.now().since(shared.started).as_secs();
    out.gauge("yuebing_uptime_seconds", "Seconds since the start", uptime);
}

/// Use and size by segment name: names need not be unique, samples must be.
fn write_segments(out: &mut TextWriter, shared: &Shared) {
    let mut by_name: std::collections::BTreeMap<String, (u64, u64)> = std::collections::BTreeMap::new();
    let segments = shared.catalog.segments();
    for segment in segments.iter().filter(|segment| segment.status() != SegmentStatus::UNMOUNTING) {
        let sums = by_name.entry(segment.info().name.clone()).or_default();
        sums.0 += segment.used().0;
        sums.1 += segment.capacity().0;
    }
    out.family("segment_allocated_bytes", "gauge", "Bytes in use by segment name");
    for (name, (used, _)) in &by_name {
        out.sample("segment_allocated_bytes", &[("segment", name)], used);
    }
    out.family("segment_total_capacity_bytes", "gauge", "Bytes by segment name");
    for (name, (_, size)) in &by_name {
        out.sample("segment_total_capacity_bytes", &[("segment", name)], size);
    }
}

/// Counters of the RPC server; those of closed connections share a family with a reason each.
fn write_server(out: &mut TextWriter, counters: &CounterSnapshot) {
    let (closed, others): (Vec<_>, Vec<_>) =
        counters.named().into_iter().partition(|(name, _)| name.starts_with("closed_"));
    out.family("yuebing_rpc_connections_closed_by_reason_total", "counter", "Connections closed by the server");
    for (name, value) in closed {
        let reason = name.trim_start_matches("closed_");
        out.sample("yuebing_rpc_connections_closed_by_reason_total", &[("reason", reason)], value);
    }
    for (name, value) in others {
        out.counter(&format!("yuebing_rpc_{name}_total"), &format!("RPC server: {}", name.replace('_', " ")), value);
    }
    let open = counters.connections_accepted.saturating_sub(counters.connections_closed);
    out.gauge("yuebing_rpc_connections", "Connections open", open);
}

/// One line about the pool, in the manner of the peer's.
pub(crate) fn summary(shared: &Shared) -> String {
    let stats = shared.catalog.stats();
    let percent = if stats.capacity_bytes == 0 {
        0.0
    } else {
        stats.allocated_bytes as f64 * 100.0 / stats.capacity_bytes as f64
    };
    let mut line = format!(
        "Mem Storage: {} / {} ({percent:.1}%) | Keys: {} (soft-pinned: {}) | Clients: {} | Requests (Success/Total):",
        ByteLen(stats.allocated_bytes),
        ByteLen(stats.capacity_bytes),
        stats.keys,
        stats.soft_pins,
        stats.clients,
    );
    for (label, name) in [
        ("PutStart", "put_start"),
        ("PutEnd", "put_end"),
        ("PutRevoke", "put_revoke"),
        ("Get", "get_replica_list"),
        ("Exist", "exist_key"),
        ("Del", "remove"),
        ("Ping", "ping"),
        ("BatchPutStart", "batch_put_start"),
        ("BatchPutEnd", "batch_put_end"),
        ("BatchGet", "batch_get_replica_list"),
        ("BatchExist", "batch_exist_key"),
    ] {
        let (requests, failures) = shared.metrics.of(name);
        let _ = write!(line, " {label}:{}/{requests}", requests.saturating_sub(failures));
    }
    let _ = write!(
        line,
        " | Eviction: Success/Attempts={}/{}, keys={}, size={} | Discard: Released/Total={}/{}, StagingSize={}",
        stats.evictions_successful,
        stats.evictions_attempted,
        stats.evicted_keys,
        ByteLen(stats.evicted_bytes),
        stats.released,
        stats.discarded,
        ByteLen(stats.withheld_bytes),
    );
    line
}
