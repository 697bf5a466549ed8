//! Sockets, threads, limits, logging.

use crate::setting::{Kind, Setting, Unit};

pub(super) const NETWORK: &[Setting] = &[
    Setting::peer("config_path", Kind::Text, "", "YAML or JSON file of settings.").unit(Unit::Path),
    Setting::peer("rpc_port", Kind::I32, "0", "Port of the RPC server; 0 takes `port`.").port(),
    Setting::peer("port", Kind::I32, "50051", "Older name of `rpc_port`, used while that is 0.").port(),
    Setting::peer("rpc_address", Kind::Text, "0.0.0.0", "Address the RPC server listens on.").unit(Unit::Address),
    Setting::ours("advertise_address", Kind::Text, "", "Address clients are told to use, host or host:port; empty takes the listen address. The peer has one setting for both.")
        .unit(Unit::Address),
    Setting::ours("compat_listen", Kind::List, "", "Further listeners for older generations of the wire, GENERATION:PORT or GENERATION:ADDRESS:PORT, repeatable. Generations: 0.3.10, 0.3.10.post1, 0.3.10.post2, 0.3.11, 0.3.12, 0.3.12.post1, 0.3.13, 0.3.14 (the main port serves 0.3.13 and 0.3.14 side by side)."),
    Setting::peer("rpc_interface", Kind::Text, "", "Listen on the IPv4 address of this network interface."),
    Setting::peer("rpc_thread_num", Kind::I32, "0", "Worker threads of the RPC server; 0 takes `max_threads`, at most one per core.").range(0, 1024),
    Setting::peer("max_threads", Kind::I32, "16", "Older name of `rpc_thread_num`, capped by the number of cores.").range(1, 1024),
    Setting::peer14("handler_worker_thread_num", Kind::I32, "0", "Extra threads that run handlers.")
        .no_effect("handlers never block a worker, so there is nothing to take off it"),
    Setting::ours("rpc_unix_socket", Kind::Text, "", "Path of a UNIX socket that serves the same as the main port, for clients on this host.").unit(Unit::Path),
    Setting::ours("rpc_backend", Kind::Text, "auto", "Kernel interface of the workers: io_uring if it works here, else epoll.").one_of(&["auto", "epoll", "uring"]),
    Setting::ours("rpc_cores", Kind::List, "", "Cores that the workers are pinned to, in turn; empty: not pinned."),
    Setting::peer("rpc_conn_timeout_seconds", Kind::I32, "0", "Close a connection that was idle this long after a whole request; 0 never.").unit(Unit::Seconds).range(0, 31_536_000),
    Setting::peer("rpc_enable_tcp_no_delay", Kind::Bool, "true", "TCP_NODELAY on RPC connections."),
    Setting::peer("metrics_port", Kind::I32, "9003", "Port of the admin HTTP server: metrics, health, listings, status page.").port(),
    Setting::peer("metrics_host", Kind::Text, "0.0.0.0", "Address of the admin HTTP server; `::` listens on IPv6 too.").unit(Unit::Address),
    Setting::ours("admin_write_port", Kind::I32, "0", "Port of HTTP calls that remove, move or configure something; 0: the same as of all others, as in the peer.").port(),
    Setting::ours("admin_write_host", Kind::Text, "127.0.0.1", "Address of that port.").unit(Unit::Address),
    Setting::ours("admin_token", Kind::Text, "", "HTTP calls that remove, move or configure something need `Authorization: Bearer TOKEN`; empty, and no admin_token_file: they are answered to the loopback address only. Arguments are visible to everybody on the host: better the file or the environment.").env("YUEBING_ADMIN_TOKEN").secret(),
    Setting::ours("admin_token_file", Kind::Text, "", "File with that token, in its first line.").unit(Unit::Path).env("YUEBING_ADMIN_TOKEN_FILE"),
    Setting::peer("enable_metric_reporting", Kind::Bool, "true", "Log one summary line every 10 seconds.").live(),
    Setting::peer("enable_http_metadata_server", Kind::Bool, "false", "Serve Transfer Engine metadata over HTTP, as mooncake_http_metadata_server does."),
    Setting::peer("http_metadata_server_port", Kind::I32, "8080", "Its port.").port(),
    Setting::peer("http_metadata_server_host", Kind::Text, "0.0.0.0", "Its address. The peer listens on all addresses whatever this says.").unit(Unit::Address),
    Setting::peer("enable_metadata_cleanup_on_timeout", Kind::Bool, "false", "Delete what clients that stopped pinging left in the HTTP metadata server of this master (needs `enable_http_metadata_server`)."),
];

pub(super) const LIMITS: &[Setting] = &[
    Setting::ours(
        "max_connections",
        Kind::U32,
        "16384",
        "RPC connections open at once; further ones are closed at accept.",
    )
    .range(1, 1_000_000)
    .live(),
    Setting::ours(
        "max_connections_per_address",
        Kind::U32,
        "8192",
        "Of these, from one address; further ones are closed at accept.",
    )
    .range(1, 1_000_000),
    Setting::ours(
        "max_deferred_per_address",
        Kind::U32,
        "8192",
        "Calls of one address that wait for their answer (mounts, puts without space); above, each of its connections may have one.",
    )
    .range(1, 1 << 30),
    Setting::ours(
        "max_request_body",
        Kind::Bytes,
        "64MiB",
        "Largest body of a request; a longer one closes the connection.",
    )
    .range(4096, 1 << 32),
    Setting::ours("max_request_elements", Kind::U32, "1048576", "Most elements of all lists of one request together.")
        .range(1, 1 << 30),
    Setting::ours(
        "max_unsent_bytes",
        Kind::Bytes,
        "4MiB",
        "Replies that a peer has not read yet, above which its requests wait.",
    )
    .range(4096, 1 << 32),
    Setting::ours(
        "max_buffered_bytes",
        Kind::Bytes,
        "1GiB",
        "Bytes that all connections together may hold of unfinished requests, and again of unread replies. Those with more than their share give way.",
    )
    .range(1 << 20, 1 << 50),
    Setting::ours(
        "max_buffered_per_address",
        Kind::Bytes,
        "512MiB",
        "Bytes that the connections of one address may hold of unfinished requests; above, those that add to it are closed.",
    )
    .range(1 << 20, 1 << 50),
    Setting::ours(
        "max_key_bytes",
        Kind::Bytes,
        "64KiB",
        "Longest key, and longest name of a group. Longer ones are refused (-600).",
    )
    .range(64, 64 << 20)
    .live(),
    Setting::ours(
        "max_objects_memory",
        Kind::Bytes,
        "0",
        "Memory of the master that what it knows of objects may take, about; above, objects are evicted, and puts are refused until some are. 0: half of what this process may use (of the host, or of its control group).",
    )
    .range(0, 1 << 50)
    .live(),
    Setting::ours(
        "max_unfinished_per_client",
        Kind::Bytes,
        "0",
        "Bytes that one client may have reserved and not filled, what rests for it included; further puts of it are refused for the moment. 0: half of the memory of the pool, and 16 GiB at least.",
    )
    .range(0, 1 << 62)
    .live(),
    Setting::ours("max_segments", Kind::U32, "262144", "Segments mounted at once.").range(1, 1 << 24),
    Setting::ours("max_segments_per_address", Kind::U32, "4096", "Of these, mounted over connections of one address, under however many clients.").range(1, 1 << 24),
    Setting::ours("max_segments_per_client", Kind::U32, "16384", "Of these, of one client.").range(1, 1 << 24),
    Setting::ours(
        "partial_request_timeout",
        Kind::Duration,
        "1700",
        "A connection that sends nothing at first, or stops in the middle of a frame, is closed after this time.",
    )
    .unit(Unit::Millis)
    .range(10, 3_600_000),
    Setting::ours(
        "admin_max_connections",
        Kind::U32,
        "64",
        "Requests that the admin HTTP server works on at once; further ones wait. Connections: 1024, silent ones are closed.",
    )
    .range(1, 65536),
];

pub(super) const LOGGING: &[Setting] = &[
    Setting::ours("log_format", Kind::Text, "text", "Form of log lines: text, or one JSON object each.")
        .one_of(&["text", "json"]),
    Setting::peer("v", Kind::I32, "0", "Verbosity: 1 adds debug lines, 2 adds traces.").range(-10, 100).live(),
    Setting::peer("minloglevel", Kind::I32, "0", "Lowest level logged: 0 info, 1 warning, 2 error, 3 nothing.")
        .range(0, 3)
        .live(),
    Setting::peer("logtostderr", Kind::Bool, "false", "Log to standard error.")
        .no_effect("without log_dir lines go there anyhow"),
    Setting::peer("alsologtostderr", Kind::Bool, "false", "With `log_dir`: lines go to standard error too."),
    Setting::peer("stderrthreshold", Kind::I32, "2", "Lowest level copied to standard error.")
        .no_effect("all lines go to one place, or with alsologtostderr to both"),
    Setting::peer("colorlogtostderr", Kind::Bool, "false", "Colours on a terminal."),
    Setting::peer("log_prefix", Kind::Bool, "true", "Time, level and module before each line of text."),
    Setting::peer("log_dir", Kind::Text, "", "Directory of log files; empty: lines go to standard error only.")
        .unit(Unit::Path),
    Setting::peer("log_link", Kind::Text, "", "Directory of the link to the newest log file; empty: `log_dir`.")
        .unit(Unit::Path),
    Setting::peer("max_log_size", Kind::I32, "1800", "Megabytes of a log file after which the next one begins.")
        .range(1, 1 << 20),
    Setting::peer("logbufsecs", Kind::I32, "30", "Seconds a log line may be buffered.")
        .no_effect("lines are not buffered"),
    Setting::peer("logbuflevel", Kind::I32, "0", "Levels that are buffered.").no_effect("lines are not buffered"),
    Setting::peer("logfile_mode", Kind::I32, "436", "Mode of log files.").no_effect("the umask decides"),
    Setting::peer("stop_logging_if_full_disk", Kind::Bool, "false", "Stop when the disk is full.")
        .no_effect("a line that cannot be written is lost, the master goes on"),
    Setting::peer("drop_log_memory", Kind::Bool, "true", "Drop log pages from memory.")
        .no_effect("the kernel drops them when it needs memory"),
    Setting::peer("log_backtrace_at", Kind::Text, "", "Backtrace at file:line.").not_built("backtraces at log lines"),
    Setting::peer("alsologtoemail", Kind::Text, "", "Addresses to mail logs to.").not_built("mailing logs"),
    Setting::peer("logemaillevel", Kind::I32, "999", "Level from which logs are mailed.").not_built("mailing logs"),
    Setting::peer("logmailer", Kind::Text, "/bin/mail", "Mail program.").not_built("mailing logs"),
    Setting::peer("symbolize_stacktrace", Kind::Bool, "true", "Names in stack traces.").no_effect("panics carry names"),
    Setting::peer("vmodule", Kind::Text, "", "Verbosity per module.")
        .not_built("verbosity per module (set RUST_LOG instead)"),
    Setting::peer("tab_completion_columns", Kind::I32, "80", "Width of completion output.")
        .no_effect("completion comes from the shell"),
    Setting::peer("tab_completion_word", Kind::Text, "", "Word to complete.").not_built("gflags tab completion"),
];
