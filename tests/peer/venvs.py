"""Virtual environments holding the peer's published wheels.

Each generation of the peer that a proof needs is installed by pip, unmodified, into its own environment below
`target/peer/`. Ready-made environments are reused when `YB_PEER_VENVS` names a folder with one sub-folder a version
(`v0.3.13.post1`, `v0.3.12`, `v0.3.14`). Whatever is missing (registry, system library, compiler) is reported as one
line through `PeerMissing`; the caller decides whether that skips or fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
WORK = REPO / "target" / "peer"

#: What pip installs for each version of the peer. The "non-cuda" wheel of 0.3.12 is linked against CUDA's runtime.
REQUIREMENTS = {
    "0.3.12": ["mooncake-transfer-engine-non-cuda==0.3.12", "nvidia-cuda-runtime-cu12"],
    "0.3.13.post1": ["mooncake-transfer-engine-non-cuda==0.3.13.post1"],
    "0.3.14": ["mooncake-transfer-engine-cuda13==0.3.14", "nvidia-cuda-runtime"],
}
SYSTEM_PACKAGES = "libibverbs1 libnuma1 libcurl4 ibverbs-providers"


class PeerMissing(Exception):
    """One line that says what this machine lacks for a proof with the peer."""


@dataclass(frozen=True)
class Installation:
    """A Python that imports one version of the package `mooncake`, and what its processes need in their environment."""

    version: str
    python: Path
    library_path: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """The environment for a process of this installation."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MC_", "MOONCAKE_", "PYTHON"))}
        env["PYTHONUNBUFFERED"] = "1"
        if self.library_path:
            old = env.get("LD_LIBRARY_PATH")
            env["LD_LIBRARY_PATH"] = ":".join([str(p) for p in self.library_path] + ([old] if old else []))
        return env

    def program(self, name: str) -> Path:
        """A console script of the installation."""
        return self.python.parent / name


def peer(version: str) -> Installation:
    """The installation of one version of the peer, made on first use; raises `PeerMissing`."""
    python = _ready_made(version) or _made(version)
    libraries: list[Path] = []
    if len(REQUIREMENTS[version]) > 1:
        libraries.append(_cuda_runtime(python))
    if "cuda13" in REQUIREMENTS[version][0]:
        libraries.append(_stand_in_driver(python))
    installation = Installation(version, python, tuple(libraries))
    _check_import(installation)
    return installation


def _ready_made(version: str) -> Path | None:
    root = os.environ.get("YB_PEER_VENVS")
    python = Path(root) / f"v{version}" / "bin" / "python" if root else None
    return python if python and python.exists() else None


def _made(version: str) -> Path:
    home = WORK / f"v{version}"
    python = home / "bin" / "python"
    done = home / "installed"
    if done.exists() and done.read_text() == "\n".join(REQUIREMENTS[version]):
        return python
    make_venv(home)
    pip_install(python, REQUIREMENTS[version])
    done.write_text("\n".join(REQUIREMENTS[version]))
    return python


def make_venv(home: Path) -> None:
    """Creates an empty virtual environment with pip."""
    answer = subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], capture_output=True, text=True)
    if answer.returncode != 0:
        raise PeerMissing("python3 cannot make virtual environments (Debian: apt-get install python3-venv)")


def pip_install(python: Path, what: list[str]) -> None:
    """Installs packages; a registry that cannot be reached is `PeerMissing`."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *what]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["pip said nothing"]
        raise PeerMissing(f"pip could not install {' '.join(what)}: {lines[-1][:200]}")


def _check_import(installation: Installation) -> None:
    command = [str(installation.python), "-c", "import mooncake.store"]
    answer = subprocess.run(command, capture_output=True, text=True, env=installation.environment())
    if answer.returncode == 0:
        return
    library = re.search(r"(lib[\w.+-]+\.so[\w.]*): cannot open", answer.stderr)
    if library:
        raise PeerMissing(f"{library[1]} is missing for the peer's wheel (apt-get install {SYSTEM_PACKAGES})")
    raise PeerMissing(f"mooncake {installation.version} does not import: {answer.stderr.strip().splitlines()[-1]}")


def _site_packages(python: Path) -> Path:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _cuda_runtime(python: Path) -> Path:
    found = sorted(_site_packages(python).glob("nvidia/*/lib/libcudart.so.*"))
    if not found:
        raise PeerMissing(f"libcudart.so is missing beside {python} (PyPI nvidia-cuda-runtime)")
    return found[0].parent


def _stand_in_driver(python: Path) -> Path:
    """A folder with a `libcuda.so.1` whose every function answers CUDA_ERROR_NO_DEVICE (100).

    The wheel of 0.3.14 is linked against the driver library; on a machine without a GPU there is none. The names
    are the undefined `cu*` symbols of the wheel's own libraries.
    """
    folder = WORK / "no-gpu"
    library = folder / "libcuda.so.1"
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    site = _site_packages(python)
    names: set[str] = set()
    for binary in [*site.glob("mooncake/**/*.so"), *site.glob("mooncake*.libs/*.so*")]:
        names.update(_undefined_driver_symbols(binary))
    source = folder / "libcuda.c"
    source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names)))
    built = folder / f"building-{os.getpid()}"
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(built), str(source)],
            check=True, capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerMissing(f"no stand-in libcuda.so.1: cc failed ({error})") from error
    built.rename(library)
    return folder


def _undefined_driver_symbols(binary: Path) -> set[str]:
    try:
        answer = subprocess.run(["nm", "-D", "--undefined-only", str(binary)], capture_output=True, text=True)
    except OSError as error:
        raise PeerMissing("nm is missing (apt-get install binutils)") from error
    return set(re.findall(r"\bU (cu[A-Z]\w*)", answer.stdout))


def main() -> int:
    """Makes sure of the version that the Rust tests run against and prints the folder of the environments for
    `YB_PEER_VENVS`. Prints nothing, and one line to standard error, where this machine cannot have it; with `CI=true` that
    is a failure."""
    try:
        installation = peer("0.3.13.post1")
    except PeerMissing as missing:
        print(f"tests with the peer's wheel are skipped: {missing}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    print(installation.python.parents[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
