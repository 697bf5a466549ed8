"""A store is set up with the engine of the process, under the engine's name, as SGLang does it; both work side by side."""

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
memory = bytearray(4096)
assert engine.register_memory(memory, 4096) == 0
assert other.transfer_sync_write(session, b"by the engine", engine.get_first_buffer_address(session), 13) == 0
assert memory[:13] == b"by the engine"
for wrong in (object(), engine, 5):
    try:
        MooncakeDistributedStore().setup(session, "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], wrong)
        raise AssertionError(wrong)
    except TypeError:
        pass
assert store.remove("shared engine", force=True) == 0
store.close()
assert other.transfer_sync_write(session, b"still", engine.get_first_buffer_address(session), 5) == 0
