"""Many threads use one engine at once: initialize, register, transfer, ask, close, in any order."""

import ctypes
import mmap
import threading

from mooncake.engine import Read, TransferEngine, TransferNotify, Write

PAGE, THREADS, TURNS = 1 << 14, 8, 60
a, b = TransferEngine(), TransferEngine()
assert [engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") for engine in (a, b)] == [0, 0]
NAME = f"127.0.0.1:{b.get_rpc_port()}"
here, there = mmap.mmap(-1, THREADS * PAGE), mmap.mmap(-1, THREADS * PAGE)
HERE, THERE = (ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in (here, there))
assert b.register_memory(THERE, THREADS * PAGE) == 0
failures = []


def work(index):
    try:
        at, to = HERE + index * PAGE, THERE + index * PAGE
        for turn in range(TURNS):
            mark = bytes([index, turn]) * 100
            ctypes.memmove(at, mark, 200)
            assert a.transfer_sync_write(NAME, at, to, 200) == 0
            assert a.transfer_sync(NAME, at + 1000, to, 200, Read, TransferNotify(str(index), str(turn))) == 0
            assert ctypes.string_at(at + 1000, 200) == mark
            batch = a.batch_transfer_async_write(NAME, [at, at], [to + 300, to + 600], [100, 100])
            assert a.get_batch_transfer_status([batch]) == 0
            assert a.register_memory(at, PAGE) == 0 and a.unregister_memory(at) == 0
            place = a.allocate_managed_buffer(1000)
            assert a.transfer_sync(NAME, place, to, 200, Read) == 0 and a.read_bytes_from_buffer(place, 200) == mark
            assert a.free_managed_buffer(place, 1000) == 0
    except BaseException as error:  # noqa: BLE001 - reported by the main thread
        failures.append((index, repr(error), a.last_error()))


def run(target, count):
    threads = [threading.Thread(target=target, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


run(work, THREADS)
assert not failures, failures
assert len(b.get_notifies()) == THREADS * TURNS

# One engine that is initialized and closed while others call it.
shared = TransferEngine()
answers = set()


def tear(index):
    for turn in range(15):
        if index == 0:
            shared.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
            shared.close()
            continue
        answers.add(shared.transfer_sync_write(NAME, HERE + index * 64, THERE, 64))
        answers.add(min(shared.transfer_submit_write(NAME, HERE + index * 64, THERE, 64), 0))
        shared.get_notifies(), shared.get_rpc_port(), shared.allocate_managed_buffer(10), shared.get_local_topology()


run(tear, 6)
assert answers <= {0, -1}, answers
assert a.transfer_sync(NAME, HERE, THERE, 8, Write) == 0
