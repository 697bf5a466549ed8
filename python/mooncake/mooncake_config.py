"""What a store is set up with, from a JSON file or from the environment.

    config = MooncakeConfig.load_from_env()
    store.setup(config.local_hostname, config.metadata_server, config.global_segment_size, config.local_buffer_size,
                config.protocol, config.device_name, config.master_server_address)

docs/python-modules.md has the table of fields, variables and defaults.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Optional

#: Bytes lent to the pool when neither file nor environment says: 3200 MiB.
DEFAULT_GLOBAL_SEGMENT_SIZE = 3200 << 20
#: Bytes of the local buffer when neither file nor environment says: 1 GiB.
DEFAULT_LOCAL_BUFFER_SIZE = 1 << 30

logger = logging.getLogger(__name__)

#: Names that pass without a warning. Which of them this build has is decided at setup.
_PROTOCOLS = frozenset(
    "ascend barex cxl efa hip maca musa nvlink nvlink_intra nvmeof rdma rpc_only sunrise_link tcp ub ubshmem".split()
)
_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")
#: The longer suffix of two comes first.
_UNITS = {"kb": 10, "mb": 20, "gb": 30, "tb": 40, "k": 10, "m": 20, "g": 30, "t": 40, "b": 0}
_YES = frozenset(("true", "1", "yes", "on", "enable"))
_NO = frozenset(("false", "0", "no", "off", "disable", ""))


def _parse_segment_size(value: Any) -> int:
    """Bytes of a number, or of text such as `4096`, `512 MB`, `1.5g` (powers of 1024); `ValueError` for other text."""
    if not isinstance(value, str):
        return int(value)
    text = value.strip().lower()
    if not text:
        raise ValueError("a size is empty text")
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).strip()
    if not number:
        raise ValueError(f"the size {value!r} has a unit, but no number")
    try:
        return int(number) << _UNITS.get(unit, 0)
    except ValueError:
        pass
    try:
        return int(float(number) * (1 << _UNITS.get(unit, 0)))
    except ValueError:
        raise ValueError(f"{value!r} is not a size; a number of bytes is, or '512 MB', '1.5g'") from None


def _parse_bool(value: Any) -> bool:
    """A truth value, a number, None (no), or text such as `true`, `on`, `enable` and their opposites."""
    if value is None or isinstance(value, (bool, int, float)):
        return bool(value)
    text = value.strip().lower() if isinstance(value, str) else None
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise ValueError(f"Invalid boolean value: {value!r}")


def _text_or(default: str) -> Callable[[Any], str]:
    """Text of anything; the default for null."""
    return lambda value: default if value is None else str(value)


@dataclass
class MooncakeConfig:
    """A checked configuration; `ValueError` names the field that cannot work."""

    #: Name of this client and of the memory it lends: `host` or `host:port`.
    local_hostname: str
    #: `P2PHANDSHAKE`, or where the descriptors of Transfer Engines are kept.
    metadata_server: str
    #: Bytes lent to the pool; 0 lends nothing.
    global_segment_size: int
    #: Bytes of the local buffer.
    local_buffer_size: int
    #: `tcp`, `rdma`, …; lower case after construction.
    protocol: str
    #: Network devices, comma separated; empty: all that fit.
    device_name: Optional[str]
    #: `host:port` of the master.
    master_server_address: str
    #: Whether objects are also kept on this node's disks.
    enable_ssd_offload: bool = False
    #: Folder for them.
    ssd_offload_path: str = ""
    #: Whose key space.
    tenant_id: str = "default"
    #: Whether the client serves its health and metrics over HTTP.
    enable_client_http_server: bool = False
    #: Port for that.
    client_http_port: int = 9300

    def __post_init__(self) -> None:
        for name in _REQUIRED:
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"Config field '{name}' must be a non-empty string, got {value!r}.")
        if not isinstance(self.protocol, str) or not self.protocol.strip():
            raise ValueError(f"Invalid protocol: {self.protocol!r}. It has to be a name such as 'tcp' or 'rdma'.")
        self.protocol = self.protocol.strip().lower()
        if self.protocol not in _PROTOCOLS:
            known = ", ".join(sorted(_PROTOCOLS))
            logger.warning("Unrecognised protocol %r; setup decides about it. Known are: %s", self.protocol, known)
        for name in ("global_segment_size", "local_buffer_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"Invalid {name}: {getattr(self, name)}. Size must be non-negative.")

    @staticmethod
    def from_file(file_path: str) -> MooncakeConfig:
        """From a JSON object with the names of the fields; other names are ignored, with a warning where one looks like a
        field that is not there.

        Raises `OSError` when the file cannot be read, `ValueError` when it is not JSON, lacks a field that has no
        default, or has a value that cannot work, `TypeError` for null and for a list or object in place of a number.
        """
        content = _content_of(file_path)
        _report_misspelt(content, file_path)
        missing = next((name for name in _REQUIRED if name not in content), None)
        if missing:
            raise ValueError(f"Missing required config field: {missing}")
        return _made(content)

    @staticmethod
    def load_from_env() -> MooncakeConfig:
        """From the file that `MOONCAKE_CONFIG_PATH` names, else from `MOONCAKE_MASTER` and the other variables.

        Raises `ValueError` when neither is set, and what `from_file` raises.
        """
        return from_env()


def from_env(master: str = "") -> MooncakeConfig:
    """`MooncakeConfig.load_from_env()`, with a master (`host:port`) for when neither file nor environment names one."""
    path = os.environ.get("MOONCAKE_CONFIG_PATH")
    if path is not None:
        return MooncakeConfig.from_file(path)
    said = _said_by_environment()
    master = said.get("master_server_address") or master
    if not master:
        raise ValueError("Neither the environment variable 'MOONCAKE_CONFIG_PATH' nor 'MOONCAKE_MASTER' is set.")
    usual = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}
    return _made(usual | said | {"master_server_address": master})


_VARIABLES = {
    "local_hostname": "MOONCAKE_LOCAL_HOSTNAME",
    "metadata_server": "MOONCAKE_TE_META_DATA_SERVER",
    "master_server_address": "MOONCAKE_MASTER",
    "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
    "protocol": "MOONCAKE_PROTOCOL",
    "device_name": "MOONCAKE_DEVICE",
    "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
    "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
    "tenant_id": "MOONCAKE_TENANT_ID",
    "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER",
    "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT",
}
#: What a field takes when nothing says otherwise, where the class itself has no default.
_DEFAULTS = {
    "global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE,
    "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE,
    "protocol": "tcp",
    "device_name": "",
}
#: How the value of a field is read; the others stay as they are.
_READ: dict[str, Callable[[Any], Any]] = {
    "global_segment_size": _parse_segment_size,
    "local_buffer_size": _parse_segment_size,
    "enable_ssd_offload": _parse_bool,
    "ssd_offload_path": _text_or(""),
    "tenant_id": _text_or("default"),
    "enable_client_http_server": _parse_bool,
    "client_http_port": int,
}


def is_given(name: str, file_path: Optional[str] = None) -> bool:
    """Whether the file (without one: what `MooncakeConfig.load_from_env` reads) says a value for a field, or leaves its default."""
    path = file_path or os.environ.get("MOONCAKE_CONFIG_PATH")
    return name in (_said_by_environment() if path is None else _content_of(path))


def _content_of(file_path: str) -> Mapping[str, Any]:
    with open(file_path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(f"{file_path} is not JSON: {error.msg}", error.doc, error.pos) from None
    if not isinstance(content, Mapping):
        raise ValueError(f"{file_path} holds no JSON object")
    return content


def _report_misspelt(content: Mapping[str, Any], file_path: str) -> None:
    names = [field.name for field in fields(MooncakeConfig)]
    unknown = [name for name in content if name not in names]
    if not unknown:
        return
    import difflib  # noqa: PLC0415 - rarely needed

    absent = [name for name in names if name not in content]
    for name in unknown:
        for meant in difflib.get_close_matches(name, absent, 1, 0.75):
            logger.warning("%s: the field %r does nothing; did you mean %r?", file_path, name, meant)


def _said_by_environment() -> dict[str, Any]:
    return {name: os.environ[variable] for name, variable in _VARIABLES.items() if variable in os.environ}


def _made(given: Mapping[str, Any]) -> MooncakeConfig:
    """A configuration from raw values by field."""
    names = [field.name for field in fields(MooncakeConfig)]
    raw = _DEFAULTS | {name: given[name] for name in names if name in given}
    return MooncakeConfig(**{name: _value_of(name, value) for name, value in raw.items()})


def _value_of(name: str, raw: Any) -> Any:
    """The value of a field; `TypeError` for one of a type that it cannot have, as from the peer."""
    try:
        return _READ[name](raw) if name in _READ else raw
    except (OverflowError, ValueError) as error:
        variable = f" ({_VARIABLES[name]} in the environment)" if os.environ.get(_VARIABLES[name]) == raw else ""
        raise ValueError(f"Invalid {name}{variable}: {raw!r}. {error}") from error
