"""Shared segments: names go with their owners, both forms of handle work, and tensors lie where every rank looks for them.

torch is not needed: a stand-in with the few functions that are used takes its place.
"""

import ctypes
import os
import sys
import threading
import types

from mooncake.engine import SharedSegment


def names():
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"mcss_{os.getpid()}_")}


segment, blob = SharedSegment.create("solo", 5000, 1, 0)
assert len(names()) == 1 and len(blob) == 160
segment.complete([blob])
ctypes.memset(segment.base_addr(), 0x5A, 5000)
del segment
assert not names()
os.environ["YB_SHARED_SEGMENT_FORM"] = "memfd"
segment, blob = SharedSegment.create("solo", 5000, 1, 0)
assert not names() and b"/proc/" in blob and int.from_bytes(blob[24:32], "little") == 2 << 20
segment.complete([blob])
del os.environ["YB_SHARED_SEGMENT_FORM"]
kept = SharedSegment.create("gone at exit", 4096, 1, 0)
for arguments in (("a", 1 << 45, 1, 0), ("a", (1 << 64) - 1, 1, 0), ("a", 1, 1 << 31, 0)):
    try:
        SharedSegment.create(*arguments)
        assert arguments[2] > 1
    except RuntimeError:
        pass
assert kept[0].ready() is False


class Dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __str__(self):
        return f"torch.{self.name}"


class Tensor:
    def __init__(self, memory, dtype):
        self.memory, self.dtype = memory, dtype

    def view(self, shape):
        self.shape = shape
        return self

    def element_size(self):
        return self.dtype.size

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def tolist(self):
        return list(bytes(self.memory))


torch = types.ModuleType("torch")
torch.uint8, torch.float32 = Dtype("uint8", 1), Dtype("float32", 4)
torch.empty = lambda count, dtype: Tensor(bytearray(count * dtype.size), dtype)
torch.empty_like = lambda tensor: Tensor(bytearray(len(tensor.memory)), tensor.dtype)
torch.frombuffer = lambda memory, dtype: Tensor(memory, dtype)


class Group:
    """What the ranks, threads here, exchange."""

    def __init__(self, size):
        self.barrier, self.given = threading.Barrier(size), [None] * size

    def exchange(self, mine):
        rank = ranks[threading.get_ident()]
        self.given[rank] = mine
        self.barrier.wait(10)
        seen = list(self.given)
        self.barrier.wait(10)
        return seen


def all_gather(tensors, mine, group):
    for tensor, other in zip(tensors, group.exchange(mine), strict=True):
        tensor.memory[:] = other.memory


def all_gather_object(objects, mine, group):
    objects[:] = group.exchange(mine)


distributed = types.ModuleType("torch.distributed")
distributed.all_gather, distributed.all_gather_object = all_gather, all_gather_object
torch.distributed = distributed
sys.modules.update({"torch": torch, "torch.distributed": distributed})

from mooncake.shared_segment import SharedSegmentError, create_shared_segment, shared_segment_supported  # noqa: E402

BLOCKS = {"v": {"count": 3, "shape": (10, 7), "dtype": torch.float32}, "k": {"count": 2, "shape": (5000,), "dtype": torch.uint8}}
ranks, made, failures = {}, {}, []
assert shared_segment_supported() and not shared_segment_supported(mmap=False)
alone = create_shared_segment("alone", BLOCKS, 1, 0)
stride = 8192 + 4096
assert alone.total_size() == 3 * stride
for block, offset, count in (("k", 0, 2), ("v", 8192, 3)):
    tensors = alone.tensors(block)
    assert [tensor.data_ptr() - alone.base_addr() for tensor in tensors] == [offset + i * stride for i in range(count)]
    assert all(tensor.shape == tuple(BLOCKS[block]["shape"]) for tensor in tensors)
kept_alive = alone.tensors("k")[0]
del alone, tensors
ctypes.memset(kept_alive.data_ptr(), 1, 5000)
for wrong in ({}, {"x": {"count": 0, "shape": (1,), "dtype": torch.uint8}}, {"x": {"count": 1, "dtype": torch.uint8}}):
    try:
        create_shared_segment("wrong", wrong, 1, 0)
        raise AssertionError(wrong)
    except SharedSegmentError:
        pass


def rank(number, group, blocks):
    ranks[threading.get_ident()] = number
    try:
        made[number] = create_shared_segment("pair", blocks, 2, number, comm_group=group)
    except SharedSegmentError as error:
        failures.append(str(error))


def together(second):
    group = Group(2)
    threads = [threading.Thread(target=rank, args=(0, group, BLOCKS)), threading.Thread(target=rank, args=(1, group, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


together(BLOCKS)
assert not failures and set(made) == {0, 1}
first, second = made[0].tensors("v")[2], made[1].tensors("v")[2]
ctypes.memmove(first.data_ptr(), b"shared", 6)
assert bytes(second.memory)[:6] == b"shared" and first.data_ptr() != second.data_ptr()
together({**BLOCKS, "k": {"count": 2, "shape": (5001,), "dtype": torch.uint8}})
assert len(failures) == 2 and all("rank 0" in text and "rank 1" in text and "declaration" in text for text in failures), failures
