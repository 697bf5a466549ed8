"""A client of a chaos run under any installation of the package `mooncake`: works until its time is over and writes its history.

Called by the driver (`crates/chaos`) with a workload as JSON, the one that our own client gets; the format of the history is that of
`crates/history/src/text.rs`. Uses nothing but the standard library, so that it runs in the peer's environment.
"""

import json
import os
import random
import struct
import sys
import threading
import time

HEAD = struct.Struct("<4Q")
MARK = 0x79656275626E6721
FORGOTTEN, BUSY, EXISTS, NO_ROOM = -704, -703, -705, -200


def made(key, write, length):
    """The value of a write: a head that names it, and a body made from its number."""
    length = max(length, HEAD.size)
    return HEAD.pack(MARK, key, write, length) + random.Random(write * 1_000_003 + key).randbytes(length - HEAD.size)


def judged(key, data):
    """Which write these bytes are, as an outcome of a history; an empty answer of the peer may be a miss or a failure."""
    if len(data) < HEAD.size:
        return "absent" if not data else f"wrong {len(data)} bytes"
    mark, of_key, write, length = HEAD.unpack_from(data)
    if mark != MARK or of_key != key:
        return f"wrong {len(data)} bytes that begin with {mark:#x}, key {of_key}"
    if length != len(data):
        return f"wrong {len(data)} bytes of the {length} of write {write}"
    if data != made(key, write, length):
        return f"wrong write {write} of {length} bytes differs"
    return f"read {write}"


def written(code, success):
    """The outcome of a put or upsert."""
    if code == 0:
        return success
    return {BUSY: "refused busy", NO_ROOM: "refused no room", EXISTS: "exists"}.get(code, f"failed {code}")


class History:
    """The file of the history, a line at a time: what was written is there when the process is killed."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.lock = threading.Lock()
        self.calls = 0

    def begin(self, call, key, write=None, copies=1):
        """Notes that a call begins; its number."""
        with self.lock:
            self.calls += 1
            number = self.calls
            more = "" if write is None else f" {write} {copies}"
            os.write(self.file, f"> {number} {time.monotonic_ns()} {call} {key}{more}\n".encode())
        return number

    def end(self, number, at, outcome):
        """Notes how it ended."""
        with self.lock:
            os.write(self.file, f"< {number} {at} {outcome}\n".encode())


class Player:
    """One thread of the workload."""

    def __init__(self, workload, module, store, history, writes, number):
        self.workload = workload
        self.module = module
        self.store = store
        self.history = history
        self.writes = writes
        self.random = random.Random(workload["seed"] ^ workload["process"] << 8 ^ number)

    def sweep(self):
        """Reads every key once."""
        for key in range(self.workload["keys"]):
            self.get(key)

    def work(self):
        """Calls until the time is over; the shares are those of our own client (`crates/chaos/src/workload.rs`)."""
        while time.monotonic_ns() < self.workload["until_ns"]:
            key, share = self.random.randrange(self.workload["keys"]), self.random.randrange(100)
            if key % 8 < 4:
                self.keep(key, share)
            else:
                self.churn(key, share)
            time.sleep(self.random.randrange(self.workload["pause_us"]) / 1e6)

    def keep(self, key, share):
        if share < 80:
            if self.get(key) == "absent":
                self.write("put", key)
        elif share < 90:
            self.exists(key)
        else:
            self.write("put", key)

    def churn(self, key, share):
        if share < 45:
            self.get(key)
        elif share < 55:
            self.get_many()
        elif share < 60:
            self.exists(key)
        elif share < 75:
            self.write("put", key)
        elif share < 90:
            self.write("upsert", key)
        else:
            self.remove(key, self.random.randrange(2) == 1)

    def length(self):
        longest = self.workload["longest"]
        bound = self.random.choice([longest // 256, longest // 256, longest // 16, longest // 16, longest // 4, longest])
        return self.random.randrange(max(bound, 1))

    def write(self, call, key):
        copies = 2 if key % 4 == 3 else 1
        write = next(self.writes)
        value = made(key, write, self.length())
        config = self.module.ReplicateConfig()
        config.replica_num = copies
        number = self.history.begin(call, key, write, copies)
        code = getattr(self.store, call)(f"chaos/{key}", value, config)
        # The peer's put says the same for what it stored and for what was there.
        self.history.end(number, time.monotonic_ns(), written(code, "accepted" if call == "put" else "stored"))

    def get(self, key):
        number = self.history.begin("get", key)
        data = self.store.get(f"chaos/{key}")
        at = time.monotonic_ns()
        outcome = judged(key, data)
        self.history.end(number, at, outcome)
        return outcome

    def get_many(self):
        # Each once: of a key that stands twice in a batch, the peer's get_batch gives other bytes for one of the two.
        keys = self.random.sample(range(self.workload["keys"]), 8)
        numbers = [self.history.begin("get", key) for key in keys]
        answers = self.store.get_batch([f"chaos/{key}" for key in keys])
        at = time.monotonic_ns()
        for index, (key, number) in enumerate(zip(keys, numbers)):
            self.history.end(number, at, judged(key, answers[index]) if index < len(answers) else "failed batch")

    def exists(self, key):
        number = self.history.begin("exists", key)
        code = self.store.is_exist(f"chaos/{key}")
        self.history.end(number, time.monotonic_ns(), {1: "present", 0: "absent"}.get(code, f"failed {code}"))

    def remove(self, key, force):
        number = self.history.begin("remove", key)
        code = self.store.remove(f"chaos/{key}", force)
        self.history.end(number, time.monotonic_ns(), {0: "removed", FORGOTTEN: "absent"}.get(code, f"failed {code}"))


def connected(workload, module):
    """The master may be away just now."""
    while True:
        store = module.MooncakeDistributedStore()
        if store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", workload["master"]) == 0:
            return store
        if time.monotonic_ns() > workload["until_ns"]:
            sys.exit("the pool cannot be reached")
        time.sleep(0.1)


class Numbers:
    """Numbers from one on, for several threads."""

    def __init__(self, first):
        self.next = first
        self.lock = threading.Lock()

    def __next__(self):
        with self.lock:
            self.next += 1
            return self.next


def main():
    import mooncake.store as module

    workload = json.loads(sys.argv[1])
    store = connected(workload, module)
    history, writes = History(workload["history"]), Numbers(workload["process"] << 32)
    players = [Player(workload, module, store, history, writes, number) for number in range(workload["threads"])]
    threads = [threading.Thread(target=player.sweep if workload["sweep"] else player.work) for player in players]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
