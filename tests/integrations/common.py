"""Shared helpers of the integration drivers (CPU only, loopback only)."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HOST = "127.0.0.1"
#: Also check what the peer cannot do and our package can.
SUPERSET = os.environ.get("SUPERSET") == "1"
PORT_LO, PORT_HI = 45000, 45999
_next = [PORT_LO + (os.getpid() * 37) % 900]


def free_port():
    """A port of 45000-45999 that nothing listens on at the moment."""
    for _ in range(PORT_HI - PORT_LO + 1):
        p = _next[0]
        _next[0] = PORT_LO if p >= PORT_HI else p + 1
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((HOST, p))
                return p
            except OSError:
                continue
    raise RuntimeError("no free port in 45000-45999")


def wait_until(true, timeout):
    """Whether `true()` came to hold within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def wait_tcp(port, timeout=20.0, proc=None):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if proc is not None and proc.poll() is not None:
            raise RuntimeError(f"process ended with {proc.returncode} before listening on {port}")
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 0.5):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on {port}")


def _die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: no stray master when a driver is killed


class Master:
    """One mooncake master, started through the package's own entry point
    (`python -m mooncake.cli`), stopped by its pid."""

    def __init__(self, *flags, http_metadata=False, log=None):
        self.rpc = free_port()
        self.metrics = free_port()
        self.meta = free_port() if http_metadata else None
        args = [sys.executable, "-m", "mooncake.cli", f"--rpc_port={self.rpc}",
                f"--metrics_port={self.metrics}", "--logtostderr=1"]
        if http_metadata:
            args += ["--enable_http_metadata_server=1", f"--http_metadata_server_port={self.meta}"]
        args += list(flags)
        self.logfile = log or tempfile.NamedTemporaryFile(prefix="mc-master-", suffix=".log", delete=False).name
        self.proc = subprocess.Popen(args, stdout=open(self.logfile, "w"), stderr=subprocess.STDOUT,
                                     start_new_session=True, preexec_fn=_die_with_parent)
        wait_tcp(self.rpc, proc=self.proc)

    @property
    def addr(self):
        return f"{HOST}:{self.rpc}"

    @property
    def metadata_server(self):
        return f"http://{HOST}:{self.meta}/metadata" if self.meta else "P2PHANDSHAKE"

    def page(self, path):
        """The text of one of its HTTP pages."""
        with urllib.request.urlopen(f"http://{HOST}:{self.metrics}{path}", timeout=5) as r:
            return r.read().decode()

    def keys(self):
        return self.page("/get_all_keys").split()

    def segments(self):
        return self.page("/get_all_segments").split()

    def stop(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


class Checks:
    """Counts named checks; ends with the plain 'N passed, N failed' line."""

    def __init__(self):
        self.ok = self.bad = self.skip = 0

    def __call__(self, name, cond, info=""):
        if cond:
            self.ok += 1
            print(f"ok    {name} {info}", flush=True)
        else:
            self.bad += 1
            print(f"FAIL  {name} {info}", flush=True)
        return bool(cond)

    def skipped(self, name, why):
        self.skip += 1
        print(f"skip  {name}: {why}", flush=True)

    def finish(self):
        tail = f", {self.skip} skipped" if self.skip else ""
        print(f"{self.ok} passed, {self.bad} failed{tail}", flush=True)
        sys.stdout.flush()
        return 1 if self.bad or not self.ok else 0


def which_mooncake():
    import importlib.metadata as md
    import mooncake.store
    names = [d.metadata["Name"] + "==" + d.version for d in md.distributions()
             if (d.metadata["Name"] or "").startswith("mooncake")]
    return f"{mooncake.store.__file__} {names}"


HERE = pathlib.Path(__file__).resolve().parent
