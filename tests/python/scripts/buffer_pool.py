"""Buffers on loan: registered, used again, bounded, served in order; memory is never taken from under a view."""

import gc
import sys
import threading

from mooncake.store import BufferPool, MooncakeDistributedStore, RegisteredBufferPool


def refused(text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)


assert RegisteredBufferPool is BufferPool
refused("MooncakeDistributedStore is not initialized", BufferPool, MooncakeDistributedStore())
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 4 << 20, "tcp", "", sys.argv[1]) == 0, store.last_error()
without = MooncakeDistributedStore()
assert without.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
refused("BufferPool requires a store configured with a local buffer", BufferPool, without)
refused("alignment must be a power of two", BufferPool, store, alignment=12345)
refused("must be positive", BufferPool, store, min_size_class=0)
for wrong in (5, object()):
    try:
        BufferPool(wrong)
        raise AssertionError(wrong)
    except TypeError:
        pass

pool = BufferPool(store, min_size_class=4096, prewarm_size=10_000, prewarm_count=3)
with pool.acquire(5000) as lease:
    assert lease.size == len(lease.buffer) == 5000 and lease.buffer.format == "B" and not lease.buffer.readonly
    lease.buffer[:] = b"x" * 5000
    first = lease.ptr
    assert store.put_from("pooled", lease.ptr, 5000) == 0 and store.get("pooled") == b"x" * 5000
    lease.buffer[:] = bytes(5000)
    assert store.get_into("pooled", lease.ptr, 5000) == 5000 and bytes(lease.buffer) == b"x" * 5000
refused("buffer lease is closed", lambda: lease.ptr)
refused("buffer lease is closed", lambda: lease.buffer)
lease.release()
again = pool.buffer(4096 * 2)
assert again.ptr == first, "no second range is made"
view = again.buffer
refused("exported views", again.release)
refused("active leases", pool.close)
del again
gc.collect()
view[:3] = b"abc"
assert bytes(view[:3]) == b"abc"
del view
gc.collect()
whole = pool.acquire(8 << 20)
refused("exhausted", pool.acquire, 1, block=False)
refused("timed out", pool.acquire, 1, timeout=0.05)
refused("non-negative", pool.acquire, 1, timeout=-1.0)
refused("exceeds pool capacity", pool.acquire, (8 << 20) + 1)
refused("exceeds pool capacity", pool.acquire, 2**64 - 1)
try:
    pool.acquire(-1)
    raise AssertionError
except TypeError:
    pass
got = []
waiter = threading.Thread(target=lambda: got.append(pool.acquire(100)))
waiter.start()
whole.release()
waiter.join(30)
assert got[0].size == 100
empty = pool.acquire(0)
assert empty.size == 0 and len(empty.buffer) == 0
empty.release()
store.close()
got[0].buffer[:1] = b"y"
got.clear()
gc.collect()
pool.close()
pool.close()
refused("closed", pool.acquire, 1)
refused("MooncakeDistributedStore is not initialized", BufferPool, store)


class Wrapper:
    def __init__(self, store):
        self._store = store


refused("local buffer", BufferPool, Wrapper(without))
