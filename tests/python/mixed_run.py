"""A long mixed run of one process: threads, asyncio, forks and garbage collection over one store.

    mixed_run.py HOST:PORT OPERATIONS

Prints one JSON object: operations done, seconds, memory of the process in KiB in the middle and at the end, the share of
ticks that another thread got during long calls. Ends with 1 when a value was not what was put, a call answered what it
must not, or a forked child did not do its part.
"""

import asyncio
import ctypes
import gc
import json
import os
import random
import signal
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

KEYS = 400
SIZES = [100, 4096, 20_000, 65_536]
THREADS = 4
#: What a call may answer beside success: gone, being written, just read, lease over.
RACES = {-704, -703, -706, -707, -705}


class Failure(Exception):
    """Something that must not happen."""


def size_of(index):
    return SIZES[index % len(SIZES)]


def value_of(index, turn):
    """The bytes of one writing of one key: a reader can tell a mixture of two."""
    unit = index.to_bytes(4, "little") + turn.to_bytes(4, "little")
    return (unit * (size_of(index) // 8 + 1))[: size_of(index)]


def judge(index, data):
    """Raises when `data` is neither nothing nor one whole writing of the key."""
    if data in (b"", None):
        return
    turn = int.from_bytes(bytes(data[4:8]), "little")
    if bytes(data) != value_of(index, turn):
        raise Failure(f"key {index} holds what nobody wrote")


def settled(code, what):
    """Raises unless `code` is success or one of the races that are legal here."""
    if code < 0 and code not in RACES:
        raise Failure(f"{what} answered {code}")


class Work:
    """One thread's operations."""

    def __init__(self, store, seed, operations):
        self.store, self.random, self.operations = store, random.Random(seed), operations
        self.memory = ctypes.create_string_buffer(8 * 65_536)
        self.address = ctypes.addressof(self.memory)
        self.done, self.error = 0, None
        if store.register_buffer(self.address, len(self.memory)) != 0:
            raise Failure("register_buffer")
        self.kinds = [self.put, self.get, self.get_into, self.put_from, self.batch, self.buffer, self.replace,
                      self.exists]

    def run(self):
        try:
            while self.done < self.operations:
                self.random.choice(self.kinds)(self.random.randrange(KEYS))
                self.done += 1
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error

    def put(self, index):
        settled(self.store.put(f"mixed-{index}", value_of(index, self.done)), "put")

    def get(self, index):
        judge(index, self.store.get(f"mixed-{index}"))

    def get_into(self, index):
        got = self.store.get_into(f"mixed-{index}", self.address, 65_536)
        settled(got, "get_into")
        if got > 0:
            judge(index, self.memory.raw[:got])

    def put_from(self, index):
        data = value_of(index, self.done)
        ctypes.memmove(self.address, data, len(data))
        settled(self.store.put_from(f"mixed-{index}", self.address, len(data)), "put_from")

    def batch(self, index):
        some = [(index + i) % KEYS for i in range(8)]
        places = [self.address + i * 65_536 for i in range(8)]
        for i, got in zip(some, self.store.batch_get_into([f"mixed-{i}" for i in some], places, [65_536] * 8)):
            settled(got, "batch_get_into")
            if got > 0:
                at = some.index(i) * 65_536
                judge(i, self.memory.raw[at : at + got])

    def buffer(self, index):
        held = self.store.get_buffer(f"mixed-{index}")
        if held is not None:
            judge(index, memoryview(held).tobytes())

    def replace(self, index):
        settled(self.store.remove(f"mixed-{index}"), "remove")
        self.put(index)

    def exists(self, index):
        if not set(self.store.batch_is_exist([f"mixed-{index}", f"mixed-{(index + 1) % KEYS}"])) <= {0, 1}:
            raise Failure("batch_is_exist")


async def gather(store, rounds):
    """The same store under an event loop: many gets at once through its executor."""
    loop = asyncio.get_running_loop()
    for _ in range(rounds):
        some = random.sample(range(KEYS), 16)
        got = await asyncio.gather(*(loop.run_in_executor(None, store.get, f"mixed-{i}") for i in some))
        for i, data in zip(some, got):
            judge(i, data)
        await asyncio.sleep(0.01)


def litter(until):
    """Reference cycles and collections while the others work."""
    while not until.is_set():
        for _ in range(200):
            ring = []
            ring.append((ring, bytearray(500)))
        gc.collect()
        time.sleep(0.02)


def fork_child(store, master):
    """A child whose inherited store is not set up, and that sets up one of its own; True when it did all that."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            if store.put("mixed-of-child", b"x") < 0 and store.get("mixed-0") == b"":
                own = MooncakeDistributedStore()
                if own.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", master) == 0:
                    judge(0, own.get("mixed-0"))
                    own.close()
                    code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def memory_kib():
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


class Ticker:
    """A thread that only sleeps and counts: what it does not get, a call of another thread kept."""

    def __init__(self):
        self.count, self.running = 0, True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.running:
            time.sleep(0.001)
            self.count += 1

    def during(self, call):
        """Ticks a second while `call` runs."""
        before, begun = self.count, time.monotonic()
        call()
        return (self.count - before) / (time.monotonic() - begun)


def responsiveness(store):
    """The share of ticks that another thread gets during long calls, the best of some rounds of a busy machine."""
    size, n = 8 << 20, 12
    memory = ctypes.create_string_buffer(size)
    address = ctypes.addressof(memory)
    if store.register_buffer(address, size) != 0 or store.put_from("long", address, size) != 0:
        raise Failure("a large object cannot be put")
    ticker = Ticker()
    best = 0.0

    def long_call():
        if not set(store.batch_get_into(["long"] * n, [address] * n, [size] * n)) <= {size, -707}:
            raise Failure("batch_get_into of a large object")

    for _ in range(8):
        begun = time.monotonic()
        busy = ticker.during(lambda: [long_call() for _ in range(4)])
        idle = ticker.during(lambda span=time.monotonic() - begun: time.sleep(span))
        best = max(best, busy / idle)
    ticker.running = False
    store.remove("long")
    return best


def main():
    master, operations = sys.argv[1], int(sys.argv[2])
    store = MooncakeDistributedStore()
    if store.setup("127.0.0.1", "P2PHANDSHAKE", 96 << 20, 32 << 20, "tcp", "", master) != 0:
        raise Failure("setup")
    begun = time.monotonic()
    for index in range(KEYS):
        settled(store.put(f"mixed-{index}", value_of(index, 0)), "put")
    ended = threading.Event()
    litterer = threading.Thread(target=litter, args=(ended,))
    works = [Work(store, seed, operations // THREADS) for seed in range(THREADS)]
    threads = [threading.Thread(target=work.run) for work in works]
    loop = threading.Thread(target=lambda: asyncio.run(gather(store, 100)))
    for thread in (litterer, loop, *threads):
        thread.start()
    samples, forks, kept = [], 0, []
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.25)
        done = sum(work.done for work in works)
        samples.append((done, memory_kib()))
        if forks < 20 * done / operations:
            forks += 1
            if not fork_child(store, master):
                raise Failure("a forked child did not do its part")
        if os.environ.get("YB_MIXED_LEAK"):  # for the test of this test
            kept.append(os.urandom(1000 * (done - sum(map(len, kept)) // 1000)))
    for thread in (*threads, loop):
        thread.join(60)
        if thread.is_alive():
            raise Failure("a thread hangs")
    ended.set()
    litterer.join(60)
    errors = [work.error for work in works if work.error is not None]
    if errors:
        raise errors[0]
    half = [kib for done, kib in samples if operations * 0.4 < done < operations * 0.6] or [samples[0][1]]
    last = [kib for done, kib in samples if done > operations * 0.9] or [samples[-1][1]]
    answer = {"operations": sum(work.done for work in works), "seconds": round(time.monotonic() - begun, 1),
              "forks": forks, "middle_kib": sorted(half)[len(half) // 2], "end_kib": sorted(last)[len(last) // 2]}
    # What one looks at when it grew: at each tenth of the way, operations and memory.
    tenths = [next((sample for sample in samples if sample[0] >= operations * tenth / 10), samples[-1]) for tenth in range(11)]
    answer["kib_at"] = {done: kib for done, kib in tenths}
    answer["ticks"] = round(responsiveness(store), 3)
    if store.close() != 0:
        raise Failure("close")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
