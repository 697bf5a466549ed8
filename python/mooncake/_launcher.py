"""The commands of the package: they become the bundled program, so that its process id is the one that was started."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn


def locate(name: str) -> str:
    """Path of the command `name` of this installation (`mooncake_master`, …); `FileNotFoundError` without it.

    The command becomes the bundled program, so a process that is started from this path is the server itself.
    """
    package = Path(__file__).parent
    # With `pip install --target` the commands are in a folder beside the package.
    folders = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent, package.parent / "bin")
    for folder in folders:
        if (folder / name).exists():
            return str(folder / name)
    raise FileNotFoundError(f"this installation has no command {name} in {', '.join(map(str, folders))}")


def program() -> Path:
    """Path of the bundled program; `FileNotFoundError` when the package was installed without it."""
    program = Path(__file__).with_name("bin") / "yuebing"
    if not program.exists():
        raise FileNotFoundError(f"this installation has no program at {program}")
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


def _become(name: str) -> NoReturn:
    path = program()
    sys.stdout.flush()
    os.execv(path, [name, *sys.argv[1:]])


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


def store_rs_client() -> NoReturn:
    """The peer's command `mooncake-store-rs-client`, which its wheels do not have either: `FileNotFoundError`."""
    _become_other("mooncake-store-rs-client")


def store_rs_admin() -> NoReturn:
    """As `store_rs_client`, for `mooncake-store-rs-admin`."""
    _become_other("mooncake-store-rs-admin")


def store_rs_bench() -> NoReturn:
    """As `store_rs_client`, for `mooncake-store-rs-bench`."""
    _become_other("mooncake-store-rs-bench")


def _become_other(name: str) -> NoReturn:
    program = locate(name)
    os.execv(program, [program, *sys.argv[1:]])
