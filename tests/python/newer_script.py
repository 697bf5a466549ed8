"""What 0.3.14 added, run under either package as script.py is."""

import mooncake.store as module
from steps import MASTER, PAGE, finish, made, memory, step


def exist_options(store):
    options = module.ExistOptions()

    def assigned(value):
        options.prefetch_to_memory = value
        return options.prefetch_to_memory

    step("options", lambda: options.prefetch_to_memory)
    step("options set", lambda: assigned(True))
    step("options set number", lambda: assigned(1))
    step("options set text", lambda: assigned("x"))
    step("options other attribute", lambda: setattr(options, "other", 1))
    step("options argument", lambda: module.ExistOptions(True))
    step("is_exist options", lambda: [store.is_exist("r1", options), store.is_exist("r1", options=options), store.is_exist(key="missing")])
    step("is_exist bool", lambda: store.is_exist("r1", True))
    step("is_exist None", lambda: store.is_exist("r1", None))
    step("batch_is_exist options", lambda: [store.batch_is_exist(["r1", "missing"], options), store.batch_is_exist(["r1"], options=options)])
    step("batch_is_exist bool", lambda: store.batch_is_exist(["r1"], True))


def probes(store):
    probe = store.batch_probe_key
    step("probe_key", lambda: [store.probe_key("r1"), store.probe_key("missing"), store.probe_key(""), store.probe_key(key="r1")])
    step("probe_key leases nothing", lambda: [store.put("pl", b"x"), store.probe_key("pl"), store.remove("pl")])
    step("probes", lambda: [probe(["r1", "missing", ""]), probe([]), probe(("r1",))])
    step("probes lease nothing", lambda: [store.put_batch(["pm", "pn"], [b"x", b"x"]), probe(["pm", "pn"]), store.batch_remove(["pm", "pn"])])
    step("probes last hit", lambda: [store.put_batch(["q1", "q2", "q3", "q4"], [b"x"] * 4), probe(["q1", "q2", "q3", "q4", "missing", "q4"], "LastHitOnly", 2), store.batch_remove(["q1", "q2", "q3", "q4"])])
    step("probes wrong groups", lambda: probe(["r1", "r2", "missing", "r1"], policy="LastHitOnly", candidate_size=3))
    step("probes groups of none", lambda: [probe(["r1", "r2"], "LastHitOnly", 0), probe(["r1", "r2"], "none", 0), probe(["r1", "r2"], "none", 3)])
    step("probes empty key", lambda: probe(["r1", ""], "LastHitOnly", 1))
    step("probes none last hit", lambda: probe([], "LastHitOnly", 1))
    step("probes bad policy", lambda: probe(["r1"], policy="x"))
    step("probes lower policy", lambda: probe(["r1"], "lasthitonly"))
    step("probes no policy", lambda: probe(["r1"], policy=None))
    step("probes negative", lambda: probe(["r1"], "LastHitOnly", -1))


def snapshots(store, area, base):
    at, read = base + PAGE, store.get_into_ranges_from_snapshot
    taken = store.prepare_get_into_ranges_snapshot(["r1", "missing"])
    step("snapshot names", lambda: [name for name in dir(taken) if not name.startswith("_")])
    step("snapshot constructor", lambda: module.RangedReadSnapshot())
    step("snapshot read", lambda: [read(taken, [at], [["r1", "missing", "r2"]], [[[0], [0], [0]]], [[[2], [0], [0]]], [[[3], [1], [1]]]), area[PAGE:PAGE + 3]])
    step("snapshot lengths", lambda: read(taken, [at], [["r1"]], [[[0]]], [[[2, 3]]], [[[3]]]))
    step("snapshot over the object", lambda: read(taken, [at], [["r1"]], [[[0, 0]]], [[[8, 0]]], [[[4, 4]]]))
    step("snapshot keywords", lambda: read(snapshot=taken, buffer_ptrs=[at], all_keys=[["r1"]], all_dst_offsets=[[[0]]], all_src_offsets=[[[2]]], all_sizes=[[[3]]]))
    step("snapshot None", lambda: read(None, [at], [["r1"]], [[[0]]], [[[2]]], [[[3]]]))
    step("snapshot of none", lambda: read(store.prepare_get_into_ranges_snapshot([]), [at], [["r1"]], [[[0]]], [[[2]]], [[[3]]]))
    step("snapshot empty key", lambda: read(store.prepare_get_into_ranges_snapshot([""]), [at], [[""]], [[[0]]], [[[2]]], [[[3]]]))
    other = module.MooncakeDistributedStore()
    other.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", MASTER)
    step("snapshot of another store", lambda: read(other.prepare_get_into_ranges_snapshot(["r1"]), [at], [["r1"]], [[[0]]], [[[2]]], [[[3]]]))
    other.close()


def configs(store):
    config = module.ReplicateConfig()
    values = [
        ("session_ids", ["a"]), ("session_ids", "ab"), ("session_ids", ("x",)), ("session_ids", [1]), ("session_ids", None),
        ("residency_affinity_ids", ["a"]), ("residency_affinity_ids", None), ("preferred_hca_names", ["a", "b"]),
        ("preferred_hca_names", "ab"), ("preferred_hca_names", None), ("per_key_preferred_hca_names", [["a"], []]),
        ("per_key_preferred_hca_names", ["ab"]), ("per_key_preferred_hca_names", [1]), ("per_key_preferred_hca_names", None),
    ]
    for name, value in values:
        def assign(name=name, value=value):
            setattr(config, name, value)
            return getattr(config, name)

        step(f"config {name}={value!s}", assign)
    for name in ("session_ids", "residency_affinity_ids", "preferred_hca_names"):
        step(f"config text with {name}", lambda name=name: str(made(**{name: ["a", "b"]})))
    step("config text with all lists", lambda: str(made(group_ids=["g"], session_ids=["s"], residency_affinity_ids=["r"], per_key_preferred_hca_names=[["h"], ["i", "j"]], preferred_hca_names=["k"])))
    step("put session", lambda: store.put("s1", b"x", made(session_ids=["a"])))
    step("put two sessions", lambda: store.put("s2", b"x", made(session_ids=["a", "b"])))
    for length in (0, 256, 257):
        step(f"put session of {length} bytes", lambda length=length: store.put(f"s{length}", b"x", made(session_ids=["a" * length])))
    step("put affinity", lambda: store.put("s3", b"x", made(residency_affinity_ids=["a" * 300])))
    step("put two affinities", lambda: store.put("s4", b"x", made(residency_affinity_ids=["a", "b"])))
    step("put devices", lambda: store.put("s5", b"x", made(preferred_hca_names=["mlx5_0"], per_key_preferred_hca_names=[["mlx5_1"]])))
    step("put_batch sessions", lambda: store.put_batch(["s6", "s7"], [b"x", b"y"], made(session_ids=["a", "b"], residency_affinity_ids=["c", "d"])))
    step("upsert session", lambda: [store.upsert("s6", b"z", made(session_ids=["a"])), store.get("s6")])


def main():
    """Everything, on one store."""
    store = module.MooncakeDistributedStore()
    step("setup", lambda: store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", MASTER))
    area, base = memory(4 * PAGE)
    store.register_buffer(base, 3 * PAGE)
    store.put_batch(["r1", "r2"], [b"abcdefghij", b"0123456789" * 10])
    exist_options(store)
    probes(store)
    snapshots(store, area, base)
    configs(store)
    store.put("c1", b"1")
    step("clear", lambda: [store.batch_replica_clear(["c1", "missing"]), store.is_exist("c1")])
    store.remove_all(True)
    step("close", store.close)
    finish()


main()
