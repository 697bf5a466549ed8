"""With the hot cache on, a reader sees at once what another client writes anew or removes; and it does save transfers."""

import os
import socket
import sys
import urllib.request

from mooncake.store import MooncakeDistributedStore

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
os.environ["MC_STORE_LOCAL_HOT_CACHE_SIZE"] = "64MB"
reader = MooncakeDistributedStore()
named = dict(enable_client_http_server=True, client_http_port=port)
assert reader.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], **named) == 0, reader.last_error()
del os.environ["MC_STORE_LOCAL_HOT_CACHE_SIZE"]
writer = MooncakeDistributedStore()
assert writer.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0


def counted(name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return next(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"yuebing_client_{name}_total{{"))


for turn in range(20):
    value = bytes([turn]) * 100_000
    assert writer.put("hot", value) == 0
    for _ in range(4):
        assert reader.get("hot") == value, turn
    assert bytes(reader.get_buffer("hot")) == value
    assert writer.remove("hot", force=True) == 0
    assert reader.get("hot") == b"", turn
assert counted("hot_hits") >= 40 and counted("hot_admitted") >= 10
