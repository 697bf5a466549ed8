"""Managed buffers grow in steps, are given back, and copies outside of registered memory raise."""

import ctypes
import mmap
import random
import resource

from mooncake.engine import TransferEngine

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
first = engine.allocate_managed_buffer(1)
assert first > 0
with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
    locked = sum(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
assert locked < 200 << 10, "a byte does not cost 2 GiB"
assert engine.free_managed_buffer(first, 2) == -1, "another size"
assert engine.free_managed_buffer(first + 1, 1) == -1, "another address"
assert engine.free_managed_buffer(first, 1) == 0
assert engine.free_managed_buffer(first, 1) == -1, "twice"
large = engine.allocate_managed_buffer(300 << 20)
assert large > 0 and engine.write_bytes_to_buffer(large + (300 << 20) - 4, b"last", 4) == 0
assert engine.read_bytes_from_buffer(large + (300 << 20) - 4, 4) == b"last"
assert engine.free_managed_buffer(large, 300 << 20) == 0
assert engine.allocate_managed_buffer(1 << 62) == 0 and engine.allocate_managed_buffer((1 << 64) - 1) == 0
assert engine.allocate_managed_buffer(1) > 0

rng = random.Random(5)
taken = {}
for turn in range(2000):
    if taken and rng.random() < 0.5:
        place = rng.choice(list(taken))
        size, mark = taken.pop(place)
        assert engine.read_bytes_from_buffer(place, min(size, 16)) == mark[:size], "another buffer wrote here"
        assert engine.free_managed_buffer(place, size) == 0
    else:
        size = rng.choice((1, 100, 5000, 1 << 16, 1 << 20))
        place, mark = engine.allocate_managed_buffer(size), turn.to_bytes(16, "little")
        assert place > 0 and all(place + size <= at or at + other <= place for at, (other, _) in taken.items())
        assert engine.write_bytes_to_buffer(place, mark, min(size, 16)) == 0
        taken[place] = (size, mark)

own = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(own))
for place, length in ((0, 1), (1, 1), (at, 1), ((1 << 64) - 1, 1), (at, 1 << 60)):
    for call in (lambda: engine.read_bytes_from_buffer(place, length), lambda: engine.write_bytes_to_buffer(place, b"x" * 10, 1)):
        try:
            call()
            raise AssertionError((place, length))
        except (ValueError, MemoryError):
            pass
try:
    engine.write_bytes_to_buffer(at, b"abc", 4)
    raise AssertionError("more bytes than the data have")
except ValueError:
    pass
assert engine.register_memory(at, 4096) == 0
assert engine.write_bytes_to_buffer(at, b"abc", 3) == 0 and own[:3] == b"abc"
assert engine.read_bytes_from_buffer(at + 1, 2) == b"bc"
