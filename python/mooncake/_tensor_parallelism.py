"""What a tensor's parallelism is: the types that callers fill in, their checks, and the keys that follow from them."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from mooncake._tensor_calls import Piece, Refused, Written, check_cut, int32
from mooncake._tensor_layout import (
    AXIS_KINDS, MOST_AXES, PARALLELISM_MANIFEST, TP, WRITER_MANIFEST, Axis, Box, Layout, Manifest, Run, named,
    shard_suffix, slice_box, slice_run, writer_suffix,
)
from mooncake._tensor_memory import Source

#: Names of the reading modes.
AS_STORED, SHARD, FULL = "as_stored", "shard", "full"


def _optional_int32(value: Any) -> int | None:
    return None if value is None else int32(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected str, got {type(value).__name__}")
    return value


class ParallelAxis:
    """One axis: `kind` ("dp", "tp", "ep", "pp"), `rank` of `size`. A "tp" axis has the dimension that is cut
    (`split_dim`), an "ep" axis an `expert_id`, a "pp" axis a `stage_id`."""

    __slots__ = ("kind", "rank", "size", "split_dim", "expert_id", "stage_id")
    _CHECKS = {"kind": _text, "rank": int32, "size": int32}

    kind: str
    rank: int
    size: int
    split_dim: int | None
    expert_id: int | None
    stage_id: int | None

    def __init__(self) -> None:
        self.kind, self.rank, self.size = "", 0, 1
        self.split_dim = self.expert_id = self.stage_id = None

    def __setattr__(self, name: str, value: Any) -> None:
        check = self._CHECKS.get(name, _optional_int32) if name in self.__slots__ else lambda as_is: as_is
        object.__setattr__(self, name, check(value))

    def _copy(self) -> ParallelAxis:
        copied = ParallelAxis()
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied


class TensorParallelism:
    """The axes a piece belongs to: one to four, each kind once. Assign a whole list; it is copied."""

    __slots__ = ("_axes",)

    def __init__(self) -> None:
        self._axes: list[ParallelAxis] = []

    @property
    def axes(self) -> list[ParallelAxis]:
        """A list of the axes; changing an axis in it changes the parallelism, changing the list does not."""
        return list(self._axes)

    @axes.setter
    def axes(self, axes: Sequence[ParallelAxis]) -> None:
        if isinstance(axes, str) or not all(isinstance(axis, ParallelAxis) for axis in axes):
            raise TypeError("axes must be a list of ParallelAxis")
        self._axes = [axis._copy() for axis in axes]


class ReadTarget:
    """What is read: `mode` "as_stored", "shard" or "full" (case does not matter, other text: `RuntimeError`), and for
    the last two the `parallelism` that the reader wants or that the writers had."""

    __slots__ = ("_mode", "_parallelism")

    def __init__(self) -> None:
        self._mode = AS_STORED
        self._parallelism: TensorParallelism | None = None

    @property
    def mode(self) -> str:
        """The mode in small letters."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        lower = _text(mode).lower()
        if lower not in (AS_STORED, SHARD, FULL):
            raise RuntimeError(f"Unsupported ReadTarget mode: {mode}")
        self._mode = lower

    @property
    def parallelism(self) -> TensorParallelism | None:
        """The parallelism; assigning copies it."""
        return self._parallelism

    @parallelism.setter
    def parallelism(self, parallelism: TensorParallelism | None) -> None:
        if parallelism is None:
            self._parallelism = None
            return
        if not isinstance(parallelism, TensorParallelism):
            raise TypeError("parallelism must be a TensorParallelism or None")
        self._parallelism = TensorParallelism()
        self._parallelism.axes = parallelism.axes


class AxisSpec(NamedTuple):
    """A checked axis."""

    kind: int
    rank: int
    size: int
    split_dim: int | None
    expert_id: int | None
    stage_id: int | None

    def suffix(self) -> str:
        """Its part of a key."""
        details = (("_sd", self.split_dim), ("_eid", self.expert_id), ("_sid", self.stage_id))
        named_details = "".join(f"{name}{value}" for name, value in details if value is not None)
        return f"__{AXIS_KINDS[self.kind]}_{self.rank}of{self.size}{named_details}"

    def in_header(self, extents: tuple[int, ...]) -> Axis:
        """As the header of a piece with these extents has it."""
        if self.kind == TP:
            return Axis(TP, self.rank, self.size, self.split_dim, 0, extents[self.split_dim])
        detail = {"ep": self.expert_id, "pp": self.stage_id}.get(AXIS_KINDS[self.kind])
        return Axis(self.kind, self.rank, self.size, -1, detail or 0, 0)


class Axes(NamedTuple):
    """The checked axes of one parallelism, in the caller's order."""

    specs: tuple[AxisSpec, ...]

    @property
    def cut(self) -> AxisSpec | None:
        """The "tp" axis."""
        return next((spec for spec in self.specs if spec.kind == TP), None)

    @property
    def is_cut_only(self) -> bool:
        """Whether a "tp" axis is all there is."""
        return len(self.specs) == 1 and self.cut is not None

    def key(self, base: str | bytes) -> str | bytes:
        """The key of the piece."""
        if self.is_cut_only:
            return named(base, shard_suffix(self.specs[0].rank))
        return named(base, "".join(spec.suffix() for spec in sorted(self.specs)))

    def at(self, rank: int, size: int, split_dim: int) -> Axes:
        """The same with another "tp" axis."""
        changed = (spec._replace(rank=rank, size=size, split_dim=split_dim) if spec.kind == TP else spec
                   for spec in self.specs)
        return Axes(tuple(changed))

    def in_header(self, extents: tuple[int, ...]) -> tuple[Axis, ...]:
        """As the header of a piece with these extents has them."""
        return tuple(spec.in_header(extents) for spec in self.specs)


def axes_of(parallelism: Any) -> Axes:
    """Checks a parallelism; `Refused` for one that cannot be."""
    axes = getattr(parallelism, "axes", None)
    if not isinstance(axes, (list, tuple)) or not 1 <= len(axes) <= MOST_AXES:
        raise Refused(f"a parallelism has one to {MOST_AXES} axes")
    specs = tuple(map(_spec_of, axes))
    if len({spec.kind for spec in specs}) != len(specs):
        raise Refused("two axes of one kind")
    return Axes(specs)


def _spec_of(axis: Any) -> AxisSpec:
    kind = str(getattr(axis, "kind", "")).lower()
    if kind not in AXIS_KINDS:
        raise Refused(f"an axis of kind {kind!r}")
    details = (getattr(axis, name, None) for name in ("split_dim", "expert_id", "stage_id"))
    try:
        spec = AxisSpec(AXIS_KINDS.index(kind), int32(axis.rank), int32(axis.size), *map(_optional_int32, details))
    except (AttributeError, TypeError) as error:
        raise Refused(f"an axis that is none: {error}") from error
    if not 0 <= spec.rank < spec.size:
        raise Refused(f"rank {spec.rank} of {spec.size}")
    if (spec.split_dim is not None) != (kind == "tp") or (spec.split_dim or 0) < 0:
        raise Refused(f"a {kind} axis with split_dim {spec.split_dim}")
    if (kind == "ep" and spec.expert_id is None) or (kind == "pp" and spec.stage_id is None):
        raise Refused(f"an {kind} axis without its id")
    return spec


class Partition(NamedTuple):
    """A checked `writer_partition`."""

    rank: int
    size: int
    split_dim: int

    @staticmethod
    def of(partition: Any) -> Partition:
        """From any object with these attributes; `Refused` for others."""
        try:
            checked = Partition(*(int32(getattr(partition, name)) for name in Partition._fields))
        except (AttributeError, TypeError) as error:
            raise Refused(f"writer_partition needs rank, size and split_dim: {error}") from error
        if not 0 <= checked.rank < checked.size:
            raise Refused(f"writer {checked.rank} of {checked.size}")
        return checked

    def key(self, base: str | bytes, rank: int) -> str | bytes:
        """The key of a writer's piece."""
        return named(base, writer_suffix(rank, self.size, self.split_dim))


# What the calls write.


def written_tensor(key: Any, source: Source, axes: Axes | None) -> Written:
    """What a tensor object becomes: the piece of the one rank that `axes` names."""
    if axes is None:
        return Written([Piece.whole(key, source)], source.owner)
    cut = axes.cut
    if cut is None:
        return Written([_as_given(key, source, axes)], source.owner)
    if not axes.is_cut_only:
        check_cut(source.layout.local_shape, cut.split_dim, cut.size)
        return Written([_sliced(key, source, axes)], source.owner, _manifest(key, source.layout.local_shape, source, cut))
    # With one "tp" axis alone the tensor is the piece itself.
    local = source.layout.local_shape
    if cut.split_dim >= len(local):
        raise Refused(f"dimension {cut.split_dim} of a tensor with {len(local)}")
    side = local[cut.split_dim] * cut.size
    shape = local[:cut.split_dim] + (side,) + local[cut.split_dim + 1:]
    layout = Layout(source.layout.dtype, shape, local, axes.in_header(local))
    piece = Piece.of(axes.key(key), layout, source.address, Run(0, layout.data_bytes, 0, 1))
    return Written([piece], source.owner, _manifest(key, shape, source, cut))


def written_buffer(key: Any, source: Source, axes: Axes | None) -> Written:
    """What a whole tensor in the caller's memory becomes: with a "tp" axis the pieces of all its ranks."""
    cut = None if axes is None else axes.cut
    if axes is None or cut is None:
        return written_tensor(key, source, axes)
    check_cut(source.layout.local_shape, cut.split_dim, cut.size)
    pieces = [_sliced(key, source, axes.at(rank, cut.size, cut.split_dim)) for rank in range(cut.size)]
    return Written(pieces, source.owner, _manifest(key, source.layout.local_shape, source, cut))


def written_partition(key: Any, source: Source, partition: Partition) -> Written:
    """What one writer of a whole tensor stores: its piece."""
    shape = source.layout.local_shape
    check_cut(shape, partition.split_dim, partition.size)
    box = slice_box(shape, partition.split_dim, partition.rank, partition.size)
    axis = Axis(TP, partition.rank, partition.size, partition.split_dim, 0, box.extents[partition.split_dim])
    piece = _piece(partition.key(key, partition.rank), source, box, (axis,), partition.split_dim)
    manifest = Manifest(source.layout.dtype, partition.split_dim, partition.size, shape)
    return Written([piece], source.owner, Piece.bare(named(key, WRITER_MANIFEST), manifest.pack()))


def _as_given(key: Any, source: Source, axes: Axes) -> Piece:
    layout = source.layout._replace(axes=axes.in_header(source.layout.local_shape))
    return Piece.of(axes.key(key), layout, source.address, Run(0, layout.data_bytes, 0, 1))


def _sliced(key: Any, source: Source, axes: Axes) -> Piece:
    cut = axes.cut
    assert cut is not None and cut.split_dim is not None
    box = slice_box(source.layout.local_shape, cut.split_dim, cut.rank, cut.size)
    return _piece(axes.key(key), source, box, axes.in_header(box.extents), cut.split_dim)


def _piece(key: Any, source: Source, box: Box, axes: tuple[Axis, ...], split_dim: int) -> Piece:
    shape = source.layout.local_shape
    layout = Layout(source.layout.dtype, shape, box.extents, axes)
    return Piece.of(key, layout, source.address, slice_run(shape, layout.item_bytes, split_dim, box))


def _manifest(key: Any, shape: tuple[int, ...], source: Source, cut: AxisSpec) -> Piece:
    assert cut.split_dim is not None
    manifest = Manifest(source.layout.dtype, cut.split_dim, cut.size, shape)
    return Piece.bare(named(key, PARALLELISM_MANIFEST), manifest.pack())
