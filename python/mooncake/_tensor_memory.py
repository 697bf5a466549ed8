"""Between tensors and memory: what a caller's tensor consists of, and tensors made of memory.

torch and numpy are imported by the call that needs them and by none before. A tensor is told by the name of its class,
so that writing one imports nothing.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from mooncake import _native
from mooncake._tensor_layout import DTYPE_NUMBERS, DTYPES, HEADER_BYTES, MOST_DIMENSIONS, Layout, unpack, whole


class Source(NamedTuple):
    """A caller's tensor as memory: row by row from `address` on."""

    layout: Layout
    address: int
    #: Keeps the memory alive; the tensor itself, or a copy that lies row by row on the host.
    owner: Any


class NotATensor(Exception):
    """What was given cannot be stored as a tensor; the text says why."""


class NoLibrary(RuntimeError):
    """Neither torch nor numpy is installed."""


def is_tensor(what: Any) -> bool:
    """Whether it is a tensor of torch (or of something with the same calls)."""
    return any("Tensor" in base.__name__ for base in type(what).__mro__)


def is_array(what: Any) -> bool:
    """Whether it is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(what, numpy.ndarray)


def source_of(what: Any) -> Source:
    """The memory of a tensor or array. `NotATensor` for what has none, or elements without a number in the header."""
    if is_array(what):
        return _source_of_array(what)
    if is_tensor(what):
        return _source_of_tensor(what)
    raise NotATensor(f"{type(what).__name__} is no tensor")


def _source_of_tensor(tensor: Any) -> Source:
    try:
        if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
            raise NotATensor(f"a tensor of layout {tensor.layout} has no rows in memory")
        layout = _whole(str(tensor.dtype).rpartition(".")[2], tensor.shape)
        device = getattr(getattr(tensor, "device", None), "type", "cpu")
        if device == "meta":
            raise NotATensor("a meta tensor has no elements")
        if device != "cpu":
            tensor = tensor.detach().cpu()
        if getattr(tensor, "is_neg", bool)():
            tensor = tensor.resolve_neg()
        tensor = tensor.contiguous()
        return Source(layout, tensor.data_ptr(), tensor)
    except (AttributeError, TypeError, RuntimeError) as error:
        raise NotATensor(f"{type(tensor).__name__} does not give its memory: {error}") from error


def _source_of_array(array: Any) -> Source:
    layout = _whole(array.dtype.name, array.shape)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return Source(layout, array.ctypes.data, array)


def _whole(dtype: str, shape: Any) -> Layout:
    number = DTYPE_NUMBERS.get(dtype)
    if number is None:
        raise NotATensor(f"elements of type {dtype} cannot be stored")
    if len(shape) > MOST_DIMENSIONS:
        raise NotATensor(f"{len(shape)} dimensions, {MOST_DIMENSIONS} can be stored")
    return whole(number, tuple(int(side) for side in shape))


class TorchLibrary:
    """Makes tensors of torch."""

    def __init__(self, torch: Any):
        self._torch = torch

    def room(self, size: int) -> tuple[Any, int]:
        """New memory of `size` bytes and its address."""
        raw = self._torch.empty(size, dtype=self._torch.uint8)
        _native._expect_large_pages(raw.data_ptr(), size)
        return raw, raw.data_ptr()

    def shaped(self, raw: Any, layout: Layout) -> Any:
        """The memory of `room` as a tensor."""
        dtype = getattr(self._torch, DTYPES[layout.dtype][0])
        if not layout.data_bytes:
            return self._torch.empty(layout.local_shape, dtype=dtype)
        return raw[:layout.data_bytes].view(dtype).view(layout.local_shape)

    def aliasing(self, memory: Any, layout: Layout) -> Any:
        """A tensor that is the memory of a writable buffer."""
        dtype = getattr(self._torch, DTYPES[layout.dtype][0])
        if not layout.data_bytes:
            return self._torch.empty(layout.local_shape, dtype=dtype)
        return self._torch.frombuffer(memory, dtype=dtype).view(layout.local_shape)


class NumpyLibrary:
    """Makes arrays of numpy, where there is no torch."""

    def __init__(self, numpy: Any):
        self._numpy = numpy

    def room(self, size: int) -> tuple[Any, int]:
        """New memory of `size` bytes and its address."""
        raw = self._numpy.empty(size, dtype=self._numpy.uint8)
        _native._expect_large_pages(raw.ctypes.data, size)
        return raw, raw.ctypes.data

    def shaped(self, raw: Any, layout: Layout) -> Any:
        """The memory of `room` as an array."""
        return raw[:layout.data_bytes].view(self._dtype(layout)).reshape(layout.local_shape)

    def aliasing(self, memory: Any, layout: Layout) -> Any:
        """An array that is the memory of a writable buffer."""
        return self._numpy.frombuffer(memory, dtype=self._dtype(layout)).reshape(layout.local_shape)

    def _dtype(self, layout: Layout) -> Any:
        name = DTYPES[layout.dtype][0]
        if name.startswith(("bfloat", "float8")):
            import ml_dtypes

            return self._numpy.dtype(getattr(ml_dtypes, name))
        return self._numpy.dtype(name)


def library() -> TorchLibrary | NumpyLibrary:
    """What tensors are made with: torch, else numpy, else `NoLibrary`."""
    try:
        import torch

        return TorchLibrary(torch)
    except ImportError:
        pass
    try:
        import numpy

        return NumpyLibrary(numpy)
    except ImportError:
        raise NoLibrary("reading a tensor needs torch (or numpy)") from None


def memory_at(address: int, size: int) -> Any:
    """A writable buffer over the caller's memory; it keeps nothing alive."""
    import ctypes

    return (ctypes.c_char * size).from_address(address)


def serialize(tensor: Any) -> tuple[bytes, int, int, Any]:
    """(header, address of the elements, their bytes, what keeps them alive). `ValueError` for what cannot be stored."""
    try:
        source = source_of(tensor)
    except NotATensor as refused:
        raise ValueError(str(refused)) from None
    return source.layout.pack(), source.address, source.layout.data_bytes, source.owner


def deserialize(data: Any) -> Any:
    """The tensor whose header and elements are in `data` (bytes-like), with memory of its own. `ValueError` otherwise."""
    view = memoryview(data).cast("B")
    layout = unpack(bytes(view[:HEADER_BYTES]), len(view))
    if layout is None:
        raise ValueError("invalid serialized Mooncake tensor payload")
    return library().aliasing(bytearray(view[HEADER_BYTES:]), layout)
