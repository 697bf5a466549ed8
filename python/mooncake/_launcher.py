"""The commands of the package: they become the bundled program, so that its process id is the one that was started."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def locate() -> Path:
    """Path of the bundled program; `FileNotFoundError` when the package was installed without it."""
    program = Path(__file__).with_name("bin") / "yuebing"
    if not program.exists():
        raise FileNotFoundError(f"this installation has no program at {program}")
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


def _become(name: str) -> NoReturn:
    program = locate()
    sys.stdout.flush()
    os.execv(program, [name, *sys.argv[1:]])


def yuebing() -> NoReturn:
    """The command `yuebing`."""
    _become("yuebing")


def mooncake_master() -> NoReturn:
    """The command `mooncake_master`."""
    _become("mooncake_master")


def mooncake_client() -> NoReturn:
    """The command `mooncake_client`."""
    _become("mooncake_client")


def mooncake_http_metadata_server() -> NoReturn:
    """The command `mooncake_http_metadata_server`."""
    _become("mooncake_http_metadata_server")


def transfer_engine_topology_dump() -> NoReturn:
    """The command `transfer_engine_topology_dump`."""
    _become("transfer_engine_topology_dump")


def transfer_engine_bench() -> NoReturn:
    """The command `transfer_engine_bench`."""
    _become("transfer_engine_bench")
