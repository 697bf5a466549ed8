"""What the differential scripts share: named steps whose answers are plain values, printed as JSON at the end."""

import ctypes
import json
import mmap
import os
import sys

import mooncake.store as module

MASTER = sys.argv[1]
PAGE = 1 << 16
out = []


def plain(value):
    """The value as JSON can hold it."""
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", value.hex()]
    if isinstance(value, module.BufferHandle):
        view = memoryview(value)
        return ["handle", value.size(), len(value), view.format, view.readonly, view.ndim, bytes(view.cast("B")).hex()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value if value is None or isinstance(value, (int, str)) else str(value)


def step(name, call):
    """Does one call and keeps what came of it."""
    try:
        out.append([name, plain(call())])
    except Exception as error:  # noqa: BLE001 - the kind of exception is the answer
        out.append([name, type(error).__name__])


def memory(size):
    """Anonymous memory and its address."""
    area = mmap.mmap(-1, size)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


def made(**fields):
    """A config with these attributes."""
    config = module.ReplicateConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def finish():
    """Prints every answer and ends the process."""
    sys.stdout.write("\n=====\n" + json.dumps(out))
    sys.stdout.flush()
    os._exit(0)
