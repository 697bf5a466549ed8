"""Processes of a test: started with a log file, waited for with a deadline, ended by their own pid."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from venvs import WORK

START_SECONDS = 20.0
ANSWER_SECONDS = 60.0
STOP_SECONDS = 10.0


def wait_until(what: str, ready: Callable[[], object], seconds: float = START_SECONDS) -> object:
    """Asks `ready` until it answers something true, and returns that; fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ready()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


def ports_never_given_away() -> range:
    """Ports that the system gives to no socket that asks for any, above those that the peer binds by itself."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return range(20_000, first)


_ports = ports_never_given_away()
_turns = itertools.count(random.SystemRandom().randrange(1 << 30))


def free_port() -> int:
    """A TCP port nobody listens on, and that no other socket gets before it is used."""
    for turn in itertools.islice(_turns, len(_ports)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", _ports[turn % len(_ports)]))
            return probe.getsockname()[1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Whether something accepts connections on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def http_get(port: int, path: str) -> str:
    """The body of an HTTP answer; empty while there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return ""


class Process:
    """A program of the test with its output in `target/peer/logs/<name>-<pid of the test>.log`.

    It leads a process group of its own: the launchers of some versions of the peer start the real program as a child,
    which must end with them."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], *, argv0: str | None = None, pipe: bool = False):
        logs = WORK / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = logs / f"{name}-{os.getpid()}-{time.monotonic_ns()}.log"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if pipe else {"stdin": subprocess.DEVNULL}
        with self.log.open("wb") as sink:
            pipes.setdefault("stdout", sink)
            self.child = subprocess.Popen(
                [argv0 or command[0], *command[1:]],
                executable=command[0],
                env=env,
                stderr=sink,
                process_group=0,
                **pipes,
            )

    def running(self) -> bool:
        """Whether the process lives."""
        return self.child.poll() is None

    def must_run(self) -> None:
        """Fails with the end of the log when the process is gone."""
        if not self.running():
            raise AssertionError(f"{self.name} ended with {self.child.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last 3,000 characters it wrote."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Ends the process, and what it started, at once."""
        self._signal(signal.SIGKILL)
        self.child.wait(STOP_SECONDS)

    def stop(self) -> None:
        """Asks the process to end; after the deadline ends it."""
        if self.running():
            self._signal(signal.SIGTERM)
        try:
            self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)


class Driver(Process):
    """A client process (`driver.py`, or another script of its kind) under one installation of `mooncake`."""

    def __init__(self, name: str, installation, extra_env: dict[str, str] | None = None, script: str = "driver.py"):
        script = Path(__file__).with_name(script)
        env = installation.environment() | (extra_env or {})
        super().__init__(name, [str(installation.python), str(script)], env, pipe=True)
        self.pending = b""

    def ask(self, do: str, *args, **kwargs):
        """Does one operation there and returns its answer; what the package raises is raised here."""
        request = json.dumps({"do": do, "args": args, "kwargs": kwargs}) + "\n"
        self.child.stdin.write(request.encode())
        self.child.stdin.flush()
        answer = json.loads(self._line(f"{self.name} to answer {do}"))
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["ok"]

    def _line(self, what: str) -> bytes:
        deadline = time.monotonic() + ANSWER_SECONDS
        pipe = self.child.stdout.fileno()
        while b"\n" not in self.pending:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"not within {ANSWER_SECONDS:.0f} s: {what}\n{self.log_tail()}")
            piece = os.read(pipe, 65536)
            if not piece:
                self.child.wait(STOP_SECONDS)
                raise AssertionError(f"{what}: it ended with {self.child.returncode}\n{self.log_tail()}")
            self.pending += piece
        line, _, self.pending = self.pending.partition(b"\n")
        return line

    def stop(self) -> None:
        """Ends standard input, on which the driver leaves."""
        if self.running():
            self.child.stdin.close()
        super().stop()


class DriverError(Exception):
    """What the package raised in the client process, as text."""
