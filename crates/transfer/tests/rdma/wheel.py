"""An engine of the peer over RDMA, told on standard input what to do; one line of answer each."""

import ctypes
import sys

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode


def pattern(length, seed):
    unit = bytes((seed + i * 7 + i // 251) % 256 for i in range(65521))
    return (unit * (length // len(unit) + 1))[:length]


class Serving:
    def __init__(self, host, devices, size):
        self.engine = TransferEngine()
        assert self.engine.initialize(host, "P2PHANDSHAKE", "rdma", devices) == 0
        self.memory = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.memory)
        assert self.engine.register_memory(self.address, size) == 0

    def part(self, offset, length):
        return ctypes.string_at(self.address + offset, length)

    def write(self, target, remote, offset, length, seed):
        offset, length = int(offset), int(length)
        ctypes.memmove(self.address + offset, pattern(length, int(seed)), length)
        return self.engine.transfer_sync_write(target, self.address + offset, int(remote), length)

    def read(self, target, remote, offset, length, seed):
        offset, length = int(offset), int(length)
        ctypes.memset(self.address + offset, 0, length)
        code = self.engine.transfer_sync_read(target, self.address + offset, int(remote), length)
        return code if code else int(self.part(offset, length) != pattern(length, int(seed)))

    def batch(self, target, remote, length, count):
        length, count = int(length), int(count)
        places = [i * length for i in range(count)]
        return self.engine.batch_transfer_sync(
            target,
            [self.address + place for place in places],
            [int(remote) + place for place in places],
            [length] * count,
            TransferOpcode.Read,
            TransferNotify("batch", "read"),
        )

    def check(self, offset, length, seed):
        length = int(length)
        return int(self.part(int(offset), length) != pattern(length, int(seed)))

    def probe(self, target):
        return self.engine.send_probe(target)

    def notifies(self):
        return ",".join(f"{note.name}={note.msg}" for note in self.engine.get_notifies()) or "none"


def main():
    host, devices, size = sys.argv[1:]
    serving = Serving(host, devices, int(size))
    print(f"answer {serving.engine.get_rpc_port()} {serving.address}", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(f"answer {getattr(serving, name)(*words)}", flush=True)


main()
