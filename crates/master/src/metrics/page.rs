//! The page `/metrics`. It reads counters and gauges one after another and never locks more than one shard at a time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use yb_catalog::{Reach, Stats};
use yb_metrics::{TextWriter, seconds};
use yb_rpc::CounterSnapshot;
use yb_secure::Security;
use yb_types::SegmentStatus;

use super::MasterMetrics;
use super::peer::write_unfed;
use super::process::ProcessMemory;
use crate::journal::Before;
use crate::shared::{HttpDoors, Shared};

/// The whole page.
pub(crate) fn write_page(shared: &Shared) -> String {
    let mut out = TextWriter::default();
    let (stats, memory) = (shared.catalog.stats(), ProcessMemory::now());
    write_catalog(&mut out, &stats);
    write_starved(&mut out, &shared.metrics);
    write_segments(&mut out, shared);
    write_tiers(&mut out, &stats);
    write_weights(&mut out, shared);
    write_clients(&mut out, shared, &stats);
    write_tenants(&mut out, shared);
    write_log(&mut out, shared);
    shared.metrics.metrics.write(&mut out);
    write_queues(&mut out, shared);
    write_server(&mut out, &shared.server_counts());
    write_security(&mut out, shared.security());
    write_doors(&mut out, &shared.doors);
    write_refused_calls(&mut out, &shared.doors);
    write_process(&mut out, shared, &stats, &memory);
    write_unfed(&mut out);
    out.into_string()
}

/// The log of the master: whether it is written, and what became of the one before.
fn write_log(out: &mut TextWriter, shared: &Shared) {
    let in_use = u8::from(shared.journal_in_use.load(Ordering::Relaxed));
    out.gauge("yuebing_journal_in_use", "1: this master keeps a log (journal_file), and it is written", in_use);
    let name = "yuebing_journal_at_start";
    out.family(name, "gauge", "1: what became of the log that was there at the start; all 0: no log is kept");
    for found in Before::ALL {
        let value = u8::from(shared.journal_before == Some(found));
        out.sample(name, &[("found", found.word())], value);
    }
}

/// Puts that found no space, each once: one that waited for space tried several times.
fn write_starved(out: &mut TextWriter, metrics: &MasterMetrics) {
    out.counter("master_put_start_alloc_failures_total", "Puts that found no space", metrics.puts_without_space());
}

/// Gauges and counters that the catalog keeps, under the peer's names.
fn write_catalog(out: &mut TextWriter, stats: &Stats) {
    for (name, help, value) in [
        ("master_allocated_bytes", "Bytes in use in all segments", stats.allocated_bytes),
        ("master_total_capacity_bytes", "Bytes of all segments", stats.capacity_bytes),
        ("master_key_count", "Objects", stats.keys),
        ("master_soft_pin_key_count", "Objects with a soft pin", stats.soft_pins),
        ("mem_cache_nums_", "Objects with a memory replica", stats.keys.saturating_sub(stats.unfinished)),
        ("master_put_start_discarded_staging_size", "Bytes that wait for a writer or reader", stats.withheld_bytes),
        (
            "yuebing_objects_memory_bytes",
            "Memory that what is known of objects takes, about",
            stats.objects_memory_bytes,
        ),
        ("yuebing_unfinished_puts", "Puts that have not ended", stats.unfinished),
        ("yuebing_segments", "Mounted segments", stats.segments),
        (
            "yuebing_unfinished_bytes_of_one_client",
            "The most that one client has reserved and not filled, or that rests for it",
            stats.largest_unfinished_bytes,
        ),
    ] {
        out.gauge(name, help, value);
    }
    for (name, help, value) in [
        ("master_put_start_partial_allocations_total", "Puts with fewer replicas", stats.partial_allocations),
        ("master_attempted_evictions_total", "Rounds of eviction", stats.evictions_attempted),
        ("master_successful_evictions_total", "Rounds that freed something", stats.evictions_successful),
        ("master_evicted_key_count", "Objects evicted", stats.evicted_keys),
        ("master_evicted_size_bytes", "Bytes evicted", stats.evicted_bytes),
        ("master_attempted_evictions_mem", "Rounds of eviction from memory", stats.evictions_attempted),
        ("master_successful_evictions_mem", "Of these, with something freed", stats.evictions_successful),
        ("master_evicted_key_count_mem", "Objects evicted from memory", stats.evicted_keys),
        ("master_evicted_size_bytes_mem", "Bytes evicted from memory", stats.evicted_bytes),
        ("master_put_start_discard_cnt", "Extents set aside for a writer", stats.discarded),
        ("master_put_start_release_cnt", "Of these, free again", stats.released),
        ("yuebing_quiesced_total", "Of these, free early on the word of their node", stats.quiesced),
        ("yuebing_lease_deferred_total", "Extents set aside for a reader", stats.lease_deferred),
        ("yuebing_eviction_steps_total", "Objects that eviction looked at", stats.eviction_steps),
        (
            "yuebing_lookups_untold_total",
            "Keys of lookups that the eviction policy did not hear of",
            stats.lookups_untold,
        ),
        ("yuebing_lost_keys_total", "Objects lost with their last segment", stats.lost_keys),
        (
            "yuebing_stand_ins_dropped_total",
            "Replicas dropped again that were made for those of a node which came back",
            stats.stand_ins_dropped,
        ),
        ("yuebing_clients_expired_total", "Clients that stopped pinging", stats.clients_expired),
    ] {
        out.counter(name, help, value);
    }
}

/// Use and size by segment name: names need not be unique, samples must be. A segment that went takes its samples along.
fn write_segments(out: &mut TextWriter, shared: &Shared) {
    let mut by_name: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut by_status: BTreeMap<&str, u64> = BTreeMap::new();
    for segment in &shared.catalog.segments() {
        let word = crate::pool::silent(segment.reach()).unwrap_or_else(|| yb_admin::status_name(segment.status()));
        *by_status.entry(word).or_default() += 1;
        if segment.status() != SegmentStatus::UNMOUNTING {
            let sums = by_name.entry(segment.info().name.clone()).or_default();
            sums.0 += segment.used().0;
            sums.1 += segment.capacity().0;
        }
    }
    out.family("segment_allocated_bytes", "gauge", "Bytes in use by segment name");
    for (name, (used, _)) in &by_name {
        out.sample("segment_allocated_bytes", &[("segment", name)], used);
    }
    out.family("segment_total_capacity_bytes", "gauge", "Bytes by segment name");
    for (name, (_, size)) in &by_name {
        out.sample("segment_total_capacity_bytes", &[("segment", name)], size);
    }
    let (refused, of_one_address) = shared.origins.figures();
    out.gauge("yuebing_segments_of_one_address", "The most segments mounted from one address", of_one_address);
    let help = "Mounts refused: too many segments of one address";
    out.counter("yuebing_mounts_refused_by_address_total", help, refused);
    out.family("yuebing_segments_by_status", "gauge", "Segments by where they stand");
    for (status, count) in by_status {
        out.sample("yuebing_segments_by_status", &[("status", status)], count);
    }
}

/// Disks of clients, and what comes back from them into memory.
fn write_tiers(out: &mut TextWriter, stats: &Stats) {
    for (name, help, value) in [
        ("master_allocated_file_size_bytes", "Bytes of objects on disks", stats.disk_bytes),
        ("master_total_file_capacity_bytes", "Bytes that disks hold, as their owners said", stats.disk_capacity_bytes),
        ("master_promotion_in_flight", "Objects on their way from disks into memory", stats.promotions_running),
    ] {
        out.gauge(name, help, value);
    }
    for (name, help, value) in [
        ("admitted_total", "Owners asked to load an object", stats.promotions_admitted),
        ("completed_total", "Objects loaded", stats.promotions_completed),
        ("completed_bytes_total", "Bytes of objects loaded", stats.promotions_completed_bytes),
        ("failed_total", "Loads given up by their owners", stats.promotions_failed),
        ("expired_total", "Loads that nobody ended", stats.promotions_expired),
        ("rejected_frequency_total", "Reads of objects that are read too seldom", stats.promotions_cold),
        ("rejected_watermark_total", "Times that memory was too full", stats.promotions_no_room),
        ("rejected_cap_total", "Times that too many were under way", stats.promotions_capped),
        ("candidate_recorded_total", "Reads of objects on disks that were remembered", stats.promotions_wished),
        ("candidate_dropped_limit_total", "Such reads that were forgotten: too many waited", stats.promotions_unheard),
    ] {
        out.counter(&format!("master_promotion_{name}"), help, value);
    }
}

/// Managed weight revisions.
fn write_weights(out: &mut TextWriter, shared: &Shared) {
    let [leases, operations, oldest] = shared.weights.lock().figures(yb_env::epoch_millis());
    out.gauge("master_weight_active_leases", "Leases on weight revisions", leases);
    out.gauge("master_weight_pending_operations", "Changes of tier of weight revisions under way", operations);
    out.gauge("master_weight_oldest_operation_age_ms", "Age of the oldest of these", oldest);
}

fn write_clients(out: &mut TextWriter, shared: &Shared, stats: &Stats) {
    out.gauge("master_active_clients", "Clients in good standing", stats.clients);
    let clients = shared.catalog.clients();
    let heard = |reach: Reach| clients.iter().filter(|client| client.reach == reach).count();
    for (name, help, value) in [
        ("master_client_liveness_active_clients", "Clients that ping", heard(Reach::Online)),
        (
            "master_client_liveness_suspected_clients",
            "Clients that have been silent for a while",
            heard(Reach::Suspect),
        ),
        ("master_client_liveness_offline_clients", "Clients whose segments are not offered", heard(Reach::Offline)),
    ] {
        out.gauge(name, help, value);
    }
    for (name, help, value) in [
        ("master_client_liveness_suspected_transitions_total", "Times a client fell silent", stats.clients_suspected),
        (
            "master_client_liveness_offline_transitions_total",
            "Times a client's segments were hidden",
            stats.clients_offline,
        ),
        ("master_client_liveness_recoveries_total", "Times a silent client came back", stats.clients_recovered),
    ] {
        out.counter(name, help, value);
    }
    out.family("yuebing_nodes_by_version", "gauge", "Nodes of this project that said hello, by their version");
    for (version, count) in shared.nodes.versions() {
        out.sample("yuebing_nodes_by_version", &[("version", &version)], count);
    }
}

fn write_tenants(out: &mut TextWriter, shared: &Shared) {
    let tenants = shared.catalog.tenants();
    if !tenants.is_multi() {
        return;
    }
    let (quotas, sums) = (tenants.quotas(shared.clock.now()), tenants.sums());
    type Read = fn(&yb_catalog::TenantQuota) -> u64;
    let gauges: [(&str, &str, Read); 6] = [
        ("mooncake_tenant_quota_requested_bytes", "Bytes promised", |q| q.requested),
        ("mooncake_tenant_quota_effective_bytes", "Bytes that may be used now", |q| q.effective),
        ("mooncake_tenant_quota_charged_bytes", "Bytes in use", |q| q.charged),
        ("mooncake_tenant_quota_admission_closed", "1: writes are refused", |q| u64::from(q.closed)),
        ("mooncake_tenant_quota_over_quota", "1: uses more than it may", |q| u64::from(q.over)),
        ("mooncake_tenant_quota_explicit_policy", "1: has a policy", |q| u64::from(q.has_policy)),
    ];
    for (name, help, read) in gauges {
        out.family(name, "gauge", help);
        quotas.iter().for_each(|quota| out.sample(name, &[("tenant_id", &quota.name)], read(quota)));
    }
    out.family("mooncake_tenant_quota_reject_total", "counter", "Writes refused for the quota");
    for quota in &quotas {
        let labels = [("tenant_id", &*quota.name), ("reason", "quota_exceeded")];
        out.sample("mooncake_tenant_quota_reject_total", &labels, quota.rejected);
    }
    out.family("mooncake_tenant_evict_bytes_total", "counter", "Bytes evicted to keep a tenant within its quota");
    for quota in &quotas {
        out.sample("mooncake_tenant_evict_bytes_total", &[("tenant_id", &quota.name)], quota.evicted_bytes);
    }
    out.gauge("mooncake_tenant_quota_allocatable_capacity_bytes", "Bytes that are shared out", sums.capacity);
    out.gauge("mooncake_tenant_quota_requested_bytes_sum", "Bytes promised to all", sums.requested);
    out.gauge("mooncake_tenant_quota_effective_bytes_sum", "Bytes that all may use", sums.effective);
}

/// What waits, and for how long.
fn write_queues(out: &mut TextWriter, shared: &Shared) {
    out.family("yuebing_queue_depth", "gauge", "What waits now, by queue");
    let server = shared.server_counts();
    let tasks = shared.jobs.tasks.lock().counts();
    for (queue, depth) in [
        ("slow_lane", shared.slow.depth() as u64),
        ("dial_back", shared.dialer.as_ref().map_or(0, |dialer| dialer.depth() as u64)),
        ("tasks_pending", tasks.pending as u64),
        ("tasks_processing", tasks.processing as u64),
        ("waiting_puts", shared.waiting.depth() as u64),
        ("copies", shared.catalog.copies_running() as u64),
        ("deferred_replies", server.deferred_calls.saturating_sub(server.deferred_replies)),
    ] {
        out.sample("yuebing_queue_depth", &[("queue", queue)], depth);
    }
    let turned_away = shared.waiting.turned_away();
    out.counter(
        "yuebing_waiting_puts_turned_away_total",
        "Puts refused at once: too many waited for space",
        turned_away,
    );
    let refused = shared.jobs.tasks.lock().refused_shares();
    let help = "Tasks refused: too many of their address wait or run";
    out.counter("yuebing_tasks_refused_by_address_total", help, refused);
    let (proposals, tracked) = shared.jobs.heat.figures();
    out.counter("yuebing_hot_proposals_total", "Times that another copy of a hot object was proposed", proposals);
    out.gauge("yuebing_heat_tracked_keys", "Keys whose lookups are counted to find hot ones", tracked);
    write_repairs(out, shared);
    let (waits, nanos) = shared.catalog.shard_waits();
    out.counter("yuebing_shard_lock_waits_total", "Times that a thread had to wait for a shard", waits);
    out.family("yuebing_shard_lock_wait_seconds_total", "counter", "Time of these waits");
    out.sample("yuebing_shard_lock_wait_seconds_total", &[], seconds(nanos));
}

/// Replicas that went with their segment, and what became of them.
fn write_repairs(out: &mut TextWriter, shared: &Shared) {
    let (repairs, (noted, dropped)) = (shared.jobs.repairs(), shared.catalog.losses());
    out.gauge("yuebing_repairs_waiting", "Objects with fewer replicas than they had", repairs.waiting + noted);
    out.gauge("yuebing_repairs_running", "Of these, being copied", repairs.running);
    out.family("yuebing_repairs_total", "counter", "Objects that lost a replica, by what became of it");
    for (result, count) in
        [("made", repairs.made), ("settled", repairs.settled), ("failed", repairs.failed), ("forgotten", dropped)]
    {
        out.sample("yuebing_repairs_total", &[("result", result)], count);
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

/// Connections of the HTTP servers.
fn write_doors(out: &mut TextWriter, doors: &HttpDoors) {
    let servers = [("admin", &doors.admin), ("metadata", &doors.metadata)];
    out.family("yuebing_http_connections", "gauge", "HTTP connections open, by server");
    for (server, counts) in servers {
        out.sample("yuebing_http_connections", &[("server", server)], counts.open());
    }
    let name = "yuebing_http_connections_refused_total";
    out.family(name, "counter", "HTTP connections closed at accept: too many together, or of one address");
    for (server, counts) in servers {
        for (reason, count) in counts.refused() {
            out.sample(name, &[("server", server), ("reason", reason)], count);
        }
    }
}

/// Calls that the HTTP servers refused to who made them.
fn write_refused_calls(out: &mut TextWriter, doors: &HttpDoors) {
    let name = "yuebing_http_calls_refused_total";
    out.family(
        name,
        "counter",
        "HTTP calls refused: no token or another one, not from this host, at the wrong address",
    );
    for (server, counts) in [("admin", &doors.admin), ("metadata", &doors.metadata)] {
        for (reason, count) in counts.refused_calls() {
            out.sample(name, &[("server", server), ("reason", reason)], count);
        }
    }
}

/// What came of connections where there is a secret, TLS, or a list of addresses for the plain wire; else zeros.
fn write_security(out: &mut TextWriter, security: Option<&Security>) {
    let stats = security.map(Security::stats).unwrap_or_default();
    let name = "yuebing_security_connections_total";
    out.family(name, "counter", "Connections by what came of them: let in secured or plain, or refused and why");
    for (outcome, value) in stats.outcomes() {
        out.sample(name, &[("outcome", outcome)], value);
    }
    let help = "Connections that are being secured, or are encrypted, now";
    out.gauge("yuebing_security_connections_in_care", help, stats.in_care);
    let ends = security.map_or(0, Security::certificate_ends);
    let help = "When the own certificate (tls_cert) ends, in seconds since 1970; 0: there is none";
    out.gauge("yuebing_certificate_expires_timestamp_seconds", help, ends);
}

fn write_process(out: &mut TextWriter, shared: &Shared, stats: &Stats, memory: &ProcessMemory) {
    memory.write(out);
    let per_key = bytes_per_key(shared, stats.keys, memory);
    out.gauge("yuebing_bytes_per_key", "Memory of this process beyond that at its start, divided by objects", per_key);
    out.gauge("yuebing_rpc_workers", "RPC worker threads", shared.workers);
    let uptime = shared.clock.now().since(shared.started).as_secs();
    out.gauge("yuebing_uptime_seconds", "Seconds since the start", uptime);
    let version = env!("CARGO_PKG_VERSION");
    out.family("mooncake_build_info", "gauge", "Store version that clients compare, and version of this program");
    let shown = format!("yuebing {version}");
    out.sample("mooncake_build_info", &[("display_version", &shown), ("version", yb_types::STORE_VERSION)], 1);
    out.family("yuebing_build_info", "gauge", "This program and the generations of the wire that it speaks");
    out.sample("yuebing_build_info", &[("version", version), ("wire", "0.3.10 to 0.3.14")], 1);
}

/// Memory of its own that this process took since its start, divided by objects.
pub(crate) fn bytes_per_key(shared: &Shared, keys: u64, memory: &ProcessMemory) -> u64 {
    memory.anonymous.saturating_sub(shared.memory_at_start).checked_div(keys).unwrap_or(0)
}
