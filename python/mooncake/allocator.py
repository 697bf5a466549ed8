"""Allocators of device memory for torch, for memory that other hosts reach over NVLink or by Barex.

They live in libraries that are built against CUDA; this package has none, so `NVLinkAllocator` works where somebody put
`nvlink_allocator.so` beside this module, and `BarexAllocator` where `libaccl_barex.so` is installed. Needs torch.
"""

from __future__ import annotations

import ctypes
import threading
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

from torch import device as torch_device
from torch.cuda.memory import CUDAPluggableAllocator

from mooncake.fabric_allocator_utils import get_mooncake_so_path, probe_allocator_backend


class MemoryBackend(IntEnum):
    """How `NVLinkAllocator` gets memory on this machine."""

    USE_CUDAMALLOC = 0
    USE_CUMEMCREATE = 1
    UNKNOWN = -1
    UNSUPPORTED = -2


class _PerDevice:
    """One allocator for each device, made at first use."""

    _lock: ClassVar[threading.Lock]
    _instances: ClassVar[dict[torch_device, CUDAPluggableAllocator]]

    def __init_subclass__(cls) -> None:
        cls._lock, cls._instances = threading.Lock(), {}

    @classmethod
    def _of(cls, device: torch_device, library: str, functions: tuple[str, str]) -> CUDAPluggableAllocator:
        with cls._lock:
            if device not in cls._instances:
                cls._instances[device] = CUDAPluggableAllocator(library, *functions)
            return cls._instances[device]


class NVLinkAllocator(_PerDevice):
    """Memory that is reachable over NVLink."""

    _backend: ClassVar[MemoryBackend] = MemoryBackend.UNKNOWN

    @classmethod
    def detect_mem_backend(cls) -> MemoryBackend:
        """What the library says it uses here, asked once; `UNSUPPORTED` when it cannot be asked.

        `ImportError` without the library.
        """
        with cls._lock:
            if cls._backend is MemoryBackend.UNKNOWN:
                answer = probe_allocator_backend(
                    cls._library(), "mc_allocator_probe", ctypes.c_int, int(MemoryBackend.UNSUPPORTED)
                )
                known = {int(backend): backend for backend in MemoryBackend}
                cls._backend = known.get(answer, MemoryBackend.UNSUPPORTED)
            return cls._backend

    @classmethod
    def get_allocator(cls, device: torch_device) -> CUDAPluggableAllocator:
        """The allocator of a device; `ImportError` without the library."""
        return cls._of(device, cls._library(), ("mc_allocator_malloc", "mc_allocator_free"))

    @staticmethod
    def _library() -> str:
        name = "nvlink_allocator.so"
        return get_mooncake_so_path(name, f"NVLinkAllocator needs {name} beside mooncake.allocator")


class BarexAllocator(_PerDevice):
    """Memory that Barex has registered."""

    @classmethod
    def get_allocator(cls, device: torch_device) -> CUDAPluggableAllocator:
        """The allocator of a device; `ImportError` without the library."""
        return cls._of(device, cls._library(), ("u2mm_alloc_wrapper_with_stream", "u2mm_free_wrapper_with_stream"))

    @staticmethod
    def _library() -> str:
        name = "libaccl_barex.so"
        for folder in ("/usr/lib", "/usr/lib64"):
            if (Path(folder) / name).exists():
                return str(Path(folder) / name)
        where = "/usr/lib, /usr/lib64 or beside mooncake.allocator"
        return get_mooncake_so_path(name, f"BarexAllocator needs {name} in {where}")
