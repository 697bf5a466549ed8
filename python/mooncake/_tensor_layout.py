"""The bytes of stored tensors and the names they are stored under. Pure: no torch, no numpy, no store.

A stored tensor is a header of 304 bytes and the elements in row-major order. Everything is little-endian. A piece of a
tensor that is cut over several writers says in its header what the whole is, and which piece it is.
"""

from __future__ import annotations

import struct
from itertools import product
from math import prod
from typing import Iterator, NamedTuple

#: Bytes before the elements.
HEADER_BYTES = 304
#: Dimensions that a header has room for.
MOST_DIMENSIONS = 8
#: Axes that a header has room for.
MOST_AXES = 4

#: Names of the element types, at their number, and bytes of one element.
DTYPES = (
    ("float32", 4), ("float64", 8), ("int8", 1), ("uint8", 1), ("int16", 2), ("uint16", 2), ("int32", 4), ("uint32", 4),
    ("int64", 8), ("uint64", 8), ("bool", 1), ("float16", 2), ("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1),
)
DTYPE_NUMBERS = {name: number for number, (name, _) in enumerate(DTYPES)}

#: Kinds of axes, at their number; keys name them in this order.
AXIS_KINDS = ("dp", "tp", "ep", "pp")
TP = AXIS_KINDS.index("tp")

_MAGIC = 0x4D4F4F4E
_VERSION = 1
_FULL, _SHARD = 0, 1
_HEAD = struct.Struct("<IHHiiIIQQ8q8qII")
_AXIS = struct.Struct("<6iq")
_NO_AXIS = bytes(_AXIS.size)

_MANIFEST_MAGIC = 0x574D414E
_MANIFEST = struct.Struct("<IHHiiiii4x8q")
#: Bytes of a manifest.
MANIFEST_BYTES = _MANIFEST.size


class Axis(NamedTuple):
    """One axis of the parallelism that a piece belongs to."""

    #: Number in `AXIS_KINDS`.
    kind: int
    rank: int
    count: int
    #: Dimension that is cut; -1: none is.
    split_dim: int = -1
    #: Expert of an "ep" axis, stage of a "pp" axis.
    detail: int = 0
    #: Elements of the piece along `split_dim`.
    extent: int = 0


class Layout(NamedTuple):
    """What a header says."""

    #: Number in `DTYPES`.
    dtype: int
    #: Of the whole tensor.
    global_shape: tuple[int, ...]
    #: Of this piece; the same for a whole tensor.
    local_shape: tuple[int, ...]
    axes: tuple[Axis, ...] = ()

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype][1]

    @property
    def data_bytes(self) -> int:
        """Bytes of all elements of the piece."""
        return prod(self.local_shape) * self.item_bytes

    def cut(self) -> Axis | None:
        """The axis along which the piece was cut out."""
        return next((axis for axis in self.axes if axis.kind == TP), None)

    def pack(self) -> bytes:
        """The header."""
        head = _HEAD.pack(
            _MAGIC, _VERSION, HEADER_BYTES, self.dtype, len(self.local_shape), _SHARD if self.axes else _FULL, 0,
            HEADER_BYTES, self.data_bytes, *_padded(self.global_shape), *_padded(self.local_shape), len(self.axes), 0,
        )
        axes = [
            _AXIS.pack(axis.kind, index, axis.rank, axis.count, axis.split_dim, axis.detail, axis.extent)
            for index, axis in enumerate(self.axes)
        ]
        return b"".join([head, *axes, *[_NO_AXIS] * (MOST_AXES - len(axes))])


def whole(dtype: int, shape: tuple[int, ...]) -> Layout:
    """The layout of a tensor that is not cut."""
    return Layout(dtype, shape, shape)


def unpack(head: bytes, object_bytes: int) -> Layout | None:
    """Reads the header of an object of `object_bytes`; None when the object is no tensor."""
    if len(head) < HEADER_BYTES:
        return None
    fields = _HEAD.unpack_from(head)
    magic, version, header_bytes, dtype, dimensions, kind, _, offset, data_bytes = fields[:9]
    if (magic, version, header_bytes, offset) != (_MAGIC, _VERSION, HEADER_BYTES, HEADER_BYTES):
        return None
    axis_count = fields[25]
    known = 0 <= dtype < len(DTYPES) and 0 <= dimensions <= MOST_DIMENSIONS and axis_count <= MOST_AXES
    if not known or kind not in (_FULL, _SHARD):
        return None
    axes = tuple(_axis(head, index) for index in range(axis_count))
    layout = Layout(dtype, fields[9:9 + dimensions], fields[17:17 + dimensions], axes)
    fits = all(side >= 0 for side in layout.local_shape) and layout.data_bytes == data_bytes
    sound = all(axis.kind in range(len(AXIS_KINDS)) and 0 <= axis.rank < axis.count for axis in axes)
    return layout if fits and sound and HEADER_BYTES + data_bytes == object_bytes else None


def _axis(head: bytes, index: int) -> Axis:
    kind, _, rank, count, split_dim, detail, extent = _AXIS.unpack_from(head, _HEAD.size + index * _AXIS.size)
    return Axis(kind, rank, count, split_dim, detail, extent)


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape + (-1,) * (MOST_DIMENSIONS - len(shape))


class Manifest(NamedTuple):
    """How a tensor was cut: an object of its own beside the pieces."""

    dtype: int
    split_dim: int
    count: int
    global_shape: tuple[int, ...]

    def pack(self) -> bytes:
        """The manifest's bytes."""
        return _MANIFEST.pack(
            _MANIFEST_MAGIC, _VERSION, MANIFEST_BYTES, self.dtype, len(self.global_shape), self.split_dim, self.count, 0,
            *_padded(self.global_shape),
        )


def unpack_manifest(data: bytes) -> Manifest | None:
    """Reads a manifest; None when it is none."""
    if len(data) != MANIFEST_BYTES:
        return None
    magic, version, size, dtype, dimensions, split_dim, count, _, *shape = _MANIFEST.unpack(data)
    if (magic, version, size) != (_MANIFEST_MAGIC, _VERSION, MANIFEST_BYTES):
        return None
    if not (0 <= dtype < len(DTYPES) and 0 <= dimensions <= MOST_DIMENSIONS):
        return None
    manifest = Manifest(dtype, split_dim, count, tuple(shape[:dimensions]))
    sound = count > 0 and 0 <= split_dim < dimensions and all(side >= 0 for side in manifest.global_shape)
    return manifest if sound else None


# Names.


def shard_suffix(rank: int) -> str:
    """What the key of a piece with one "tp" axis ends with."""
    return f"_tp_{rank}"


def writer_suffix(rank: int, count: int, split_dim: int) -> str:
    """What the key of a writer's piece ends with."""
    return f"__writer_{rank}of{count}_sd{split_dim}"


WRITER_MANIFEST = "__writer_manifest"
PARALLELISM_MANIFEST = "__parallelism_manifest"


def named(key: str | bytes, suffix: str) -> str | bytes:
    """The key with something behind it, of the same kind."""
    return key + suffix.encode() if isinstance(key, bytes) else key + suffix


# Cutting and joining. All offsets and lengths are bytes, counted from the first element.


class Run(NamedTuple):
    """Equal pieces of memory at equal distances."""

    offset: int
    length: int
    stride: int
    count: int


class Move(NamedTuple):
    """Equal pieces of one object, and where they go."""

    source: int
    target: int
    length: int
    source_stride: int
    target_stride: int
    count: int


class Box(NamedTuple):
    """A piece of a tensor: the first index and the extent along each dimension."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]


def whole_box(shape: tuple[int, ...]) -> Box:
    """All of a tensor."""
    return Box((0,) * len(shape), shape)


def slice_box(shape: tuple[int, ...], dim: int, rank: int, count: int) -> Box:
    """Piece `rank` of `count` equal ones along `dim`; the side has to be a multiple of `count`."""
    extent = shape[dim] // count
    box = whole_box(shape)
    return Box(_with(box.starts, dim, rank * extent), _with(box.extents, dim, extent))


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return values[:index] + (value,) + values[index + 1:]


def slice_run(shape: tuple[int, ...], item_bytes: int, dim: int, box: Box) -> Run:
    """Where a piece along `dim` lies in the memory of the whole."""
    inner = prod(shape[dim + 1:]) * item_bytes
    outer = prod(shape[:dim])
    length, stride = box.extents[dim] * inner, shape[dim] * inner
    if length * outer == 0:
        return Run(0, 0, 0, 0)
    if outer == 1 or length == stride:
        return Run(box.starts[dim] * inner, length * outer, 0, 1)
    return Run(box.starts[dim] * inner, length, stride, outer)


def moves(source: Box, target: Box, item_bytes: int) -> list[Move]:
    """What of `source` is part of `target`, both pieces of one tensor that lie in memory of their own, row by row."""
    sides = _sides(source, target)
    if sides is None:
        return []
    sides = _merged(sides)
    if not sides:
        return [Move(0, 0, item_bytes, 0, 0, 1)]
    source_steps = _steps([side.source for side in sides], item_bytes)
    target_steps = _steps([side.target for side in sides], item_bytes)
    first_source = sum(side.source_first * step for side, step in zip(sides, source_steps))
    first_target = sum(side.target_first * step for side, step in zip(sides, target_steps))
    length = sides[-1].common * item_bytes
    if len(sides) == 1:
        return [Move(first_source, first_target, length, 0, 0, 1)]
    outer = [range(side.common) for side in sides[:-2]]
    return [
        Move(
            first_source + sum(i * step for i, step in zip(index, source_steps)),
            first_target + sum(i * step for i, step in zip(index, target_steps)),
            length, source_steps[-2], target_steps[-2], sides[-2].common,
        )
        for index in product(*outer)
    ]


class _Side(NamedTuple):
    """One dimension of two boxes that overlap."""

    source: int
    target: int
    common: int
    source_first: int
    target_first: int

    def is_whole(self) -> bool:
        return self.source == self.target == self.common


def _sides(source: Box, target: Box) -> list[_Side] | None:
    """The dimensions; None when the boxes have nothing in common."""
    found = []
    for source_start, source_extent, target_start, target_extent in zip(*source, *target):
        first = max(source_start, target_start)
        common = min(source_start + source_extent, target_start + target_extent) - first
        if common <= 0:
            return None
        found.append(_Side(source_extent, target_extent, common, first - source_start, first - target_start))
    return found


def _merged(sides: list[_Side]) -> list[_Side]:
    """The same with fewer dimensions: one that is whole in both continues the one before it."""
    merged: list[_Side] = []
    for side in sides:
        if merged and side.is_whole():
            merged[-1] = _Side(*(value * side.common for value in merged[-1]))
        else:
            merged.append(side)
    return merged


def _steps(extents: list[int], item_bytes: int) -> list[int]:
    """Bytes from one index to the next along each dimension."""
    steps = [item_bytes]
    for extent in reversed(extents[1:]):
        steps.insert(0, steps[0] * extent)
    return steps


def slices(shape: tuple[int, ...], dim: int, count: int) -> Iterator[Box]:
    """All pieces along `dim`."""
    return (slice_box(shape, dim, rank, count) for rank in range(count))
