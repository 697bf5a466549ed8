//! Tiers, tenants, events, availability: mostly features that are not built yet.

use crate::setting::{Kind, Setting, Unit};

const NOF: &str = "NVMe-oF segments";
const KV_EVENTS: &str = "KV events";
const HA: &str = "high availability";
const OPLOG: &str = "operation log";
const SNAPSHOT: &str = "snapshots";

pub(super) const TIERS: &[Setting] = &[
    Setting::peer("root_fs_dir", Kind::Text, "", "Root directory of the shared-filesystem tier.")
        .unit(Unit::Path)
        .not_built("shared-filesystem tier"),
    Setting::peer(
        "global_file_segment_size",
        Kind::I64,
        "9223372036854775807",
        "Capacity shown for the shared-filesystem tier.",
    )
    .unit(Unit::Bytes)
    .not_built("shared-filesystem tier"),
    Setting::peer("enable_disk_eviction", Kind::Bool, "true", "Clients may evict files; handed to them as it is.")
        .live(),
    Setting::peer(
        "quota_bytes",
        Kind::U64,
        "0",
        "Bytes clients may use on disk, 0 = 90 % of it; handed to them as it is.",
    )
    .unit(Unit::Bytes)
    .live(),
    Setting::peer("enable_offload", Kind::Bool, "false", "Offload objects to the disks of their owners."),
    Setting::peer("offload_on_evict", Kind::Bool, "false", "Offload at eviction instead of at the end of a put."),
    Setting::peer("offload_force_evict", Kind::Bool, "false", "Evict what exceeds the offload cap without writing it."),
    Setting::peer("offloading_queue_limit", Kind::U64, "50000", "Objects waiting for offload per client."),
    Setting::peer(
        "offload_cap_ratio",
        Kind::F64,
        "0.5",
        "Offload cap of one eviction cycle, as a share of the queue limit.",
    )
    .ratio(),
    Setting::peer("promotion_on_hit", Kind::Bool, "false", "Load disk-only objects back to memory when read."),
    Setting::peer("promotion_admission_threshold", Kind::U32, "2", "Reads before a promotion."),
    Setting::peer("promotion_queue_limit", Kind::U32, "50000", "Promotions in flight."),
    Setting::peer("promotion_max_per_heartbeat", Kind::U32, "1", "Promotions handed out per heartbeat."),
    Setting::peer("nof_eviction_ratio", Kind::F64, "0.05", "Share of NVMe-oF objects to evict.").ratio().not_built(NOF),
    Setting::peer("nof_eviction_high_watermark_ratio", Kind::F64, "0.9", "NVMe-oF eviction trigger.")
        .ratio()
        .not_built(NOF),
    Setting::peer("nof_heartbeat_interval_sec", Kind::I64, "10", "Probe period of NVMe-oF segments.")
        .unit(Unit::Seconds)
        .not_built(NOF),
    Setting::peer("nof_heartbeat_probe_timeout_ms", Kind::U32, "1000", "Probe timeout.")
        .unit(Unit::Millis)
        .not_built(NOF),
    Setting::peer("nof_heartbeat_failures_threshold", Kind::U32, "3", "Failed probes before a segment goes.")
        .not_built(NOF),
    Setting::peer(
        "dynamic_replication_mode",
        Kind::Text,
        "off",
        "More memory replicas for hot objects: off, observe or enforce.",
    )
    .one_of(&["off", "observe", "enforce"]),
    Setting::peer("dynamic_replication_heat_window_seconds", Kind::U32, "10", "Observation window.")
        .unit(Unit::Seconds),
    Setting::peer(
        "dynamic_replication_admission_qps_threshold",
        Kind::F64,
        "0.8",
        "Reads per second from which a key is hot.",
    ),
    Setting::peer("dynamic_replication_max_memory_replicas", Kind::U64, "2", "Most replicas of a hot key."),
];

pub(super) const TENANTS: &[Setting] = &[
    Setting::peer("enable_multi_tenants", Kind::Bool, "false", "Separate name spaces and quotas per tenant."),
    Setting::peer("tenant_quota_connector_type", Kind::Text, "file", "Where quotas are kept: only file is there."),
    Setting::peer("tenant_quota_connector_uri", Kind::Text, "", "Path of the file with the quotas; read again when it changes."),
    Setting::peer14(
        "tenant_eviction_high_watermark_ratio",
        Kind::F64,
        "0.9",
        "Share of its quota from which a tenant's objects are evicted in the background, 0 never; unless given, that of the \
         pool.",
    )
    .ratio()
    .live(),
    Setting::peer("max_total_finished_tasks", Kind::U32, "10000", "Finished tasks remembered.").live(),
    Setting::peer("max_total_pending_tasks", Kind::U32, "10000", "Tasks waiting.").live(),
    Setting::peer("max_total_processing_tasks", Kind::U32, "10000", "Tasks running.").live(),
    Setting::ours("max_tasks_per_address", Kind::U32, "5000", "Tasks waiting or running that were asked for from one address, under however many clients.").range(1, 1 << 24).live(),
    Setting::peer("pending_task_timeout_sec", Kind::U64, "300", "A waiting task fails after this time.")
        .unit(Unit::Seconds)
        .live(),
    Setting::peer("processing_task_timeout_sec", Kind::U64, "300", "A running task fails after this time.")
        .unit(Unit::Seconds)
        .live(),
    Setting::peer("max_retry_attempts", Kind::U32, "10", "Retries of a task by its client.").live(),
    Setting::ours("repair_bytes_per_second", Kind::Bytes, "256MiB", "Replicas that went with their node are made again from those that are left, so many bytes a second over the whole pool, where another segment has room to spare (its use stays below 85 %). 0: they are not."),
    Setting::ours("repair_grace_ms", Kind::U64, "5000", "That long after nobody was found at a node's address, or after client_ttl without a ping, other replicas are made of what it holds too. Its own stay known until client_suspicion_ttl_sec is over; if it comes back, what is then one too many is dropped.")
        .unit(Unit::Millis)
        .live(),
    Setting::ours("repair_max_running", Kind::U32, "16", "Such copies under way.").range(1, 10_000),
];

pub(super) const EVENTS: &[Setting] = &[
    Setting::peer("enable_kv_events", Kind::Bool, "false", "Publish stored and removed events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_bind_endpoint", Kind::Text, "", "ZeroMQ endpoint.").not_built(KV_EVENTS),
    Setting::peer("kv_events_backend_id", Kind::Text, "", "Owner named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_emit_legacy_compat", Kind::Bool, "true", "Fields of older consumers.")
        .not_built(KV_EVENTS),
    Setting::peer("kv_events_emit_object_key", Kind::Bool, "true", "Put the key into events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_queue_capacity", Kind::U32, "65536", "Events waiting.").not_built(KV_EVENTS),
    Setting::peer("kv_events_model_name", Kind::Text, "", "Model named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_tenant_id", Kind::Text, "default", "Tenant named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_additional_salt", Kind::Text, "", "Salt named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_lora_name", Kind::Text, "", "LoRA named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_block_size", Kind::U32, "0", "Block size named in events.").not_built(KV_EVENTS),
    Setting::peer("kv_events_dp_rank", Kind::U32, "0", "Rank named in events.").not_built(KV_EVENTS),
];

pub(super) const AVAILABILITY: &[Setting] = &[
    Setting::ours("journal_file", Kind::Text, "", "A log with snapshot of what lies in segments whose nodes keep no directory (those of the peer), so that the next life of this master knows it. Nobody else may be the master of these nodes in between. Empty: none.")
        .unit(Unit::Path),
    Setting::ours("journal_sync", Kind::Bool, "true", "What the log says is on its disk before the master counts on it, so that it outlives the host. Off: it outlives the process."),
    Setting::ours("journal_max_age", Kind::Duration, "5m", "A log whose master was last heard of longer ago is not used.")
        .unit(Unit::Millis)
        .range(1_000, 86_400_000),
    Setting::peer(
        "cluster_id",
        Kind::Text,
        "mooncake_cluster",
        "Name of the cluster; clients use it as a directory name.",
    ),
    Setting::peer("enable_ha", Kind::Bool, "false", "Several masters, one leader.").not_built(HA),
    Setting::peer("ha_backend_type", Kind::Text, "etcd", "Where leadership is decided.").not_built(HA),
    Setting::peer("ha_backend_connstring", Kind::Text, "", "Address of that place.").not_built(HA),
    Setting::peer14("ha_leader_lease_ttl_sec", Kind::I64, "5", "Lease of the leader.")
        .unit(Unit::Seconds)
        .not_built(HA),
    Setting::peer("etcd_endpoints", Kind::Text, "", "Older name of `ha_backend_connstring` for etcd.").not_built(HA),
    Setting::peer("pod_name", Kind::Text, "", "Pod that carries the leader label.").not_built(HA),
    Setting::peer("pod_namespace", Kind::Text, "", "Its namespace.").not_built(HA),
    Setting::peer("enable_oplog", Kind::Bool, "false", "Replicate metadata to standbys.").not_built(OPLOG),
    Setting::peer("oplog_poll_interval_ms", Kind::I32, "1000", "Poll period of a standby.")
        .unit(Unit::Millis)
        .not_built(OPLOG),
    Setting::peer("oplog_batch_max_entries", Kind::U32, "1024", "Entries of one batch.").not_built(OPLOG),
    Setting::peer("batch_oplog_retry_timeout_sec", Kind::U32, "180", "How long a standby retries.")
        .unit(Unit::Seconds)
        .not_built(OPLOG),
    Setting::peer14("enable_oplog_snapshot", Kind::Bool, "false", "Standbys write snapshots.").not_built(OPLOG),
    Setting::peer14("snapshot_chunk_object_count", Kind::U64, "1000000", "Objects of one snapshot chunk.")
        .not_built(SNAPSHOT),
    Setting::peer("enable_snapshot", Kind::Bool, "false", "Write snapshots of the metadata.").not_built(SNAPSHOT),
    Setting::peer("enable_snapshot_restore", Kind::Bool, "false", "Start from the newest snapshot.")
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_interval_seconds", Kind::U64, "600", "Time between snapshots.")
        .unit(Unit::Seconds)
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_child_timeout_seconds", Kind::U64, "300", "Longest time of one snapshot.")
        .unit(Unit::Seconds)
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_retention_count", Kind::U32, "2", "Snapshots kept.").not_built(SNAPSHOT),
    Setting::peer("snapshot_object_store_type", Kind::Text, "", "Where snapshots go: local or s3.")
        .alias(&["snapshot_payload_store_type", "snapshot_payload_backend_type"])
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_catalog_store_type", Kind::Text, "", "Where the list of snapshots is kept.")
        .alias(&["snapshot_catalog_backend_type"])
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_catalog_store_connstring", Kind::Text, "", "Address of that place.")
        .alias(&["snapshot_catalog_backend_connstring"])
        .not_built(SNAPSHOT),
    Setting::peer("snapshot_backup_dir", Kind::Text, "", "Local copies of snapshots.")
        .unit(Unit::Path)
        .not_built(SNAPSHOT),
];
