"""Does what it is told line by line and prints what it got, and why it did not get more. See `test_last_error.py`."""

import json
import os
import sys
import urllib.request

os.environ["YB_ALLOW_EMPTY"] = "1"

from mooncake.store import MooncakeDistributedStore, last_error  # noqa: E402

PARTS = ("code", "reason", "message", "peer", "stage", "retryable", "elapsed", "key",
         "cause", "node", "writer", "writer_host", "age", "left", "amount", "limit")
PORT = int(os.environ.get("PAGE_PORT", "0"))


def why():
    """The parts of the last failure, or None."""
    failure = last_error()
    return failure and {name: getattr(failure, name) for name in PARTS}


def counted():
    """Failures by reason, as the client's page has them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    mine = [line for line in lines if line.startswith("yuebing_client_failures_total{")]
    return {line.split('reason="')[1].split('"')[0]: int(line.rsplit(" ", 1)[1]) for line in mine}


store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1], enable_client_http_server=True,
                   client_http_port=PORT) == 0, store.last_error()
for line in sys.stdin:
    step, _, key = line.strip().partition(" ")
    if step == "put":
        answer = [store.put("there", b"bytes"), store.put("empty", b""), why()]
    elif step == "get":
        answer = [store.get(key).decode(), why()]
    elif step == "begin":
        other = MooncakeDistributedStore()
        assert other.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0, other.last_error()
        answer = other.batch_put_session_start([key], [1000])
    elif step == "exists":
        answer = [store.is_exist(key), why()]
    elif step == "remove":
        answer = [store.remove(key), why()]
    elif step == "large":
        answer = [store.put(key, bytes(65 << 20)), why()]
    elif step == "where":
        answer = store.get_replica_desc(key)[0].get_memory_descriptor().buffer_descriptor.transport_endpoint
    elif step == "metrics":
        answer = counted()
    else:
        break
    print(json.dumps(answer), flush=True)
store.close()
