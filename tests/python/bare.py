"""A machine that has nothing: a root of its own with the C library, a Python, our package, /proc and the name
localhost; nothing else.

No user rights, no place to write, no home, no network but loopback, no shell, no library beyond the C library's family. Files
that nobody may look for (libraries and devices of hardware) are there as baits: whoever opens one is found.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

if __name__ != "__main__":
    from pool import OURS, installation

#: Nobody, as a user and as a group.
NOBODY = 65534
#: What hardware and services would be looked for as.
BAITS = (
    "usr/lib/libibverbs.so.1", "usr/lib/libmlx5.so.1", "usr/lib/libcuda.so.1", "usr/lib/libcudart.so.12", "usr/lib/libnuma.so.1",
    "usr/lib/libhwloc.so.15", "usr/lib/libcurl.so.4", "sys/class/infiniband/mlx5_0", "dev/infiniband/uverbs0", "dev/nvidiactl",
)
DEVICES = ["null", "zero", "urandom"]
#: What the machine has for itself.
SPACES = ["--mount", "--net", "--ipc", "--uts", "--pid", "--fork"]
#: Asks a Python for the files and folders that it consists of, links to the interpreter one by one.
PARTS = """
import json, os, sys, sysconfig
hops = [sys.executable]
while os.path.islink(hops[-1]):
    hops.append(os.path.normpath(os.path.join(os.path.dirname(hops[-1]), os.readlink(hops[-1]))))
print(json.dumps([*hops[1:], sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib')]))
"""
#: Makes the mounts: the root, what is to be in it under the same name, `--`, and what to become then.
MOUNTS = r"""
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1"
    shift
done
shift
for device in null zero urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec "$@"
"""
_IN_OPEN, _IN_NONBLOCK = 0x20, os.O_NONBLOCK


def reason_against() -> str:
    """Why there can be no such machine here; empty if there can."""
    if os.geteuid() != 0:
        return "only root can make a root of its own"
    try:
        probe = subprocess.run(["unshare", *SPACES, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return probe.stderr.strip() if probe.returncode != 0 else ""


def needed_libraries(*binaries: Path) -> list[Path]:
    """The libraries that these programs and libraries are linked against, the loader among them."""
    found: set[Path] = set()
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        assert "not found" not in told, told
        found.update(Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+)", told, flags=re.M))
    return sorted(found)


class Watch:
    """Tells which of some files and folders were opened, from any root."""

    def __init__(self, paths: list[Path]):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(_IN_NONBLOCK)
        assert self._queue >= 0, os.strerror(ctypes.get_errno())
        self._paths = {}
        for path in paths:
            number = self._libc.inotify_add_watch(self._queue, os.fsencode(path), _IN_OPEN)
            assert number >= 0, f"{path}: {os.strerror(ctypes.get_errno())}"
            self._paths[number] = path

    def opened(self) -> list[Path]:
        """What was opened since the last question."""
        found = set()
        while True:
            try:
                events = os.read(self._queue, 65536)
            except BlockingIOError:
                return sorted(found)
            while events:
                number, _, _, length = struct.unpack_from("iIII", events)
                found.add(self._paths[number])
                events = events[16 + length :]


class BareMachine:
    """Made in a folder, with baits or without; runs `bare_script.py` in it as often as is wanted."""

    def __init__(self, folder: Path, baits: tuple[str, ...] = ()):
        self.root = folder / "root"
        self.python = installation(OURS).python
        self.environment = self.python.parents[1]
        self.script = Path(__file__).with_name("bare_script.py")
        told = subprocess.run([str(self.python), "-c", PARTS], capture_output=True, text=True, check=True).stdout
        self.places = [*dict.fromkeys([self.environment, self.script, *map(Path, json.loads(told))])]
        self._furnish(baits)
        places = [self.root / bait for bait in baits]
        self.watch = Watch([*places, *{place.parent for place in places if "infiniband" in str(place)}])

    def package(self) -> Path:
        """The folder `mooncake`."""
        return next(self.environment.glob("lib/python*/site-packages/mooncake"))

    def binaries(self) -> list[Path]:
        """The program and the extension of the package."""
        return [self.package() / "bin" / "yuebing", *self.package().glob("_native*.so")]

    def _furnish(self, baits: tuple[str, ...]) -> None:
        for folder in ("proc", "dev"):
            (self.root / folder).mkdir(parents=True)
        for name in [*(f"dev/{device}" for device in DEVICES), *baits]:
            self._touch(name)
        # What every container is given.
        self._touch("etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        for library in needed_libraries(self.python.resolve(), *self.binaries()):
            shutil.copyfile(library, self._touch(library))
            self._touch(library).chmod(0o755)
        for place in self.places:
            if place.is_dir():
                self._inside(place).mkdir(parents=True, exist_ok=True)
            else:
                self._touch(place)

    def _inside(self, path: Path | str) -> Path:
        return self.root / str(path).lstrip("/")

    def _touch(self, path: Path | str) -> Path:
        inside = self._inside(path)
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.touch()
        return inside

    def run(self, step: str, *, ipv6_only: bool = False, environment: dict[str, str] | None = None) -> dict:
        """Runs one step of the script as nobody, in this environment and no other; answers what it tells."""
        kind = "6" if ipv6_only else "4"
        given = [f"{name}={value}" for name, value in (environment or {}).items()]
        inside = [
            "setpriv", "--no-new-privs", "env", "-i", *given, "/usr/sbin/chroot", f"--userspec={NOBODY}:{NOBODY}",
            f"--groups={NOBODY}", str(self.root), str(self.python), str(self.script), step, kind,
        ]
        mounts = ["sh", "-c", MOUNTS, "sh", str(self.root), *map(str, self.places), "--", *inside]
        command = ["unshare", *SPACES, "--kill-child", sys.executable, __file__, kind, *mounts]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-3000:]}"
        return {**json.loads(run.stdout), "log": run.stderr}


def loopback(kind: str) -> None:
    """Brings the loopback device of a new network up; for `6` without its IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        get, put, address, up = 0x8913, 0x8914, 0x8916, 0x1
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(probe, get, request))[1]
        fcntl.ioctl(probe, put, struct.pack("16sH14s", b"lo", flags | up, b""))
        if kind == "6":
            fcntl.ioctl(probe, address, struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"", bytes(4), b""))


if __name__ == "__main__":
    loopback(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
