"""Engram tables: rows of float32 in the store, one table for each head of a layer, looked up by row."""

from __future__ import annotations

from operator import index
from typing import Any, Sequence

from mooncake import _native
from mooncake._tensor_calls import int32

_ITEM = 4


class EngramStoreConfig:
    """`table_vocab_sizes`: rows of the table of each head; `embedding_dim`: numbers in a row."""

    __slots__ = ("_sizes", "_dim")

    def __init__(self) -> None:
        self._sizes, self._dim = [1024], 64

    @property
    def table_vocab_sizes(self) -> list[int]:
        """Rows of each table. Assign a whole list."""
        return list(self._sizes)

    @table_vocab_sizes.setter
    def table_vocab_sizes(self, sizes: Sequence[int]) -> None:
        if isinstance(sizes, (str, bytes)):
            raise TypeError("table_vocab_sizes must be a list of ints")
        self._sizes = [index(size) for size in sizes]

    @property
    def embedding_dim(self) -> int:
        """Numbers in a row."""
        return self._dim

    @embedding_dim.setter
    def embedding_dim(self, dim: int) -> None:
        self._dim = int32(dim)


class EngramStore:
    """The tables of one layer: `engram:l<layer>:h<head>` holds float32 [rows, embedding_dim], row by row.

    `config` is an `EngramStoreConfig` with sizes above 0 (`ValueError`). Without a `store` only the names can be asked
    for. All other failures are `RuntimeError`.
    """

    def __init__(self, layer_id: int, config: EngramStoreConfig, store: Any = None):
        if not isinstance(config, EngramStoreConfig):
            raise TypeError(f"config must be an EngramStoreConfig, got {type(config).__name__}")
        if not config.table_vocab_sizes or min(config.table_vocab_sizes) <= 0 or config.embedding_dim <= 0:
            raise ValueError("EngramStore needs at least one table, and sizes above 0")
        if store is not None and not isinstance(store, _native.Store):
            raise RuntimeError(f"store must be a MooncakeDistributedStore, got {type(store).__name__}")
        self._rows, self._dim = config.table_vocab_sizes, config.embedding_dim
        self._keys = [f"engram:l{int32(layer_id)}:h{head}" for head in range(len(self._rows))]
        self._store = store

    def get_table_vocab_sizes(self) -> list[int]:
        """Rows of each table."""
        return list(self._rows)

    def get_store_keys(self) -> list[str]:
        """The key of each table."""
        return list(self._keys)

    def get_num_heads(self) -> int:
        """Tables."""
        return len(self._rows)

    def get_embedding_dim(self) -> int:
        """Numbers in a row."""
        return self._dim

    def populate(self, tables: Sequence[Any]) -> None:
        """Stores all tables: arrays [rows, embedding_dim] that convert to float32, one for each head. `RuntimeError`, and
        nothing is stored, when one of the keys is there already or a shape does not fit."""
        store = self._needed_store()
        import numpy

        rows = [numpy.ascontiguousarray(table, dtype=numpy.float32) for table in tables]
        if [table.shape for table in rows] != [(count, self._dim) for count in self._rows]:
            raise RuntimeError(f"EngramStore populate failed: tables of shape {[table.shape for table in rows]}")
        there = [key for key, found in zip(self._keys, store.batch_is_exist(self._keys)) if found != 0]
        if there:
            raise RuntimeError(f"EngramStore populate failed: {there} cannot be created")
        pieces = [(table.ctypes.data, table.nbytes, 0, 1) for table in rows]
        answers = store._put_framed(self._keys, [b""] * len(rows), pieces, None, False)
        if any(answers):
            # 1: somebody else created it meanwhile, and it stays; what this call stored goes.
            store.batch_remove([key for key, answer in zip(self._keys, answers) if answer == 0], True)
            raise RuntimeError(f"EngramStore populate failed: {answers} ({store.last_error()})")

    def lookup(self, row_ids: Any) -> Any:
        """The rows of `row_ids` [batch, positions, heads] (nested lists, or an array of integers): a new array of float32
        [batch, positions, heads, embedding_dim]. A row that is asked for several times is read once, and rows side by
        side are read as one range. `RuntimeError` for a row that no table has, and for tables that are not there."""
        store = self._needed_store()
        import numpy

        ids = self._checked_ids(row_ids, numpy)
        found = numpy.empty((*ids.shape, self._dim), dtype=numpy.float32)
        plans, fetched = [], []
        for head, key in enumerate(self._keys):
            wanted, where = numpy.unique(ids[:, :, head], return_inverse=True)
            rows = numpy.empty((len(wanted), self._dim), dtype=numpy.float32)
            plans.append(self._plan(wanted, rows, numpy))
            fetched.append((rows, where.reshape(ids.shape[:2])))
        expected = [count * self._dim * _ITEM for count in self._rows]
        for key, answer, size in zip(self._keys, store._get_pieces(self._keys, 0, plans), expected):
            if not isinstance(answer, tuple) or answer[1] != size:
                raise RuntimeError(f"EngramStore lookup failed: {key}: {answer} ({store.last_error()})")
        for head, (rows, where) in enumerate(fetched):
            found[:, :, head] = rows[where]
        return found

    def remove_from_store(self, force: bool = False) -> int:
        """Removes the tables: how many were there. `RuntimeError` when one is leased (`force` removes it all the same) or
        cannot be removed."""
        store = self._needed_store()
        answers = store.batch_remove(self._keys, force)
        failed = [answer for answer in answers if answer not in (0, -704)]
        if failed:
            raise RuntimeError(f"EngramStore remove failed: {answers}")
        return answers.count(0)

    def _needed_store(self) -> Any:
        if self._store is None:
            raise RuntimeError("EngramStore has no store")
        return self._store

    def _checked_ids(self, row_ids: Any, numpy: Any) -> Any:
        try:
            ids = numpy.asarray(row_ids)
        except ValueError as error:
            raise RuntimeError(f"EngramStore lookup failed: row ids of uneven lengths: {error}") from error
        if ids.ndim != 3 or ids.dtype.kind not in "iu":
            raise RuntimeError(f"EngramStore lookup failed: row ids must be integers [batch, positions, heads], got {ids.shape}")
        if ids.size == 0 or ids.shape[2] != len(self._rows):
            raise RuntimeError(f"EngramStore lookup failed: row ids of shape {ids.shape} for {len(self._rows)} heads")
        if (ids < 0).any() or (ids >= numpy.array(self._rows)).any():
            raise RuntimeError("EngramStore lookup failed: a row that no table has")
        return ids.astype(numpy.int64, copy=False)

    def _plan(self, wanted: Any, rows: Any, numpy: Any) -> list[tuple[int, ...]]:
        """Ranges of the table that hold the wanted rows, which are in ascending order, and where they go."""
        breaks = numpy.flatnonzero(numpy.diff(wanted) != 1) + 1
        firsts = numpy.concatenate([[0], breaks])
        lasts = numpy.concatenate([breaks, [len(wanted)]])
        step = self._dim * _ITEM
        base = rows.ctypes.data
        return [
            (int(wanted[first]) * step, base + int(first) * step, int(last - first) * step, 0, 0, 1)
            for first, last in zip(firsts, lasts)
        ]
