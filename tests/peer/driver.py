"""A client in a process of its own: reads one JSON request a line, does it on a store, answers one JSON line.

Runs under any installation of the package `mooncake`, ours or the peer's, and uses nothing but the standard library.
Values never cross the pipe: both sides make them from a seed, and what was read is compared here, byte for byte.
Standard output belongs to the protocol, so whatever the native code prints goes to standard error.
"""

import ctypes
import functools
import json
import mmap
import os
import random
import sys

FILL = 0xA5


@functools.lru_cache(maxsize=4)
def made(seed, length):
    """Random bytes; the last ones are kept, as several reads of one value follow each other."""
    return random.Random(seed).randbytes(length)


def value_of(spec):
    """The bytes of `[seed, length]`."""
    return made(*spec)


class Buffer:
    """Page-aligned memory with an address, as an engine would hand over."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size

    def fill(self):
        """Overwrites everything with a mark, so that a read that moved nothing is seen."""
        ctypes.memset(self.address, FILL, self.size)


class SharedBuffer:
    """Memory that the store made to be shared with its daemon."""

    def __init__(self, address, size):
        self.map = (ctypes.c_char * size).from_address(address)
        self.address = address
        self.size = size

    fill = Buffer.fill


class Session:
    """The operations a proof can ask for."""

    def __init__(self):
        import mooncake.store as module

        self.module = module
        self.store = module.MooncakeDistributedStore()
        self.buffer = None

    def setup(self, args):
        return self.store.setup(*args)

    def setup_dict(self, config):
        return self.store.setup(config)

    def use_buffer(self, size):
        """Registers a buffer of `size` bytes for the zero-copy calls."""
        self.buffer = Buffer(size)
        return self.store.register_buffer(self.buffer.address, size)

    def use_shared_buffer(self, size, ranges):
        """Makes shared memory of `size` bytes for the zero-copy calls and registers parts of it, each as offset and size."""
        self.buffer = SharedBuffer(self.store.alloc_from_mem_pool(size), size)
        return [self.store.register_buffer(self.buffer.address + offset, length) for offset, length in ranges]

    def drop_buffer(self):
        return self.store.unregister_buffer(self.buffer.address)

    def config(self, fields):
        config = self.module.ReplicateConfig()
        for name, wanted in (fields or {}).items():
            setattr(config, name, wanted)
        return config

    def put(self, key, value, config=None):
        return self.store.put(key, value_of(value), self.config(config))

    def put_parts(self, key, parts, config=None):
        return self.store.put_parts(key, *[value_of(part) for part in parts], config=self.config(config))

    def put_batch(self, keys, values, config=None):
        return self.store.put_batch(keys, [value_of(value) for value in values], self.config(config))

    def get(self, key, value):
        return compare(self.store.get(key), value_of(value))

    def get_raw(self, key):
        """The bytes as text, for small values."""
        return self.store.get(key).decode("latin-1")

    def get_buffer(self, key, value):
        handle = self.store.get_buffer(key)
        return "missing" if handle is None else compare(bytes(memoryview(handle).cast("B")), value_of(value))

    def get_batch(self, keys, values):
        found = self.store.get_batch(keys)
        return [compare(got, value_of(value)) for got, value in zip(found, values, strict=True)]

    def put_from(self, key, value, config=None):
        data = value_of(value)
        ctypes.memmove(self.buffer.address, data, len(data))
        return self.store.put_from(key, self.buffer.address, len(data), self.config(config))

    def get_into(self, key, value):
        data = value_of(value)
        self.buffer.fill()
        answer = self.store.get_into(key, self.buffer.address, self.buffer.size)
        return self.compare_buffer(answer, 0, data)

    def batch_put_from(self, keys, values, config=None):
        addresses, sizes = self.layout(values)
        for address, value in zip(addresses, values):
            data = value_of(value)
            ctypes.memmove(address, data, len(data))
        return self.store.batch_put_from(keys, addresses, sizes, self.config(config))

    def batch_get_into(self, keys, values):
        addresses, sizes = self.layout(values)
        self.buffer.fill()
        answers = self.store.batch_get_into(keys, addresses, sizes)
        base = self.buffer.address
        return [self.compare_buffer(a, address - base, value_of(v)) for a, address, v in zip(answers, addresses, values, strict=True)]

    def layout(self, values):
        """One 64-byte aligned place in the buffer for each value."""
        addresses, sizes, at = [], [], 0
        for _seed, length in values:
            addresses.append(self.buffer.address + at)
            sizes.append(length)
            at += -(-length // 64) * 64
        assert at <= self.buffer.size, f"the buffer holds {self.buffer.size} bytes, {at} are wanted"
        return addresses, sizes

    def compare_buffer(self, answer, offset, data):
        if answer != len(data):
            return answer
        return compare(self.map_bytes(offset, len(data)), data)

    def map_bytes(self, offset, length):
        return self.buffer.map[offset:offset + length]

    def call(self, name, *args, **kwargs):
        """Any method whose arguments and answer are plain values."""
        return getattr(self.store, name)(*args, **kwargs)

    def task_status(self, task):
        """Number of the status of a task, and its message."""
        answer, code = self.store.query_task(tuple(task))
        return [int(answer.status), answer.message] if code == 0 else [code, "not known"]

    def crash(self):
        """Ends this process at once, as a killed client would."""
        os._exit(1)


def compare(got, wanted):
    """"equal", or where the first difference is."""
    if got == wanted:
        return "equal"
    if len(got) != len(wanted):
        return f"{len(got)} bytes instead of {len(wanted)}"
    first = next(i for i, (a, b) in enumerate(zip(got, wanted)) if a != b)
    return f"differs at byte {first} of {len(wanted)}"


def main():
    """Serves requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(session, request["do"])(*request.get("args", []), **request.get("kwargs", {}))}
        except Exception as error:  # noqa: BLE001 - the answer carries whatever the package raised
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
