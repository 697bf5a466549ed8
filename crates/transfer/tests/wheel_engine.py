"""An engine of the peer, told on standard input what to do; one line of answer each."""

import ctypes
import sys

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

SIZE = 65 << 20


def pattern(length, seed):
    unit = bytes((seed + i * 7 + i // 251) % 256 for i in range(65521))
    return (unit * (length // len(unit) + 1))[:length]


def run(engine, memory, address, words):
    if words[0] == "write":
        target, remote, offset, length, seed = words[1], *map(int, words[2:])
        ctypes.memmove(address + offset, pattern(length, seed), length)
        return engine.transfer_sync_write(target, address + offset, remote, length)
    if words[0] == "read":
        target, remote, offset, length, seed = words[1], *map(int, words[2:])
        ctypes.memset(address + offset, 0, length)
        code = engine.transfer_sync_read(target, address + offset, remote, length)
        return code if code else int(memory.raw[offset : offset + length] != pattern(length, seed))
    if words[0] == "batch":
        target, remote, length, count = words[1], *map(int, words[2:])
        places = [i * length for i in range(count)]
        return engine.batch_transfer_sync(
            target,
            [address + place for place in places],
            [remote + place for place in places],
            [length] * count,
            TransferOpcode.Read,
            TransferNotify("batch", "read"),
        )
    if words[0] == "check":
        offset, length, seed = map(int, words[1:])
        return int(memory.raw[offset : offset + length] != pattern(length, seed))
    if words[0] == "fill":
        offset, length, seed = map(int, words[1:])
        ctypes.memmove(address + offset, pattern(length, seed), length)
        return 0
    if words[0] == "first":
        return engine.get_first_buffer_address(words[1])
    if words[0] == "leave":
        return engine.unregister_memory(address)
    if words[0] == "probe":
        return engine.send_probe(words[1])
    if words[0] == "notifies":
        return ",".join(f"{note.name}={note.msg}" for note in engine.get_notifies()) or "none"
    raise ValueError(words)


def main():
    engine = TransferEngine()
    # A name and a metadata store, or neither.
    name, store = sys.argv[1:] or ["127.0.0.1", "P2PHANDSHAKE"]
    code = engine.initialize(name, store, "tcp", "")
    if code:
        print(f"answer failed {code}", flush=True)
        return
    memory = ctypes.create_string_buffer(SIZE)
    address = ctypes.addressof(memory)
    assert engine.register_memory(address, SIZE) == 0
    print(f"answer {engine.get_rpc_port()} {address}", flush=True)
    for line in sys.stdin:
        print(f"answer {run(engine, memory, address, line.split())}", flush=True)


main()
