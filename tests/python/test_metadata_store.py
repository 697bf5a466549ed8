"""Stores whose engines find each other by names in an HTTP metadata store: ours, the peer's, and both in one pool."""

import subprocess
import time

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


#: Sets a store up under a name that another one has, says so, and puts some objects when told: small ones, since what was
#: read is leased and the rounds of some seconds must fit.
NAMESAKE = """
import sys
from mooncake.store import MooncakeDistributedStore
master, url, name = sys.argv[1:]
store = MooncakeDistributedStore()
assert store.setup(name, url, 64 << 20, 16 << 20, "tcp", "", master) == 0
print("set up", flush=True)
for line in sys.stdin:
    mark = line.strip()
    codes = [store.put(f"{mark}-{i}", mark.encode() * 10) for i in range(10)]
    codes += [0 if store.get(f"{mark}-{i}") == mark.encode() * 10 else store.last_error() for i in range(10)]
    print(set(codes) == {0} or codes, flush=True)
assert store.close() == 0
"""


def test_of_two_living_stores_of_one_name_the_newer_one_serves(need):
    need(OURS, program=True)
    http = free_port()
    with Pool() as pool:
        pool.start_master(OURS, flags=("--enable_http_metadata_server=true", "--http_metadata_server_host=127.0.0.1",
                                       f"--http_metadata_server_port={http}"))
        arguments = [f"127.0.0.1:{pool.port}", f"http://127.0.0.1:{http}/metadata", f"127.0.0.1:{free_port()}"]
        command = [str(installation(OURS).python), "-c", NAMESAKE, *arguments]
        stores = []
        for _ in range(2):
            store = subprocess.Popen(command, env=installation(OURS).environment(), stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert store.stdout.readline() == "set up\n"
            stores.append(store)

        def put(store, mark):
            store.stdin.write(mark + "\n")
            store.stdin.flush()
            return store.stdout.readline()

        # The older one gives its segment up with its next ping, and what lay there is gone. From then on nothing is placed
        # there, whoever puts: for longer than the master waits for a client at whose address another one is.
        now = time.monotonic
        good_since, deadline = now(), now() + 30
        while now() < good_since + 5:
            answers = [put(store, f"{now()}") for store in stores]
            assert now() < deadline, answers
            good_since = good_since if answers == ["True\n"] * 2 else now()
        logs = [store.communicate(timeout=30)[1] for store in stores]
        assert [store.returncode for store in stores] == [0, 0]
        assert "another client has taken the name" in logs[0] and "has taken the name" not in logs[1]
