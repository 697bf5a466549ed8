"""Engines of both versions of the peer, and our package's, meet by name through our HTTP metadata server, alone and in
our master."""

import subprocess

import pytest
from pool import OURS, installation, our_program
from processes import Process, free_port, listens, wait_until
from venvs import REPO

SCRIPT = REPO / "crates" / "transfer" / "tests" / "wheel_engine.py"
NEW, OLD = "0.3.14", "0.3.13.post1"
ALONE, IN_MASTER = "alone", "in the master"


class NamedEngine:
    """An engine in a process of its own, told line by line what to do."""

    def __init__(self, version: str, name: str, store: str):
        place = installation(version)
        env = place.environment() | {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        self.child = subprocess.Popen(
            [str(place.python), str(SCRIPT), name, store],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        self.started = self._answer()
        self.address = int(self.started[-1])

    def _answer(self) -> list[str]:
        for line in self.child.stdout:
            if line.startswith("answer "):
                return line.split()[1:]
        raise AssertionError(f"the engine ended with {self.child.wait(10)}")

    def ask(self, order: str) -> str:
        """Gives an order and returns its answer."""
        self.child.stdin.write(order + "\n")
        self.child.stdin.flush()
        return " ".join(self._answer())

    def kill(self) -> None:
        """Ends it at once."""
        self.child.kill()
        self.child.wait(10)


@pytest.fixture
def store(request, need):
    """The address of a metadata server of ours, of the kind that the test names."""
    need(OLD, NEW)
    need(program=True)
    port = free_port()
    if request.param == ALONE:
        name, flags = "mooncake_http_metadata_server", ["--host=127.0.0.1", f"--port={port}"]
    else:
        name = "mooncake_master"
        flags = [
            "--rpc_address=127.0.0.1", f"--rpc_port={free_port()}", "--metrics_host=127.0.0.1",
            f"--metrics_port={free_port()}", "--enable_http_metadata_server=true",
            "--http_metadata_server_host=127.0.0.1", f"--http_metadata_server_port={port}",
        ]
    program = our_program(name)
    server = Process(name, [str(program), *flags], installation(OLD).environment(), argv0=name)
    try:
        wait_until("the metadata server listens", lambda: server.must_run() or listens(port))
        yield f"http://127.0.0.1:{port}/metadata"
    finally:
        server.stop()


@pytest.mark.parametrize(
    "store, first, second",
    [(ALONE, OLD, NEW), (ALONE, OURS, OLD), (ALONE, OURS, NEW), (IN_MASTER, NEW, NEW)],
    indirect=["store"],
)
def test_engines_meet(need, store, first, second):
    need(first, second)
    engines = [NamedEngine(first, "a:1", store), NamedEngine(second, "b:2", store)]
    try:
        for one, other, name in [(*engines, "b:2"), (*reversed(engines), "a:1")]:
            assert one.ask(f"first {name}") == str(other.address)
            for size, offset in [(1, 3), (65537, 0), (1 << 20, 4095)]:
                assert one.ask(f"write {name} {other.address + offset} {offset} {size} 5") == "0"
                assert other.ask(f"check {offset} {size} 5") == "0"
                assert one.ask(f"read {name} {other.address + offset} {offset} {size} 5") == "0"
    finally:
        for engine in engines:
            engine.kill()
