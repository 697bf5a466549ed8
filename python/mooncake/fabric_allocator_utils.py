"""Shared libraries with allocators of device memory: where they are, and what they can do."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

ProbeValue = TypeVar("ProbeValue")


def get_mooncake_so_path(so_name: str, import_error_message: str) -> str:
    """Path of a library beside this module; `ImportError` with the given text when it is not there."""
    library = Path(__file__).with_name(so_name)
    if not library.exists():
        raise ImportError(import_error_message)
    return str(library)


def probe_allocator_backend(
    so_path: str, probe_symbol: str, restype: Any, unsupported_value: ProbeValue
) -> ProbeValue:
    """What the library's function `probe_symbol()` answers; `unsupported_value` when it cannot be loaded or asked."""
    name = Path(so_path).name
    try:
        probe = getattr(ctypes.CDLL(so_path), probe_symbol)
    except OSError as error:
        logger.warning("%s cannot be loaded: %s", name, error)
        return unsupported_value
    except AttributeError:
        logger.warning("%s has no function %s: taken as not supported", name, probe_symbol)
        return unsupported_value
    probe.argtypes, probe.restype = [], restype
    return probe()
