"""The same calls on both packages give the same answers, but for the differences that are intended.

Both run against the peer's master and node, so that every difference is the client's; and ours runs against our master
and node too, where it has to answer the same again.
"""

import json
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation

WHEEL = "0.3.13.post1"

#: Name of the step to why ours answers otherwise; docs/python.md has the same list for users.
INTENDED = {
    "setup bad protocol": "-600 as for every setup that cannot work; the peer says -1 here alone",
    "put wide items": "all bytes of the value are stored; the peer stores one byte for each item",
    "put strided": "the bytes that the view shows; the peer stores those that lie at its start",
    "get_batch none": "one answer for each key, so none",
    "put_from null": "a null address is refused; the peer publishes what was in the segment before",
    "put_from over the end": "a range that reaches over the end of registered memory is refused",
    "get_into null": "a null address is refused; the peer reports bytes it moved nowhere",
    "multi get larger": "a larger destination is filled as far as the object goes, as in the single-buffer calls",
}


def answers(kind: str, pool: Pool) -> dict:
    """What the script answers under a package."""
    place = installation(kind)
    script = Path(__file__).with_name("script.py")
    command = [str(place.python), str(script), f"127.0.0.1:{pool.port}"]
    run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    steps = json.loads(run.stdout.split("\n=====\n")[1])
    names = [name for name, _ in steps]
    assert len(set(names)) == len(names), "two steps have one name"
    return dict(steps)


@pytest.fixture(scope="module", name="theirs")
def theirs_fixture(need):
    """The peer's answers."""
    need(WHEEL, OURS)
    with Pool() as pool:
        pool.start_master(WHEEL)
        pool.start_node(WHEEL)
        yield answers(WHEEL, pool), pool


@pytest.fixture(scope="module", name="ours")
def ours_fixture(theirs):
    """Our answers in the same pool; the script leaves nothing behind in it."""
    return answers(OURS, theirs[1])


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
        again = answers(OURS, pool)
    assert {name: (again[name], ours[name]) for name in ours if again[name] != ours[name]} == {}


def test_the_documentation_lists_every_difference():
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    assert [name for name in INTENDED if f"`{name}`" not in page] == []
