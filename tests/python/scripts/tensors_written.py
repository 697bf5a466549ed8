"""What the tensor calls store, byte for byte, without torch: header, elements, names, manifests, settings per key."""

import ctypes
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import stand_in_torch as fake  # noqa: E402

import mooncake.store as module  # noqa: E402

HEADER = 304
store = module.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
assert store.remove_all(True) >= 0, "the names of other scripts"
NUMBERS = {name: number for number, name in enumerate(
    "float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool float16 bfloat16 float8_e4m3fn float8_e5m2".split()
)}


def header(tensor, whole=None, axes=()):
    """The header, written down from the description of the format and not with the package's own code."""
    pad = lambda shape: [*shape, *[-1] * (8 - len(shape))]  # noqa: E731
    head = struct.pack(
        "<IHHiiIIQQ8q8qII", 0x4D4F4F4E, 1, 304, NUMBERS[tensor.dtype.name], len(tensor.shape), 1 if axes else 0, 0, 304,
        tensor.buffer.nbytes, *pad(whole or tensor.shape), *pad(tensor.shape), len(axes), 0,
    )
    body = b"".join(struct.pack("<6iq", kind, place, *rest) for place, (kind, *rest) in enumerate(axes))
    return (head + body).ljust(304, b"\0")


def manifest(tensor, split_dim, count, shape):
    return struct.pack(
        "<IHHiiiii4x8q", 0x574D414E, 1, 96, NUMBERS[tensor.dtype.name], len(shape), split_dim, count, 0,
        *shape, *[-1] * (8 - len(shape)),
    )


def config(**fields):
    made = module.ReplicateConfig()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def parallelism(*axes):
    made = module.TensorParallelism()
    made.axes = [axis(*each) for each in axes]
    return made


def axis(kind, rank, size, split_dim=None, expert_id=None, stage_id=None):
    made = module.ParallelAxis()
    made.kind, made.rank, made.size = kind, rank, size
    made.split_dim, made.expert_id, made.stage_id = split_dim, expert_id, stage_id
    return made


class Partition:
    def __init__(self, rank, size, split_dim):
        self.rank, self.size, self.split_dim = rank, size, split_dim


def is_stored(key, tensor, whole=None, axes=()):
    found = store.get(key)
    assert found[:HEADER] == header(tensor, whole, axes), (key, found[:HEADER].hex())
    assert found[HEADER:] == bytes(tensor.buffer), key


# Whole tensors.
for name in NUMBERS:
    tensor = fake.counted(2, 3, kind=name)
    assert store.put_tensor(f"type-{name}", tensor) == 0
    is_stored(f"type-{name}", tensor)
for place, shape in enumerate([(), (0,), (2, 0, 3), (1,) * 8]):
    assert store.put_tensor(f"shape-{place}", fake.counted(*shape)) == 0
    is_stored(f"shape-{place}", fake.counted(*shape))
refused = [fake.counted(2, kind="complex64"), fake.counted(*[1] * 9), 3, None, b"x" * 400, [1.0]]
assert [store.put_tensor("refused", one) for one in refused] == [-600] * 6
assert "NoneType" in (store.put_tensor("refused", None), store.last_error())[1]
assert store.is_exist("refused") == 0

tensor, other = fake.counted(4, 6), fake.counted(4, 6, kind="int32")
assert store.put_tensor("kept", tensor) == 0 and store.put_tensor("kept", other) == 0
is_stored("kept", tensor)
assert store.upsert_tensor("kept", other) == 0
is_stored("kept", other)
assert store.put_tensor(b"bytes", tensor) == 0
is_stored("bytes", tensor)
device = fake.OtherDeviceTensor(bytearray(tensor.buffer), tensor.dtype, tensor.shape)
assert store.put_tensor("device", device) == 0
is_stored("device", tensor)
assert store.batch_put_tensor(["a", "b", "c"], [tensor, 3, other]) == [0, -600, 0]
is_stored("a", tensor)
is_stored("c", other)
assert store.batch_put_tensor(["a", "b"], [tensor]) == [-600, -600]
assert store.batch_put_tensor([], []) == []
assert store.batch_upsert_tensor(["a", "d"], [other, tensor]) == [0, 0]
is_stored("a", other)
assert store.put_tensor("", tensor) == -600
for wrong in (lambda: store.put_tensor(1, tensor), lambda: store.put_tensor("k", tensor, config()),
              lambda: store.batch_put_tensor(["k"], (tensor,)), lambda: store.pub_tensor("k", tensor, 1),
              lambda: store.put_tensor_with_tp("k", tensor, 0.5, 2), lambda: store.put_tensor_with_tp("k", tensor, 2**31, 2),
              lambda: store.put_tensor_from("k", -1, 400)):
    try:
        raise AssertionError(wrong())
    except TypeError:
        pass

# Configs.
assert store.pub_tensor("pub", tensor, config(preferred_segments=["nowhere:1"])) == 0
assert store.pub_tensor("pub-2", tensor, config(preferred_segments=["a", "b"])) == -600
assert store.pub_tensor("pub-3", tensor, config(replica_num=0)) == -600
assert store.batch_pub_tensor(["g1", "g2"], [tensor, tensor], config(group_ids=["x", "y"])) == [0, 0]
assert store.batch_pub_tensor(["g3", "g4"], [tensor, tensor], config(group_ids=["x"])) == [-600, -600]
assert store.batch_pub_tensor(["g5", "g6"], [3, tensor], config(group_ids=["x", "y"])) == [-600, 0]
assert store.pub_tensor_with_tp("g7", tensor, config(group_ids=["x", "y"]), 0, 2) == 0
assert store.pub_tensor_with_tp("g8", tensor, config(group_ids=["x"]), 0, 2) == -600
assert store.batch_pub_tensor_with_tp(["g9", "ga"], [tensor, tensor], config(group_ids=["x", "y"]), 0, 2) == [0, 0]
grouped = config(group_ids=["x"])
assert store.put_tensor_with_parallelism("gb", tensor, parallelism(("tp", 0, 2, 0)), grouped) == 0
assert grouped.group_ids == ["x"], "the caller's config is not touched"

# Tensors cut along a dimension.
for dim, count in ((0, 2), (1, 2), (1, 3), (0, 4)):
    key = f"cut-{dim}-{count}"
    assert store.put_tensor_with_tp(key, tensor, tp_size=count, split_dim=dim) == 0
    for rank in range(count):
        piece = fake.cut(tensor, dim, rank, count)
        is_stored(f"{key}_tp_{rank}", piece, tensor.shape, [(1, rank, count, dim, 0, piece.shape[dim])])
    assert store.is_exist(key) == 0
assert [store.put_tensor_with_tp("uneven", tensor, 0, 3), store.put_tensor_with_tp("no dim", tensor, 0, 2, 2)] == [-600] * 2
assert [store.put_tensor_with_tp("no dim", tensor, 0, 2, -1), store.put_tensor_with_tp("no", 3, 0, 2)] == [-600] * 2
assert store.put_tensor_with_tp("one", tensor, 0, 1) == 0
is_stored("one", tensor)
assert store.batch_put_tensor_with_tp(["bad", "good"], [fake.counted(3, 4), tensor], tp_size=2) == [-600, 0]
assert store.batch_put_tensor_with_tp(["bad", "good-2"], [3, tensor], tp_size=2) == [-600, -600]
assert store.is_exist("good-2_tp_0") == 0
# More runs of memory than are worth a part of a transfer each.
thin = fake.counted(5000, 4, kind="uint8")
assert store.put_tensor_with_tp("thin", thin, tp_size=2, split_dim=1) == 0
is_stored("thin_tp_1", fake.cut(thin, 1, 1, 2), thin.shape, [(1, 1, 2, 1, 0, 2)])

# Header and elements in the caller's memory.
framed = store.get("cut-1-2_tp_1")
area = ctypes.create_string_buffer(framed + b"behind", len(framed) + 6)
place = ctypes.addressof(area)
assert store.put_tensor_from("from", place, len(framed)) == 0
assert store.get("from") == framed
assert [store.put_tensor_from("no", place, size) for size in (len(framed) + 1, len(framed) - 1, HEADER, 10, 0)] == [-600] * 5
assert store.put_tensor_from("no", 0, len(framed)) == -600
assert store.batch_put_tensor_from(["f1", "no"], [place, place], [len(framed), 9]) == [-600, -600]
assert store.is_exist("f1") == 0, "nothing of a batch in which something is no tensor"
assert store.batch_put_tensor_from(["f1", "f2"], [place, place], [len(framed)] * 2) == [0, 0]
assert store.batch_put_tensor_from(["f3", "f4"], [place], [len(framed)]) == [-600, -600]
assert store.register_buffer(place, len(framed) - 1) == 0
assert store.put_tensor_from("no", place, len(framed)) == -600, "over the end of registered memory"
assert store.unregister_buffer(place) == 0
whole = ctypes.create_string_buffer(store.get("one"), len(store.get("one")))
place, size = ctypes.addressof(whole), len(whole)
assert store.put_tensor_with_tp_from("cut-from", place, size, 1, 2, 1) == 0
for rank in range(2):
    assert store.get(f"cut-from_tp_{rank}") == store.get(f"cut-1-2_tp_{rank}")
assert store.batch_put_tensor_with_tp_from(["cf1", "cf2"], [place, place], [size, 5], tp_size=2) == [0, -600]

# Parallelism.
put = store.put_tensor_with_parallelism
assert put("plain", tensor) == 0
is_stored("plain", tensor)
assert put("rank", tensor, parallelism(("tp", 1, 3, 1))) == 0
is_stored("rank_tp_1", tensor, (4, 18), [(1, 1, 3, 1, 0, 6)])
assert store.get("rank__parallelism_manifest") == manifest(tensor, 1, 3, (4, 18))
assert put("axes", tensor, parallelism(("pp", 0, 2, None, None, 7), ("tp", 1, 2, 1), ("dp", 1, 2))) == 0
is_stored("axes__dp_1of2__tp_1of2_sd1__pp_0of2_sid7", fake.cut(tensor, 1, 1, 2), (4, 6),
          [(3, 0, 2, -1, 7, 0), (1, 1, 2, 1, 0, 3), (0, 1, 2, -1, 0, 0)])
assert store.get("axes__parallelism_manifest") == manifest(tensor, 1, 2, (4, 6))
assert put("expert", tensor, parallelism(("ep", 0, 2, None, 11))) == 0
is_stored("expert__ep_0of2_eid11", tensor, (4, 6), [(2, 0, 2, -1, 11, 0)])
assert store.is_exist("expert__parallelism_manifest") == 0
assert put("writer", tensor, writer_partition=Partition(1, 3, 1)) == 0
is_stored("writer__writer_1of3_sd1", fake.cut(tensor, 1, 1, 3), (4, 6), [(1, 1, 3, 1, 0, 2)])
assert store.get("writer__writer_manifest") == manifest(tensor, 1, 3, (4, 6))
bad_axes = [
    [], [("tp", 0, 2)], [("tp", 2, 2, 0)], [("tp", -1, 2, 0)], [("tp", 0, 0, 0)], [("tp", 0, 2, 2)], [("tp", 0, 2, -1)],
    [("dp", 0, 2, 0)], [("ep", 0, 2)], [("pp", 0, 2)], [("dp", 0, 2), ("dp", 1, 2)], [("zz", 0, 2)], [("dp", 0, 2), ("tp", 0, 3, 0)],
]
assert [put("bad-axes", tensor, parallelism(*axes)) for axes in bad_axes] == [-600] * len(bad_axes)
bad_parts = [Partition(2, 2, 0), Partition(-1, 2, 0), Partition(0, 0, 0), Partition(0, 2, 2), Partition(0, 3, 0), Partition(0, 2, None), 3]
assert [put("bad-part", tensor, writer_partition=part) for part in bad_parts] == [-600] * len(bad_parts)
assert put("both", tensor, parallelism(("tp", 0, 2, 0)), writer_partition=Partition(0, 2, 0)) == -600
assert put("both", 3, parallelism(("tp", 0, 2, 0))) == -600
batch = store.batch_put_tensor_with_parallelism
assert batch(["p1", "p2"], [tensor, tensor], [parallelism(("tp", 0, 2, 0)), None]) == [0, 0]
assert store.batch_is_exist(["p1_tp_0", "p2", "p1"]) == [1, 1, 0]
assert batch(["p3", "p4"], [tensor, tensor], [None]) == [-600, -600]
assert store.put_tensor_with_parallelism_from("pf", place, size, parallelism(("dp", 0, 2), ("tp", 1, 2, 1))) == 0
for rank in range(2):
    is_stored(f"pf__dp_0of2__tp_{rank}of2_sd1", fake.cut(tensor, 1, rank, 2), (4, 6),
              [(0, 0, 2, -1, 0, 0), (1, rank, 2, 1, 0, 3)])
assert store.get("pf__parallelism_manifest") == manifest(tensor, 1, 2, (4, 6))

# A manifest follows the pieces that were stored last; pieces that were there already leave it as it is.
for rank in range(2):
    assert put("again", tensor, parallelism(("tp", rank, 2, 0))) == 0
assert put("again", fake.counted(1, 6), parallelism(("tp", 1, 8, 0))) == 0
assert store.get("again__parallelism_manifest") == manifest(tensor, 0, 2, (8, 6))
for rank in range(2):
    assert store.remove(f"again_tp_{rank}", True) == 0
assert put("again", fake.counted(1, 6), parallelism(("tp", 1, 8, 0))) == 0
assert store.get("again__parallelism_manifest") == manifest(tensor, 0, 8, (8, 6))
assert "torch" not in sys.modules, "writing a tensor needs no torch"
assert "numpy" not in sys.modules
