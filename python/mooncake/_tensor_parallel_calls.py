"""Calls of the store for tensors whose pieces have a parallelism: written by each rank, read as the reader wants them.

A piece says in its header what it is a piece of. Reads believe the headers, not the names: a piece that was cut another
way than its key or a manifest suggests is never handed out for another one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from mooncake._tensor_calls import Refused, Settings, Written, check_cut, listed
from mooncake._tensor_layout import (
    HEADER_BYTES, MANIFEST_BYTES, PARALLELISM_MANIFEST, TP, WRITER_MANIFEST, Axis, Box, Layout, Manifest, Move, moves, named,
    shard_suffix, slice_box, slices, unpack, unpack_manifest, whole, whole_box,
)
from mooncake._tensor_memory import NoLibrary, Source, library, memory_at, source_of
from mooncake._tensor_parallelism import (
    AS_STORED, FULL, Axes, Partition, ReadTarget, axes_of, written_buffer, written_partition, written_tensor,
)

#: Pieces of one tensor that are put together at most.
_MOST_PIECES = 1 << 16


class Wanted(NamedTuple):
    """A checked target of a read."""

    mode: str
    axes: Axes | None

    @staticmethod
    def of(target: Any) -> Wanted:
        """From a `ReadTarget` or None; `Refused` for what names nothing that can be read."""
        if target is None:
            return Wanted(AS_STORED, None)
        if not isinstance(target, ReadTarget):
            raise Refused(f"a target must be a ReadTarget, got {type(target).__name__}")
        if target.parallelism is None:
            if target.mode not in (AS_STORED, FULL):
                raise Refused("a piece is wanted, but not of what parallelism")
            return Wanted(target.mode, None)
        if target.mode == AS_STORED:
            raise Refused("what is stored has the parallelism it has")
        return Wanted(target.mode, axes_of(target.parallelism))

    def direct_key(self, key: Any) -> Any:
        """The key whose object is the answer, if it is there; None when it has to be put together."""
        if self.axes is None:
            return None if self.mode == FULL else key
        return None if self.mode == FULL else self.axes.key(key)

    def is_answered_by(self, layout: Layout) -> bool:
        """Whether the object under `direct_key` is what is wanted. Keys with a "tp" axis alone say neither of how many
        pieces it is one, nor along which dimension."""
        wanted = None if self.axes is None else self.axes.cut
        if wanted is None or not layout.axes:
            return True
        return _place_of(layout) == (wanted.rank, wanted.size, wanted.split_dim)

    def box(self, shape: tuple[int, ...]) -> Box:
        """What of a tensor of this shape is wanted; `Refused` when it cannot be cut so."""
        if self.mode == FULL or self.axes is None:
            return whole_box(shape)
        cut = self.axes.cut
        if cut is None or cut.split_dim is None:
            raise Refused("a piece without a dimension that is cut cannot be put together")
        check_cut(shape, cut.split_dim, cut.size)
        return slice_box(shape, cut.split_dim, cut.rank, cut.size)

    def layout(self, dtype: int, shape: tuple[int, ...], box: Box) -> Layout:
        """The layout of the answer."""
        if self.mode == FULL or self.axes is None:
            return whole(dtype, shape)
        return Layout(dtype, shape, box.extents, self.axes.in_header(box.extents))


class Cut(NamedTuple):
    """A way in which a tensor may have been cut: the keys of its pieces, by rank."""

    split_dim: int
    keys: tuple[Any, ...]


class Joined(NamedTuple):
    """How a tensor is put together."""

    layout: Layout
    #: For each object that has something of it: its key, its layout, and what goes where.
    parts: list[tuple[Any, Layout, list[Move]]]


class Place(NamedTuple):
    """Where a tensor is put together: the address of its first element, and what makes the answer of it."""

    address: int
    finish: Callable[[], Any]


class ParallelTensorCalls:
    """The calls with a parallelism.

    Writing: without one a tensor is stored whole under its key. With one "tp" axis alone the tensor is the rank's own
    piece; with more axes it is the whole tensor, out of which the rank's piece is cut; without a "tp" axis it is stored
    as given. `writer_partition` (any object with rank, size, split_dim) takes the whole tensor and stores one writer's
    piece. Only equal pieces can be cut. The forms that take an address take the whole tensor and store the pieces of
    all ranks. A manifest beside the pieces says how the tensor was cut.
    """

    def put_tensor_with_parallelism(
        self, key: str | bytes, tensor: Any, parallelism: Any = None, config: Any = None, writer_partition: Any = None
    ) -> int:
        """Stores a tensor, a rank's piece or a writer's piece: 0, also when it is there already, or a code. -600: axes
        that cannot be, a side that is no multiple of the number of pieces, parallelism and writer_partition both."""
        makers = self._tensor_makers([key], [tensor], [parallelism], [writer_partition])
        return self._write(makers, Settings(config))[0]

    def upsert_tensor_with_parallelism(
        self, key: str | bytes, tensor: Any, parallelism: Any = None, config: Any = None, writer_partition: Any = None
    ) -> int:
        """As `put_tensor_with_parallelism`, in the place of what is there."""
        makers = self._tensor_makers([key], [tensor], [parallelism], [writer_partition])
        return self._write(makers, Settings(config, True))[0]

    def batch_put_tensor_with_parallelism(
        self, keys: Sequence[str | bytes], tensors_list: list[Any], parallelisms: Any = None, config: Any = None,
        writer_partitions: Any = None,
    ) -> list[int]:
        """As `put_tensor_with_parallelism` for many; lists of different lengths: -600 for each key."""
        return self._batch_put(keys, tensors_list, (parallelisms, writer_partitions), Settings(config))

    def batch_upsert_tensor_with_parallelism(
        self, keys: Sequence[str | bytes], tensors_list: list[Any], parallelisms: Any = None, config: Any = None,
        writer_partitions: Any = None,
    ) -> list[int]:
        """As `upsert_tensor_with_parallelism` for many."""
        return self._batch_put(keys, tensors_list, (parallelisms, writer_partitions), Settings(config, True))

    def put_tensor_with_parallelism_from(
        self, key: str | bytes, buffer_ptr: int, size: int, parallelism: Any = None, config: Any = None,
        writer_partition: Any = None,
    ) -> int:
        """As `put_tensor_with_parallelism` for a whole tensor whose header and elements are at `buffer_ptr`; with a "tp"
        axis the pieces of all ranks are stored."""
        makers = self._buffer_makers([key], [buffer_ptr], [size], [parallelism], [writer_partition])
        return self._write(makers, Settings(config))[0]

    def upsert_tensor_with_parallelism_from(
        self, key: str | bytes, buffer_ptr: int, size: int, parallelism: Any = None, config: Any = None,
        writer_partition: Any = None,
    ) -> int:
        """As `put_tensor_with_parallelism_from`, in the place of what is there."""
        makers = self._buffer_makers([key], [buffer_ptr], [size], [parallelism], [writer_partition])
        return self._write(makers, Settings(config, True))[0]

    def batch_put_tensor_with_parallelism_from(
        self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int], parallelisms: Any = None,
        config: Any = None, writer_partitions: Any = None,
    ) -> list[int]:
        """As `put_tensor_with_parallelism_from` for many."""
        return self._batch_put_from(keys, (buffer_ptrs, sizes), (parallelisms, writer_partitions), Settings(config))

    def batch_upsert_tensor_with_parallelism_from(
        self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int], parallelisms: Any = None,
        config: Any = None, writer_partitions: Any = None,
    ) -> list[int]:
        """As `upsert_tensor_with_parallelism_from` for many."""
        return self._batch_put_from(keys, (buffer_ptrs, sizes), (parallelisms, writer_partitions), Settings(config, True))

    def get_tensor_with_parallelism(self, key: str | bytes, target: Any = None) -> Any:
        """The tensor that `target` asks for, with memory of its own; None when it is not there, not as a whole, or
        cannot be cut so. Without a target, or "as_stored": what is under the key. "full": the whole tensor, put together
        from what writers or ranks stored. "shard": a rank's piece, as it is stored or put together from pieces that were
        cut another way."""
        return self.batch_get_tensor_with_parallelism([key], [target])[0]

    def batch_get_tensor_with_parallelism(self, keys: Sequence[str | bytes], targets: Any = None) -> list[Any]:
        """As `get_tensor_with_parallelism` for many; another number of targets than keys: None for each key."""
        wanted = self._wanted(keys, targets)
        direct = [(place, each.direct_key(keys[place])) for place, each in enumerate(wanted) if each is not None]
        direct = [(place, key) for place, key in direct if key is not None]
        answers: list[Any] = [None for _ in keys]
        open_places = {place for place, each in enumerate(wanted) if each is not None}
        for (place, _), found in zip(direct, self._read_whole([key for _, key in direct]) if direct else []):
            if found is not None and wanted[place].is_answered_by(found[0]):
                answers[place] = found[1]
                open_places.discard(place)
        for place in sorted(open_places):
            answers[place] = self._put_together(keys[place], wanted[place], self._new_place)
            if answers[place] is None and wanted[place] == Wanted(FULL, None):
                answers[place] = self.get_tensor(keys[place])
        return answers

    def get_tensor_with_parallelism_into(self, key: str | bytes, buffer_ptr: int, size: int, target: Any = None) -> Any:
        """As `get_tensor_with_parallelism` to `buffer_ptr`, which has room for `size` bytes, header first: the tensor
        **is** the memory from `buffer_ptr + 304` on and must not be used after that is freed."""
        return self.batch_get_tensor_with_parallelism_into([key], [buffer_ptr], [size], [target])[0]

    def batch_get_tensor_with_parallelism_into(
        self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int], targets: Any = None
    ) -> list[Any]:
        """As `get_tensor_with_parallelism_into` for many; lists of different lengths: None for each key."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            self._refuse(f"{len(keys)} keys, {len(buffer_ptrs)} addresses, {len(sizes)} sizes")
            return [None for _ in keys]
        wanted = self._wanted(keys, targets)
        return [None if each is None else self._read_into(key, each, address, size)
                for key, each, address, size in zip(keys, wanted, buffer_ptrs, sizes)]

    # Writing.

    def _batch_put(self, keys: Sequence[Any], tensors: list[Any], ways: tuple[Any, Any], settings: Settings) -> list[int]:
        listed(tensors, "tensors_list")
        spread = _spread_ways(len(keys), ways)
        if spread is None or len(keys) != len(tensors):
            return self._refuse_all(keys, "lists of different lengths")
        return self._write(self._tensor_makers(keys, tensors, *spread), settings)

    def _batch_put_from(
        self, keys: Sequence[Any], memory: tuple[list[int], list[int]], ways: tuple[Any, Any], settings: Settings
    ) -> list[int]:
        spread = _spread_ways(len(keys), ways)
        if spread is None or not len(keys) == len(memory[0]) == len(memory[1]):
            return self._refuse_all(keys, "lists of different lengths")
        return self._write(self._buffer_makers(keys, *memory, *spread), settings)

    def _tensor_makers(self, *lists: Sequence[Any]) -> list[Callable[[], Written]]:
        def one(key: Any, tensor: Any, parallelism: Any, partition: Any) -> Written:
            axes, part = _way(parallelism, partition)
            source = source_of(tensor)
            return written_partition(key, source, part) if part else written_tensor(key, source, axes)

        return [partial(one, *each) for each in zip(*lists)]

    def _buffer_makers(self, *lists: Sequence[Any]) -> list[Callable[[], Written]]:
        def one(key: Any, address: int, size: int, parallelism: Any, partition: Any) -> Written:
            axes, part = _way(parallelism, partition)
            source: Source = self._source_at(address, size)
            return written_partition(key, source, part) if part else written_buffer(key, source, axes)

        return [partial(one, *each) for each in zip(*lists)]

    # Reading.

    def _wanted(self, keys: Sequence[Any], targets: Any) -> list[Wanted | None]:
        if targets is not None and (not isinstance(targets, (list, tuple)) or len(targets) != len(keys)):
            self._refuse(f"targets must be a list of {len(keys)}")
            return [None for _ in keys]
        return [self._checked_target(target) for target in targets or [None] * len(keys)]

    def _checked_target(self, target: Any) -> Wanted | None:
        try:
            return Wanted.of(target)
        except Refused as refused:
            self._refuse(str(refused))
            return None

    def _read_into(self, key: Any, wanted: Wanted, address: int, size: int) -> Any:
        direct = wanted.direct_key(key)
        if direct is not None:
            found = self._read_direct(direct, wanted, address, size)
            if found is not None:
                return found
        together = self._put_together(key, wanted, partial(self._place_at, address, size))
        if together is None and wanted == Wanted(FULL, None):
            return self.get_tensor_into(key, address, size)
        return together

    def _read_direct(self, key: Any, wanted: Wanted, address: int, size: int) -> Any:
        found = self.batch_get_into([key], [address], [size])[0]
        if found < HEADER_BYTES:
            return None
        head = self._peek(address, found, HEADER_BYTES)
        layout = None if head is None else unpack(head, found)
        return self._aliasing(address, found) if layout is not None and wanted.is_answered_by(layout) else None

    def _new_place(self, layout: Layout) -> Place | None:
        """Memory of a new tensor."""
        try:
            made = library()
            raw, address = made.room(layout.data_bytes)
        except (NoLibrary, MemoryError, RuntimeError) as error:
            self._refuse(str(error))
            return None
        return Place(address, lambda: made.shaped(raw, layout))

    def _place_at(self, address: int, size: int, layout: Layout) -> Place | None:
        """The caller's memory, if it has room."""
        if size < HEADER_BYTES + layout.data_bytes or self._peek(address, HEADER_BYTES + layout.data_bytes, 0) is None:
            self._refuse(f"{size} bytes at {address:#x} have no room for header and {layout.data_bytes} bytes")
            return None

        def finish() -> Any:
            memory_at(address, HEADER_BYTES).raw = layout.pack()
            return self._aliasing(address, HEADER_BYTES + layout.data_bytes)

        return Place(address + HEADER_BYTES, finish)

    def _put_together(self, key: Any, wanted: Wanted, place_for: Callable[[Layout], Place | None]) -> Any:
        """The tensor out of pieces that were cut another way; None when there are none, or not all of them."""
        if wanted.mode == AS_STORED or (wanted.axes is not None and wanted.axes.cut is None):
            return None
        for cut in self._cuts(key, wanted):
            joined = self._joined(cut, wanted)
            place = None if joined is None else place_for(joined.layout)
            if joined is not None and place is not None and self._fill(joined, place.address):
                return place.finish()
        return None

    def _cuts(self, key: Any, wanted: Wanted) -> Iterator[Cut]:
        """Ways in which the tensor may have been cut, the likeliest first."""
        axes = wanted.axes
        names = [named(key, PARALLELISM_MANIFEST), named(key, WRITER_MANIFEST)]
        if axes is None or axes.cut is None:
            writers = self._manifest_under(names[1])
            yield from _writers_cut(key, writers)
            return
        ranks, writers = map(self._manifest_under, names)
        ways = [] if ranks is None else [(ranks.count, ranks.split_dim)]
        ways.append((axes.cut.size, axes.cut.split_dim))
        if axes.is_cut_only:
            ways += self._way_of_header(named(key, shard_suffix(0)))
            yield from _writers_cut(key, writers)
        for count, split_dim in dict.fromkeys(way for way in ways if way[0] <= _MOST_PIECES):
            yield Cut(split_dim, tuple(axes.at(rank, count, split_dim).key(key) for rank in range(count)))

    def _manifest_under(self, key: Any) -> Manifest | None:
        # A name that no manifest has could be a large object.
        return unpack_manifest(self.get_batch([key])[0]) if self.get_size(key) == MANIFEST_BYTES else None

    def _way_of_header(self, key: Any) -> list[tuple[int, int]]:
        """How a piece says that it was cut."""
        layout = self._layouts([key])[0]
        cut = None if layout is None else layout.cut()
        return [] if cut is None else [(cut.count, cut.split_dim)]

    def _layouts(self, keys: Sequence[Any]) -> list[Layout | None]:
        found = self._get_pieces(keys, HEADER_BYTES, [[] for _ in keys])
        return [unpack(*answer) if isinstance(answer, tuple) else None for answer in found]

    def _joined(self, cut: Cut, wanted: Wanted) -> Joined | None:
        """How what is wanted is put together from pieces that were cut so; None when they were not."""
        first = self._layouts(cut.keys[:1])[0]
        if first is None or not 0 <= cut.split_dim < len(first.local_shape):
            return None
        shape = first.global_shape if first.axes else _enlarged(first.local_shape, cut.split_dim, len(cut.keys))
        try:
            check_cut(shape, cut.split_dim, len(cut.keys))
            box = wanted.box(shape)
        except Refused as refused:
            self._refuse(str(refused))
            return None
        parts = []
        for rank, source in enumerate(slices(shape, cut.split_dim, len(cut.keys))):
            steps = moves(source, box, first.item_bytes)
            if steps:
                axis = Axis(TP, rank, len(cut.keys), cut.split_dim)
                parts.append((cut.keys[rank], Layout(first.dtype, shape, source.extents, (axis,)), steps))
        return Joined(wanted.layout(first.dtype, shape, box), parts)

    def _fill(self, joined: Joined, address: int) -> bool:
        """Reads every part to where it belongs. False when one is missing, or is not what it was taken for."""
        if not joined.parts:
            return True
        plans = [
            [(HEADER_BYTES + step.source, address + step.target, *step[2:]) for step in steps]
            for _, _, steps in joined.parts
        ]
        found = self._get_pieces([key for key, _, _ in joined.parts], HEADER_BYTES, plans)
        layouts = [unpack(*answer) if isinstance(answer, tuple) else None for answer in found]
        if all(map(_is_as_expected, layouts, (expected for _, expected, _ in joined.parts))):
            return True
        self._refuse("a piece is missing, or was cut another way")
        return False


def _is_as_expected(found: Layout | None, expected: Layout) -> bool:
    if found is None or (found.dtype, found.local_shape) != (expected.dtype, expected.local_shape):
        return False
    # A tensor that was stored whole under the name of a piece says no more than its shape.
    return not found.axes or (_place_of(found) == _place_of(expected) and found.global_shape == expected.global_shape)


def _place_of(piece: Layout) -> tuple[int, int, int] | None:
    cut = piece.cut()
    return None if cut is None else (cut.rank, cut.count, cut.split_dim)


def _writers_cut(key: Any, manifest: Manifest | None) -> Iterator[Cut]:
    if manifest is not None and manifest.count <= _MOST_PIECES:
        partition = Partition(0, manifest.count, manifest.split_dim)
        yield Cut(manifest.split_dim, tuple(partition.key(key, rank) for rank in range(manifest.count)))


def _enlarged(shape: tuple[int, ...], dim: int, times: int) -> tuple[int, ...]:
    return shape[:dim] + (shape[dim] * times,) + shape[dim + 1:]


def _way(parallelism: Any, partition: Any) -> tuple[Axes | None, Partition | None]:
    if parallelism is not None and partition is not None:
        raise Refused("parallelism and writer_partition exclude each other")
    return (None if parallelism is None else axes_of(parallelism)), (None if partition is None else Partition.of(partition))


def _spread_ways(count: int, ways: tuple[Any, Any]) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Parallelisms and partitions, one for each key; None for lists of another length."""
    spread = [[None] * count if way is None else way for way in ways]
    fits = all(isinstance(way, (list, tuple)) and len(way) == count for way in spread)
    return (spread[0], spread[1]) if fits else None
