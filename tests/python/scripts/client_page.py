"""The client's own HTTP page: health, metrics, and its end with the store."""

import socket
import sys
import urllib.error
import urllib.request

from mooncake.store import MooncakeDistributedStore


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.read().decode()


port = free_port()
store = MooncakeDistributedStore()
answer = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], enable_client_http_server=True,
                     client_http_port=port)
assert answer == 0, store.last_error()
assert store.put("page", b"v" * 100) == 0 and store.get("page") == b"v" * 100
assert get("/health") == '{"status":"healthy","code":0}'
metrics = dict(line.rsplit(" ", 1) for line in get("/metrics").splitlines() if not line.startswith("#"))
assert metrics['mooncake_transfer_read_bytes{client_mode="real"}'] == "100"
assert metrics['mooncake_client_rpc_count{client_mode="real",rpc_name="PutStart"}'] == "1"
assert "put: 1 calls" in get("/metrics/summary")
second = MooncakeDistributedStore()
config = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": "0",
          "master_server_addr": sys.argv[1], "enable_client_http_server": "true", "client_http_port": str(port)}
assert second.setup(config) == -600 and str(port) in second.last_error()
store.close()
try:
    get("/health")
    raise AssertionError
except urllib.error.URLError:
    pass
assert second.setup(config) == 0 and '"code":0' in get("/health")
second.close()
