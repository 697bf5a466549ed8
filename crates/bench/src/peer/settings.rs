//! The flags.

use yb_settings::{Kind, Setting, Table, Unit};

/// Why flags of builds for GPUs change nothing.
const NO_GPU: &str = "the buffer is host memory";

/// Flags of `transfer_engine_bench`.
pub static BENCH: Table = Table {
    program: "transfer_engine_bench",
    groups: &[
        (
            "The peer's",
            &[
                Setting::peer("mode", Kind::Text, "initiator", "The target serves a buffer, the initiator moves bytes")
                    .one_of(&["initiator", "target"]),
                Setting::peer("operation", Kind::Text, "read", "What the initiator does").one_of(&["read", "write"]),
                Setting::peer("metadata_server", Kind::Text, "192.168.3.77:2379", "P2PHANDSHAKE, or a metadata store"),
                Setting::peer("local_server_name", Kind::Text, "", "Own name; empty = the host's name"),
                Setting::peer("segment_id", Kind::Text, "192.168.3.76", "Name of the target's segment"),
                Setting::peer("protocol", Kind::Text, "rdma", "rdma, tcp, or auto for whatever is best")
                    .one_of(&["rdma", "tcp", "auto"]),
                Setting::peer("device_name", Kind::Text, "mlx5_2", "RDMA devices to use, separated by commas"),
                Setting::peer("nic_priority_matrix", Kind::Text, "", "File with a matrix of RDMA devices")
                    .unit(Unit::Path),
                Setting::peer("auto_discovery", Kind::Bool, "false", "Look for devices, and use tcp without one"),
                Setting::peer("block_size", Kind::U64, "65536", "Bytes of a request").unit(Unit::Bytes),
                Setting::peer("batch_size", Kind::I32, "128", "Requests of a batch").range(1, 1 << 20),
                Setting::peer("threads", Kind::I32, "12", "Threads, each with its own batches").range(1, 4096),
                Setting::peer("buffer_size", Kind::U64, "1073741824", "Bytes of the buffer").unit(Unit::Bytes),
                Setting::peer("duration", Kind::I32, "10", "How long the initiator runs")
                    .unit(Unit::Seconds)
                    .range(0, 86_400),
                Setting::peer("report_unit", Kind::Text, "GB", "Unit of the throughput")
                    .one_of(&["GB", "GiB", "Gb", "MB", "MiB", "Mb", "KB", "KiB", "Kb"]),
                Setting::peer("report_precision", Kind::U32, "2", "Digits after the point").range(0, 17),
                Setting::peer("backend", Kind::Text, "classic", "There is one engine").one_of(&["classic"]),
                Setting::peer("use_vram", Kind::Bool, "true", "Use memory of a GPU").no_effect(NO_GPU),
                Setting::peer("init_mem", Kind::Bool, "true", "Touch the memory first").no_effect("it always is"),
                Setting::peer("gpu_id", Kind::I32, "0", "Which GPU").no_effect(NO_GPU),
            ],
        ),
        (
            "Ours",
            &[Setting::ours("verify", Kind::Bool, "false", "Afterwards, write a pattern, read it back, and compare")],
        ),
    ],
};
