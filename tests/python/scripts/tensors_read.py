"""Reading tensors: into new memory, into the caller's, and put together from pieces that were cut another way."""

import ctypes
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import stand_in_torch as fake  # noqa: E402

import mooncake.store as module  # noqa: E402

HEADER = 304
store = module.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
assert store.remove_all(True) >= 0, "the names of other scripts"
assert store.put_tensor("whole", fake.counted(4, 6)) == 0
try:
    import numpy  # noqa: F401
except ImportError:
    assert store.get_tensor("whole") is None
    assert "torch" in store.last_error()
fake.install()


def parallelism(*axes):
    made = module.TensorParallelism()
    made.axes = [axis(*each) for each in axes]
    return made


def axis(kind, rank, size, split_dim=None):
    made = module.ParallelAxis()
    made.kind, made.rank, made.size, made.split_dim = kind, rank, size, split_dim
    return made


def target(mode, *axes):
    made = module.ReadTarget()
    made.mode = mode
    made.parallelism = parallelism(*axes) if axes else None
    return made


class Partition:
    def __init__(self, rank, size, split_dim):
        self.rank, self.size, self.split_dim = rank, size, split_dim


def told(tensor):
    return None if tensor is None else tensor.told()


# New memory.
for name in fake.SIZES:
    if name != "complex64":
        tensor = fake.counted(2, 3, kind=name)
        assert store.put_tensor(f"type-{name}", tensor) == 0
        assert told(store.get_tensor(f"type-{name}")) == tensor.told(), store.last_error()
for place, shape in enumerate([(), (0,), (2, 0, 3), (1,) * 8, (1000, 70)]):
    assert store.put_tensor(f"shape-{place}", fake.counted(*shape)) == 0
    assert told(store.get_tensor(f"shape-{place}")) == fake.counted(*shape).told()
whole = fake.counted(4, 6)
assert store.put("raw", b"x" * 400) == 0 and store.put("short", b"x") == 0
assert [store.get_tensor(key) for key in ("missing", "raw", "short", "")] == [None] * 4
found = store.batch_get_tensor(["whole", "missing", "raw", "shape-2", "type-int8"])
assert [told(one) for one in found] == [
    whole.told(), None, None, fake.counted(2, 0, 3).told(), fake.counted(2, 3, kind="int8").told()]
assert store.batch_get_tensor([]) == []

# A header that says something else than the object holds.
stored = store.get("whole")
for at, size, value in ((0, 4, 1), (4, 2, 2), (6, 2, 300), (8, 4, 99), (12, 4, 9), (12, 4, 1), (12, 4, 3), (16, 4, 5),
                        (24, 8, 305), (32, 8, 95), (104, 8, 5), (104, 8, 2**64 - 4), (168, 4, 5), (168, 4, 1)):
    broken = bytearray(stored)
    broken[at:at + size] = value.to_bytes(size, "little")
    key = f"broken-{at}-{value}"
    assert store.put(key, bytes(broken)) == 0
    assert store.get_tensor(key) is None, key
assert store.put("longer", stored + b"x") == 0 and store.get_tensor("longer") is None

# The caller's memory.
area = ctypes.create_string_buffer(1 << 16)
place = ctypes.addressof(area)
found = store.get_tensor_into("whole", place, len(stored))
assert found.told() == whole.told() and area.raw[:len(stored)] == stored
assert found.data_ptr() == place + HEADER, "it is the caller's memory"
found = None
assert [store.get_tensor_into("whole", place, len(stored) - 1), store.get_tensor_into("whole", 0, 4096)] == [None, None]
assert [store.get_tensor_into(key, place, 4096) for key in ("missing", "raw")] == [None, None]
found = store.batch_get_tensor_into(["whole", "missing"], [place, place + 4096], [4096] * 2)
assert [told(one) for one in found] == [whole.told(), None]
assert store.batch_get_tensor_into(["whole", "missing"], [place], [4096]) == [-600, -600]
device = fake.OtherDeviceTensor(bytearray(96), whole.dtype, whole.shape)
assert store.get_tensor_into_cuda("whole", device) == 96 and bytes(device.buffer) == bytes(whole.buffer)
assert store.get_tensor_into_cuda("missing", device) == -704
assert store.get_tensor_into_cuda("type-int8", device) == -600, "another shape"
assert store.get_tensor_into_cuda("whole", whole) == -600, "a tensor on the host"
assert store.batch_get_tensor_into_cuda(["whole", "missing"], [device, device]) == [96, -704]

# One dimension.
assert store.put_tensor_with_tp("cut", whole, tp_size=2, split_dim=1) == 0
assert [told(store.get_tensor_with_tp("cut", rank, 2)) for rank in (0, 1, 2)] == [
    fake.cut(whole, 1, 0, 2).told(), fake.cut(whole, 1, 1, 2).told(), None]
assert told(store.get_tensor_with_tp("whole")) == whole.told()
assert told(store.get_tensor_with_tp_into("cut", place, 4096, 1, 2)) == fake.cut(whole, 1, 1, 2).told()
assert [told(one) for one in store.batch_get_tensor_with_tp(["cut", "missing"], 1, 2)] == [fake.cut(whole, 1, 1, 2).told(), None]

# Put together: every way of cutting, read every way.
cube = fake.counted(4, 6, 8, kind="int16")
get, into = store.get_tensor_with_parallelism, store.get_tensor_with_parallelism_into
for dim, count in ((0, 2), (0, 4), (1, 2), (1, 3), (2, 4), (2, 8)):
    for key, mode in ((f"tp-{dim}-{count}", ()), (f"dp-{dim}-{count}", (("dp", 1, 2),))):
        for rank in range(count):
            piece = cube if mode else fake.cut(cube, dim, rank, count)
            assert store.put_tensor_with_parallelism(key, piece, parallelism(*mode, ("tp", rank, count, dim))) == 0
        wanted = [("full", *mode, ("tp", 0, count, dim))]
        wanted += [("shard", *mode, ("tp", rank, size, side)) for side, size in ((0, 1), (0, 2), (1, 3), (2, 8)) for rank in range(size)]
        for aim in wanted:
            expected = cube if aim[0] == "full" else fake.cut(cube, aim[-1][3], aim[-1][1], aim[-1][2])
            assert told(get(key, target(*aim))) == expected.told(), (key, aim)
            assert told(into(key, place, HEADER + expected.buffer.nbytes, target(*aim))) == expected.told(), (key, aim)
            assert into(key, place, HEADER + expected.buffer.nbytes - 1, target(*aim)) is None
        assert get(key, target("shard", *mode, ("tp", 0, 5, 0))) is None, "no equal pieces"
        assert get(key, target("shard", *mode, ("tp", 0, 2, 3))) is None, "no such dimension"
assert told(get("tp-1-2", target("full", ("tp", 0, 4, 0)))) == cube.told(), "the manifest knows how it was cut"
for rank in range(3):
    part = Partition(rank, 3, 1)
    assert get("writers", target("full")) is None, "not all writers are there"
    assert store.put_tensor_with_parallelism("writers", cube, writer_partition=part) == 0
assert told(get("writers", target("full"))) == cube.told()
assert told(into("writers", place, 4096, target("full"))) == cube.told()
assert [told(get("writers", target("shard", ("tp", rank, 3, 1)))) for rank in range(3)] == [
    fake.cut(cube, 1, rank, 3).told() for rank in range(3)]
assert told(get("writers", target("shard", ("tp", 1, 2, 2)))) == fake.cut(cube, 2, 1, 2).told()
assert store.put_tensor_with_tp("older", cube, tp_size=2, split_dim=1) == 0
assert told(get("older", target("full", ("tp", 0, 6, 1)))) == cube.told(), "pieces without a manifest say what they are"
assert told(get("older", target("shard", ("tp", 4, 6, 1)))) == fake.cut(cube, 1, 4, 6).told()
thin = fake.counted(3000, 4, kind="uint8")
assert store.put_tensor_with_tp("thin", thin, tp_size=2, split_dim=1) == 0
assert told(get("thin", target("full", ("tp", 0, 2, 1)))) == thin.told(), "more runs than parts of a transfer"
assert told(get("thin", target("shard", ("tp", 3, 4, 1)))) == fake.cut(thin, 1, 3, 4).told()

# A piece that was cut another way is not handed out for one of the same name; nor is half a tensor for a whole one.
assert store.put_tensor_with_parallelism("mixed", fake.counted(2, 6), parallelism(("tp", 0, 2, 0))) == 0
assert get("mixed", target("full", ("tp", 0, 2, 0))) is None, "one piece is missing"
assert store.put_tensor_with_parallelism("mixed", fake.counted(2, 6), parallelism(("tp", 1, 4, 0))) == 0
assert get("mixed", target("full", ("tp", 0, 2, 0))) is None, "the second piece is one of four"
assert get("mixed", target("shard", ("tp", 1, 2, 0))) is None
assert store.put_tensor_with_tp("square", fake.counted(4, 4), tp_size=2, split_dim=0) == 0
assert told(get("square", target("shard", ("tp", 1, 2, 1)))) == fake.cut(fake.counted(4, 4), 1, 1, 2).told()

# Targets.
assert told(get("whole")) == told(get("whole", target("as_stored"))) == told(get("whole", target("full"))) == whole.told()
assert [get("whole", target("as_stored", ("tp", 0, 2, 0))), get("whole", target("shard")), get("whole", 3)] == [None] * 3
assert [get("whole", target("shard", ("tp", 0, 2))), get("missing"), get("missing", target("full"))] == [None] * 3
found = store.batch_get_tensor_with_parallelism(["whole", "tp-0-2", "missing"], [None, target("shard", ("tp", 1, 2, 0)), None])
assert [told(one) for one in found] == [whole.told(), fake.cut(cube, 0, 1, 2).told(), None]
assert store.batch_get_tensor_with_parallelism(["whole", "cut"], [None]) == [None, None]
assert store.batch_get_tensor_with_parallelism([]) == []
found = store.batch_get_tensor_with_parallelism_into(["whole", "missing"], [place, place + 4096], [4096] * 2)
assert [told(one) for one in found] == [whole.told(), None]
assert store.batch_get_tensor_with_parallelism_into(["whole", "cut"], [place], [4096]) == [None, None]

# The helpers.
head, address, size, owner = module._serialize_tensor(whole)
assert (head, size, module._tensor_metadata_size()) == (stored[:HEADER], 96, 304)
assert ctypes.string_at(address, size) == bytes(whole.buffer)
for form in (bytes, bytearray, memoryview):
    assert module._deserialize_tensor(form(stored)).told() == whole.told()
buffer = bytearray(stored)
kept = module._deserialize_tensor(buffer)
buffer[HEADER:] = bytes(96)
assert kept.told() == whole.told(), "it has memory of its own"
for wrong in (lambda: module._serialize_tensor(3), lambda: module._deserialize_tensor(b"x"),
              lambda: module._deserialize_tensor(stored + b"x")):
    try:
        raise AssertionError(wrong())
    except ValueError:
        pass


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# Tensors that are put together leave nothing behind.
large = fake.counted(1024, 1024, kind="uint8")
assert store.put_tensor_with_tp("large", large, tp_size=2, split_dim=1) == 0
for turn in range(60):
    assert store.get_tensor_with_parallelism("large", target("full", ("tp", 0, 2, 1))).shape == (1024, 1024)
    gc.collect()
    if turn == 20:
        before = resident()
assert resident() - before < 16 << 20, "40 reads of 1 MiB"
