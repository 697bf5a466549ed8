"""The bytes of stored tensors against those that the peer's wheel stored, and cutting and joining against a plain loop.

Needs neither torch nor the native module: the layout is loaded from its file.
"""

import importlib.util
import json
import random
from itertools import product
from math import prod
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("tensor_layout", ROOT / "python" / "mooncake" / "_tensor_layout.py")
layout = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(layout)

#: Recorded from 0.3.13.post1 with torch 2.13, one line for each header and manifest that differs; headers without the
#: zeros at their end.
VECTORS = [json.loads(line) for line in (Path(__file__).parent / "tensor_vectors.jsonl").read_text().splitlines()]
HEADERS = [one for one in VECTORS if "head" in one]
MANIFESTS = [one for one in VECTORS if "manifest" in one]


def described(vector):
    axes = tuple(layout.Axis(*axis) for axis in vector["axes"])
    number = layout.DTYPE_NUMBERS[vector["dtype"]]
    return layout.Layout(number, tuple(vector["global_shape"]), tuple(vector["local_shape"]), axes)


def head_of(vector):
    return bytes.fromhex(vector["head"]).ljust(304, b"\0")


def test_there_are_vectors_of_every_kind():
    assert {one["dtype"] for one in HEADERS} == set(layout.DTYPE_NUMBERS)
    assert {axis[0] for one in HEADERS for axis in one["axes"]} == {0, 1, 2, 3}
    assert {len(one["axes"]) for one in HEADERS} == {0, 1, 2, 4} and len(MANIFESTS) > 2


@pytest.mark.parametrize("vector", HEADERS, ids=lambda one: one["what"])
def test_headers_are_the_peers(vector):
    assert described(vector).pack() == head_of(vector)
    assert layout.unpack(head_of(vector), vector["object_bytes"]) == described(vector)
    assert layout.unpack(head_of(vector), vector["object_bytes"] + 1) is None
    assert layout.unpack(head_of(vector)[:303], vector["object_bytes"]) is None


@pytest.mark.parametrize("vector", MANIFESTS, ids=lambda one: one["what"])
def test_manifests_are_the_peers(vector):
    number = layout.DTYPE_NUMBERS[vector["dtype"]]
    made = layout.Manifest(number, vector["split_dim"], vector["count"], tuple(vector["global_shape"]))
    assert made.pack() == bytes.fromhex(vector["manifest"])
    assert layout.unpack_manifest(made.pack()) == made


def test_no_header_of_other_bytes_is_read_as_something_impossible():
    rng = random.Random(1)
    for vector in HEADERS * 3:
        head = bytearray(head_of(vector))
        for _ in range(3):
            head[rng.randrange(len(head))] = rng.randrange(256)
        found = layout.unpack(bytes(head), vector["object_bytes"])
        assert found is None or (
            304 + found.data_bytes == vector["object_bytes"] and all(side >= 0 for side in found.local_shape)
            and all(0 <= axis.rank < axis.count for axis in found.axes)
        )


@pytest.mark.parametrize("at, value", [(0, 1), (4, 2), (6, 95), (8, 15), (12, 9), (16, 3), (20, 0), (20, 0xFFFF), (32, 2**63)])
def test_a_manifest_with_a_broken_field_is_none(at, value):
    data = bytearray(layout.Manifest(0, 1, 2, (4, 6)).pack())
    width = 8 if at >= 32 else 2 if at in (4, 6) else 4
    data[at:at + width] = value.to_bytes(width, "little")
    # The number of pieces may be anything above 0.
    assert (layout.unpack_manifest(bytes(data)) is None) == ((at, value) != (20, 0xFFFF))


def indices(box):
    """Every index of the whole tensor that a piece has, in the order of its memory."""
    return list(product(*(range(first, first + extent) for first, extent in zip(*box))))


def random_box(rng, shape):
    starts = tuple(rng.randrange(side) for side in shape)
    return layout.Box(starts, tuple(rng.randint(1, side - first) for side, first in zip(shape, starts)))


def played(moves, source, target):
    """What copying does, byte by byte."""
    for move in moves:
        for index in range(move.count):
            first, to = move.source + index * move.source_stride, move.target + index * move.target_stride
            target[to:to + move.length] = source[first:first + move.length]


@pytest.mark.parametrize("item", [1, 3])
def test_moves_copy_exactly_what_two_pieces_have_in_common(item):
    rng = random.Random(item)
    for _ in range(400):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 4)))
        source, target = random_box(rng, shape), random_box(rng, shape)
        value = {index: bytes([1 + place % 250] * item) for place, index in enumerate(indices(layout.whole_box(shape)))}
        memory = b"".join(value[index] for index in indices(source))
        filled = bytearray(prod(target.extents) * item)
        played(layout.moves(source, target, item), memory, filled)
        common = set(indices(source))
        expected = b"".join(value[index] if index in common else bytes(item) for index in indices(target))
        assert bytes(filled) == expected, (shape, source, target)


def test_pieces_along_a_dimension_lie_in_few_runs():
    for shape in [(4, 6, 8), (2, 12), (6,), (3, 1, 4)]:
        memory = bytes(range(prod(shape)))
        for dim, side in enumerate(shape):
            for count in (count for count in range(1, side + 1) if side % count == 0):
                for box in layout.slices(shape, dim, count):
                    run = layout.slice_run(shape, 1, dim, box)
                    found = b"".join(memory[run.offset + i * run.stride:][:run.length] for i in range(run.count))
                    whole = {index: place for place, index in enumerate(indices(layout.whole_box(shape)))}
                    assert found == bytes(whole[index] for index in indices(box))
                    assert run.count <= prod(shape[:dim]), "one run a row at most"
                    assert len(layout.moves(box, layout.whole_box(shape), 1)) == 1, "one move for a piece"


def test_an_empty_piece_needs_nothing():
    box = layout.slice_box((2, 0, 3), 0, 1, 2)
    assert layout.slice_run((2, 0, 3), 4, 0, box) == layout.Run(0, 0, 0, 0)
    assert layout.moves(box, layout.whole_box((2, 0, 3)), 4) == []
