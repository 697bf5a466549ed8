"""Sixteen clients on one host that start at once: each has an endpoint of its own, nobody reads another's bytes under its
key, and an identity that comes back on the same port is not mistaken for the one that was killed."""

import json
import os
import socket
import subprocess
import sys
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

MASTER = sys.argv[1]
CLIENT = """
import json, os, sys
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
master, name, mark = sys.argv[1:4]
store = MooncakeDistributedStore()
port = int(os.environ.get("PAGE_PORT", "0"))
page = {"enable_client_http_server": True, "client_http_port": port} if port else {}
code = store.setup(name, "P2PHANDSHAKE", 32 << 20, 0, "tcp", "", master, **page)
if code != 0:
    print(json.dumps({"code": code, "why": store.last_error()}), flush=True)
    sys.exit(0)
here = ReplicateConfig()
here.preferred_segments = [store.get_hostname()]
marker = f"{os.getpid()} {mark}".encode()
assert store.upsert("marker/" + mark, marker, here) == 0, store.last_error()
assert store.upsert("object/" + mark, marker.ljust(64) * (5 << 14), here) == 0, store.last_error()
replica = store.get_replica_desc("marker/" + mark)[0].get_memory_descriptor().buffer_descriptor
print(json.dumps({"code": 0, "pid": os.getpid(), "name": store.get_hostname(), "endpoint": replica.transport_endpoint}), flush=True)
sys.stdin.readline()
"""


def start(name, mark, **env):
    command = [sys.executable, "-c", CLIENT, MASTER, name, mark]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | env)


def told(child):
    """What a client says of itself."""
    return json.loads(child.stdout.readline())


def expect(clients):
    """Reads everybody's objects; each must be its writer's, whole."""
    for mark, (_, said) in clients.items():
        marker = f"{said['pid']} {mark}".encode()
        assert reader.get("marker/" + mark) == marker, (mark, reader.last_error())
        assert reader.get("object/" + mark) == marker.ljust(64) * (5 << 14), (mark, reader.last_error())


reader = MooncakeDistributedStore()
assert reader.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", MASTER) == 0
names = ["localhost"] * 7 + ["127.0.0.1"] * 7 + ["0.0.0.0"] * 2
children = {str(i): start(name, str(i)) for i, name in enumerate(names)}
clients = {}
for mark, child in children.items():
    said = told(child)
    if said["code"] == 0:
        assert not said["endpoint"].startswith("0.0.0.0"), "an address that others cannot use"
        clients[mark] = (child, said)
    else:
        assert names[int(mark)] == "0.0.0.0" and said["code"] == -600 and "0.0.0.0" in said["why"], said
assert len(clients) >= 14
assert len({said["endpoint"] for _, said in clients.values()}) == len(clients), "two clients with one endpoint"
assert len({said["name"] for _, said in clients.values()}) == len(clients), "two clients with one name"
expect(clients)

reborn = list(clients)[5:9]
for mark in reborn:
    child, _ = clients[mark]
    child.kill()
    child.wait(10)
fresh = {mark: start(clients[mark][1]["endpoint"], mark) for mark in reborn}
for mark, child in fresh.items():
    said = told(child)
    assert said["code"] == 0, said
    clients[mark] = (child, said)
expect(clients)
for child, _ in clients.values():
    child.stdin.close()
deadline = time.monotonic() + 20
for child, _ in clients.values():
    assert child.wait(max(0.1, deadline - time.monotonic())) == 0

# Another program has every third port of the range that clients draw from: sixteen at once find others, each its own two.
FIRST, COUNT = 23_000, 96
taken = []
for port in range(FIRST, FIRST + COUNT, 3):
    other = socket.socket()
    try:
        other.bind(("127.0.0.1", port))
        other.listen()
    except OSError:
        pass  # somebody has it already, which is as good
    taken.append(other)
ports = {"MC_STORE_CLIENT_MIN_PORT": str(FIRST), "MC_STORE_CLIENT_MAX_PORT": str(FIRST + COUNT - 1)}
children = [start("127.0.0.1", f"range-{i}", **ports) for i in range(16)]
ranged = {f"range-{i}": (child, told(child)) for i, child in enumerate(children)}
assert all(said["code"] == 0 for _, said in ranged.values()), ranged
drawn = {int(said["endpoint"].rpartition(":")[2]) for _, said in ranged.values()}
assert len(drawn) == 16 and drawn <= set(range(FIRST, FIRST + COUNT)) - set(range(FIRST, FIRST + COUNT, 3)), drawn
expect(ranged)

# A port that is named and taken is named in the refusal: here that of the page.
refused = start("127.0.0.1", "page", YB_CLIENT_HTTP_HOST="127.0.0.1", PAGE_PORT=str(FIRST))
said = told(refused)
assert said["code"] == -600 and str(FIRST) in said["why"], said
for child, _ in ranged.values():
    child.stdin.close()
assert [child.wait(20) for child, _ in ranged.values()] == [0] * 16 and refused.wait(20) == 0
for other in taken:
    other.close()
