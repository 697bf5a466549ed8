"""The forms in which `MooncakeDistributedStore.setup` takes its arguments.

All forms become one dict with a value for each name in `DEFAULTS` and in `REQUIRED`. What the peer answers with -600 is a
`SetupRefused` here; its text goes to `last_error()`.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from typing import Any

#: Names without a default in the positional form, in their order.
REQUIRED = (
    "local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol", "rdma_devices",
    "master_server_addr",
)
#: What the dict form takes for a name that is not in it.
DICT_DEFAULTS = {
    "global_segment_size": 16 << 20,
    "local_buffer_size": 16 << 20,
    "protocol": "tcp",
    "rdma_devices": "",
    "master_server_addr": "127.0.0.1:50051",
}
#: What else the dict form knows; an unknown name is told in the log.
DICT_OPTIONS = {"enable_client_http_server", "client_http_port", "tenant_id", "ssd_offload_path", "ssd_prefetch_cooldown_sec",
                "ssd_prefetch_dedup_ttl_sec", "ssd_get_wait_ms", "egm_numa_nodes", "ipc_socket_path"}
#: Other names for the same in the dict form: those of `MooncakeConfig`, which consumers pass on as they are. The peer
#: overlooks them and goes to a master on its own machine.
ALIASES = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}
#: Options of the peer that are not built; each has to keep the value that turns it off.
NOT_BUILT = {
    "enable_ssd_offload": False,
    "enable_ssd_prefetch": False,
    "enable_embedded_master": False,
    "enable_egm_store_pool": False,
}
#: Every name that the dict form takes.
KNOWN = {*REQUIRED, *ALIASES, *NOT_BUILT, *DICT_OPTIONS}
UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30,
         "t": 1 << 40, "tb": 1 << 40}
MOST_BYTES = (1 << 64) - 1
SMALLEST = 1024
LARGEST_BUFFER = 1 << 40


class SetupRefused(Exception):
    """Arguments that cannot work; the peer's answer is -600."""


def size_of(name: str, text: str) -> int:
    """Bytes of `16777216`, `16MB`, `1.5 GB`, `infinite`; `name` is the setting."""
    text = text.strip().lower()
    if text == "infinite":
        return MOST_BYTES
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?b?)", text)
    if not match:
        raise SetupRefused(f"{name} {text!r} is not a size; 16777216 is, or '16MB', '1.5 GB'")
    number, unit = match[1], UNITS[match[2]]
    return int(number) * unit if number.isdigit() else int(float(number) * unit)


def truth_of(text: str, default: bool) -> bool:
    """The truth value of a text as the peer reads it; a text that is none leaves the default."""
    text = text.strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    return default


def allow_empty() -> bool:
    """Whether `YB_ALLOW_EMPTY` lets values of no bytes be stored."""
    return truth_of(os.environ.get("YB_ALLOW_EMPTY", ""), False)


def from_dict(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The arguments of the dict form; every value is taken as text."""
    texts = {str(name): str(value) for name, value in config.items()}
    for alias, name in ALIASES.items():
        value = texts.pop(alias, None)
        if value is not None and texts.setdefault(name, value) != value:
            raise SetupRefused(f"{alias} {value!r} and {name} {texts[name]!r} are two names for one thing")
    for name in ("local_hostname", "metadata_server"):
        if not texts.get(name):
            raise SetupRefused(f"the setup dict has no {name}")
    arguments: dict[str, Any] = {name: texts.get(name, DICT_DEFAULTS.get(name)) for name in REQUIRED}
    for name in ("global_segment_size", "local_buffer_size"):
        size = size_of(name, str(arguments[name]))
        if 0 < size < SMALLEST:
            raise SetupRefused(f"{name} {size} is below {SMALLEST}")
        arguments[name] = size
    if arguments["local_buffer_size"] > LARGEST_BUFFER:
        raise SetupRefused("local_buffer_size is over 1 TiB")
    for name, off in NOT_BUILT.items():
        if name in texts:
            arguments[name] = truth_of(texts[name], off) if isinstance(off, bool) else texts[name]
    arguments["tenant_id"] = texts.get("tenant_id", "default")
    arguments["ipc_socket_path"] = texts.get("ipc_socket_path", "")
    arguments["enable_client_http_server"] = truth_of(texts.get("enable_client_http_server", ""), False)
    port = texts.get("client_http_port", "9300").strip()
    if not port.isdigit():
        raise SetupRefused(f"client_http_port {port!r} is no port")
    arguments["client_http_port"] = int(port)
    return arguments


def unknown_names(config: Mapping[Any, Any]) -> list[str]:
    """The names of a setup dict that mean nothing: misspelt, as a rule."""
    return sorted(str(name) for name in config if str(name) not in KNOWN)


def with_nearest(unknown: str) -> str:
    """An unknown name of a setup dict, with the one that was meant, if there is one like it."""
    import difflib  # noqa: PLC0415 - rarely needed

    near = difflib.get_close_matches(unknown, sorted(KNOWN), 1, 0.75)
    return f"{unknown} (did you mean {near[0]}?)" if near else unknown


def check_types(arguments: Mapping[str, Any]) -> None:
    """`TypeError`, by name, where the positional form has something else than a number of bytes or a port."""
    for name in ("global_segment_size", "local_buffer_size", "client_http_port"):
        value = arguments[name]
        if not hasattr(value, "__index__") or operator.index(value) < 0 or operator.index(value) > MOST_BYTES:
            wanted = "a port number" if name == "client_http_port" else "bytes as an int"
            hint = f"; text such as {value!r} goes into the dict form" if isinstance(value, str) else ""
            raise TypeError(f"setup({name}={value!r}): it takes {wanted}, not below 0{hint}")


def finish(arguments: dict[str, Any]) -> dict[str, Any]:
    """Refuses what is not built, by name, and adds what comes from the environment."""
    for name, off in NOT_BUILT.items():
        if arguments.pop(name, off) != off:
            raise SetupRefused(f"setup({name}=...) is not built yet")
    arguments.setdefault("engine", None)
    arguments.setdefault("ipc_socket_path", "")
    arguments["allow_empty"] = allow_empty()
    return arguments
