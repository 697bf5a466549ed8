"""Upserts, ranges, sessions, tasks and clearing, run under either package as script.py is."""

import mooncake.store as module
from steps import MASTER, PAGE, finish, made, memory, step


def upserts(store):
    step("upsert new", lambda: [store.upsert("u", b"one"), store.get("u")])
    step("upsert same size", lambda: [store.upsert("u", b"two"), store.get("u")])
    step("upsert longer", lambda: [store.upsert("u", b"three"), store.get("u"), store.get_size("u")])
    step("upsert shorter", lambda: [store.upsert("u", b"4"), store.get("u")])
    step("upsert empty", lambda: [store.upsert("u", b""), store.get("u")])
    step("upsert empty key", lambda: store.upsert("", b"x"))
    step("upsert str", lambda: store.upsert("u", "x"))
    step("upsert keywords", lambda: store.upsert(key="u", value=b"five", config=made()))
    step("upsert same node", lambda: store.upsert("u", b"x", made(prefer_alloc_in_same_node=True)))
    step("upsert no replica", lambda: [store.upsert("u", b"x", made(replica_num=0)), store.get("u")])
    step("upsert other group", lambda: [store.upsert("ug", b"x", made(group_ids=["a"])), store.upsert("ug", b"y", made(group_ids=["b"])), store.upsert("ug", b"z"), store.get("ug")])
    step("upsert two groups", lambda: store.upsert("ug", b"x", made(group_ids=["a", "a"])))
    step("upsert_parts", lambda: [store.upsert_parts("up", b"ab", bytearray(b"c")), store.upsert_parts("up", b"x"), store.get("up")])
    step("upsert_parts none", lambda: [store.upsert_parts("up0"), store.is_exist("up0")])
    step("upsert_parts keyword", lambda: store.upsert_parts("up", b"y", config=made()))
    step("upsert_batch", lambda: [store.upsert_batch(["ua", "ub"], [b"1", b"22"]), store.upsert_batch(["ua", "ub"], [b"3", b"4"]), store.get_batch(["ua", "ub"])])
    step("upsert_batch repeated", lambda: [store.upsert_batch(["ud", "ud"], [b"1", b"2"]), store.get("ud")])
    step("upsert_batch lengths", lambda: store.upsert_batch(["ue", "uf"], [b"1"]))
    step("upsert_batch none", lambda: store.upsert_batch([], []))
    step("upsert_batch empty value", lambda: [store.upsert_batch(["ug1", "ug2"], [b"", b"1"]), store.batch_is_exist(["ug1", "ug2"])])


def upserts_by_address(store, area, base):
    area[:10] = b"0123456789"
    step("upsert_from", lambda: [store.upsert_from("v", base, 4), store.get("v"), store.upsert_from("v", base + 4, 5), store.get("v")])
    step("upsert_from size 0", lambda: [store.upsert_from("v0", base, 0), store.is_exist("v0")])
    step("upsert_from null", lambda: store.upsert_from("vn", 0, 4))
    step("upsert_from unregistered", lambda: store.upsert_from("vu", base + 3 * PAGE, 4))
    step("upsert_from keywords", lambda: store.upsert_from(key="v", buffer_ptr=base, size=4, config=made()))
    step("upsert_from same node", lambda: store.upsert_from("v", base, 4, made(prefer_alloc_in_same_node=True)))
    step("batch_upsert_from", lambda: [store.batch_upsert_from(["v1", "v2"], [base, base + 4], [4, 4]), store.batch_upsert_from(["v1", "v2"], [base + 1, base + 5], [4, 5]), store.get_batch(["v1", "v2"])])
    step("batch_upsert_from repeated", lambda: [store.batch_upsert_from(["v3", "v3"], [base, base + 4], [4, 4]), store.get("v3")])
    step("batch_upsert_from lengths", lambda: store.batch_upsert_from(["v4", "v5"], [base], [4, 4]))
    step("batch_upsert_from size 0", lambda: store.batch_upsert_from(["v6", "v7"], [base, base], [0, 4]))
    step("batch_upsert_from empty key", lambda: store.batch_upsert_from(["", "v8"], [base, base], [4, 4]))
    step("batch_upsert_from same node", lambda: store.batch_upsert_from(["v9"], [base], [4], made(prefer_alloc_in_same_node=True)))
    step("batch_upsert_from none", lambda: store.batch_upsert_from([], [], []))


def with_metadata(store, area, base):
    area[:10], area[100:104] = b"0123456789", b"META"
    put = store.put_from_with_metadata
    step("metadata", lambda: [put("m", base, base + 100, 6, 4), store.get("m")])
    step("metadata again", lambda: [put("m", base, base + 100, 3, 4), store.get("m")])
    step("metadata without data", lambda: [put("m0", base, base + 100, 0, 4), store.get("m0")])
    step("metadata of no bytes", lambda: [put("m1", base, base + 100, 4, 0), store.get("m1")])
    step("metadata nothing", lambda: [put("m2", base, base + 100, 0, 0), store.is_exist("m2")])
    step("metadata empty key", lambda: put("", base, base + 100, 4, 4))
    step("metadata same node", lambda: put("m3", base, base + 100, 4, 4, made(prefer_alloc_in_same_node=True)))
    step("metadata keywords", lambda: put(key="m4", buffer_ptr=base, metadata_buffer_ptr=base + 100, size=2, metadata_size=1, config=made()))
    step("metadata negative", lambda: put("m5", -1, base, 1, 1))


def same_node(store, base):
    put = store.batch_put_from_multi_buffers
    step("same node", lambda: put(["n1", "n2"], [[base], [base]], [[4], [4]], made(prefer_alloc_in_same_node=True)))
    step("same node, two replicas", lambda: put(["n3"], [[base]], [[4]], made(prefer_alloc_in_same_node=True, replica_num=2)))
    step("same node, read", lambda: store.batch_get_into_multi_buffers(["n1", "n2"], [[base], [base + 8]], [[4], [4]], True))


def ranges(store, area, base):
    store.put_batch(["r1", "r2"], [b"abcdefghij", b"0123456789" * 10])
    at, read = base + PAGE, store.get_into_ranges
    step("ranges", lambda: [read([at], [["r1", "r2"]], [[[0, 5], [20]]], [[[2, 0], [95]]], [[[3, 2], [5]]]), area[PAGE:PAGE + 25]])
    step("ranges of two buffers", lambda: [read([at, at + 64], [["r1"], ["r2", "r1"]], [[[0]], [[0], [8]]], [[[0]], [[3], [9]]], [[[4]], [[4], [1]]]), area[PAGE:PAGE + 4], area[PAGE + 64:PAGE + 73]])
    step("ranges whole", lambda: [read([at], [["r1"]], [[[0]]], [[[0]]], [[[10]]]), area[PAGE:PAGE + 10]])
    step("ranges missing", lambda: read([at], [["r1", "missing"]], [[[0], [0]]], [[[0], [0]]], [[[4], [4]]]))
    step("ranges over the object", lambda: read([at], [["r1"]], [[[0, 8]]], [[[8, 0]]], [[[4, 2]]]))
    step("ranges over the buffer", lambda: read([at], [["r1"]], [[[2 * PAGE - 2, 0]]], [[[0, 0]]], [[[4, 4]]]))
    step("ranges unregistered", lambda: read([base + 3 * PAGE, at], [["r1"], ["r1"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[4]], [[4]]]))
    step("ranges size 0", lambda: read([at], [["r1"]], [[[0, 0]]], [[[0, 0]]], [[[0, 3]]]))
    step("ranges null", lambda: read([0], [["r1"]], [[[0]]], [[[0]]], [[[4]]]))
    step("ranges none", lambda: read([], [], [], [], []))
    step("ranges no keys", lambda: read([at], [[]], [[]], [[]], [[]]))
    step("ranges no ranges", lambda: read([at], [["r1"]], [[[]]], [[[]]], [[[]]]))
    step("ranges empty key", lambda: read([at], [[""]], [[[0]]], [[[0]]], [[[4]]]))
    step("ranges fewer keys than buffers", lambda: read([at, at], [["r1"]], [[[0]]], [[[0]]], [[[4]]]))
    step("ranges more keys than buffers", lambda: read([at], [["r1"], ["r2"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[4]], [[4]]]))
    step("ranges offsets for fewer keys", lambda: read([at], [["r1", "r2"]], [[[0]]], [[[0], [0]]], [[[4], [4]]]))
    step("ranges fewer sources", lambda: read([at], [["r1", "r2"]], [[[0, 1], [0]]], [[[0], [0]]], [[[4], [4]]]))
    step("ranges more sources", lambda: read([at], [["r1"]], [[[0]]], [[[0, 1]]], [[[4]]]))
    step("ranges more sizes", lambda: read([at], [["r1"]], [[[0]]], [[[0]]], [[[4, 4]]]))
    step("ranges keywords", lambda: read(buffer_ptrs=[at], all_keys=[["r1"]], all_dst_offsets=[[[0]]], all_src_offsets=[[[0]]], all_sizes=[[[4]]]))
    step("ranges flat", lambda: read([at], ["r1"], [[0]], [[0]], [[4]]))
    step("ranges kind", lambda: type(read([at], [["r1"]], [[[0]]], [[[0]]], [[[4]]])[0][0][0]).__name__)


def get_sessions(store, area, base):
    at, read = base + PAGE, store.batch_get_into_multi_buffer_ranges
    step("get session start", lambda: store.batch_get_session_start(["r1", "missing", ""]))
    step("get session read", lambda: [read(["r1"], [[at, at + 10]], [[2, 3]], [[0, 5]]), area[PAGE:PAGE + 2], area[PAGE + 10:PAGE + 13]])
    step("get session read another", lambda: read(["r2", "r1"], [[at], [at]], [[2], [2]], [[0], [0]]))
    step("get session over the object", lambda: read(["r1"], [[at]], [[5]], [[8]]))
    step("get session unregistered", lambda: read(["r1"], [[base + 3 * PAGE]], [[5]], [[0]]))
    step("get session null", lambda: read(["r1"], [[0]], [[5]], [[0]]))
    step("get session more sizes", lambda: read(["r1"], [[at]], [[5, 4]], [[0]]))
    step("get session more offsets", lambda: read(["r1"], [[at]], [[5]], [[0, 1]]))
    step("get session more buffers", lambda: read(["r1"], [[at], [at]], [[5], [4]], [[0], [0]]))
    step("get session size 0", lambda: read(["r1"], [[at]], [[0]], [[0]]))
    step("get session no ranges", lambda: read(["r1"], [[]], [[]], [[]]))
    step("get session repeated", lambda: read(["r1", "r1"], [[at], [at + 5]], [[2], [2]], [[0], [0]]))
    step("get session end", lambda: store.batch_get_session_end(["r1", "missing"]))
    step("get session read after the end", lambda: read(["r1"], [[at]], [[2]], [[0]]))
    step("get session none", lambda: [store.batch_get_session_start([]), store.batch_get_session_end([]), read([], [], [], [])])
    step("get session twice", lambda: [store.batch_get_session_start(["r1"]), store.batch_get_session_start(["r1"]), store.batch_get_session_end(["r1"]), read(["r1"], [[at]], [[2]], [[0]])])
    store.batch_get_session_end(["r1"])


def put_sessions(store, area, base):
    area[:10] = b"0123456789"
    start, write = store.batch_put_session_start, store.batch_put_from_multi_buffer_ranges
    end, revoke = store.batch_put_session_end, store.batch_put_session_revoke
    step("put session start", lambda: start(["p1", "p2", "r1", "", "p3"], [10, 5, 4, 4, 0]))
    step("put session start again", lambda: start(["p1"], [10]))
    step("put session lengths", lambda: start(["p8", "p9"], [10]))
    step("put session repeated", lambda: [start(["p7", "p7"], [10, 10]), revoke(["p7"])])
    step("put session unfinished", lambda: [store.is_exist("p1"), store.get_size("p1"), store.get("p1")])
    step("put session write", lambda: write(["p1"], [[base, base + 5]], [[5, 5]], [[0, 5]]))
    step("put session over the object", lambda: write(["p1"], [[base]], [[5]], [[8]]))
    step("put session write another", lambda: write(["none", "p2"], [[base], [base]], [[5], [5]], [[0], [0]]))
    step("put session unregistered", lambda: write(["p2"], [[base + 3 * PAGE]], [[5]], [[0]]))
    step("put session null", lambda: write(["p2"], [[0]], [[5]], [[0]]))
    step("put session more sizes", lambda: write(["p2"], [[base]], [[5, 1]], [[0]]))
    step("put session more buffers", lambda: write(["p2"], [[base], [base]], [[5], [1]], [[0], [0]]))
    step("put session size 0", lambda: write(["p2"], [[base]], [[0]], [[0]]))
    step("put session no ranges", lambda: write(["p2"], [[]], [[]], [[]]))
    step("put session end", lambda: [end(["p1", "none"]), store.get("p1")])
    step("put session end again", lambda: end(["p1"]))
    step("put session write after the end", lambda: write(["p1"], [[base]], [[5]], [[0]]))
    step("put session revoke", lambda: [revoke(["p2", "none"]), store.is_exist("p2"), start(["p2"], [10]), revoke(["p2"])])
    step("put session same node", lambda: [start(["p4"], [10], made(prefer_alloc_in_same_node=True)), revoke(["p4"])])
    step("put session groups", lambda: start(["p5"], [10], made(group_ids=["a", "b"])))
    step("put session end repeated", lambda: [start(["p6"], [10]), write(["p6"], [[base]], [[10]], [[0]]), end(["p6", "p6"])])
    step("put session none", lambda: [start([], []), write([], [], [], []), end([]), revoke([])])
    step("put session hole", lambda: [store.put("h0", b"x" * 4096), store.remove("h0"), start(["h"], [8]), write(["h"], [[base]], [[2]], [[3]]), end(["h"]), store.get("h")[3:5]])


def tasks(store):
    name = store.get_hostname()
    store.put("t", b"value", made(preferred_segments=[name]))
    step("copy of a missing key", lambda: store.create_copy_task("missing", [name]))
    step("copy to nowhere", lambda: store.create_copy_task("t", ["nowhere:1"]))
    step("copy to none", lambda: store.create_copy_task("t", []))
    step("move from nowhere", lambda: store.create_move_task("t", "nowhere:1", "nowhere:2"))
    step("move of a missing key", lambda: store.create_move_task("missing", name, "nowhere:2"))
    step("move to nowhere", lambda: store.create_move_task("t", name, "nowhere:2"))
    step("query of no task", lambda: store.query_task((1, 2)))
    step("query by list", lambda: store.query_task([1, 2]))
    step("query by three", lambda: store.query_task((1, 2, 3)))
    step("query by text", lambda: store.query_task("12"))
    step("task arguments by name", lambda: [store.create_copy_task(key="missing", targets=[name])[1], store.create_move_task(key="missing", source=name, target=name)[1], store.query_task(task_id=(1, 2))[1]])


def clearing(store):
    name = store.get_hostname()
    store.put_batch(["c1", "c2"], [b"1", b"2"])
    store.get("c2")
    step("clear", lambda: [store.batch_replica_clear(["c1", "c2", "missing"]), store.is_exist("c1"), store.is_exist("c2")])
    store.put("c3", b"3", made(preferred_segments=[name]))
    step("clear elsewhere", lambda: store.batch_replica_clear(["c3"], "nowhere:1"))
    step("clear one segment", lambda: [store.batch_replica_clear(["c3"], segment_name=name), store.is_exist("c3")])
    step("clear none", lambda: store.batch_replica_clear([]))
    step("clear empty key", lambda: store.batch_replica_clear([""]))


def rest(store):
    step("offload reads", store.get_offload_rpc_read_count)
    step("capsule", lambda: type(store._get_pyclient_capsule()).__name__)
    step("capsule of a store", lambda: type(module._get_pyclient_from_wrapper(store)).__name__)
    step("capsule of something else", lambda: module._get_pyclient_from_wrapper(1))
    step("capsule before setup", lambda: module.MooncakeDistributedStore()._get_pyclient_capsule())
    step("init_all arity", lambda: store.init_all("tcp"))


def main():
    """Everything, on one store that lends a segment."""
    store = module.MooncakeDistributedStore()
    step("setup", lambda: store.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 26, 1 << 24, "tcp", "", MASTER))
    area, base = memory(4 * PAGE)
    step("register", lambda: store.register_buffer(base, 3 * PAGE))
    upserts(store)
    upserts_by_address(store, area, base)
    with_metadata(store, area, base)
    same_node(store, base)
    ranges(store, area, base)
    get_sessions(store, area, base)
    put_sessions(store, area, base)
    tasks(store)
    clearing(store)
    rest(store)
    store.remove_all(True)
    step("close", store.close)
    finish()


main()
