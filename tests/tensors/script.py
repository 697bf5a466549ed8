"""One sequence of tensor calls on a store, run under either package with real torch; prints a JSON list of [name, answer].

Every answer is a plain value. A tensor is written as its dtype, its shape and its bytes; a stored object as its bytes.
The names are the keys of the intended differences in test_differential.py.
"""

import ctypes
import json
import mmap
import os
import sys
import tempfile

import torch
from forms import Partition, axis, parallelism, target

import mooncake.store as module

MASTER = sys.argv[1]
HEADER = 304
out = []


class Area:
    """Registered memory."""

    def __init__(self, store, size=1 << 20):
        self.memory = mmap.mmap(-1, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size = size
        self.registered = store.register_buffer(self.base, size)

    def fill(self, data, at=0):
        self.memory[at:at + len(data)] = data
        return self.base + at


def plain(value):
    """The value as JSON can hold it."""
    if isinstance(value, torch.Tensor):
        flat = value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else torch.empty(0, dtype=torch.uint8)
        return ["tensor", str(value.dtype), list(value.shape), value.device.type, bytes(flat.tolist()).hex()]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (int, str)) else str(value)


def step(name, call):
    """Does one call and keeps what came of it."""
    try:
        out.append([name, plain(call())])
    except Exception as error:  # noqa: BLE001 - the kind of exception is the answer
        out.append([name, type(error).__name__])


def config(**fields):
    made = module.ReplicateConfig()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def tp(rank, size, split_dim=0):
    return axis("tp", rank, size, split_dim=split_dim)


def counted(*shape, dtype=torch.float32):
    count = 1
    for side in shape:
        count *= side
    return torch.arange(count, dtype=torch.float32).to(dtype).reshape(shape)


def dtypes(store):
    names = "float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool float16 bfloat16 float8_e4m3fn float8_e5m2"
    for name in names.split() + ["complex64", "float8_e4m3fnuz"]:
        kind = getattr(torch, name)
        made = torch.zeros(2, 3, dtype=torch.uint8).to(kind) if name.startswith("uint") else counted(2, 3).to(kind)
        step(f"dtype {name}", lambda: [store.put_tensor(f"dt-{name}", made), store.get(f"dt-{name}"), store.get_tensor(f"dt-{name}")])


def plain_calls(store):
    full = counted(2, 3)
    step("put", lambda: store.put_tensor("t", full))
    step("put bytes", lambda: store.get("t"))
    step("put again", lambda: [store.put_tensor("t", full + 1), store.get_tensor("t")])
    step("put keywords", lambda: store.put_tensor(key="tk", tensor=full))
    step("put not a tensor", lambda: [store.put_tensor("nt", x) for x in (None, 3, b"abc", [1.0])])
    step("put config", lambda: store.put_tensor("tc", full, config()))
    step("put empty key", lambda: store.put_tensor("", full))
    step("put bytes key", lambda: [store.put_tensor(b"tb", full), store.get_tensor("tb")])
    step("put int key", lambda: store.put_tensor(1, full))
    step("put transposed", lambda: [store.put_tensor("tt", full.t()), store.get_tensor("tt")])
    step("put strided", lambda: [store.put_tensor("ts", counted(10)[::3]), store.get_tensor("ts")])
    step("put view", lambda: [store.put_tensor("tv", counted(10)[4:7]), store.get_tensor("tv")])
    step("put gradient", lambda: [store.put_tensor("tg", full.clone().requires_grad_()), store.get_tensor("tg").requires_grad])
    step("put scalar", lambda: [store.put_tensor("t0", torch.tensor(7.0)), store.get("t0")])
    step("get scalar", lambda: store.get_tensor("t0"))
    step("put eight dimensions", lambda: [store.put_tensor("t8", counted(1, 1, 2, 1, 1, 1, 1, 3)), store.get_tensor("t8")])
    step("put nine dimensions", lambda: store.put_tensor("t9", counted(*[1] * 9)))
    for index, shape in enumerate([(0,), (0, 5), (2, 0, 3)]):
        step(f"put empty {shape}", lambda: [store.put_tensor(f"e{index}", torch.empty(shape)), store.get(f"e{index}"), store.get_tensor(f"e{index}")])
    step("put parameter", lambda: [store.put_tensor("tp", torch.nn.Parameter(full)), type(store.get_tensor("tp")).__name__])
    step("put meta", lambda: store.put_tensor("tm", torch.empty(2, device="meta")))
    step("put sparse", lambda: store.put_tensor("tsp", full.to_sparse()))
    step("get missing", lambda: store.get_tensor("missing"))
    step("get empty key", lambda: store.get_tensor(""))
    step("get not a tensor", lambda: [store.put("raw", b"x" * 400), store.put("short", b"x"), store.get_tensor("raw"), store.get_tensor("short")])
    step("get keyword", lambda: store.get_tensor(key="t"))
    step("get is writable", lambda: store.get_tensor("t").add_(1))
    step("upsert", lambda: [store.upsert_tensor("u", full), store.get_tensor("u")])
    step("upsert again", lambda: [store.upsert_tensor("u", full + 1), store.get_tensor("u")])
    step("upsert larger", lambda: [store.upsert_tensor("u2", full), store.upsert_tensor("u2", counted(4, 4)), store.get_tensor("u2")])
    step("upsert not a tensor", lambda: store.upsert_tensor("u", 1))
    step("pub", lambda: [store.pub_tensor("p", full), store.get_tensor("p")])
    step("pub config", lambda: store.pub_tensor("pc", full, config(replica_num=1)))
    step("pub config keyword", lambda: store.pub_tensor(key="pk", tensor=full, config=config()))
    step("pub replica 0", lambda: store.pub_tensor("p0", full, config(replica_num=0)))
    step("pub segments", lambda: store.pub_tensor("p1", full, config(preferred_segments=["a", "b"])))
    step("pub segments equal", lambda: store.pub_tensor("p2", full, config(preferred_segments=["a"])))
    step("pub segment", lambda: store.pub_tensor("p3", full, config(preferred_segment="a", replica_num=2)))
    step("pub same node", lambda: store.pub_tensor("p4", full, config(prefer_alloc_in_same_node=True)))
    step("pub groups", lambda: [store.pub_tensor("p5", full, config(group_ids=["g"])), store.pub_tensor("p6", full, config(group_ids=["g", "h"]))])
    step("pub wrong config", lambda: store.pub_tensor("p7", full, 1))
    step("upsert_pub", lambda: [store.upsert_pub_tensor("up", full, config()), store.upsert_pub_tensor("up", full + 1), store.get_tensor("up")])


def batches(store):
    full = counted(2, 3)
    step("batch put", lambda: [store.batch_put_tensor(["b1", "b2"], [full, counted(4)]), store.batch_get_tensor(["b1", "missing", "b2"])])
    step("batch put existing", lambda: [store.batch_put_tensor(["b1", "b3"], [full + 1, full]), store.get_tensor("b1")])
    step("batch put one bad", lambda: [store.batch_put_tensor(["b4", "b5"], [full, 3]), store.batch_is_exist(["b4", "b5"])])
    step("batch put complex", lambda: [store.batch_put_tensor(["b6", "b7"], [full.to(torch.complex64), full]), store.batch_is_exist(["b6", "b7"])])
    step("batch put lengths", lambda: store.batch_put_tensor(["b8", "b9"], [full]))
    step("batch put none", lambda: store.batch_put_tensor([], []))
    step("batch put tuple", lambda: store.batch_put_tensor(("ba",), (full,)))
    step("batch put repeated", lambda: [store.batch_put_tensor(["bb", "bb"], [full, full + 1]), store.get_tensor("bb")])
    step("batch put empty key", lambda: [store.batch_put_tensor(["", "bc"], [full, full]), store.is_exist("bc")])
    step("batch get none", lambda: store.batch_get_tensor([]))
    step("batch get not a tensor", lambda: store.batch_get_tensor(["raw", "b1"]))
    step("batch upsert", lambda: [store.batch_upsert_tensor(["b1", "bd"], [full + 2, full]), store.get_tensor("b1")])
    step("batch upsert one bad", lambda: store.batch_upsert_tensor(["b1", "be"], [3, full]))
    step("batch pub", lambda: store.batch_pub_tensor(["bf", "bg"], [full, full], config()))
    step("batch pub segments", lambda: store.batch_pub_tensor(["bh", "bi"], [full, full], config(preferred_segments=["a", "b"])))
    step("batch pub groups", lambda: store.batch_pub_tensor(["bj", "bk"], [full, full], config(group_ids=["a", "b"])))
    step("batch pub one group", lambda: store.batch_pub_tensor(["bl", "bm"], [full, full], config(group_ids=["a"])))
    step("batch upsert_pub", lambda: store.batch_upsert_pub_tensor(["b1", "bn"], [full, full], config()))


def addresses(store, area):
    full = counted(2, 3)
    store.put_tensor("seed", full)
    framed = store.get("seed")
    size = len(framed)
    at = area.fill(framed)
    step("from", lambda: [store.put_tensor_from("f", at, size), store.get("f")])
    step("from keywords", lambda: store.put_tensor_from(key="fk", buffer_ptr=at, size=size))
    step("from larger", lambda: store.put_tensor_from("f1", at, size + 1))
    step("from smaller", lambda: store.put_tensor_from("f2", at, size - 1))
    step("from header only", lambda: store.put_tensor_from("f3", at, HEADER))
    step("from short", lambda: store.put_tensor_from("f4", at, 10))
    step("from nothing", lambda: store.put_tensor_from("f5", at, 0))
    step("from null", lambda: store.put_tensor_from("f6", 0, size))
    step("from not a tensor", lambda: store.put_tensor_from("f7", area.fill(b"x" * 400, 4096), 400))
    step("from existing", lambda: [store.put_tensor_from("f", at, size)])
    step("upsert from", lambda: [store.upsert_tensor_from("f", at, size), store.upsert_tensor_from("uf", at, size)])
    step("upsert from smaller", lambda: store.upsert_tensor_from("f", at, size - 1))
    step("batch from", lambda: store.batch_put_tensor_from(["g1", "g2"], [at, at], [size, size]))
    step("batch from one bad", lambda: [store.batch_put_tensor_from(["g3", "g4"], [at, at], [size, 9]), store.is_exist("g3")])
    step("batch from lengths", lambda: store.batch_put_tensor_from(["g5", "g6"], [at], [size]))
    step("batch from none", lambda: store.batch_put_tensor_from([], [], []))
    step("batch upsert from", lambda: store.batch_upsert_tensor_from(["g1", "g7"], [at, at], [size, size]))
    step("into", lambda: [store.get_tensor_into("f", area.base + 8192, 4096), area.memory[8192:8192 + size]])
    step("into exact", lambda: store.get_tensor_into("f", area.base + 8192, size))
    step("into smaller", lambda: store.get_tensor_into("f", area.base + 8192, size - 1))
    step("into missing", lambda: store.get_tensor_into("missing", area.base, 4096))
    step("into not a tensor", lambda: store.get_tensor_into("raw", area.base + 8192, 4096))
    step("into null", lambda: store.get_tensor_into("f", 0, 4096))
    step("into keywords", lambda: store.get_tensor_into(key="f", buffer_ptr=area.base + 8192, size=4096))
    step("into aliases", lambda: aliased(store, area))
    step("into empty", lambda: store.get_tensor_into("e2", area.base + 8192, 4096))
    places = [area.base + 4096 * i for i in (3, 4, 5)]
    step("batch into", lambda: store.batch_get_tensor_into(["f", "missing", "raw"], places, [4096] * 3))
    step("batch into smaller", lambda: store.batch_get_tensor_into(["f", "g1"], places[:2], [10, 4096]))
    step("batch into lengths", lambda: store.batch_get_tensor_into(["f", "g1"], places[:1], [4096]))
    step("batch into none", lambda: store.batch_get_tensor_into([], [], []))
    step("cuda on a host tensor", lambda: store.get_tensor_into_cuda("f", torch.empty(2, 3)))
    step("batch cuda on host tensors", lambda: store.batch_get_tensor_into_cuda(["f", "g1"], [torch.empty(2, 3)] * 2))
    step("cuda missing", lambda: store.get_tensor_into_cuda("missing", torch.empty(2, 3)))
    step("batch cuda lengths", lambda: store.batch_get_tensor_into_cuda(["f", "g1"], [torch.empty(2, 3)]))


def aliased(store, area):
    """Whether a write to the tensor shows in the buffer."""
    tensor = store.get_tensor_into("f", area.base + 8192, 4096)
    tensor.fill_(0)
    return area.memory[8192 + HEADER:8192 + HEADER + 8]


def tp_calls(store, area):
    full = counted(4, 6)
    shards = lambda key, size=2: [store.get(f"{key}_tp_{rank}") for rank in range(size)]  # noqa: E731
    step("tp put", lambda: [store.put_tensor_with_tp("w", full, tp_size=2), shards("w"), store.is_exist("w")])
    step("tp put dim 1", lambda: [store.put_tensor_with_tp("w1", full, 1, 2, 1), shards("w1")])
    step("tp put dim -1", lambda: store.put_tensor_with_tp("wn", full, 0, 2, -1))
    step("tp put dim 2", lambda: store.put_tensor_with_tp("w2", full, 0, 2, 2))
    step("tp put uneven", lambda: [store.put_tensor_with_tp("wu", full, tp_size=3), store.is_exist("wu_tp_0")])
    step("tp put size 1", lambda: [store.put_tensor_with_tp("wo", full, tp_size=1), store.get_tensor("wo")])
    step("tp put size 0", lambda: [store.put_tensor_with_tp("wz", full, tp_size=0), store.get_tensor("wz")])
    step("tp put size -1", lambda: [store.put_tensor_with_tp("wm", full, tp_size=-1), store.get_tensor("wm")])
    step("tp put rank out of range", lambda: store.put_tensor_with_tp("wr", full, tp_rank=9, tp_size=2))
    step("tp put not a tensor", lambda: store.put_tensor_with_tp("wx", 3, tp_size=2))
    step("tp put existing", lambda: [store.put_tensor_with_tp("w", full + 1, tp_size=2), store.get_tensor_with_tp("w", 0, 2)])
    step("tp put empty", lambda: [store.put_tensor_with_tp("we", torch.empty(2, 0, 3), tp_size=2), store.get_tensor_with_tp("we", 1, 2)])
    step("tp put transposed", lambda: [store.put_tensor_with_tp("wt", full.t(), tp_size=2), store.get_tensor_with_tp("wt", 1, 2)])
    step("tp get", lambda: [store.get_tensor_with_tp("w", rank, 2) for rank in range(3)])
    step("tp get size 1", lambda: [store.get_tensor_with_tp("w", 1, 1), store.get_tensor_with_tp("t"), store.get_tensor_with_tp("wo", 0, 0)])
    step("tp get other size", lambda: [store.get_tensor_with_tp("w", 1, 4), store.get_tensor_with_tp("w", 3, 4)])
    step("tp get rank -1", lambda: store.get_tensor_with_tp("w", -1, 2))
    step("tp pub", lambda: [store.pub_tensor_with_tp("wp", full, config(), 0, 2, 1), store.get_tensor_with_tp("wp", 1, 2)])
    step("tp pub groups", lambda: [store.pub_tensor_with_tp(f"wg{n}", full, config(group_ids=["g"] * n), 0, 2) for n in (1, 2)])
    step("tp pub segments", lambda: store.pub_tensor_with_tp("ws", full, config(preferred_segments=["a", "b"]), 0, 2))
    step("tp batch put", lambda: [store.batch_put_tensor_with_tp(["x1", "x2"], [full, full + 1], tp_size=2), store.batch_get_tensor_with_tp(["x1", "x2", "missing"], 1, 2)])
    step("tp batch put one bad", lambda: [store.batch_put_tensor_with_tp(["x3", "x4"], [full, 3], tp_size=2), store.is_exist("x3_tp_0")])
    step("tp batch put uneven", lambda: store.batch_put_tensor_with_tp(["x5", "x6"], [counted(3, 4), full], tp_size=2))
    step("tp batch put lengths", lambda: store.batch_put_tensor_with_tp(["x7", "x8"], [full], tp_size=2))
    step("tp batch put none", lambda: store.batch_put_tensor_with_tp([], [], tp_size=2))
    step("tp batch put size 1", lambda: [store.batch_put_tensor_with_tp(["x9"], [full]), store.get_tensor("x9")])
    step("tp batch pub", lambda: store.batch_pub_tensor_with_tp(["xa", "xb"], [full, full], config(), 0, 2, 1))
    step("tp batch get size 1", lambda: store.batch_get_tensor_with_tp(["x9", "missing"]))
    store.put_tensor("seed4", full)
    framed = store.get("seed4")
    at, size = area.fill(framed), len(framed)
    step("tp from", lambda: [store.put_tensor_with_tp_from("y", at, size, 1, 2, 1), shards("y")])
    step("tp from smaller", lambda: store.put_tensor_with_tp_from("ys", at, size - 1, 0, 2))
    step("tp from uneven", lambda: store.put_tensor_with_tp_from("yu", at, size, 0, 3))
    step("tp from size 1", lambda: [store.put_tensor_with_tp_from("yo", at, size), store.get_tensor("yo")])
    step("tp batch from", lambda: [store.batch_put_tensor_with_tp_from(["y1", "y2"], [at, at], [size, size], tp_size=2), store.get_tensor_with_tp("y2", 1, 2)])
    step("tp batch from lengths", lambda: store.batch_put_tensor_with_tp_from(["y3", "y4"], [at], [size], tp_size=2))
    step("tp batch from one bad", lambda: [store.batch_put_tensor_with_tp_from(["y5", "y6"], [at, at], [size, 5], tp_size=2), store.is_exist("y5_tp_0")])
    step("tp into", lambda: [store.get_tensor_with_tp_into("y", area.base + 8192, 4096, rank, 2, 1) for rank in range(2)][1])
    step("tp into size 1", lambda: store.get_tensor_with_tp_into("seed4", area.base + 8192, 4096))
    step("tp into smaller", lambda: store.get_tensor_with_tp_into("y", area.base + 8192, 300, 0, 2))
    places = [area.base + 4096 * i for i in (3, 4)]
    step("tp batch into", lambda: store.batch_get_tensor_with_tp_into(["y1", "missing"], places, [4096] * 2, 1, 2))
    step("tp batch into lengths", lambda: store.batch_get_tensor_with_tp_into(["y1", "y2"], places[:1], [4096], 1, 2))


def types():
    made = module.ParallelAxis()
    step("axis defaults", lambda: [made.kind, made.rank, made.size, made.split_dim, made.expert_id, made.stage_id])
    step("axis values", lambda: [setattr(made, n, v) or getattr(made, n) for n, v in (("kind", "zz"), ("rank", -1), ("size", 0), ("split_dim", 3), ("expert_id", -5), ("stage_id", None))])
    for name, value in (("kind", 1), ("rank", "x"), ("rank", 1.5), ("rank", 2**31), ("size", None), ("split_dim", "x"), ("expert_id", 2**31), ("nope", 1)):
        step(f"axis {name}={value!r}", lambda: setattr(made, name, value))
    step("axis arguments", lambda: str(type(module.ParallelAxis("tp"))))
    whole = module.TensorParallelism()
    step("axes default", lambda: whole.axes)
    step("axes are copied", lambda: [whole.axes.append(made), len(whole.axes)][1])
    step("axes elements", lambda: axes_alias())
    step("axes wrong", lambda: setattr(whole, "axes", [1]))
    step("axes not a list", lambda: setattr(whole, "axes", 3))
    step("axes tuple", lambda: [setattr(whole, "axes", (made, made)), len(whole.axes)])
    read = module.ReadTarget()
    step("target defaults", lambda: [read.mode, read.parallelism])
    for text in ("SHARD", "Full", "as_stored", "", "asstored", "other"):
        step(f"target mode {text!r}", lambda: [setattr(read, "mode", text), read.mode])
    step("target mode 1", lambda: setattr(read, "mode", 1))
    step("target parallelism", lambda: [setattr(read, "parallelism", whole), type(read.parallelism).__name__, read.parallelism is whole])
    step("target parallelism wrong", lambda: setattr(read, "parallelism", 3))
    step("target parallelism None", lambda: [setattr(read, "parallelism", None), read.parallelism])


def axes_alias():
    """Whether a change of an axis after assignment shows, and of one that was read out."""
    made, one = module.TensorParallelism(), tp(0, 2)
    made.axes = [one]
    one.rank = 1
    seen = made.axes[0].rank
    made.axes[0].rank = 5
    return [seen, made.axes[0].rank]


def parallel_writes(store):
    full = counted(4, 6)
    put = store.put_tensor_with_parallelism
    step("par put plain", lambda: [put("a", full), store.get("a"), store.is_exist("a__parallelism_manifest")])
    step("par put tp", lambda: [put("b", full, parallelism(tp(0, 2))), store.get("b_tp_0"), store.get("b__parallelism_manifest"), store.is_exist("b")])
    step("par put tp dim 1", lambda: [put("b1", full, parallelism(tp(1, 3, 1))), store.get("b1_tp_1"), store.get("b1__parallelism_manifest")])
    step("par put tp dim -1", lambda: put("b2", full, parallelism(tp(0, 2, -1))))
    step("par put tp dim 2", lambda: put("b3", full, parallelism(tp(0, 2, 2))))
    step("par put tp size 1", lambda: [put("b4", full, parallelism(tp(0, 1))), store.batch_is_exist(["b4", "b4_tp_0", "b4__parallelism_manifest"])])
    step("par put tp no dim", lambda: put("b5", full, parallelism(axis("tp", 0, 2))))
    step("par put tp rank", lambda: [put("b6", full, parallelism(tp(rank, 2))) for rank in (2, -1)])
    dp = axis("dp", 1, 2)
    step("par put dp tp", lambda: [put("c", full, parallelism(dp, tp(1, 3, 1))), store.get("c__dp_1of2__tp_1of3_sd1"), store.get("c__parallelism_manifest")])
    step("par put tp dp", lambda: [put("c1", full, parallelism(tp(1, 2, 0), dp)), store.get("c1__dp_1of2__tp_1of2_sd0"), store.get("c1__parallelism_manifest")])
    step("par put dp tp uneven", lambda: put("c2", full, parallelism(dp, tp(0, 3, 0))))
    step("par put dp", lambda: [put("d", full, parallelism(dp)), store.get("d__dp_1of2"), store.is_exist("d__parallelism_manifest")])
    step("par put ep", lambda: [put("d1", full, parallelism(axis("ep", 0, 2, expert_id=11))), store.get("d1__ep_0of2_eid11")])
    step("par put pp", lambda: [put("d2", full, parallelism(axis("pp", 0, 2, stage_id=7))), store.get("d2__pp_0of2_sid7")])
    four = [axis("pp", 0, 2, stage_id=7), axis("ep", 1, 2, expert_id=3), tp(1, 2, 1), dp]
    step("par put four", lambda: [put("d3", full, parallelism(*four)), store.get("d3__dp_1of2__tp_1of2_sd1__ep_1of2_eid3__pp_0of2_sid7"), store.get("d3__parallelism_manifest")])
    step("par put dp with dim", lambda: put("d4", full, parallelism(axis("dp", 0, 2, split_dim=0))))
    step("par put ep no expert", lambda: put("d5", full, parallelism(axis("ep", 0, 2))))
    step("par put pp no stage", lambda: put("d6", full, parallelism(axis("pp", 0, 2))))
    step("par put dp with expert", lambda: put("d7", full, parallelism(axis("dp", 0, 2, expert_id=1))))
    step("par put tp with stage", lambda: put("d8", full, parallelism(axis("tp", 0, 2, split_dim=0, stage_id=1))))
    step("par put twice one kind", lambda: put("d9", full, parallelism(dp, dp)))
    step("par put no axes", lambda: [put("da", full, parallelism()), store.is_exist("da")])
    step("par put bad kind", lambda: put("db", full, parallelism(axis("zz", 0, 2))))
    step("par put upper case", lambda: put("dc", full, parallelism(axis("TP", 0, 2, split_dim=0))))
    step("par put size 0", lambda: put("dd", full, parallelism(tp(0, 0))))
    step("par put not a tensor", lambda: [put("de", 3), put("de", 3, parallelism(tp(0, 2)))])
    step("par put wrong parallelism", lambda: put("df", full, 3))
    step("par put dp size 1", lambda: [put("dg", full, parallelism(axis("dp", 0, 1))), store.batch_is_exist(["dg", "dg__dp_0of1"])])
    step("par put existing", lambda: [put("b", full + 1, parallelism(tp(0, 2))), store.get_tensor("b_tp_0")])
    step("par upsert", lambda: [store.upsert_tensor_with_parallelism("b", full + 1, parallelism(tp(0, 2))), store.get_tensor("b_tp_0")])
    step("par config", lambda: put("dh", full, parallelism(tp(0, 2)), config(group_ids=["g"])))
    step("par config segments", lambda: put("di", full, None, config(preferred_segments=["x", "y"])))
    step("writer put", lambda: [put("e", full, writer_partition=Partition(1, 2, 0)), store.get("e__writer_1of2_sd0"), store.get("e__writer_manifest")])
    step("writer put dim 1", lambda: [put("ew", full, writer_partition=Partition(0, 3, 1)), store.get("ew__writer_0of3_sd1"), store.get("ew__writer_manifest")])
    step("writer put uneven", lambda: put("ex", full, writer_partition=Partition(0, 3, 0)))
    step("writer put size 1", lambda: [put("ey", full, writer_partition=Partition(0, 1, 0)), store.batch_is_exist(["ey", "ey__writer_0of1_sd0"])])
    step("writer put bad", lambda: [put("ez", full, writer_partition=p) for p in (Partition(2, 2, 0), Partition(-1, 2, 0), Partition(0, 0, 0), Partition(0, 2, 2), Partition(0, 2, -1))])
    step("writer put None dim", lambda: put("eA", full, writer_partition=Partition(0, 2, None)))
    step("writer put wrong", lambda: put("eB", full, writer_partition=3))
    step("writer and parallelism", lambda: put("eC", full, parallelism(tp(0, 2)), writer_partition=Partition(0, 2, 0)))
    batch = store.batch_put_tensor_with_parallelism
    step("par batch put", lambda: [batch(["h1", "h2"], [full, full], [parallelism(tp(0, 2)), None]), store.batch_is_exist(["h1_tp_0", "h2"])])
    step("par batch put plain", lambda: batch(["h3", "h4"], [full, full]))
    step("par batch put lengths", lambda: [batch(["h5", "h6"], [full]), batch(["h5", "h6"], [full, full], [None]), batch(["h5", "h6"], [full, full], writer_partitions=[None])])
    step("par batch put none", lambda: batch([], []))
    step("par batch put one bad", lambda: [batch(["h7", "h8"], [full, 3], [parallelism(tp(0, 2))] * 2), store.is_exist("h7_tp_0")])
    step("par batch put wrong", lambda: batch(["h9"], [full], 3))
    step("par batch put both", lambda: batch(["ha", "hb"], [full, full], [parallelism(tp(0, 2))] * 2, writer_partitions=[Partition(0, 2, 0)] * 2))
    step("par batch writers", lambda: batch(["hc", "hd"], [full, full], writer_partitions=[Partition(0, 2, 0), Partition(1, 3, 1)]))
    step("par batch upsert", lambda: store.batch_upsert_tensor_with_parallelism(["h1", "he"], [full + 1, full], [parallelism(tp(0, 2)), None]))


def parallel_from(store, area):
    full = counted(4, 6)
    store.put_tensor("seed4", full)
    framed = store.get("seed4")
    at, size = area.fill(framed), len(framed)
    put = store.put_tensor_with_parallelism_from
    step("par from plain", lambda: [put("i", at, size), store.get("i")])
    step("par from tp", lambda: [put("i1", at, size, parallelism(tp(1, 2, 1))), store.get("i1_tp_0"), store.get("i1_tp_1"), store.is_exist("i1__parallelism_manifest")])
    step("par from dp tp", lambda: [put("i2", at, size, parallelism(axis("dp", 0, 2), tp(1, 2, 1))), store.get("i2__dp_0of2__tp_0of2_sd1"), store.get("i2__dp_0of2__tp_1of2_sd1"), store.is_exist("i2__parallelism_manifest")])
    step("par from dp", lambda: [put("i3", at, size, parallelism(axis("dp", 0, 2))), store.get("i3__dp_0of2")])
    step("par from uneven", lambda: put("i4", at, size, parallelism(tp(0, 3, 0))))
    step("par from smaller", lambda: put("i5", at, size - 1, parallelism(tp(0, 2, 0))))
    step("par from writer", lambda: [put("i6", at, size, writer_partition=Partition(0, 2, 0)), store.get("i6__writer_0of2_sd0"), store.get("i6__writer_manifest")])
    step("par from tp dim 2", lambda: put("i7", at, size, parallelism(tp(0, 2, 2))))
    step("par upsert from", lambda: store.upsert_tensor_with_parallelism_from("i1", at, size, parallelism(tp(1, 2, 1))))
    batch = store.batch_put_tensor_with_parallelism_from
    step("par batch from", lambda: [batch(["j1", "j2"], [at, at], [size, size], [parallelism(tp(0, 2)), None]), store.batch_is_exist(["j1_tp_1", "j2"])])
    step("par batch from lengths", lambda: batch(["j3", "j4"], [at], [size]))
    step("par batch upsert from", lambda: store.batch_upsert_tensor_with_parallelism_from(["j1", "j2"], [at, at], [size, size], [parallelism(tp(0, 2)), None]))


def parallel_reads(store, area):
    full = counted(4, 6)
    get = store.get_tensor_with_parallelism
    for rank in range(2):
        store.put_tensor_with_parallelism("k", full[2 * rank:2 * rank + 2], parallelism(tp(rank, 2)))
        store.put_tensor_with_parallelism("kw", full, writer_partition=Partition(rank, 2, 0))
        store.put_tensor_with_parallelism("km", full, parallelism(axis("dp", 0, 2), tp(rank, 2, 1)))
    store.put_tensor_with_tp("kl", full, 0, 2, 0)
    dp = axis("dp", 0, 2)
    step("read plain", lambda: [get("a"), get("a", None), get("a", target("as_stored")), get("missing")])
    step("read as stored with parallelism", lambda: get("a", target("as_stored", tp(0, 2))))
    step("read as stored sharded", lambda: get("k"))
    step("read full plain", lambda: get("a", target("full")))
    step("read full of writers", lambda: get("kw", target("full")))
    step("read full of shards, no axes", lambda: get("k", target("full")))
    step("read full of shards", lambda: get("k", target("full", tp(0, 2))))
    step("read full of shards, other size", lambda: get("k", target("full", tp(0, 4))))
    step("read full of shards, other dim", lambda: get("k", target("full", tp(0, 2, 1))))
    step("read full of plain with axes", lambda: get("a", target("full", tp(0, 2))))
    step("read full of older shards", lambda: get("kl", target("full", tp(0, 2))))
    step("read full of older shards, other size", lambda: get("kl", target("full", tp(0, 4))))
    step("read full of several axes", lambda: [get("km", target("full", dp, tp(0, 2, 1))), get("km", target("full", tp(1, 2, 1), dp))])
    step("read full of several axes, other rank", lambda: get("km", target("full", axis("dp", 1, 2), tp(0, 2, 1))))
    step("read full dp", lambda: get("d", target("full", axis("dp", 1, 2))))
    step("read shard", lambda: [get("k", target("shard", tp(rank, 2))) for rank in range(2)])
    step("read shard of four", lambda: [get("k", target("shard", tp(rank, 4))) for rank in range(4)])
    step("read shard of one", lambda: get("k", target("shard", tp(0, 1))))
    step("read shard of other dim", lambda: [get("k", target("shard", tp(rank, 2, 1))) for rank in range(2)])
    step("read shard uneven", lambda: get("k", target("shard", tp(0, 3))))
    step("read shard of writers", lambda: [get("kw", target("shard", tp(rank, 2))) for rank in range(2)])
    step("read shard of writers, four", lambda: get("kw", target("shard", tp(1, 4))))
    step("read shard of older", lambda: [get("kl", target("shard", tp(1, 2))), get("kl", target("shard", tp(1, 4)))])
    step("read shard of several axes", lambda: get("km", target("shard", dp, tp(1, 2, 1))))
    step("read shard of several axes, four", lambda: get("km", target("shard", dp, tp(1, 3, 1))))
    step("read shard dp", lambda: [get("d", target("shard", axis("dp", 1, 2))), get("d", target("shard", axis("dp", 0, 2)))])
    step("read shard no axes", lambda: get("a", target("shard")))
    step("read shard bad axes", lambda: get("k", target("shard", axis("tp", 0, 2))))
    step("read wrong target", lambda: get("k", 3))
    batch = store.batch_get_tensor_with_parallelism
    step("read batch", lambda: batch(["a", "k", "missing"], [None, target("shard", tp(1, 2)), None]))
    step("read batch plain", lambda: batch(["a", "missing"]))
    step("read batch lengths", lambda: batch(["a", "k"], [None]))
    step("read batch none", lambda: batch([]))
    into = store.get_tensor_with_parallelism_into
    place = area.base + 16384
    step("into plain", lambda: into("a", place, 4096))
    step("into full", lambda: into("k", place, 4096, target("full", tp(0, 2))))
    step("into full bytes", lambda: area.memory[16384:16384 + HEADER + 96])
    step("into full of writers", lambda: into("kw", place, 4096, target("full")))
    step("into full of writers bytes", lambda: area.memory[16384:16384 + HEADER + 96])
    step("into shard", lambda: into("k", place, 4096, target("shard", tp(1, 2))))
    step("into shard of four", lambda: into("k", place, 4096, target("shard", tp(1, 4))))
    step("into shard of four bytes", lambda: area.memory[16384:16384 + HEADER + 24])
    step("into shard of other dim", lambda: into("k", place, 4096, target("shard", tp(1, 2, 1))))
    step("into full exact", lambda: into("k", place, HEADER + 96, target("full", tp(0, 2))))
    step("into full smaller", lambda: into("k", place, HEADER + 95, target("full", tp(0, 2))))
    step("into batch", lambda: store.batch_get_tensor_with_parallelism_into(["a", "missing"], [place, place + 4096], [4096] * 2))
    step("into batch lengths", lambda: store.batch_get_tensor_with_parallelism_into(["a", "k"], [place], [4096]))
    step("into batch targets", lambda: store.batch_get_tensor_with_parallelism_into(["a", "k"], [place, place + 4096], [4096] * 2, [None]))


def helpers():
    full = counted(2, 3)
    step("metadata size", module._tensor_metadata_size)
    step("serialize", lambda: serialized(full))
    step("serialize transposed", lambda: serialized(full.t()))
    step("serialize complex", lambda: serialized(full.to(torch.complex64)))
    step("serialize other", lambda: serialized(3))
    head = lambda tensor: module._serialize_tensor(tensor)[0]  # noqa: E731
    body = bytes(full.view(-1).view(torch.uint8).tolist())
    step("deserialize", lambda: module._deserialize_tensor(head(full) + body))
    step("deserialize memoryview", lambda: module._deserialize_tensor(memoryview(head(full) + body)))
    step("deserialize short", lambda: module._deserialize_tensor(b"x"))
    step("deserialize longer", lambda: module._deserialize_tensor(head(full) + body + b"x"))
    step("deserialize owns", lambda: deserialized_owns(head(full), body))


def deserialized_owns(head, body):
    """Whether the tensor keeps its bytes when the buffer changes."""
    buffer = bytearray(head + body)
    tensor = module._deserialize_tensor(buffer)
    buffer[HEADER:] = bytes(len(body))
    return tensor


def serialized(tensor):
    head, address, size, owner = module._serialize_tensor(tensor)
    return [bytes(head), address != 0, size, bytes((ctypes.c_char * size).from_address(address)), type(owner).__name__, type(head).__name__]


def safetensors(store):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "a.safetensors")
    full = counted(2, 3)
    step("save", lambda: [store.put_tensor("sv", full), store.save_tensor_to_safetensor("sv", path), os.path.getsize(path)])
    step("save missing", lambda: store.save_tensor_to_safetensor("missing", path))
    step("save to nowhere", lambda: store.save_tensor_to_safetensor("sv", folder + "/no/such/place"))
    step("save not a tensor", lambda: store.save_tensor_to_safetensor("raw", path))
    step("save keywords", lambda: store.save_tensor_to_safetensor(key="sv", file_name=path))
    step("load", lambda: store.load_tensor_from_safetensor("sv", path))
    step("load other key", lambda: [store.load_tensor_from_safetensor("sv2", path), store.get_tensor("sv2")])
    step("load keywords", lambda: store.load_tensor_from_safetensor(key="sv3", file_name=path))
    step("load file name only", lambda: [store.load_tensor_from_safetensor(file_name=path), store.get_tensor(path)])
    step("load one argument", lambda: store.load_tensor_from_safetensor(path))
    step("load no file", lambda: store.load_tensor_from_safetensor("sv4", folder + "/none"))
    step("load no arguments", lambda: store.load_tensor_from_safetensor())


def engram(store):
    if not hasattr(module, "EngramStoreConfig"):
        return
    import numpy

    settings = module.EngramStoreConfig()
    step("engram config", lambda: [settings.table_vocab_sizes, settings.embedding_dim])
    settings.table_vocab_sizes, settings.embedding_dim = [3, 5], 4
    bare = module.EngramStore(7, settings)
    step("engram names", lambda: [bare.get_table_vocab_sizes(), bare.get_store_keys(), bare.get_num_heads(), bare.get_embedding_dim()])
    tables = [numpy.arange(n * 4, dtype=numpy.float32).reshape(n, 4) + 100 * n for n in (3, 5)]
    step("engram no store", lambda: bare.populate(tables))
    step("engram no store lookup", lambda: bare.lookup([[[0, 0]]]))
    step("engram no store remove", lambda: bare.remove_from_store())
    made = module.EngramStore(layer_id=7, config=settings, store=store)
    step("engram lookup missing", lambda: made.lookup([[[0, 0]]]))
    step("engram populate shape", lambda: made.populate([tables[0][:-1], tables[1]]))
    step("engram populate count", lambda: made.populate(tables[:1]))
    step("engram populate float64", lambda: made.populate([t.astype(numpy.float64) for t in tables]))
    made.remove_from_store(True)
    step("engram populate", lambda: [made.populate(tables), store.get("engram:l7:h0")])
    step("engram populate again", lambda: made.populate(tables))
    found = lambda ids: [str(made.lookup(ids).dtype), list(made.lookup(ids).shape), made.lookup(ids).tobytes()]  # noqa: E731
    step("engram lookup", lambda: found([[[0, 4], [2, 1]], [[1, 1], [0, 0]]]))
    step("engram lookup numpy", lambda: found(numpy.array([[[0, 4], [2, 1]]], dtype=numpy.int64)))
    step("engram lookup int32", lambda: found(numpy.array([[[0, 4], [2, 1]]], dtype=numpy.int32)))
    for name, ids in {"out of range": [[[3, 0]]], "negative": [[[-1, 0]]], "heads": [[[0]]], "empty": [], "flat": [0, 1], "ragged": [[[0, 0], [1]]], "text": "x"}.items():
        step(f"engram lookup {name}", lambda: found(ids))
    step("engram remove leased", lambda: made.remove_from_store())
    step("engram remove", lambda: made.remove_from_store(force=True))
    step("engram remove again", lambda: made.remove_from_store(True))
    for sizes, dim in (([], 4), ([0], 4), ([3], 0)):
        def broken(sizes=sizes, dim=dim):
            one = module.EngramStoreConfig()
            one.table_vocab_sizes, one.embedding_dim = sizes, dim
            return module.EngramStore(1, one).get_num_heads()

        step(f"engram config {sizes} {dim}", broken)


def not_set_up():
    store = module.MooncakeDistributedStore()
    full = counted(2)
    step("bare put", lambda: store.put_tensor("t", full))
    step("bare get", lambda: store.get_tensor("t"))
    step("bare batch put", lambda: store.batch_put_tensor(["t", "u"], [full, full]))
    step("bare batch get", lambda: store.batch_get_tensor(["t", "u"]))


def main():
    """Everything, on one store where a store is needed."""
    parts = sys.argv[2:]
    helpers()
    if hasattr(module, "ParallelAxis"):
        types()
    store = module.MooncakeDistributedStore()
    step("setup", lambda: store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", MASTER))
    area = Area(store)
    dtypes(store)
    plain_calls(store)
    batches(store)
    addresses(store, area)
    tp_calls(store, area)
    if hasattr(store, "put_tensor_with_parallelism"):
        parallel_writes(store)
        parallel_from(store, area)
        parallel_reads(store, area)
    safetensors(store)
    engram(store)
    if "bare" in parts:
        not_set_up()
    sys.stdout.write("\n=====\n" + json.dumps(out))
    sys.stdout.flush()
    os._exit(0)


main()
