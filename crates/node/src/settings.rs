//! The settings of a node: the flags of the peer's `mooncake_client` as far as they make sense for a node, and our own.
//!
//! Names and defaults: `mooncake_client --help` of 0.3.13. Those that belong to features of the daemon which a node does
//! not have are refused when set.

use yb_settings::{Kind, SECURITY, SECURITY_TITLE, Setting, Table, Unit};

const OFFLOAD: &str = "offload to the node's disk";

/// Every setting of `yuebing node`.
pub static NODE: Table = Table {
    program: "yuebing node",
    groups: &[
        (
            "Addresses",
            &[
                Setting::peer("master_server_address", Kind::Text, "127.0.0.1:50051", "The master, host:port.")
                    .unit(Unit::Address)
                    .env("MOONCAKE_MASTER"),
                Setting::peer("host", Kind::Text, "0.0.0.0", "Address to listen on, and the name of the node unless advertise_host gives another.")
                    .unit(Unit::Address),
                Setting::peer("port", Kind::U32, "50052", "Port at which dummy clients of this host call, and of the node's name. 0 takes any free one.")
                    .port(),
                Setting::ours("master_wait_seconds", Kind::I32, "-1", "Seconds for which a node that starts waits for a master that does not answer. -1: as long as it takes. 0: it ends with code 1 at once. An address that is none, another secret, certificate or version end it at once in any case.")
                    .range(-1, i32::MAX as i128),
                Setting::ours("advertise_host", Kind::Text, "", "Host that others are told to connect to. Empty takes host; if that is 0.0.0.0, the address from which this machine reaches the master.")
                    .unit(Unit::Address),
                Setting::ours("handshake_port", Kind::U32, "0", "Port of the handshake with other nodes and clients. 0 takes any free one.").port(),
                Setting::ours("data_port", Kind::U32, "0", "Port for the bytes. 0 takes any free one.").port(),
                Setting::peer("metadata_server", Kind::Text, "P2PHANDSHAKE", "P2PHANDSHAKE: nodes tell each other what they have. Or a store of names: http://host:port/metadata (the default of the peer), etcd://, redis://.")
                    .env("MOONCAKE_TE_META_DATA_SERVER"),
            ],
        ),
        (
            "Memory",
            &[
                Setting::peer("global_segment_size", Kind::Bytes, "4GiB", "Memory to lend.")
                    .unit(Unit::Bytes)
                    .range(16 << 20, 1 << 50)
                    .env("MOONCAKE_GLOBAL_SEGMENT_SIZE"),
                Setting::ours("populate", Kind::Bool, "true", "Touch every page in the background from the start on: no page faults later; the memory is taken at once."),
                Setting::peer("local_buffer_size", Kind::Bytes, "0", "Staging memory of a client.")
                    .unit(Unit::Bytes)
                    .no_effect("a node reads and writes nothing itself"),
                Setting::ours("segment_file", Kind::Text, "", "The memory is this file, on a tmpfs or hugetlbfs of this host (/dev/shm/...), with PATH.directory beside it, and outlives the process: the next one with the same file and size takes over what is in it. Other processes reach it over TCP. Empty: it goes with the process."),
                Setting::ours("drain_seconds", Kind::U32, "3", "When the node is asked to end (TERM, INT), seconds for which what it holds is moved to other nodes first: what is read lately first, what has other replicas not at all; the rest goes with it. 0: nothing is moved. With segment_file nothing is moved either, as the next process has it. A second signal ends it at once.")
                    .range(0, 86_400),
                Setting::peer("use_mmap_arena_allocator", Kind::Bool, "false", "One arena for mapped buffers.")
                    .no_effect("a segment is one mapping"),
                Setting::peer("mmap_arena_pool_size", Kind::U64, "8589934592", "Size of that arena.")
                    .unit(Unit::Bytes)
                    .no_effect("a segment is one mapping"),
                Setting::ours("shared_memory", Kind::Bool, "true", "Let other processes of this host map the memory (YB_SHM=0 in the environment says no)."),
            ],
        ),
        (
            "Transport",
            &[
                Setting::peer("protocol", Kind::Text, "tcp", "tcp: shared memory on one host, TCP between hosts. Anything else is refused.")
                    .env("MOONCAKE_PROTOCOL"),
                Setting::peer("device_names", Kind::Text, "", "Network devices, comma separated.")
                    .no_effect("tcp needs none"),
            ],
        ),
        (
            "Daemon",
            &[
                Setting::ours("serve_dummies", Kind::Bool, "true", "Serve dummy clients of this host (setup_dummy), at port and over shared memory."),
                Setting::ours("dummy_users", Kind::Text, "own", "Users of this host that may attach: own (the daemon's user and root), any, or user numbers such as 1000,1001."),
                Setting::peer("threads", Kind::U32, "1", "RPC threads for dummy clients. Calls that wait have threads of their own, 16 for each of these.").range(1, 256),
                Setting::peer("tenant_id", Kind::Text, "default", "Whose keys dummy clients name."),
                Setting::peer("enable_offload", Kind::Bool, "false", "Offload to disk.").not_built(OFFLOAD),
                Setting::peer("start_offload_rpc_server", Kind::Bool, "true", "Serve offloaded objects.")
                    .no_effect("it only acts with enable_offload"),
                Setting::peer("enable_http_server", Kind::Bool, "false", "Serve /health, /metrics and /metrics/summary at host."),
                Setting::peer("http_port", Kind::U32, "9300", "Its port, with enable_http_server. 0 takes any free one.").port(),
            ],
        ),
        (SECURITY_TITLE, SECURITY),
        (
            "Logging",
            &[
                Setting::peer("v", Kind::I32, "0", "Verbosity: 1 adds debug lines, 2 adds traces.").range(-10, 100),
                Setting::peer("minloglevel", Kind::I32, "0", "Lowest level logged: 0 info, 1 warning, 2 error, 3 nothing.")
                    .range(0, 3),
                Setting::peer("logtostderr", Kind::Bool, "false", "Log to standard error.")
                    .no_effect("logs always go to standard error"),
                Setting::peer("alsologtostderr", Kind::Bool, "false", "Log to standard error too.")
                    .no_effect("logs always go to standard error"),
                Setting::peer("stderrthreshold", Kind::I32, "2", "Lowest level copied to standard error.")
                    .no_effect("logs always go to standard error"),
                Setting::peer("log_dir", Kind::Text, "", "Directory of log files.")
                    .unit(Unit::Path)
                    .not_built("log files (redirect standard error)"),
                Setting::peer("log_link", Kind::Text, "", "Directory of the link to the newest log file.")
                    .unit(Unit::Path)
                    .no_effect("there are no log files"),
                Setting::peer("max_log_size", Kind::I32, "1800", "Megabytes of a log file.")
                    .no_effect("there are no log files"),
                Setting::peer("logfile_mode", Kind::I32, "436", "Mode of log files.").no_effect("there are no log files"),
                Setting::peer("stop_logging_if_full_disk", Kind::Bool, "false", "Stop when the disk is full.")
                    .no_effect("there are no log files"),
                Setting::peer("drop_log_memory", Kind::Bool, "true", "Drop log pages from memory.")
                    .no_effect("there are no log files"),
                Setting::peer("logbufsecs", Kind::I32, "30", "Seconds a log line may be buffered.")
                    .no_effect("lines are not buffered"),
                Setting::peer("logbuflevel", Kind::I32, "0", "Levels that are buffered.")
                    .no_effect("lines are not buffered"),
                Setting::peer("colorlogtostderr", Kind::Bool, "false", "Colours on a terminal.").no_effect("none"),
                Setting::peer("log_prefix", Kind::Bool, "true", "Time, level and module before each line of text.")
                    .no_effect("they are always there"),
                Setting::peer("log_backtrace_at", Kind::Text, "", "Backtrace at file:line.")
                    .not_built("backtraces at log lines"),
                Setting::peer("alsologtoemail", Kind::Text, "", "Addresses to mail logs to.").not_built("mailing logs"),
                Setting::peer("logemaillevel", Kind::I32, "999", "Level from which logs are mailed.")
                    .not_built("mailing logs"),
                Setting::peer("logmailer", Kind::Text, "/bin/mail", "Mail program.").not_built("mailing logs"),
                Setting::peer("symbolize_stacktrace", Kind::Bool, "true", "Names in stack traces.")
                    .no_effect("panics carry names"),
                Setting::peer("vmodule", Kind::Text, "", "Verbosity per module.")
                    .not_built("verbosity per module (set RUST_LOG instead)"),
                Setting::peer("tab_completion_columns", Kind::I32, "80", "Width of completion output.")
                    .no_effect("completion comes from the shell"),
                Setting::peer("tab_completion_word", Kind::Text, "", "Word to complete.")
                    .not_built("gflags tab completion"),
            ],
        ),
    ],
};
