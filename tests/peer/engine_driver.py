"""An engine in a process of its own: reads one JSON request a line, does it, answers one JSON line.

Runs under any installation of the package `mooncake`, ours or the peer's. Bytes never cross the pipe: both sides make them
from a seed, and what came is compared here. Standard output belongs to the protocol.
"""

import base64
import ctypes
import json
import mmap
import os
import random
import sys
import time

PERIOD = (1 << 16) + 13


def pattern(seed, length):
    """Bytes whose period fits no page and no slice, so that a misplaced piece is seen."""
    block = random.Random(seed).randbytes(PERIOD)
    return (block * (length // PERIOD + 1))[:length]


class Session:
    """The operations a proof can ask for."""

    def __init__(self):
        import mooncake.engine as module

        self.module = module
        self.engine = module.TransferEngine()
        self.area = self.base = None
        self.received, self.rpc, self.segments = [], None, {}

    def initialize(self, host, metadata, register=0):
        """Starts the engine, with a registered area of so many bytes; its base and the name that peers use."""
        answer = self.engine.initialize(host, metadata, "tcp", "")
        assert answer == 0, answer
        if register:
            self.map(register)
            assert self.engine.register_memory(self.base, register) == 0
        name = host if metadata != "P2PHANDSHAKE" else f"{host}:{self.engine.get_rpc_port()}"
        return [name, self.base]

    def map(self, size):
        """Memory that is not registered."""
        self.area = mmap.mmap(-1, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
        return self.base

    def fill(self, seed, pieces):
        """Writes each piece `[offset, length]`, with a seed of its own."""
        for index, (offset, length) in enumerate(pieces):
            self.area[offset:offset + length] = pattern(seed + index, length)

    def clear(self, pieces):
        for offset, length in pieces:
            ctypes.memset(self.base + offset, 0xA5, length)

    def differences(self, seed, pieces):
        """Pieces that are not what `fill` writes."""
        wrong = [i for i, (offset, length) in enumerate(pieces) if self.area[offset:offset + length] != pattern(seed + i, length)]
        return [pieces[i] for i in wrong]

    def move(self, op, target, here, there, lengths, notify=None):
        """One batch by opcode; offsets here, addresses there."""
        opcode = getattr(self.module, op)
        note = self.module.TransferNotify(*notify) if notify else None
        if len(lengths) == 1:
            return self.engine.transfer_sync(target, self.base + here[0], there[0], lengths[0], opcode, note)
        return self.engine.batch_transfer_sync(target, [self.base + at for at in here], there, lengths, opcode, note)

    def move_async(self, op, target, here, there, lengths):
        """One asynchronous batch; 1 when all of it has arrived, 0 when it was not taken, -1 when it failed.

        `transfer_check_status` of the wheel looks at the first task of a batch only, so it is not asked here.
        """
        places = [self.base + at for at in here]
        batch = self.engine.batch_transfer_async(target, places, there, lengths, getattr(self.module, op))
        if batch == 0:
            return 0
        return 1 if self.engine.get_batch_transfer_status([batch]) == 0 else -1

    def notifies(self, count):
        """What came, waited for until there are so many."""
        until, found = time.monotonic() + 10, []
        while len(found) < count and time.monotonic() < until:
            found += [[note.name, note.msg] for note in self.engine.get_notifies()]
            time.sleep(0.005)
        return found

    def call(self, name, *args):
        """Any method whose arguments and answer are plain values."""
        return getattr(self.engine, name)(*args)

    def serve(self, address):
        """Starts a receiver of data and tensors."""
        self.rpc = self.module.RpcInterface()
        initialized = self.rpc.initialize_server(address)
        self.rpc.set_data_receive_callback(lambda message: self.received.append(["data", base64.b64encode(message["data"]).decode()]))
        self.rpc.set_tensor_receive_callback(self.tensor)
        return [initialized, self.rpc.start_server_async()]

    def tensor(self, tensor):
        self.received.append(["tensor", tensor.dtype, base64.b64encode(tensor.get_data_as_bytes()).decode()])

    def send(self, address, text):
        """Sends data."""
        if self.rpc is None:
            self.rpc = self.module.RpcInterface()
            self.rpc.initialize_client()
        return self.rpc.send_data(address, base64.b64decode(text))

    def send_tensor(self, address, text):
        """Sends a tensor of bytes as torch would have it."""
        return self.rpc.send_tensor(address, Tensor(base64.b64decode(text)))

    def take_received(self):
        taken, self.received = self.received, []
        return taken

    def segment(self, rank, size):
        """One rank's side of a shared segment; its blob."""
        segment, blob = self.module.SharedSegment.create("proof", size, 2, rank)
        self.segments[rank] = segment
        return blob.hex()

    def complete(self, rank, blobs):
        self.segments[rank].complete([bytes.fromhex(blob) for blob in blobs])
        return self.segments[rank].ready()

    def poke(self, rank, at, text):
        ctypes.memmove(self.segments[rank].base_addr() + at, text.encode(), len(text))

    def peek(self, rank, at, length):
        return ctypes.string_at(self.segments[rank].base_addr() + at, length).decode("latin-1")


class Tensor:
    """A tensor of bytes."""

    def __init__(self, data):
        self.memory = ctypes.create_string_buffer(data, len(data))
        self.shape, self.dtype, self.device = (len(data),), "torch.uint8", None

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return self.shape[0]

    def element_size(self):
        return 1

    def is_contiguous(self):
        return True


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
    session.segments.clear()  # their names go with them
    os._exit(0)


if __name__ == "__main__":
    main()
