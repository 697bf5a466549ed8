"""Just enough of torch to try the tensor calls where torch is not installed: tensors on the host, row by row.

`install()` puts it in the place of torch.
"""

from __future__ import annotations

import ctypes
import sys
import types
from math import prod

SIZES = {
    "float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "bool": 1, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8,
}


class dtype:  # noqa: N801 - torch's name
    """An element type."""

    def __init__(self, name):
        self.name, self.itemsize = name, SIZES[name]

    def __repr__(self):
        return f"torch.{self.name}"


class Tensor:
    """A tensor whose rows lie one behind the other in a writable buffer."""

    def __init__(self, buffer, kind, shape):
        self.buffer = memoryview(buffer).cast("B")
        self.dtype, self.shape = kind, tuple(shape)
        assert self.buffer.nbytes == prod(self.shape) * kind.itemsize

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.buffer)) if self.buffer.nbytes else 0

    def contiguous(self):
        return self

    def view(self, *to):
        if isinstance(to[0], dtype):
            return Tensor(self.buffer, to[0], (self.buffer.nbytes // to[0].itemsize,))
        shape = to[0] if isinstance(to[0], tuple) else to
        return Tensor(self.buffer, self.dtype, shape)

    def __getitem__(self, rows):
        assert len(self.shape) == 1 and self.dtype.itemsize == 1
        part = self.buffer[rows]
        return Tensor(part, self.dtype, (part.nbytes,))

    def told(self):
        """Type, shape and bytes, to compare."""
        return self.dtype.name, self.shape, bytes(self.buffer)


class OtherDeviceTensor(Tensor):
    """One that has to be fetched to the host first."""

    device = types.SimpleNamespace(type="cuda")

    def detach(self):
        return self

    def cpu(self):
        return Tensor(bytearray(self.buffer), self.dtype, self.shape)

    def data_ptr(self):
        raise RuntimeError("this memory is on another device")

    def copy_(self, other):
        self.buffer[:] = other.buffer


def empty(size, dtype):
    shape = size if isinstance(size, tuple) else (size,)
    return Tensor(bytearray(b"\xee") * (prod(shape) * dtype.itemsize), dtype, shape)


def frombuffer(buffer, dtype):
    view = memoryview(buffer).cast("B")
    return Tensor(view, dtype, (view.nbytes // dtype.itemsize,))


def counted(*shape, kind="float32"):
    """A tensor whose elements are all different, as far as their size allows."""
    size = SIZES[kind]
    numbers = b"".join((index % 256**size).to_bytes(size, "little") for index in range(prod(shape)))
    return Tensor(bytearray(numbers), DTYPES[kind], shape)


def cut(tensor, dim, rank, count):
    """Piece `rank` of `count` along `dim`, element by element."""
    size, side = tensor.dtype.itemsize, tensor.shape[dim]
    extent, inner = side // count, prod(tensor.shape[dim + 1:])
    rows = bytearray()
    for index in range(prod(tensor.shape)):
        if rank * extent <= index // inner % side < (rank + 1) * extent:
            rows += tensor.buffer[index * size:(index + 1) * size]
    return Tensor(rows, tensor.dtype, tensor.shape[:dim] + (extent,) + tensor.shape[dim + 1:])


DTYPES = {name: dtype(name) for name in SIZES}


def install():
    """Makes `import torch` give this."""
    module = types.ModuleType("torch")
    module.__dict__.update(DTYPES, Tensor=Tensor, empty=empty, frombuffer=frombuffer)
    sys.modules["torch"] = module
