"""Tensor calls of the store: whole tensors, and tensors cut along one dimension.

An object is written from its header and the tensor's own memory, and read into the memory of the tensor that is handed
out: no other copy is made. Status calls answer 0 or a negative code, reads a tensor or None; `last_error` tells why.
"""

from __future__ import annotations

from functools import partial
from operator import index
from typing import Any, Callable, NamedTuple, Sequence

from mooncake import _native
from mooncake._tensor_layout import (
    HEADER_BYTES, TP, Axis, Layout, Run, named, shard_suffix, slice_run, slices, unpack,
)
from mooncake._tensor_memory import NoLibrary, NotATensor, Source, library, memory_at, source_of

_INVALID = -600
#: Attributes of a config that hold one entry for each key of a call.
_PER_KEY = ("group_ids", "session_ids", "residency_affinity_ids", "per_key_preferred_hca_names")


class Refused(Exception):
    """Arguments that cannot work (-600); the text says why."""


class Piece(NamedTuple):
    """One object to write: a header and elements in memory."""

    key: Any
    head: bytes
    #: Address of the first byte, then as in `Run`.
    address: int
    length: int
    stride: int
    count: int

    @staticmethod
    def of(key: Any, layout: Layout, address: int, run: Run) -> Piece:
        """The piece `run` of the elements at `address`."""
        return Piece(key, layout.pack(), address + run.offset, run.length, run.stride, run.count)

    @staticmethod
    def whole(key: Any, source: Source) -> Piece:
        """All of a tensor."""
        return Piece.of(key, source.layout, source.address, Run(0, source.layout.data_bytes, 0, 1))

    @staticmethod
    def bare(key: Any, head: bytes) -> Piece:
        """An object that is a header and nothing else."""
        return Piece(key, head, 0, 0, 0, 0)


class Written(NamedTuple):
    """What one key of a call stores."""

    pieces: list[Piece]
    #: Keeps the memory of the pieces.
    owner: Any = None
    #: What describes the pieces, if anything does: an object of its own.
    manifest: Piece | None = None


class Settings(NamedTuple):
    """How the objects of one call are written."""

    config: Any = None
    replace: bool = False
    #: Whether settings per key have an entry for each piece of a key, not for each key.
    per_piece: bool = False

    def check(self) -> None:
        """`TypeError` for what is no config, `Refused` for one that cannot work."""
        if self.config is None:
            return
        if not isinstance(self.config, _native.ReplicateConfig):
            raise TypeError(f"config must be a ReplicateConfig, got {type(self.config).__name__}")
        segments, replicas = len(self.config.preferred_segments), self.config.replica_num
        if segments not in (0, replicas):
            raise Refused(f"{segments} preferred segments for {replicas} replicas")

    def spread(self, counts: Sequence[int]) -> Any:
        """The config for keys with so many pieces each: settings per key become settings per piece."""
        entries = {name: found for name in _PER_KEY if (found := getattr(self.config, name, None))}
        if not entries:
            return self.config
        spread = {name: self._spread(name, found, counts) for name, found in entries.items()}
        copied = _native.ReplicateConfig()
        for name in dir(copied):
            if not name.startswith("_") and not callable(getattr(copied, name)):
                setattr(copied, name, spread.get(name, getattr(self.config, name)))
        return copied

    def _spread(self, name: str, entries: list[Any], counts: Sequence[int]) -> list[Any]:
        if self.per_piece:
            if any(count not in (0, len(entries)) for count in counts):
                raise Refused(f"{len(entries)} entries in {name} for {max(counts)} pieces")
            return [entry for count in counts if count for entry in entries]
        if len(entries) != len(counts):
            raise Refused(f"{len(entries)} entries in {name} for {len(counts)} keys")
        return [entry for entry, count in zip(entries, counts) for _ in range(count)]


def int32(value: Any) -> int:
    """The number; `TypeError` for what is no integer of 32 bits."""
    number = index(value)
    if not -(2**31) <= number < 2**31:
        raise TypeError(f"{number} does not fit in 32 bits")
    return number


def listed(what: Any, name: str) -> list[Any]:
    """The list; `TypeError` for anything else."""
    if not isinstance(what, list):
        raise TypeError(f"{name} must be a list, got {type(what).__name__}")
    return what


def cut_tensor(key: Any, source: Source, split_dim: int, count: int) -> list[Piece]:
    """The pieces of a whole tensor, one for each rank, under the keys that have one "tp" axis."""
    check_cut(source.layout.local_shape, split_dim, count)
    shape = source.layout.local_shape
    pieces = []
    for rank, box in enumerate(slices(shape, split_dim, count)):
        axis = Axis(TP, rank, count, split_dim, 0, box.extents[split_dim])
        layout = Layout(source.layout.dtype, shape, box.extents, (axis,))
        run = slice_run(shape, layout.item_bytes, split_dim, box)
        pieces.append(Piece.of(named(key, shard_suffix(rank)), layout, source.address, run))
    return pieces


def check_cut(shape: tuple[int, ...], split_dim: int, count: int) -> None:
    """`Refused` when a tensor cannot be cut so."""
    if not 0 <= split_dim < len(shape):
        raise Refused(f"dimension {split_dim} of a tensor with {len(shape)}")
    if shape[split_dim] % count != 0:
        raise Refused(f"a side of {shape[split_dim]} cannot be cut into {count} equal pieces")


class TensorCalls:
    """The tensor calls of `MooncakeDistributedStore`.

    A tensor is one of torch, on any device, or an array of numpy. Its elements are stored row by row behind a header
    of 304 bytes that holds type and shape; up to 8 dimensions. Reads give tensors of torch on the host; without torch,
    arrays of numpy.
    """

    # Whole tensors.

    def put_tensor(self, key: str | bytes, tensor: Any) -> int:
        """Stores a tensor: 0, also when there is an object under `key` already, which stays; or a code. -600: what was
        given is no tensor, or its elements have no type that can be stored."""
        return self._put_tensors([key], [tensor])[0]

    def batch_put_tensor(self, keys: Sequence[str | bytes], tensors_list: list[Any]) -> list[int]:
        """As `put_tensor` for many: one answer for each key. Lists of different lengths: -600 for each key."""
        return self._put_tensors(keys, tensors_list)

    def pub_tensor(self, key: str | bytes, tensor: Any, config: Any = None) -> int:
        """As `put_tensor` with a config. `preferred_segments` has to be empty or as long as `replica_num`, else -600."""
        return self._put_tensors([key], [tensor], config)[0]

    def batch_pub_tensor(self, keys: Sequence[str | bytes], tensors_list: list[Any], config: Any = None) -> list[int]:
        """As `pub_tensor` for many; settings per key (`group_ids`) have one entry for each key."""
        return self._put_tensors(keys, tensors_list, config)

    def upsert_tensor(self, key: str | bytes, tensor: Any) -> int:
        """Stores a tensor in the place of what is there: 0 or a code."""
        return self._put_tensors([key], [tensor], None, True)[0]

    def batch_upsert_tensor(self, keys: Sequence[str | bytes], tensors_list: list[Any]) -> list[int]:
        """As `upsert_tensor` for many."""
        return self._put_tensors(keys, tensors_list, None, True)

    def upsert_pub_tensor(self, key: str | bytes, tensor: Any, config: Any = None) -> int:
        """As `upsert_tensor` with a config, as `pub_tensor` takes it."""
        return self._put_tensors([key], [tensor], config, True)[0]

    def batch_upsert_pub_tensor(
        self, keys: Sequence[str | bytes], tensors_list: list[Any], config: Any = None
    ) -> list[int]:
        """As `upsert_pub_tensor` for many."""
        return self._put_tensors(keys, tensors_list, config, True)

    def get_tensor(self, key: str | bytes) -> Any:
        """The tensor with memory of its own; None when it is missing, is no tensor, or cannot be read."""
        return self._get_tensors([key])[0]

    def batch_get_tensor(self, keys: Sequence[str | bytes]) -> list[Any]:
        """As `get_tensor` for many: one lookup, one transfer."""
        return self._get_tensors(keys)

    # Header and elements in the caller's memory.

    def put_tensor_from(self, key: str | bytes, buffer_ptr: int, size: int) -> int:
        """Stores the header and the elements at `buffer_ptr`, without a copy in this process. `size` bytes have to be
        exactly one tensor, else -600."""
        return self._put_from([key], [buffer_ptr], [size])[0]

    def batch_put_tensor_from(
        self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        """As `put_tensor_from` for many. If one of them is no tensor, nothing is stored and every answer is -600."""
        return self._put_from(keys, buffer_ptrs, sizes)

    def upsert_tensor_from(self, key: str | bytes, buffer_ptr: int, size: int) -> int:
        """As `put_tensor_from`, in the place of what is there."""
        return self._put_from([key], [buffer_ptr], [size], True)[0]

    def batch_upsert_tensor_from(
        self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        """As `batch_put_tensor_from`, in the place of what is there."""
        return self._put_from(keys, buffer_ptrs, sizes, True)

    def get_tensor_into(self, key: str | bytes, buffer_ptr: int, size: int) -> Any:
        """Reads header and elements to `buffer_ptr`, which has room for `size` bytes. The tensor **is** the memory from
        `buffer_ptr + 304` on: it must not be used after that is freed. None as in `get_tensor`, or when it does not
        fit."""
        return self._get_into([key], [buffer_ptr], [size])[0]

    def batch_get_tensor_into(self, keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int]) -> list[Any]:
        """As `get_tensor_into` for many. Lists of different lengths: -600 for each key."""
        return self._get_into(keys, buffer_ptrs, sizes)

    def get_tensor_into_cuda(self, key: str | bytes, tensor: Any) -> int:
        """Reads a tensor into one of the same type and shape on a device: bytes of the elements, or a code; -600 when
        `tensor` is on the host, or another type or shape was stored. Goes by way of the host."""
        return self._get_into_device([key], [tensor])[0]

    def batch_get_tensor_into_cuda(self, keys: Sequence[str | bytes], tensors_list: list[Any]) -> list[int]:
        """As `get_tensor_into_cuda` for many."""
        return self._get_into_device(keys, tensors_list)

    # Tensors cut along one dimension: every piece under `<key>_tp_<rank>`.

    def put_tensor_with_tp(
        self, key: str | bytes, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """Cuts a whole tensor into `tp_size` equal pieces along `split_dim` and stores **every** piece; `tp_rank` is
        not looked at. 0 or the first code; -600 when the side is no multiple of `tp_size`. `tp_size` up to 1: as
        `put_tensor`."""
        return self._put_cut([key], [tensor], None, (tp_rank, tp_size, split_dim))[0]

    def batch_put_tensor_with_tp(
        self, base_keys: Sequence[str | bytes], tensors_list: list[Any], tp_rank: int = 0, tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        """As `put_tensor_with_tp` for many. If one of them is no tensor, nothing is stored and every answer is -600."""
        return self._put_cut(base_keys, tensors_list, None, (tp_rank, tp_size, split_dim))

    def pub_tensor_with_tp(
        self, key: str | bytes, tensor: Any, config: Any = None, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """As `put_tensor_with_tp` with a config; settings per key (`group_ids`) have one entry for each piece."""
        return self._put_cut([key], [tensor], config, (tp_rank, tp_size, split_dim))[0]

    def batch_pub_tensor_with_tp(
        self, base_keys: Sequence[str | bytes], tensors_list: list[Any], config: Any = None, tp_rank: int = 0,
        tp_size: int = 1, split_dim: int = 0,
    ) -> list[int]:
        """As `pub_tensor_with_tp` for many; the entries per piece count for every key."""
        return self._put_cut(base_keys, tensors_list, config, (tp_rank, tp_size, split_dim))

    def put_tensor_with_tp_from(
        self, key: str | bytes, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """As `put_tensor_with_tp` for a whole tensor whose header and elements are at `buffer_ptr`."""
        return self._put_cut_from([key], [buffer_ptr], [size], (tp_rank, tp_size, split_dim))[0]

    def batch_put_tensor_with_tp_from(
        self, base_keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int], tp_rank: int = 0,
        tp_size: int = 1, split_dim: int = 0,
    ) -> list[int]:
        """As `put_tensor_with_tp_from` for many: one answer for each key."""
        return self._put_cut_from(base_keys, buffer_ptrs, sizes, (tp_rank, tp_size, split_dim))

    def get_tensor_with_tp(self, key: str | bytes, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        """The piece under `<key>_tp_<tp_rank>`, however it was cut; `tp_size` up to 1: as `get_tensor`."""
        return self._get_tensors(_shard_keys([key], tp_rank, tp_size, split_dim))[0]

    def batch_get_tensor_with_tp(
        self, base_keys: Sequence[str | bytes], tp_rank: int = 0, tp_size: int = 1
    ) -> list[Any]:
        """As `get_tensor_with_tp` for many."""
        return self._get_tensors(_shard_keys(base_keys, tp_rank, tp_size, 0))

    def get_tensor_with_tp_into(
        self, key: str | bytes, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> Any:
        """As `get_tensor_with_tp` into the caller's memory, as `get_tensor_into`."""
        return self._get_into(_shard_keys([key], tp_rank, tp_size, split_dim), [buffer_ptr], [size])[0]

    def batch_get_tensor_with_tp_into(
        self, base_keys: Sequence[str | bytes], buffer_ptrs: list[int], sizes: list[int], tp_rank: int = 0,
        tp_size: int = 1,
    ) -> list[Any]:
        """As `get_tensor_with_tp_into` for many."""
        return self._get_into(_shard_keys(base_keys, tp_rank, tp_size, 0), buffer_ptrs, sizes)

    # What the calls are made of.

    def _put_tensors(
        self, keys: Sequence[Any], tensors: list[Any], config: Any = None, replace: bool = False
    ) -> list[int]:
        listed(tensors, "tensors_list")
        if len(keys) != len(tensors):
            return self._refuse_all(keys, f"{len(keys)} keys, {len(tensors)} tensors")

        def one(key: Any, tensor: Any) -> Written:
            source = source_of(tensor)
            return Written([Piece.whole(key, source)], source.owner)

        return self._write([partial(one, *pair) for pair in zip(keys, tensors)], Settings(config, replace))

    def _put_from(
        self, keys: Sequence[Any], addresses: list[int], sizes: list[int], replace: bool = False
    ) -> list[int]:
        if not len(keys) == len(addresses) == len(sizes):
            return self._refuse_all(keys, f"{len(keys)} keys, {len(addresses)} addresses, {len(sizes)} sizes")
        pieces = []
        for key, address, size in zip(keys, addresses, sizes):
            try:
                head, layout = self._header_at(address, size)
            except Refused as refused:
                return self._refuse_all(keys, str(refused))
            # Stored as it lies there, header and all.
            pieces.append(Piece(key, head, address + HEADER_BYTES, layout.data_bytes, 0, 1))
        return self._write([partial(Written, [piece]) for piece in pieces], Settings(None, replace))

    def _header_at(self, address: int, size: int) -> tuple[bytes, Layout]:
        """The header of the tensor that lies at `address`; `Refused` when there is none of exactly this size."""
        head = self._peek(address, size, HEADER_BYTES)
        layout = None if head is None else unpack(head, size)
        if head is None or layout is None:
            raise Refused(f"{size} bytes at {address:#x} are no tensor")
        return head, layout

    def _source_at(self, address: int, size: int) -> Source:
        """The tensor whose header and elements are at `address`; `Refused` when there is none."""
        return Source(self._header_at(address, size)[1], address + HEADER_BYTES, None)

    def _put_cut(self, keys: Sequence[Any], tensors: list[Any], config: Any, cut: tuple[Any, Any, Any]) -> list[int]:
        _, count, split_dim = map(int32, cut)
        if count <= 1:
            return self._put_tensors(keys, tensors, config)
        listed(tensors, "tensors_list")
        if len(keys) != len(tensors):
            return self._refuse_all(keys, f"{len(keys)} keys, {len(tensors)} tensors")
        try:
            sources = [source_of(tensor) for tensor in tensors]
        except NotATensor as refused:
            return self._refuse_all(keys, str(refused))

        def one(key: Any, source: Source) -> Written:
            return Written(cut_tensor(key, source, split_dim, count), source.owner)

        return self._write([partial(one, *pair) for pair in zip(keys, sources)], Settings(config, per_piece=True))

    def _put_cut_from(
        self, keys: Sequence[Any], addresses: list[int], sizes: list[int], cut: tuple[Any, Any, Any]
    ) -> list[int]:
        _, count, split_dim = map(int32, cut)
        if count <= 1:
            return self._put_from(keys, addresses, sizes)
        if not len(keys) == len(addresses) == len(sizes):
            return self._refuse_all(keys, f"{len(keys)} keys, {len(addresses)} addresses, {len(sizes)} sizes")

        def one(key: Any, address: int, size: int) -> Written:
            return Written(cut_tensor(key, self._source_at(address, size), split_dim, count))

        return self._write([partial(one, *each) for each in zip(keys, addresses, sizes)], Settings())

    def _write(self, makers: Sequence[Callable[[], Written]], settings: Settings) -> list[int]:
        """Writes what each key consists of, all pieces in one batch: 0, or the first code of its pieces. Manifests follow
        when the pieces are there."""
        try:
            settings.check()
        except Refused as refused:
            return [self._refuse(str(refused)) for _ in makers]
        numbers = [0 for _ in makers]
        written = []
        for place, make in enumerate(makers):
            try:
                written.append(make())
            except (NotATensor, Refused) as refused:
                numbers[place] = self._refuse(str(refused))
                written.append(Written([]))
        answers = self._write_pieces([each.pieces for each in written], settings)
        for place, found in enumerate(answers):
            numbers[place] = next((answer for answer in found if answer < 0), numbers[place])
        stored = [(place, 0 in answers[place]) for place, each in enumerate(written) if each.manifest and not numbers[place]]
        if stored:
            self._write_manifests([(place, written[place].manifest, new) for place, new in stored], settings, numbers)
        return numbers

    def _write_pieces(self, lists: Sequence[list[Piece]], settings: Settings) -> list[list[int]]:
        """One batch. For each piece 0: stored, 1: was there already, or a code."""
        try:
            config = settings.spread([len(pieces) for pieces in lists])
        except Refused as refused:
            return [[self._refuse(str(refused))] for _ in lists]
        flat = [piece for pieces in lists for piece in pieces]
        answers = iter(self._put_framed(
            [piece.key for piece in flat], [piece.head for piece in flat], [tuple(piece[2:]) for piece in flat], config,
            settings.replace,
        ))
        return [[next(answers) for _ in pieces] for pieces in lists]

    def _write_manifests(
        self, manifests: list[tuple[int, Piece, bool]], settings: Settings, numbers: list[int]
    ) -> None:
        """A manifest describes the pieces that were stored last: where another one is, it is replaced, unless the pieces
        of this call were there already."""
        places = [place for place, _, _ in manifests]
        lists: list[list[Piece]] = [[] for _ in numbers]
        for place, manifest, _ in manifests:
            lists[place] = [manifest]
        answers = self._write_pieces(lists, settings)
        kept = [place for place, manifest, new in manifests if answers[place] == [1] and new]
        stale = [place for place, found in zip(kept, self.get_batch([lists[place][0].key for place in kept]))
                 if found != lists[place][0].head]
        if stale:
            again = [lists[place] if place in stale else [] for place in range(len(numbers))]
            renewed = self._write_pieces(again, settings._replace(replace=True))
            answers = [new or old for new, old in zip(renewed, answers)]
        for place in places:
            numbers[place] = min(0, *answers[place])

    def _get_tensors(self, keys: Sequence[Any]) -> list[Any]:
        return [None if found is None else found[1] for found in self._read_whole(keys)]

    def _read_whole(self, keys: Sequence[Any]) -> list[tuple[Layout, Any] | None]:
        """Layout and tensor of each key; None for what is no tensor, or cannot be read."""
        try:
            made = library()
        except NoLibrary as missing:
            self._refuse(str(missing))
            return [None for _ in keys]
        rooms: list[tuple[Any, int]] = []

        def room(sizes: list[int | None]) -> list[int]:
            rooms.extend(self._room(made, size) for size in sizes)
            return [address for _, address in rooms]

        answers = self._get_framed(keys, HEADER_BYTES, room)
        found = [self._shaped(made, answer, raw) for answer, (raw, _) in zip(answers, rooms)]
        # Nothing was asked of an object that is too short, so nothing else has said why.
        if any(isinstance(answer, int) for answer in answers) and not self.last_error():
            self._refuse("the object is no tensor: it is shorter than the header of one")
        return found

    def _room(self, made: Any, size: int | None) -> tuple[Any, int]:
        """Memory for a tensor and its address; None and 0 for one that cannot be read, or for which there is none."""
        try:
            return (None, 0) if size is None else made.room(size)
        except (MemoryError, RuntimeError) as error:
            self._refuse(f"no memory for a tensor of {size} bytes: {error}")
            return None, 0

    def _shaped(self, made: Any, answer: Any, raw: Any) -> tuple[Layout, Any] | None:
        if raw is None or not isinstance(answer, tuple):
            return None
        layout = unpack(*answer)
        if layout is None:
            self._refuse("the object is no tensor")
            return None
        try:
            return layout, made.shaped(raw, layout)
        except (ImportError, AttributeError, TypeError) as error:
            self._refuse(f"no tensor of this type can be made here: {error}")
            return None

    def _get_into(self, keys: Sequence[Any], addresses: list[int], sizes: list[int]) -> list[Any]:
        if not len(keys) == len(addresses) == len(sizes):
            return self._refuse_all(keys, f"{len(keys)} keys, {len(addresses)} addresses, {len(sizes)} sizes")
        found = self.batch_get_into(keys, addresses, sizes)
        return [self._aliasing(address, size) if size >= 0 else None for address, size in zip(addresses, found)]

    def _aliasing(self, address: int, size: int) -> Any:
        """The tensor whose header and elements are at `address`; None when there is none."""
        try:
            source = self._source_at(address, size)
            memory = memory_at(source.address, source.layout.data_bytes)
            return library().aliasing(memory, source.layout)
        except (Refused, NoLibrary, ImportError, AttributeError) as error:
            self._refuse(str(error))
            return None

    def _get_into_device(self, keys: Sequence[Any], tensors: list[Any]) -> list[int]:
        listed(tensors, "tensors_list")
        on_device = [getattr(getattr(tensor, "device", None), "type", "cpu") not in ("cpu", "meta") for tensor in tensors]
        if len(keys) != len(tensors) or not all(on_device):
            return self._refuse_all(keys, "one tensor on a device is needed for each key")
        numbers = []
        for key, tensor, found in zip(keys, tensors, self._read_whole(keys)):
            if found is None:
                missing = self.get_size(key)
                numbers.append(missing if missing < 0 else _INVALID)
            elif found[1].dtype != tensor.dtype or found[1].shape != tensor.shape:
                numbers.append(self._refuse("the tensor that is stored has another type or shape"))
            else:
                tensor.copy_(found[1])
                numbers.append(found[0].data_bytes)
        return numbers

    def _refuse_all(self, keys: Sequence[Any], why: str) -> list[int]:
        return [self._refuse(why) for _ in keys]


def _shard_keys(keys: Sequence[Any], rank: Any, count: Any, split_dim: Any) -> Sequence[Any]:
    rank, count, _ = int32(rank), int32(count), int32(split_dim)
    return keys if count <= 1 else [named(key, shard_suffix(rank)) for key in keys]
