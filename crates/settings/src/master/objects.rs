//! Objects, eviction, placement, clients.

use crate::setting::{Kind, Setting, Unit};

pub(super) const OBJECTS: &[Setting] = &[
    Setting::peer("default_kv_lease_ttl", Kind::Duration, "10000", "How long a lookup protects an object.")
        .unit(Unit::Millis)
        .range(0, 86_400_000)
        .live(),
    Setting::peer(
        "default_kv_soft_pin_ttl",
        Kind::Duration,
        "1800000",
        "How long a soft pin lasts unless the put says otherwise.",
    )
    .unit(Unit::Millis)
    .live(),
    Setting::peer(
        "max_kv_soft_pin_ttl",
        Kind::Duration,
        "604800000",
        "Longest soft pin a put may ask for. The 0.3.13 default is 86400000; the longer one of 0.3.14 refuses nobody.",
    )
    .unit(Unit::Millis)
    .live(),
    Setting::peer(
        "allow_evict_soft_pinned_objects",
        Kind::Bool,
        "true",
        "Evict soft-pinned objects when nothing else is left.",
    )
    .live(),
    Setting::ours("eviction_policy", Kind::Text, "chain", "Which objects go first: chain knows prefixes and learns what comes back, near-lru does what the peer does.")
        .one_of(&["chain", "near-lru", "lru", "s3-fifo"]),
    Setting::peer(
        "eviction_ratio",
        Kind::F64,
        "0.05",
        "Share of the capacity to free beyond the watermark, of which more than 0.01 is never taken; 0 disables eviction after a failed allocation.",
    )
    .ratio()
    .live(),
    Setting::peer(
        "eviction_high_watermark_ratio",
        Kind::F64,
        "0.9",
        "Evict when more than this share is used; at 1 only failed allocations trigger.",
    )
    .ratio()
    .live(),
    Setting::ours("put_wait", Kind::Duration, "250ms", "How long a write that finds no space waits for eviction to make some before it is refused. 0: not at all.")
        .unit(Unit::Millis)
        .range(0, 10_000)
        .live(),
    Setting::peer(
        "put_start_discard_timeout_sec",
        Kind::U64,
        "30",
        "After this time another writer may take over the key of an unfinished put.",
    )
    .unit(Unit::Seconds)
    .range(0, 31_536_000)
    .live(),
    Setting::peer(
        "put_start_release_timeout_sec",
        Kind::U64,
        "600",
        "After this time the space of an unfinished put is free again. Must be longer than the discard timeout.",
    )
    .unit(Unit::Seconds)
    .range(0, 31_536_000)
    .live(),
    Setting::peer("memory_allocator", Kind::Text, "offset", "Allocator inside segments.")
        .not_built("cachelib allocator"),
    Setting::ours("memory_page_runs", Kind::Bool, "true", "Objects of a size that comes often lie in runs of equal pages: less bookkeeping, no holes. Off: each has an extent of its own. Counts for segments mounted from now on."),
    Setting::ours("memory_alignment", Kind::U64, "64", "Objects start at a multiple of this power of two; up to 64, small ones that this would waste more than 1/64 of are aligned less.")
        .unit(Unit::Bytes)
        .range(1, 1 << 30),
    Setting::peer("allocation_strategy", Kind::Text, "balanced", "How segments are chosen. `balanced` (ours): two drawn in proportion to their sizes, the emptier one (the peer's default is `random`). `cxl`: the first preferred segment only.")
        .one_of(&["balanced", "random", "free_ratio_first", "cxl", "ssd_free_ratio_first", "local_first"]),
    Setting::peer("enable_cxl", Kind::Bool, "false", "CXL memory pool.").not_built("CXL memory"),
    Setting::peer("cxl_path", Kind::Text, "/dev/dax0.0", "DAX device of the CXL pool.")
        .unit(Unit::Path)
        .not_built("CXL memory"),
    Setting::peer("cxl_size", Kind::U64, "8589934592", "Size of the CXL pool.")
        .unit(Unit::Bytes)
        .not_built("CXL memory"),
    Setting::peer("mmap_arena_pool_size", Kind::U64, "8589934592", "Arena size of the peer's client library.")
        .unit(Unit::Bytes)
        .no_effect("the master allocates no data memory"),
    Setting::peer("use_mmap_arena_allocator", Kind::Bool, "false", "Arena of the peer's client library.")
        .no_effect("the master allocates no data memory"),
    Setting::peer14(
        "weight_import_idle_timeout_ms",
        Kind::U64,
        "300000",
        "Drop a managed weight import without writes.",
    )
    .unit(Unit::Millis),
    Setting::peer14(
        "weight_management_oplog_capability_confirmed",
        Kind::Bool,
        "false",
        "All standbys know weight records.",
    )
    .not_built("operation log"),
];

pub(super) const CLIENTS: &[Setting] = &[
    Setting::peer("client_ttl", Kind::I64, "10", "The segments of a client that has not pinged for this time are not offered any more (after half of it nothing more is placed in them).")
        .unit(Unit::Seconds)
        .range(1, 31_536_000)
        .alias(&["client_live_ttl_sec", "client_active_ttl_sec"]).live(),
    Setting::peer14("client_suspicion_ttl_sec", Kind::I64, "20", "A client that pings again within this further time loses nothing; then its segments are dropped. 0 drops them at once, as 0.3.13.")
        .unit(Unit::Seconds)
        .range(0, 31_536_000)
        .live(),
    Setting::ours("dial_back", Kind::Bool, "true", "At mount, connect to the data address that a node announces: a node of this project is refused if nobody answers there, one of the peer's is only counted and logged."),
    Setting::ours("dial_back_timeout", Kind::Duration, "2s", "How long such a connection may take.").unit(Unit::Millis).range(10, 60_000).live(),
];
