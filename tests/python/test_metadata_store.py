"""Stores whose engines find each other by names in an HTTP metadata store: ours, the peer's, and both in one pool."""

import subprocess

import pytest
from pool import OURS, Pool, installation
from processes import free_port

PEER = "0.3.13.post1"

#: Sets a store up, puts its own object, says so, and reads the other's when told.
SIDE = """
import sys
from mooncake.store import MooncakeDistributedStore
master, url, mine, other, segment = sys.argv[1:]
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", url, int(segment), 16 << 20, "tcp", "", master) == 0
value = lambda name: (name.encode() * 50_000)[:300_000]
if int(segment):
    assert store.put(mine, value(mine)) == 0
    name = store.get_hostname()
    assert name.startswith("127.0.0.1:") and name.rpartition(":")[2].isdigit(), name
print("put", flush=True)
for line in sys.stdin:
    if line.strip() == "read":
        print(store.get(other) == value(other), flush=True)
    else:
        break
assert store.close() == 0
"""


class Side:
    """A process with one store."""

    def __init__(self, kind, pool, url, mine, other, segment):
        place = installation(kind)
        arguments = [f"127.0.0.1:{pool.port}", url, mine, other, str(segment)]
        self.process = subprocess.Popen([str(place.python), "-c", SIDE, *arguments], env=place.environment(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "put\n"

    def reads(self):
        self.process.stdin.write("read\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "True\n"

    def end(self):
        self.process.communicate("end\n", timeout=30)
        return self.process.returncode


@pytest.mark.parametrize("kinds", [(OURS, OURS), (OURS, PEER), (PEER, OURS)], ids="-".join)
def test_engines_find_each_other_by_name(need, kinds):
    need(OURS, PEER, program=True)
    http = free_port()
    with Pool() as pool:
        pool.start_master(OURS, flags=("--enable_http_metadata_server=true", "--http_metadata_server_host=127.0.0.1",
                                       f"--http_metadata_server_port={http}"))
        url = f"http://127.0.0.1:{http}/metadata"
        first = Side(kinds[0], pool, url, "of-first", "of-second", 64 << 20)
        second = Side(kinds[1], pool, url, "of-second", "of-first", 64 << 20)
        reader = Side(kinds[1], pool, url, "", "of-first", 0)
        assert [side.reads() for side in (first, second, reader)] == [True] * 3
        assert [side.end() for side in (reader, second, first)] == [0] * 3
