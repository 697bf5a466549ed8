"""Names and sizes at their edges: every round trip is right, or refused by a code that says why, before a byte moves.

The objects lie in memory of this process, or with YB_ELSEWHERE=1 in that of the pool's node: over TCP with YB_SHM=0."""

import ctypes
import hashlib
import mmap
import os
import sys
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

MIB = 1 << 20
#: Bytes of the largest object; the cases of 2 and 4 GiB are for machines with memory to spare (YB_LARGEST=4294967297),
#: as are batches of 100,000 keys for programs that are optimised (YB_MANY=100000).
LARGEST = int(os.environ.get("YB_LARGEST", 80 * MIB + 1))
#: What is lent here; the pool of the test has little beside it.
SEGMENT = -(-max(LARGEST, 128 * MIB) // MIB) * MIB + 64 * MIB
#: Whether this process lends nothing: the node of the pool then needs room for two of the largest.
ELSEWHERE = os.environ.get("YB_ELSEWHERE") == "1"
os.environ["YB_ALLOW_EMPTY"] = "1"
# Not of this test: how fast a busy machine is.
os.environ["MC_RPC_TIMEOUT_MS"] = "20000"

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0 if ELSEWHERE else SEGMENT, 64 * MIB, "tcp", "", sys.argv[1]) == 0
here = ReplicateConfig()
if not ELSEWHERE:
    here.preferred_segments = [store.get_hostname()]
area = mmap.mmap(-1, 2 * LARGEST + 2 * mmap.PAGESIZE)
base = ctypes.addressof(ctypes.c_char.from_buffer(area))
target = base + LARGEST + mmap.PAGESIZE
assert store.register_buffer(base, len(area)) == 0
block = hashlib.sha256(b"edges").digest() * (MIB // 32)
for at in range(0, LARGEST, MIB):
    part = min(MIB, LARGEST - at)
    area[at:at + part] = block[:part]
    # No two mebibytes are alike.
    if part >= 8:
        area[at:at + 8] = at.to_bytes(8, "little")
view = memoryview(area)


def equal(first, second, size):
    """Compares two places in the area without a copy of them."""
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return libc.memcmp(first, second, size) == 0


def when_there_is_room(store_it):
    """Tries until it finds room: the space of objects that were read a short time ago comes back after a while."""
    deadline = time.monotonic() + 30
    while (answer := store_it()) == -200 and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


def stored(key, size):
    """Stores the area's first bytes."""
    answer = when_there_is_room(lambda: store.put_from(key, base, size, here))
    if ELSEWHERE and answer == 0:
        place = store.get_replica_desc(key)[0].get_memory_descriptor().buffer_descriptor
        assert place.transport_endpoint != store.get_hostname()
    return answer


sizes = [0, 1, 7, 4095, 4096, 65537, MIB + 1, 64 * MIB - 1, 80 * MIB + 1, (2 << 30) - 1, (2 << 30) + 1, (4 << 30) + 1]
for size in [size for size in sizes if size <= LARGEST]:
    assert stored("size", size) == 0, (size, store.last_error())
    assert (store.get_size("size"), store.is_exist("size")) == (size, 1), size
    ctypes.memset(target, 0xEE, size + 1)
    assert store.get_into("size", target, size) == size, (size, store.last_error())
    assert equal(base, target, size) and area[LARGEST + mmap.PAGESIZE + size] == 0xEE, size
    ctypes.memset(target, 0, size)
    halves = [size // 2, size - size // 2]
    assert store.batch_get_into_multi_buffers(["size"], [[target, target + halves[0]]], [halves]) == [size]
    assert equal(base, target, size), size
    if size:
        # Both ends, and across the middle.
        wanted = [0, size - min(size, 100), max(0, size // 2 - 50)]
        lens = [min(100, size), min(100, size), min(100, size - wanted[2])]
        read = store.get_into_ranges([target], [["size"]], [[[0, 100, 200]]], [[wanted]], [[lens]])
        assert read == [[lens]], (size, read)
        assert all(equal(base + at, target + 100 * i, n) for i, (at, n) in enumerate(zip(wanted, lens))), size
        past = store.get_into_ranges([target], [["size"]], [[[0]]], [[[size]]], [[[1]]])
        assert past == [[[-600]]] and "object of" in store.last_error()
    if size <= 128 * MIB:
        assert store.get("size") == view[:size] and bytes(store.get_buffer("size")) == view[:size], size
        replaced = when_there_is_room(lambda size=size: store.upsert("size", view[:size], here))
        assert replaced == 0, store.last_error()
    assert store.remove("size", True) == 0 and store.is_exist("size") == 0 and store.get("size") == b""

assert stored("pool", LARGEST) == 0
large = ReplicateConfig()
assert store.put("too large for the pool", mmap.mmap(-1, SEGMENT + 800 * MIB), large) == -200, "no room has a code of its own"
assert store.get_into("pool", target, LARGEST - 1) == -600 and str(LARGEST) in store.last_error()
assert store.get_into("missing", target, LARGEST) == -704
assert store.remove("pool", True) == 0

keys = ["k", "n" * 4096, "n" * 65536, "nul\0inside", "nul", "a/b/../c", "with space", "schlüssel 鍵 🔑", "--help", "-", "%s%n", "'; --"]
values = [f"value {i}".encode() for i in range(len(keys))]
assert store.put_batch(keys, values) == 0
found = [(store.get(key), store.last_error()) for key in keys]
assert [value for value, _ in found] == values, [(key[:20], got, why) for key, (got, why), value in zip(keys, found, values) if got != value]
assert store.get_batch(keys) == values
assert store.batch_is_exist(keys) == [1] * len(keys)
assert store.get("nul\0other") == b"" and store.is_exist("nul\0other") == 0
assert store.batch_remove(keys, True) == [0] * len(keys)
assert store.put("", b"v") == -600 and "key is empty" in store.last_error()
assert (store.get(""), store.is_exist(""), store.get_size(""), store.remove("")) == (b"", 0, -704, -704)

many = [f"many/{i}" for i in range(int(os.environ.get("YB_MANY", 20_000)))]
addresses = [base + 8 * (i % 1000) for i in range(len(many))]
assert store.batch_put_from(many, addresses, [8] * len(many)) == [0] * len(many)
assert store.batch_is_exist([*many, "missing"]) == [1] * len(many) + [0]
assert store.batch_get_into(many[:1000], [target + 8 * i for i in range(1000)], [8] * 1000) == [8] * 1000
assert equal(base, target, 8000)
assert store.remove_by_regex("^many/", True) == len(many)
assert (store.put_batch([], []), store.get_batch([]), store.batch_put_from([], [], [])) == (0, [], [])
view.release()
