"""The side channel of failures: of one thread, of one call, gone with the next success, also under asyncio."""

import asyncio
import ctypes
import os
import sys
import threading

import mooncake.store
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.store import LastError, MooncakeDistributedStore, last_error

MASTER = sys.argv[1]
store = MooncakeDistributedStore()
assert last_error() is None and store.last_error() == ""
assert store.put("k", b"v") == -600
assert last_error().reason == "closed" and "not set up" in store.last_error()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", MASTER) == 0 and last_error() is None
assert store.put("le-there", b"v" * 100) == 0

# One call: the failure is of the call that was made last, and a success leaves nothing.
assert store.get("le-missing") == b"" and last_error().key == "le-missing"
assert store.get(b"le-\xff") == b"" and last_error().key == b"le-\xff"
assert store.get("le-there") == b"v" * 100 and last_error() is None and store.last_error() == ""
assert store.is_exist("le-missing") == 0 and last_error() is None, "no is an answer"
assert store.get_size("le-missing") == -704 and (last_error().code, last_error().reason) == (-704, "missing")
assert store.put("", b"v") == -600 and (last_error().reason, last_error().retryable) == ("invalid", False)
assert store.remove("le-there") == -706 and (last_error().reason, last_error().retryable) == ("leased", True)
assert store.get_buffer("le-missing") is None and last_error().reason == "missing"
assert store.get_replica_desc("le-missing") == [] and last_error().reason == "missing"
assert store.batch_put_from(["a"], [1, 2], [3]) == [-600] and "length" in store.last_error()
text = (str(last_error()), repr(last_error()))
assert text[0] == store.last_error() and text[0] in text[1] and "-600" in text[1]

# Many objects: the first failure that is no miss, else the first miss.
small = ctypes.create_string_buffer(300)
at = ctypes.addressof(small)
answers = store.batch_get_into(["le-none", "le-there", "le-nothing"], [at, at + 100, at + 200], [100, 10, 100])
assert answers == [-704, -600, -704] and last_error().key == "le-there" and "100 bytes" in last_error().message
assert store.get_batch(["le-there", "le-none", "le-nothing"]) == [b"v" * 100, b"", b""]
assert (last_error().reason, last_error().key) == ("missing", "le-none")
assert store.batch_get_into(["le-there"], [at], [100]) == [100] and last_error() is None

# Tensors are read by several calls of the native store, and fail as one.
assert store.get_tensor("le-missing") is None and last_error().reason in ("missing", "invalid")
assert store.put_tensor("le-refused", None) == -600 and "NoneType" in store.last_error()
assert store.batch_put_tensor(["a", "b"], [None]) == [-600, -600] and "2 keys, 1 tensors" in store.last_error()

# Another thread has its own, and a store of its own does not matter.
assert store.get("le-missing") == b""
seen = []


def elsewhere():
    seen.append(last_error())
    seen.append((store.get("le-there"), last_error()))
    seen.append((store.get_size("le-other"), last_error().key))


thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
assert seen == [None, (b"v" * 100, None), (-704, "le-other")], seen
assert last_error().key == "le-missing"
assert isinstance(last_error(), LastError) and mooncake.store.last_error is last_error

# A child of a fork starts from what its parent's thread knew, and goes its own way.
child = os.fork()
if child == 0:
    kept = last_error().key == "le-missing"
    os._exit(0 if kept and store.get("x") == b"" and last_error().reason == "closed" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def tasks():
    other = MooncakeDistributedStoreAsync()
    assert await other.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", MASTER) == 0

    async def look(key):
        value = await other.async_get(key)
        await asyncio.sleep(0)
        return value, other.awaited_error() and other.awaited_error().key

    found = await asyncio.gather(*(look(key) for key in ("le-1", "le-there", "le-2", "le-there")))
    assert found == [(b"", "le-1"), (b"v" * 100, None), (b"", "le-2"), (b"v" * 100, None)], found
    assert await other.async_get("le-3") == b"" and other.awaited_error().reason == "missing"
    assert await other.async_close() == 0


asyncio.run(tasks())
assert store.close() == 0
