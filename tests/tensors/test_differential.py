"""The same tensor calls under both packages, with real torch: the same answers and the same bytes, but for the differences
that are intended. Both run against the peer's master and node; ours also against our own, where it answers the same again.
"""

from pathlib import Path

import pytest
from pool import OURS, Pool
from with_torch import steps, torch_python

WHEEL = "0.3.13.post1"

#: Name of the step to why ours answers otherwise; docs/python-tensors.md has the same list for users.
INTENDED = {
    "get scalar": "a tensor without dimensions keeps its shape",
    "put parameter": "every subclass of torch.Tensor is a tensor",
    "deserialize memoryview": "anything bytes-like",
    "deserialize owns": "anything bytes-like",
    "par put not a tensor": "-600 as in every other call; the peer raises AttributeError",
    "par batch put one bad": "-600 for the one; the peer raises AttributeError",
    "writer put None dim": "-600; the peer raises RuntimeError",
    "par from tp": "the manifest is stored too",
    "par from dp tp": "the manifest is stored too",
    "read full of shards, other dim": "put together; the manifest says how it was cut, and the peer gives None",
    "read shard of other dim": "cut along the dimension that was asked for; the peer gives the piece along the other one",
    "into shard of other dim": "as into new memory; the peer gives None",
    "read shard uneven": "None; the peer gives a piece of another size",
    "read shard of writers, four": "put together from writers' pieces; the peer gives None",
    "engram lookup flat": "RuntimeError as every failure of a lookup; the peer raises TypeError",
}


@pytest.fixture(scope="module", name="theirs")
def theirs_fixture(need):
    """The peer's answers, and its pool."""
    torch_python()
    need(WHEEL, OURS)
    with Pool() as pool:
        pool.start_master(WHEEL)
        pool.start_node(WHEEL)
        yield steps(WHEEL, pool.port), pool


@pytest.fixture(scope="module", name="ours")
def ours_fixture(theirs):
    """Our answers, in a pool of the peer's that has seen none of the other's objects."""
    del theirs
    with Pool() as pool:
        pool.start_master(WHEEL)
        pool.start_node(WHEEL)
        return steps(OURS, pool.port)


def test_the_answers_are_the_peers_but_for_the_intended_differences(theirs, ours):
    expected, _ = theirs
    assert list(ours) == list(expected)
    different = {name: (ours[name], expected[name]) for name in expected if ours[name] != expected[name]}
    unexpected = {name: pair for name, pair in different.items() if name not in INTENDED}
    assert not unexpected, "step: (ours, the peer's)"
    assert sorted(different) == sorted(INTENDED), "a difference that is listed but gone"


def test_our_own_pool_gives_the_same_answers(need, ours):
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS)
        again = steps(OURS, pool.port)
    assert {name: (again[name], ours[name]) for name in ours if again[name] != ours[name]} == {}


def test_0_3_14_answers_what_it_still_has(need, ours):
    need("0.3.14", program=True)
    with Pool() as pool:
        pool.start_master("0.3.14")
        pool.start_node("0.3.14")
        newer = steps("0.3.14", pool.port)
    different = {name: (ours[name], newer[name]) for name in newer if ours[name] != newer[name]}
    # Its stores are set up with other words only; a missing tensor of a call for devices has a code of its own there.
    unexpected = {name: pair for name, pair in different.items() if name not in INTENDED and name != "cuda missing"}
    assert not unexpected, "step: (ours, 0.3.14's)"


def test_the_documentation_lists_every_difference():
    page = (Path(__file__).parents[2] / "docs" / "python-tensors.md").read_text()
    assert [name for name in INTENDED if f"`{name}`" not in page] == []
