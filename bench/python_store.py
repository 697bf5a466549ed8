"""What the zero-copy calls of `mooncake.store` reach from Python, under either package; prints one JSON object.

    python bench/python_store.py --master 127.0.0.1:50051 [--seconds 2] [--server-pid PID] [--figure NAME]

The pool is the caller's: its nodes are other processes of this host with room for `working_set_bytes`. The limit, one
memcpy, is measured in the same run: from a second mapping of a memfd to the registered buffer, both as large as the
working set, which is at least four times the last-level cache. Times are seconds of wall clock; `cpu_s_per_gb` is the
CPU time of this process (all threads) for one GB (10^9 bytes) moved, `all_cpu_s_per_gb` that of the servers named by
`--server-pid` too.
"""

import argparse
import ctypes
import json
import mmap
import os
import statistics
import sys
import time
from pathlib import Path

import mooncake.store

KIB, MIB = 1 << 10, 1 << 20
SMALL, LARGE = 4 * KIB, MIB
BATCH, BATCH_ITEM = 32, 64 * KIB
LEAST_SET, MOST_SET = 256 * MIB, 1024 * MIB


def last_level_cache():
    """Bytes of the largest cache of the first CPU; 0 when the machine does not say."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = entry.read_text().strip()
        sizes.append(int(text[:-1]) * {"K": KIB, "M": MIB}[text[-1]])
    return max(sizes, default=0)


def mapping(descriptor, size):
    """A shared mapping and its address."""
    area = mmap.mmap(descriptor, size)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


#: Process numbers of the servers whose CPU time is told as well.
SERVERS = []


def server_cpu():
    """CPU seconds of the servers so far, all threads, from the scheduler's own account."""
    total = 0
    for pid in SERVERS:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def measure(call, item_bytes, seconds, prepare=None):
    """Calls `call(i)` for i = 0, 1, … for about `seconds`; `prepare(i)` goes before each and is not counted."""
    times, cpu, index = [], 0.0, 0
    servers_before = server_cpu()
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or index < 10:
        if prepare:
            prepare(index)
        cpu_before, before = time.process_time(), time.perf_counter()
        call(index)
        times.append(time.perf_counter() - before)
        cpu += time.process_time() - cpu_before
        index += 1
    moved = index * item_bytes
    servers = server_cpu() - servers_before
    return {
        "calls": index,
        "bytes_per_call": item_bytes,
        "gb_per_s": moved / sum(times) / 1e9,
        "cpu_s_per_gb": cpu / (moved / 1e9),
        "all_cpu_s_per_gb": (cpu + servers) / (moved / 1e9),
        "p50_us": statistics.median(times) * 1e6,
        "p99_us": sorted(times)[int(len(times) * 0.99)] * 1e6,
    }


class Bench:
    """A store that is set up, and a registered buffer as large as the working set."""

    def __init__(self, master, seconds, working_set):
        self.seconds, self.working_set = seconds, working_set
        self.store = mooncake.store.MooncakeDistributedStore()
        # The peer keeps its scratch buffer in this process; the zero-copy calls do not use it.
        self.check(self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 * MIB, "tcp", "", master), "setup")
        self.area, self.base = mapping(-1, working_set)
        ctypes.memset(self.base, 1, working_set)
        self.check(self.store.register_buffer(self.base, working_set), "register_buffer")

    def check(self, answer, what, expected=0):
        """Stops at the first answer that is not the expected one: a figure of failed calls is worth nothing."""
        if answer != expected:
            sys.exit(f"{what} answered {answer}, expected {expected}")

    def place(self, index, size):
        """An address that walks through the working set."""
        return self.base + index * size % self.working_set

    def memcpy(self):
        """One copy of 1 MiB from a second mapping of a memfd, the limit of everything else."""
        descriptor = os.memfd_create("bench")
        os.ftruncate(descriptor, self.working_set)
        first, address = mapping(descriptor, self.working_set)
        ctypes.memset(address, 2, self.working_set)
        second, source = mapping(descriptor, self.working_set)
        ctypes.memmove(self.base, source, self.working_set)
        copy = lambda i: ctypes.memmove(self.place(i, LARGE), source + i * LARGE % self.working_set, LARGE)  # noqa: E731
        answer = measure(copy, LARGE, self.seconds)
        del first, second
        os.close(descriptor)
        return answer

    def put(self, size):
        """`put_from` of new keys; what was written is removed when it fills half of the working set."""
        prefix, count = f"put{size}", max(1, self.working_set // 2 // size)

        def make_room(index):
            if index % count == 0:
                self.store.remove_by_regex(f"^{prefix}/", True)

        def put(index):
            self.check(self.store.put_from(f"{prefix}/{index}", self.place(index, size), size), "put_from")

        answer = measure(put, size, self.seconds, make_room)
        self.store.remove_by_regex(f"^{prefix}/", True)
        return answer

    def fill(self, prefix, size):
        """Objects that fill the working set (at most 16,384 of them)."""
        keys = [f"{prefix}/{i}" for i in range(min(self.working_set // size, 16384))]
        for start in range(0, len(keys), 256):
            part = keys[start : start + 256]
            places = [self.place(start + i, size) for i in range(len(part))]
            self.check(self.store.batch_put_from(part, places, [size] * len(part)), "fill", [0] * len(part))
        return keys

    def get(self, size):
        """`get_into`, key after key through the working set."""
        keys = self.fill(f"get{size}", size)
        read = lambda i: self.check(self.store.get_into(keys[i % len(keys)], self.place(i, size), size), "get_into", size)  # noqa: E731
        answer = measure(read, size, self.seconds)
        self.store.remove_by_regex(f"^get{size}/", True)
        return answer

    def batch_get(self):
        """`batch_get_into` of 32 objects of 64 KiB."""
        keys = self.fill("batch", BATCH_ITEM)
        sizes = [BATCH_ITEM] * BATCH

        def read(index):
            start = index * BATCH % (len(keys) - BATCH + 1)
            places = [self.place(start + i, BATCH_ITEM) for i in range(BATCH)]
            self.check(self.store.batch_get_into(keys[start : start + BATCH], places, sizes), "batch_get_into", sizes)

        answer = measure(read, BATCH * BATCH_ITEM, self.seconds)
        self.store.remove_by_regex("^batch/", True)
        return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", required=True, help="host:port of the pool's master")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")
    parser.add_argument("--working-set", type=int, help="bytes; default four times the last-level cache")
    parser.add_argument("--server-pid", type=int, action="append", default=[], help="may be repeated")
    parser.add_argument("--figure", action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    SERVERS.extend(options.server_pid)
    cache = last_level_cache()
    working_set = options.working_set or min(max(4 * cache, LEAST_SET), MOST_SET)
    working_set -= working_set % MIB
    bench = Bench(options.master, options.seconds, working_set)
    all_figures = {
        "memcpy_1MiB": bench.memcpy,
        "put_from_1MiB": lambda: bench.put(LARGE),
        "get_into_1MiB": lambda: bench.get(LARGE),
        "put_from_4KiB": lambda: bench.put(SMALL),
        "get_into_4KiB": lambda: bench.get(SMALL),
        "batch_get_into_32x64KiB": bench.batch_get,
    }
    figures = {name: run() for name, run in all_figures.items() if name in (options.figure or all_figures)}
    bench.store.close()
    print(json.dumps({
        "package": mooncake.store.__file__,
        "last_level_cache_bytes": cache,
        "working_set_bytes": working_set,
        "working_set_is_four_caches": working_set >= 4 * cache > 0,
        "figures": figures,
    }))


if __name__ == "__main__":
    main()
