"""A pool for a proof: one master, some nodes, some clients, each either ours or a version of the peer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from processes import Driver, Process, free_port, http_get, listens, wait_until
from venvs import Installation, PeerMissing, peer

OURS = "ours"
MIB = 1 << 20

_installations: dict[str, Installation] = {}


def installation(kind: str) -> Installation:
    """The Python of a kind (`ours` or a version of the peer)."""
    if kind not in _installations:
        _installations[kind] = _ours() if kind == OURS else peer(kind)
    return _installations[kind]


def _ours() -> Installation:
    python = os.environ.get("YB_OURS_PYTHON")
    if not python:
        raise PeerMissing("our package is not installed (scripts/test_python.sh does it)")
    return Installation(OURS, Path(python))


def our_program(name: str) -> Path:
    """The command `name` of ours: `YB_BINARY`, which answers to every name, or the launcher in our package."""
    named = os.environ.get("YB_BINARY")
    program = Path(named) if named else installation(OURS).program(name)
    if not program.exists():
        raise PeerMissing(f"our program is not there: {program}")
    return program


@dataclass
class Daemon:
    """A node that serves dummy clients."""

    process: Process
    port: int
    args: list[str]


class Pool:
    """Starts processes on free ports of 127.0.0.1 and ends them, the last one first."""

    def __init__(self):
        self.processes: list[Process] = []
        self.port = 0
        self.metrics_port = 0
        self.master_args: list[str] = []
        self.compat_ports: dict[str, int] = {}
        self.segments: dict[str, str] = {}
        self.daemons: dict[str, Daemon] = {}

    def start_master(self, kind: str, *, compat: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> None:
        """Starts the master and returns when its RPC and HTTP ports answer."""
        self.port, self.metrics_port = free_port(), free_port()
        self.compat_ports = {generation: free_port() for generation in compat}
        args = [
            f"--rpc_port={self.port}", "--rpc_address=127.0.0.1", f"--metrics_port={self.metrics_port}",
            "--default_kv_lease_ttl=2000", *flags,
        ]
        args += [f"--compat_listen={generation}:{port}" for generation, port in self.compat_ports.items()]
        self.master_args = args
        master = self._program(kind, "mooncake_master", args)
        for port in (self.port, self.metrics_port, *self.compat_ports.values()):
            wait_until(f"{kind} master to listen on {port}", lambda port=port: master.must_run() or listens(port))

    def restart_master(self) -> Process:
        """Starts our master once more, with the arguments it had; the one before has ended."""
        master = self._program(OURS, "mooncake_master", self.master_args)
        self.processes.pop()
        for port in (self.port, self.metrics_port, *self.compat_ports.values()):
            wait_until(f"the master to listen on {port} again", lambda port=port: master.must_run() or listens(port))
        return master

    def start_node(
        self, kind: str, *, size_mib: int = 512, port: int | None = None, flags: tuple[str, ...] = (),
    ) -> str:
        """Starts a storage node, which is a daemon for dummy clients too, and returns the name of its segment when the
        master lists it."""
        before = self.segment_names()
        port = port or free_port()
        args = [
            "--host=127.0.0.1", f"--port={port}", f"--master_server_address=127.0.0.1:{self.port}",
            "--metadata_server=P2PHANDSHAKE", "--protocol=tcp", f"--global_segment_size={size_mib} MB",
            *flags,
        ]
        node = self._program(kind, "mooncake_client", args)
        fresh = wait_until(
            f"the segment of a {kind} node at the master",
            lambda: node.must_run() or (self.segment_names() - before),
        )
        (self.segments[kind],) = fresh
        self.daemons[kind] = Daemon(node, port, args)
        return self.segments[kind]

    def start_client(
        self, kind: str, *, buffer_mib: int = 160, segment_mib: int = 0, port: int | None = None,
        env: dict[str, str] | None = None,
    ) -> Driver:
        """Starts a client process whose store is set up, with a registered buffer of `buffer_mib` (0: neither)."""
        client = Driver(f"client-{kind}", installation(kind), env)
        self.processes.append(client)
        answer = client.ask("setup", [
            "127.0.0.1", "P2PHANDSHAKE", segment_mib * MIB, buffer_mib * MIB, "tcp", "", f"127.0.0.1:{port or self.port}",
        ])
        assert answer == 0, f"setup of a {kind} client: {answer}\n{client.log_tail()}"
        if buffer_mib:
            assert client.ask("use_buffer", buffer_mib * MIB) == 0
        return client

    def start_node_again(self, end: str) -> Process:
        """Ends our node (`kill` or `stop`) and starts it with the arguments it had, at once."""
        daemon = self.daemons[OURS]
        getattr(daemon.process, end)()
        self.processes.remove(daemon.process)
        daemon.process = self._program(OURS, "mooncake_client", daemon.args)
        return daemon.process

    def restart_node(self, kind: str, *, size_mib: int = 512) -> str:
        """Kills the node of this kind and starts another at its port."""
        old = self.daemons[kind]
        old.process.kill()
        name = self.segments[kind]
        wait_until(f"the master to drop {name}", lambda: name not in self.segment_names(), 60)
        return self.start_node(kind, size_mib=size_mib, port=old.port)

    def start_dummy(self, kind: str, daemon: str, *, buffer_mib: int = 160) -> Driver:
        """Starts a process whose store is a dummy client of the daemon of kind `daemon`, with shared memory of
        `buffer_mib` registered (0: none)."""
        client = Driver(f"dummy-{kind}", installation(kind))
        self.processes.append(client)
        address = f"127.0.0.1:{self.daemons[daemon].port}"
        answer = client.ask("call", "setup_dummy", 0, 96 * MIB, address)
        assert answer == 0, f"setup of a {kind} dummy: {answer}\n{client.log_tail()}"
        wait_until("the first ping of a dummy", lambda: client.ask("call", "health_check") == 0)
        if buffer_mib:
            size = buffer_mib * MIB
            assert client.ask("use_shared_buffer", size, [[0, size]]) == [0]
        return client

    def segment_names(self) -> set[str]:
        """What the master's admin page lists."""
        return set(http_get(self.metrics_port, "/get_all_segments").split())

    def close(self) -> None:
        """Ends every process of the pool."""
        for process in reversed(self.processes):
            process.stop()
        self.processes.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _program(self, kind: str, name: str, args: list[str]) -> Process:
        if kind == OURS:
            started = Process(f"{name}-{kind}", [str(our_program(name)), *args], dict(os.environ), argv0=name)
        else:
            place = installation(kind)
            started = Process(f"{name}-{kind}", [str(place.program(name)), *args], place.environment())
        self.processes.append(started)
        return started
