"""A store is set up with the engine of the process, under the engine's name, as SGLang does it; memory that is registered with
one is known to the other, and the engine goes on when the store closes."""

import ctypes
import sys

from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore

engine, other = TransferEngine(), TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == other.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
session = f"127.0.0.1:{engine.get_rpc_port()}"
store = MooncakeDistributedStore()
answer = store.setup(session, "P2PHANDSHAKE", 1 << 24, 1 << 24, "tcp", "", sys.argv[1], engine.get_engine())
assert answer == 0, store.last_error()
assert store.put("shared engine", b"value") == 0 and store.get("shared engine") == b"value"
assert store.get_hostname() == session
memory = bytearray(4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert engine.register_memory(address, 4096) == 0
assert other.transfer_sync_write(session, b"by the engine", address, 13) == 0
assert memory[:13] == b"by the engine"
assert store.put_from("from the engine's memory", address, 13) == 0
assert store.get("from the engine's memory") == b"by the engine"
assert store.put_from("over", address + 4000, 200) == -600, "over the end of the engine's memory"
assert "registered" in store.last_error() and store.is_exist("over") == 0
assert store.get_into("from the engine's memory", address + 4090, 13) == -600
assert store.register_buffer(address + 100, 8) == -600, "it overlaps what the engine has"
assert store.unregister_buffer(address) == -600, "the engine's to unregister"
own = bytearray(4096)
own_address = ctypes.addressof(ctypes.c_char.from_buffer(own))
assert store.register_buffer(own_address, 4096) == 0
assert engine.register_memory(own_address, 4096) != 0, "one registration for both"
assert store.remove("from the engine's memory", force=True) == 0
for wrong in (object(), engine, 5):
    try:
        MooncakeDistributedStore().setup(session, "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], wrong)
        raise AssertionError(wrong)
    except TypeError:
        pass
assert store.remove("shared engine", force=True) == 0
store.close()
assert other.transfer_sync_write(session, b"still", address, 5) == 0 and memory[:5] == b"still"
assert engine.register_memory(own_address, 4096) == 0, "the store has let go of it"
closed = MooncakeDistributedStore()
inner = other.get_engine()
other.close()
assert closed.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], inner) == -600
