"""One sequence of calls on a store, run under either package; prints a JSON list of [name, answer].

Every answer is a plain value: a number, text, a list, or the name of the exception. The names are the keys of the
intended differences in test_differential.py.
"""

import array

import mooncake.store as module
from steps import MASTER, PAGE, finish, made, memory, step


def enums():
    for enum in (module.ObjectDataType, module.ReplicaStatus, module.TaskType, module.TaskStatus, module.SoftPinAction):
        name, member = enum.__name__, enum(1)
        step(f"{name} members", lambda: {k: int(v) for k, v in enum.__members__.items()})
        step(f"{name} text", lambda: [str(member), repr(member), member.name, member.value])
        step(f"{name} equality", lambda: [member == 1, member == enum(1), hash(member) == hash(enum(1))])
        step(f"{name} unnamed", lambda: str(enum(77)))
        if name in ("ObjectDataType", "SoftPinAction"):
            step(f"{name} negative", lambda: enum(-1))
        step(f"{name} index", lambda: list(range(5))[member])
        step(f"{name} order", lambda: member < enum(0))
    step("shadowed members", lambda: [str(getattr(module, name)) for name in ("PROCESSING", "FAILED", "COMPLETE", "TENSOR")])


def configs():
    config = module.ReplicateConfig()
    step("config text", lambda: str(config))
    values = [
        ("replica_num", -1), ("replica_num", "x"), ("replica_num", 1.5), ("replica_num", True), ("replica_num", 2**64),
        ("with_hard_pin", 1), ("with_hard_pin", "x"), ("with_hard_pin", None), ("preferred_segments", "ab"),
        ("preferred_segments", ("a", "b")), ("preferred_segments", [1]), ("group_ids", ["x"]), ("group_ids", "ab"),
        ("group_ids", None), ("soft_pin_ttl_ms", -1), ("soft_pin_ttl_ms", 2**64), ("soft_pin_ttl_ms", 7),
        ("soft_pin_action", module.SoftPinAction.ENABLE), ("soft_pin_action", 1), ("data_type", 2),
        ("data_type", module.ObjectDataType.TENSOR), ("preferred_segment", b"x"), ("preferred_nof_segments", ["n"]),
        ("nof_replica_num", 3), ("dfs_replica_num", 1), ("prefer_alloc_in_same_node", True), ("unknown", 1),
    ]
    for name, value in values:
        def assign(name=name, value=value):
            setattr(config, name, value)
            return getattr(config, name)

        step(f"config {name}={value!s}", assign)
    step("config text, all set", lambda: str(config))
    step("config argument", lambda: module.ReplicateConfig(1))


def setups():
    good = ["127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", MASTER]
    store = module.MooncakeDistributedStore
    step("setup no arguments", lambda: store().setup())
    step("setup six arguments", lambda: store().setup(*good[:6]))
    step("setup wrong type", lambda: store().setup(1, *good[1:]))
    step("setup negative size", lambda: store().setup(*good[:2], -1, *good[3:]))
    step("setup unknown keyword", lambda: store().setup(*good, nope=1))
    step("setup empty hostname", lambda: store().setup("", *good[1:]))
    step("setup bad protocol", lambda: store().setup(*good[:4], "pigeon", *good[5:]))
    step("setup rpc_only", lambda: store().setup(*good[:2], 0, 0, "rpc_only", *good[5:]))
    step("setup small segment", lambda: store().setup(*good[:2], 1 << 20, *good[3:]))
    step("setup engine None", lambda: store().setup(*good, None))
    dict_form = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": MASTER}
    step("dict plain", lambda: store().setup(dict_form))
    step("dict keyword", lambda: store().setup(config=dict_form))
    step("dict without hostname", lambda: store().setup({"metadata_server": "P2PHANDSHAKE"}))
    step("dict without metadata", lambda: store().setup({"local_hostname": "127.0.0.1"}))
    step("dict unknown key", lambda: store().setup(dict_form | {"colour": "red"}))
    for text in ("0", "16MB", 16777216, "0.5 G", "16 mb", "1.5x", "50%", "", "1000", "-5", "abc"):
        config = dict_form | {"global_segment_size": "0", "local_buffer_size": text}
        step(f"dict local_buffer_size {text!r}", lambda config=config: store().setup(config))
    step("dict bad bool", lambda: store().setup(dict_form | {"enable_ssd_offload": "maybe"}))


def puts(store):
    step("put", lambda: store.put("k", b"hello"))
    step("put again", lambda: [store.put("k", b"other"), store.get("k")])
    step("put empty", lambda: store.put("e", b""))
    step("put empty key", lambda: store.put("", b"x"))
    step("put str", lambda: store.put("s", "text"))
    step("put bytearray", lambda: [store.put("ba", bytearray(b"abc")), store.get("ba")])
    step("put memoryview", lambda: [store.put("mv", memoryview(b"abcdef")[1:4]), store.get("mv")])
    step("put strided", lambda: [store.put("st", memoryview(b"abcdef")[::2]), store.get("st")])
    step("put wide items", lambda: [store.put("wi", array.array("i", [1, 2, 3])), store.get("wi")])
    step("put NUL key", lambda: [store.put("a\0b", b"nul"), store.get("a\0b"), store.get("a")])
    step("put bytes key", lambda: [store.put(b"bk", b"v"), store.get("bk")])
    step("put unicode key", lambda: [store.put("schlüssel", b"v"), store.get("schlüssel")])
    step("put long key", lambda: [store.put("k" * 5000, b"v"), store.get("k" * 5000)])
    step("put config positional", lambda: store.put("c1", b"v", made()))
    step("put config keyword", lambda: store.put("c2", b"v", config=made()))
    step("put keywords", lambda: store.put(key="c3", value=b"v"))
    step("put wrong config", lambda: store.put("c4", b"v", 1))
    step("put replica 0", lambda: store.put("r0", b"v", made(replica_num=0)))
    step("put replica 2", lambda: [store.put("r2", b"v", made(replica_num=2)), len(store.get_replica_desc("r2"))])
    step("put unknown segment", lambda: store.put("us", b"v", made(preferred_segment="nowhere:1")))
    step("put same node", lambda: store.put("sn", b"v", made(prefer_alloc_in_same_node=True)))
    step("put group", lambda: store.put("g1", b"v", made(group_ids=["g"])))
    step("put two groups", lambda: store.put("g2", b"v", made(group_ids=["g", "h"])))
    step("put_parts", lambda: [store.put_parts("p", b"ab", bytearray(b"cd"), memoryview(b"e")), store.get("p")])
    step("put_parts none", lambda: [store.put_parts("p0"), store.is_exist("p0")])
    step("put_parts empty", lambda: [store.put_parts("p1", b"", b""), store.is_exist("p1")])
    step("put_parts wide items", lambda: store.put_parts("p2", array.array("i", [1])))
    step("put_parts str", lambda: store.put_parts("p3", "x"))


def gets(store):
    step("get", lambda: store.get("k"))
    step("get missing", lambda: store.get("missing"))
    step("get keyword", lambda: store.get(key="k"))
    step("get empty key", lambda: store.get(""))
    step("get_size", lambda: store.get_size("k"))
    step("get_size missing", lambda: store.get_size("missing"))
    step("get_size empty key", lambda: store.get_size(""))
    step("is_exist", lambda: store.is_exist("k"))
    step("is_exist missing", lambda: store.is_exist("missing"))
    step("is_exist empty key", lambda: store.is_exist(""))
    step("get_buffer", lambda: store.get_buffer("k"))
    step("get_buffer missing", lambda: store.get_buffer("missing"))
    step("batch_get_buffer", lambda: store.batch_get_buffer(["k", "missing"]))
    step("get_replica_desc", lambda: describe(store.get_replica_desc("k")))
    step("get_replica_desc missing", lambda: store.get_replica_desc("missing"))
    step("wrong descriptor", lambda: store.get_replica_desc("k")[0].get_disk_descriptor())
    step("batch_get_replica_desc", lambda: sorted(store.batch_get_replica_desc(["k", "missing"])))


def describe(replicas):
    """One replica in plain values that do not depend on the run."""
    first = replicas[0]
    size = first.get_memory_descriptor().buffer_descriptor.size
    return [str(first.status), first.is_memory_replica(), first.is_disk_replica(), first.is_local_disk_replica(), size]


def batches(store):
    step("put_batch", lambda: store.put_batch(["b1", "b2"], [b"1", b"22"]))
    step("put_batch none", lambda: store.put_batch([], []))
    step("put_batch lengths", lambda: store.put_batch(["x1", "x2"], [b"1"]))
    step("put_batch empty value", lambda: [store.put_batch(["x3", "x4"], [b"", b"1"]), store.batch_is_exist(["x3", "x4"])])
    step("put_batch empty key", lambda: [store.put_batch(["", "x5"], [b"1", b"1"]), store.is_exist("x5")])
    step("put_batch repeated", lambda: [store.put_batch(["d", "d"], [b"first", b"second"]), store.get("d")])
    step("put_batch groups", lambda: store.put_batch(["g3", "g4"], [b"1", b"2"], made(group_ids=["g", ""])))
    step("put_batch one group", lambda: store.put_batch(["g5", "g6"], [b"1", b"2"], made(group_ids=["g"])))
    step("get_batch", lambda: store.get_batch(["b1", "missing", "b2"]))
    step("get_batch none", lambda: store.get_batch([]))
    step("batch_is_exist", lambda: store.batch_is_exist(["b1", "missing", "b2"]))
    step("batch_is_exist keyword", lambda: store.batch_is_exist(keys=["b1"]))
    step("batch_is_exist tuple", lambda: store.batch_is_exist(("b1", "b2")))
    step("batch_is_exist none", lambda: store.batch_is_exist([]))
    step("batch_is_exist empty key", lambda: store.batch_is_exist(["b1", ""]))
    step("batch_is_exist text", lambda: store.batch_is_exist("b1"))


def registrations(store, base):
    step("register", lambda: store.register_buffer(base, 2 * PAGE))
    step("register again", lambda: store.register_buffer(base, 2 * PAGE))
    step("register overlapping", lambda: store.register_buffer(base + PAGE, PAGE))
    step("register neighbour", lambda: store.register_buffer(base + 2 * PAGE, PAGE))
    step("register null", lambda: store.register_buffer(0, PAGE))
    step("register nothing", lambda: store.register_buffer(base + 3 * PAGE, 0))
    step("register negative", lambda: store.register_buffer(-1, 10))


def zero_copy(store):
    area, base = memory(4 * PAGE)
    registrations(store, base)
    area[:10] = b"0123456789"
    step("put_from", lambda: [store.put_from("z", base, 10), store.get("z")])
    step("put_from size 0", lambda: [store.put_from("z0", base, 0), store.is_exist("z0")])
    step("put_from again", lambda: store.put_from("z", base + 1, 5))
    step("put_from keywords", lambda: store.put_from(key="zk", buffer_ptr=base, size=4, config=made()))
    step("put_from same node", lambda: store.put_from("zs", base, 4, made(prefer_alloc_in_same_node=True)))
    step("put_from negative", lambda: store.put_from("zn", -1, 4))
    step("put_from null", lambda: store.put_from("z00", 0, 4))
    step("put_from unregistered", lambda: [store.put_from("zu", base + 3 * PAGE, 4), store.get_size("zu")])
    step("put_from over the end", lambda: store.put_from("zo", base + 3 * PAGE - 2, 4))
    step("get_into", lambda: [store.get_into("z", base + PAGE, 10), area[PAGE:PAGE + 10]])
    step("get_into larger", lambda: store.get_into("z", base + PAGE, PAGE))
    step("get_into smaller", lambda: store.get_into("z", base + PAGE, 9))
    step("get_into missing", lambda: store.get_into("missing", base, 10))
    step("get_into empty key", lambda: store.get_into("", base, 10))
    step("get_into null", lambda: store.get_into("z", 0, 10))
    step("get_into unregistered", lambda: store.get_into("z", base + 3 * PAGE, 10))
    zero_copy_batches(store, area, base)
    step("unregister", lambda: store.unregister_buffer(base))
    step("unregister again", lambda: store.unregister_buffer(base))
    step("unregister unknown", lambda: store.unregister_buffer(12345))


def zero_copy_batches(store, area, base):
    places = [base + PAGE + 64 * i for i in range(3)]
    step("batch_put_from", lambda: store.batch_put_from(["y1", "y2"], [base, base + 4], [4, 4]))
    step("batch_put_from existing", lambda: store.batch_put_from(["y1", "y3"], [base, base], [4, 4]))
    step("batch_put_from size 0", lambda: store.batch_put_from(["y4", "y5"], [base, base], [0, 4]))
    step("batch_put_from lengths", lambda: store.batch_put_from(["y6", "y7"], [base], [4, 4]))
    step("batch_put_from repeated", lambda: [store.batch_put_from(["y8", "y8"], [base, base + 4], [4, 4]), store.get("y8")])
    step("batch_put_from none", lambda: store.batch_put_from([], [], []))
    step("batch_put_from empty key", lambda: store.batch_put_from(["", "y9"], [base, base], [4, 4]))
    step("batch_put_from same node", lambda: store.batch_put_from(["ys"], [base], [4], made(prefer_alloc_in_same_node=True)))
    step("batch_get_into", lambda: [store.batch_get_into(["y1", "missing", "y2"], places, [4, 4, 4]), area[PAGE:PAGE + 4], area[PAGE + 128:PAGE + 132]])
    step("batch_get_into smaller", lambda: store.batch_get_into(["y1", "y2"], places[:2], [3, 4]))
    step("batch_get_into lengths", lambda: store.batch_get_into(["y1", "y2"], [base], [4, 4]))
    step("batch_get_into none", lambda: store.batch_get_into([], [], []))
    step("batch_get_into kind", lambda: [type(store.batch_get_into(["y1"], places[:1], [4])[0]).__name__])
    step("multi put", lambda: [store.batch_put_from_multi_buffers(["m1", "m2"], [[base, base + 6], [base + 2]], [[2, 3], [4]]), store.get("m1"), store.get("m2")])
    step("multi get", lambda: [store.batch_get_into_multi_buffers(["m1", "missing"], [places[:2], places[2:]], [[1, 4], [4]]), area[PAGE:PAGE + 1], area[PAGE + 64:PAGE + 68]])
    step("multi get smaller", lambda: store.batch_get_into_multi_buffers(["m1"], [places[:1]], [[2]]))
    step("multi get larger", lambda: store.batch_get_into_multi_buffers(["m1"], [places[:1]], [[20]]))


def removals(store):
    step("remove", lambda: [store.put("rm", b"v"), store.remove("rm"), store.is_exist("rm")])
    step("remove missing", lambda: store.remove("missing"))
    step("remove empty key", lambda: store.remove(""))
    step("remove leased", lambda: [store.put("rl", b"v"), store.get("rl"), store.remove("rl"), store.remove("rl", True)])
    step("remove force keyword", lambda: [store.put("rf", b"v"), store.get("rf"), store.remove("rf", force=True)])
    step("batch_remove", lambda: [store.put_batch(["q1", "q2"], [b"1", b"2"]), store.batch_remove(["q1", "missing", "q2"])])
    step("batch_remove force keyword", lambda: store.batch_remove(["missing"], force=True))
    step("batch_remove empty key", lambda: store.batch_remove(["", "missing"]))
    step("batch_remove none", lambda: store.batch_remove([]))
    step("remove_by_regex", lambda: [store.put_batch(["re1", "re2", "other"], [b"1"] * 3), store.remove_by_regex("^re[0-9]$"), store.is_exist("other")])
    step("remove_by_regex none", lambda: store.remove_by_regex("^nothing$"))
    step("remove_by_regex bad", lambda: store.remove_by_regex("(["))
    step("remove_by_regex keyword", lambda: store.remove_by_regex(regex_pattern="^nothing$", force=True))
    step("remove_all leased", lambda: [store.remove_all(True) > 0, store.put("ra", b"v"), store.get("ra"), store.remove_all()])
    step("remove_all force", lambda: store.remove_all(force=True))
    step("remove_all none", lambda: store.remove_all())


def main():
    """Everything, on one store where a store is needed."""
    enums()
    configs()
    setups()
    store = module.MooncakeDistributedStore()
    step("health before setup", store.health_check)
    step("close before setup", store.close)
    step("setup", lambda: store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", MASTER))
    step("health", store.health_check)
    step("hostname", lambda: store.get_hostname().rsplit(":", 1)[0])
    for part in (puts, gets, batches, zero_copy, removals):
        part(store)
    step("close", store.close)
    step("close again", store.close)
    step("health after close", store.health_check)
    finish()


main()
