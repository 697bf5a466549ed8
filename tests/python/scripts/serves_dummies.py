"""A store that was set up with `ipc_socket_path` serves dummy clients, until it is closed; a name that is taken is refused."""

import socket
import sys
import time

from mooncake.store import MooncakeDistributedStore

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
form = {
    "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": "64 MB", "local_buffer_size": 0,
    "master_server_addr": sys.argv[1], "ipc_socket_path": f"@mooncake_client_{port}.sock",
}
store = MooncakeDistributedStore()
assert store.setup(form) == 0, store.last_error()
dummy = MooncakeDistributedStore()
assert dummy.setup_dummy(0, 1 << 20, f"127.0.0.1:{port}") == 0, dummy.last_error()
assert dummy.put("dummy's", b"through the store") == 0
assert store.get("dummy's") == dummy.get("dummy's") == b"through the store"

second = MooncakeDistributedStore()
assert second.setup(form) == -600 and "dummy clients" in second.last_error(), second.last_error()
assert second.health_check() == 1 and store.health_check() == 0
named = MooncakeDistributedStore()
assert named.setup(form | {"ipc_socket_path": f"@of a test on {port}", "global_segment_size": 0}) == 0, named.last_error()
named.close()

assert store.close() == 0
assert dummy.get("dummy's") == b""
deadline = time.monotonic() + 20
while dummy.health_check() != 2:
    assert time.monotonic() < deadline, "the dummy does not notice that nobody serves it"
    time.sleep(0.02)
assert store.setup(form) == 0, f"the name is free again: {store.last_error()}"
store.close()
dummy.close()
