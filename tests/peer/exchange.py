"""What one client writes another must read back: the bodies shared by all proofs."""

from __future__ import annotations

from itertools import count

from pool import MIB
from processes import Driver

#: Around the limits where something changes: one byte, a page, the peer's slices of 16 MiB, the largest value.
SIZES = (1, 7, 4096, 65537, MIB, 16 * MIB - 16, 16 * MIB + 1, 64 * MIB)
BATCH = tuple([1, 100, 4096, 64 * 1024 + 3] * 8 + [MIB] * 4 + [17 * MIB])

_seeds = count(1)


def fresh(sizes: tuple[int, ...], prefix: str) -> tuple[list[str], list[list[int]]]:
    """New keys, and for each the `[seed, length]` of its value."""
    values = [[next(_seeds), size] for size in sizes]
    return [f"{prefix}/{seed}" for seed, _ in values], values


def singles(writer: Driver, reader: Driver, prefix: str, config: dict | None = None) -> None:
    """Every size by `put` and by `put_from`, read by `get`, `get_into` and `get_buffer`; then removed."""
    for write in ("put", "put_from"):
        keys, values = fresh(SIZES, f"{prefix}/{write}")
        for key, value in zip(keys, values):
            assert writer.ask(write, key, value, config) == 0, (write, key, value)
            assert reader.ask("call", "is_exist", key) == 1
            assert reader.ask("call", "get_size", key) == value[1]
            for read in ("get", "get_into", "get_buffer"):
                assert reader.ask(read, key, value) == "equal", (write, read, value)
            assert writer.ask("call", "remove", key, force=True) == 0
            assert reader.ask("call", "is_exist", key) == 0


def batches(writer: Driver, reader: Driver, prefix: str, config: dict | None = None) -> None:
    """One batch of many sizes by `put_batch` and by `batch_put_from`, read by both batch reads; then removed."""
    for write in ("put_batch", "batch_put_from"):
        keys, values = fresh(BATCH, f"{prefix}/{write}")
        assert writer.ask(write, keys, values, config) in (0, [0] * len(keys)), write
        assert reader.ask("call", "batch_is_exist", [*keys, f"{prefix}/absent"]) == [1] * len(keys) + [0]
        for read in ("get_batch", "batch_get_into"):
            assert reader.ask(read, keys, values) == ["equal"] * len(keys), (write, read)
        assert writer.ask("call", "batch_remove", keys, True) == [0] * len(keys)
        assert reader.ask("call", "batch_is_exist", keys) == [0] * len(keys)


def misses(client: Driver, prefix: str) -> None:
    """What is not there is answered as a miss, alone and between keys that are there."""
    absent = f"{prefix}/absent"
    assert client.ask("call", "get_size", absent) == -704
    assert client.ask("get_into", absent, [0, 1]) == -704
    assert client.ask("get_raw", absent) == ""
    assert client.ask("get_buffer", absent, [0, 1]) == "missing"
    assert client.ask("call", "remove", absent) == -704
    keys, values = fresh((10, 20), prefix)
    assert client.ask("put_batch", keys, values) == 0
    assert client.ask("batch_get_into", [keys[0], absent, keys[1]], [values[0], [0, 5], values[1]]) == ["equal", -704, "equal"]
    assert client.ask("call", "batch_remove", [keys[0], absent, keys[1]], True) == [0, -704, 0]


def first_write_stays(writer: Driver, other: Driver, prefix: str) -> None:
    """A second put of a key answers 0 and changes nothing, whoever does it."""
    (key,), (value,) = fresh((5000,), prefix)
    assert writer.ask("put", key, value) == 0
    assert other.ask("put", key, [value[0] + 1_000_000, 6000]) == 0
    assert writer.ask("get", key, value) == "equal"
    assert other.ask("get", key, value) == "equal"
    assert other.ask("call", "remove", key, force=True) == 0


def parts_and_patterns(writer: Driver, reader: Driver, prefix: str) -> None:
    """`put_parts` joins its parts; removal by pattern counts what it removed and leaves the rest."""
    parts = [[901, 10], [902, 70_000], [903, 1]]
    assert writer.ask("put_parts", f"{prefix}/whole", parts) == 0
    assert reader.ask("call", "get_size", f"{prefix}/whole") == 70_011
    keys, values = fresh((30, 40, 50), f"{prefix}/many")
    assert writer.ask("put_batch", keys, values) == 0
    assert reader.ask("call", "remove_by_regex", f"^{prefix}/many/.*", True) == 3
    assert reader.ask("call", "batch_is_exist", [*keys, f"{prefix}/whole"]) == [0, 0, 0, 1]


def everything(writer: Driver, reader: Driver, prefix: str, config: dict | None = None) -> None:
    """All bodies, `writer` writing and `reader` reading."""
    singles(writer, reader, prefix, config)
    batches(writer, reader, prefix, config)
    misses(reader, prefix)
    first_write_stays(writer, reader, prefix)
    parts_and_patterns(writer, reader, prefix)
