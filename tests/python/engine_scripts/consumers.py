"""The calls that inference engines make, in their order and form.

vLLM and SGLang hand a KV cache over (register, batch write, -1 tested by `< 0` and `!= 0`), LMCache pulls by batch numbers,
FlexKV sends messages with its bytes, a checkpoint loader reads weights, and a session that failed is probed again.
"""

import ctypes
import mmap
import threading
import time

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

HOST = "127.0.0.1"


def pool(pages, page):
    area = mmap.mmap(-1, pages * page)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


class Worker:
    """An engine as the wrappers of vLLM and SGLang hold one."""

    def __init__(self, layers=4, pages=8, page=16384):
        self.engine = TransferEngine()
        # Checkpoint loaders try again until a port is free.
        assert any(self.engine.initialize(HOST, "P2PHANDSHAKE", "rdma", "") == 0 for _ in range(8))
        self.session = f"{HOST}:{self.engine.get_rpc_port()}"
        self.page, self.pages = page, pages
        self.layers = [pool(pages, page) for _ in range(layers)]
        pointers, lengths = [at for _, at in self.layers], [pages * page] * layers
        assert self.engine.batch_register_memory(pointers, lengths) == 0

    def write(self, layer, page, mark):
        self.layers[layer][0][page * self.page:(page + 1) * self.page] = mark * self.page

    def read(self, layer, page):
        return self.layers[layer][0][page * self.page:(page + 1) * self.page]

    def address(self, layer, page):
        return self.layers[layer][1] + page * self.page


def hand_over(prefill, decode):
    """Prefill writes its pages where decode said they belong."""
    order = [(layer, page, 7 - page) for layer in range(4) for page in range(8)]
    for layer, page, _ in order:
        prefill.write(layer, page, bytes([16 * layer + page]))
    sources = [prefill.address(layer, page) for layer, page, _ in order]
    targets = [decode.address(layer, slot) for layer, _, slot in order]
    answer = prefill.engine.batch_transfer_sync_write(decode.session, sources, targets, [prefill.page] * len(order))
    assert answer == 0 and not answer < 0
    assert all(decode.read(layer, slot) == prefill.read(layer, page) for layer, page, slot in order)


def pull(puller, owner):
    """A cache pulls chunks by number and polls."""
    owner.write(2, 3, b"k")
    batch = puller.engine.batch_transfer_async_read(owner.session, [puller.address(0, 0)], [owner.address(2, 3)], [owner.page])
    assert batch not in (0, (1 << 64) - 1) and batch < 1 << 63
    until = time.monotonic() + 10
    while (state := puller.engine.transfer_check_status(batch)) == 0:
        assert time.monotonic() < until
        time.sleep(0)
    assert state == 1 and puller.read(0, 0) == owner.read(2, 3)


def messages(sender, receiver):
    """Bytes with a message, a message alone, polled every 10 ms."""
    sender.write(1, 1, b"f")
    note = TransferNotify("request-1", '{"block": 7}')
    arguments = (receiver.session, sender.address(1, 1), receiver.address(1, 2))
    assert sender.engine.transfer_sync(*arguments, sender.page, TransferOpcode.Write, note) == 0
    assert sender.engine.transfer_sync(*arguments, 0, TransferOpcode.Write, TransferNotify("done", "")) == 0
    found, until = [], time.monotonic() + 5
    while len(found) < 2 and time.monotonic() < until:
        found += [(note.name, note.msg) for note in receiver.engine.get_notifies()]
        time.sleep(0.01)
    assert found == [("request-1", '{"block": 7}'), ("done", "")]
    assert receiver.read(1, 2) == sender.read(1, 1)


def encoder(sender, receiver):
    """One embedding, its memory registered for the time of the transfer."""
    embedding = (ctypes.c_float * 1024)(*range(1024))
    at, size = ctypes.addressof(embedding), ctypes.sizeof(embedding)
    assert sender.engine.register_memory(at, size) == 0
    assert sender.engine.transfer_sync_write(receiver.session, at, receiver.address(3, 0), size) == 0
    assert sender.engine.unregister_memory(at) == 0
    assert sender.engine.unregister_memory(at) != 0
    assert receiver.read(3, 0)[:size] == bytes(embedding)


def sleeps(worker, other):
    """Memory is given back for a while and registered again, at the same place."""
    pointers, lengths = [at for _, at in worker.layers], [worker.pages * worker.page] * len(worker.layers)
    assert worker.engine.batch_unregister_memory(pointers) == 0
    assert other.engine.transfer_sync_write(worker.session, other.address(0, 0), worker.address(0, 0), 64) < 0
    assert worker.engine.batch_register_memory(pointers, lengths) == 0
    assert other.engine.transfer_sync_write(worker.session, other.address(0, 0), worker.address(0, 0), 64) == 0


def failed_sessions(worker):
    """A decode worker dies: its session fails, is probed, and a new one takes over."""
    gone = Worker(layers=1)
    assert worker.engine.transfer_sync_write(gone.session, worker.address(0, 0), gone.address(0, 0), 64) == 0
    assert worker.engine.send_probe(gone.session) == 0
    session, address = gone.session, gone.address(0, 0)
    gone.engine.close()
    assert worker.engine.transfer_sync_write(session, worker.address(0, 0), address, 64) < 0
    assert worker.engine.send_probe(session) != 0
    again = Worker(layers=1)
    assert worker.engine.send_probe(again.session) == 0
    assert worker.engine.transfer_sync_write(again.session, worker.address(0, 0), again.address(0, 0), 64) == 0


def from_threads(prefill, decode):
    """Each rank's thread pool sends its own layers."""
    answers = []

    def send(layer):
        sources, targets = [[w.address(layer, page) for page in range(8)] for w in (prefill, decode)]
        answers.append(prefill.engine.batch_transfer_sync_write(decode.session, sources, targets, [prefill.page] * 8))

    threads = [threading.Thread(target=send, args=(layer,)) for layer in range(4) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [0] * 16
    assert all(prefill.read(layer, page) == decode.read(layer, page) for layer in range(4) for page in range(8))


a, b = Worker(), Worker()
hand_over(a, b)
pull(b, a)
messages(a, b)
encoder(a, b)
sleeps(b, a)
from_threads(a, b)
failed_sessions(a)
assert type(a.engine.get_engine()).__name__ == "InnerTransferEngine"


class Derived(TransferEngine):
    """A class of a consumer's own, with arguments of its own."""

    def __init__(self, host, *, protocol):
        super().__init__()
        self.session = (host, protocol, self.initialize(host, "P2PHANDSHAKE", protocol, ""))


assert Derived(HOST, protocol="tcp").session == (HOST, "tcp", 0)
