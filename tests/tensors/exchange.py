"""`exchange.py MASTER write|read PREFIX`: stores tensors in every form, or reads them all and compares.

One package writes, the other reads. What is compared does not come from the store.
"""

import ctypes
import os
import sys
import zlib

import numpy
import torch
from forms import Partition, axis, parallelism, target

import mooncake.store as module

MASTER, WHAT, PREFIX = sys.argv[1:]
DTYPES = "float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool float16 bfloat16 float8_e4m3fn float8_e5m2"
AREA = 4 << 20


def tensors():
    """Key to tensor."""
    generator = torch.Generator().manual_seed(7)
    for name in DTYPES.split():
        raw = torch.randint(0, 2 if name == "bool" else 120, (8, 12), generator=generator, dtype=torch.uint8)
        yield name, raw.to(getattr(torch, name))
    yield "empty", torch.empty(2, 0, 3)
    yield "eight", torch.arange(48, dtype=torch.int16).reshape(1, 2, 1, 3, 1, 2, 1, 4)
    yield "large", torch.rand(1000, 1000, generator=generator)
    yield "transposed", torch.arange(30, dtype=torch.int32).reshape(5, 6).t()


def cut(tensor, dim, count):
    return [piece.contiguous() for piece in tensor.chunk(count, dim)]


CUBE = torch.arange(8 * 12 * 6, dtype=torch.int32).reshape(8, 12, 6)
CUTS = [(0, 2), (0, 4), (1, 3), (2, 2)]


def engram(store):
    """A layer and its tables, which do not come from the store."""
    settings = module.EngramStoreConfig()
    settings.table_vocab_sizes, settings.embedding_dim = [50, 7, 300], 8
    tables = [torch.arange(rows * 8, dtype=torch.float32).reshape(rows, 8).numpy() + 0.5 for rows in (50, 7, 300)]
    layer = zlib.crc32(PREFIX.encode()) & 0x7FFFFFFF
    return module.EngramStore(layer, settings, store), tables


def same(found, expected):
    assert found is not None
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    flat = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (found, expected) if tensor.numel()]
    assert not flat or torch.equal(*flat)


def write(store, area):
    for key, tensor in tensors():
        assert store.put_tensor(f"{PREFIX}-{key}", tensor) == 0, key
    for dim, count in CUTS:
        name = f"{PREFIX}-{dim}-{count}"
        assert store.put_tensor_with_tp(f"{name}-tp", CUBE, tp_size=count, split_dim=dim) == 0
        for rank, piece in enumerate(cut(CUBE, dim, count)):
            assert store.put_tensor_with_parallelism(f"{name}-par", piece, parallelism(axis("tp", rank, count, split_dim=dim))) == 0
            axes = [axis("dp", 1, 2), axis("tp", rank, count, split_dim=dim), axis("pp", 0, 2, stage_id=3)]
            assert store.put_tensor_with_parallelism(f"{name}-axes", CUBE, parallelism(*axes)) == 0
            assert store.put_tensor_with_parallelism(f"{name}-writer", CUBE, writer_partition=Partition(rank, count, dim)) == 0
    expert = parallelism(axis("ep", 1, 4, expert_id=9))
    assert store.put_tensor_with_parallelism(f"{PREFIX}-expert", CUBE, expert) == 0
    head, address, size, owner = module._serialize_tensor(CUBE)
    ctypes.memmove(area, head, len(head))
    ctypes.memmove(area + len(head), address, size)
    assert store.put_tensor_from(f"{PREFIX}-from", area, len(head) + size) == 0
    assert store.put_tensor_with_tp_from(f"{PREFIX}-tp-from", area, len(head) + size, 0, 3, 1) == 0
    assert store.put_tensor_with_parallelism_from(f"{PREFIX}-par-from", area, len(head) + size, parallelism(axis("tp", 0, 2, split_dim=2))) == 0

    layer, tables = engram(store)
    layer.populate(tables)


def read(store, area):
    for key, tensor in tensors():
        same(store.get_tensor(f"{PREFIX}-{key}"), tensor)
        same(store.get_tensor_into(f"{PREFIX}-{key}", area, AREA), tensor)
    for dim, count in CUTS:
        name = f"{PREFIX}-{dim}-{count}"
        for rank, piece in enumerate(cut(CUBE, dim, count)):
            aim = axis("tp", rank, count, split_dim=dim)
            many = [axis("dp", 1, 2), aim, axis("pp", 0, 2, stage_id=3)]
            same(store.get_tensor_with_tp(f"{name}-tp", rank, count), piece)
            same(store.get_tensor_with_parallelism(f"{name}-par", target("shard", aim)), piece)
            same(store.get_tensor_with_parallelism(f"{name}-axes", target("shard", *many)), piece)
            same(store.get_tensor_with_parallelism(f"{name}-writer", target("shard", aim)), piece)
            same(store.get_tensor_with_parallelism_into(f"{name}-par", area, AREA, target("shard", aim)), piece)
        same(store.get_tensor_with_parallelism(f"{name}-par", target("full", aim)), CUBE)
        same(store.get_tensor_with_parallelism(f"{name}-axes", target("full", *many)), CUBE)
        same(store.get_tensor_with_parallelism(f"{name}-writer", target("full")), CUBE)
        same(store.get_tensor_with_parallelism_into(f"{name}-par", area, AREA, target("full", aim)), CUBE)
        same(store.get_tensor_with_parallelism_into(f"{name}-writer", area, AREA, target("full")), CUBE)
        for rank, piece in enumerate(cut(CUBE, dim, 2 * count if CUBE.shape[dim] % (2 * count) == 0 else 1)):
            size = CUBE.shape[dim] // piece.shape[dim]
            aim = axis("tp", rank, size, split_dim=dim)
            same(store.get_tensor_with_parallelism(f"{name}-par", target("shard", aim)), piece)
    expert = axis("ep", 1, 4, expert_id=9)
    same(store.get_tensor_with_parallelism(f"{PREFIX}-expert", target("shard", expert)), CUBE)
    same(store.get_tensor(f"{PREFIX}-from"), CUBE)
    for rank, piece in enumerate(cut(CUBE, 1, 3)):
        same(store.get_tensor_with_tp(f"{PREFIX}-tp-from", rank, 3), piece)
    for rank, piece in enumerate(cut(CUBE, 2, 2)):
        aim = target("shard", axis("tp", rank, 2, split_dim=2))
        same(store.get_tensor_with_parallelism(f"{PREFIX}-par-from", aim), piece)

    layer, tables = engram(store)
    ids = torch.randint(0, 7, (3, 40, 3), generator=torch.Generator().manual_seed(3)).numpy()
    found = layer.lookup(ids)
    assert found.shape == (3, 40, 3, 8)
    for place in numpy.ndindex(ids.shape):
        assert (found[place] == tables[place[2]][ids[place]]).all(), place


def main():
    """Writes or reads, and ends the process without what the peer does at its end."""
    store = module.MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", MASTER) == 0
    memory = ctypes.create_string_buffer(AREA)
    area = ctypes.addressof(memory)
    assert store.register_buffer(area, AREA) == 0
    {"write": write, "read": read}[WHAT](store, area)
    print("done", flush=True)
    os._exit(0)


main()
