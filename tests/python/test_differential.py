"""The same calls on both packages give the same answers, but for the differences that are intended.

Both run against the peer's master and node, so that every difference is the client's; and ours runs against our master
and node too, where it has to answer the same again.
"""

import json
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation

#: Each script with the generation of the peer that it is run beside. Every step's name is in one script only.
SCRIPTS = {"script.py": "0.3.13.post1", "calls_script.py": "0.3.13.post1", "newer_script.py": "0.3.14"}

#: Name of the step to why ours answers otherwise; docs/python.md has the same list for users.
INTENDED = {
    "setup bad protocol": "-600 as for every setup that cannot work; the peer says -1 here alone",
    "put wide items": "all bytes of the value are stored; the peer stores one byte for each item",
    "put strided": "the bytes that the view shows; the peer stores those that lie at its start",
    "get_batch none": "one answer for each key, so none",
    "put_from null": "a null address is refused; the peer publishes what was in the segment before",
    "put_from over the end": "a range that reaches over the end of registered memory is refused",
    "get_into null": "a null address is refused; the peer reports bytes it moved nowhere",
    "upsert_from null": "as `put_from null`",
    "metadata without data": "the metadata alone is the object, as in 0.3.14; 0.3.13 stores nothing and says 0",
    "metadata empty key": "a negative code as everywhere; the peer forgets the sign in this one call",
    "metadata same node": "-600 as every call that cannot do it; the peer says -1 here",
    "get session twice": "a session that was started twice ends with the second end; the peer ends it under the other user",
    "put session no ranges": "nothing to write is 0 bytes, as in a get session",
    "multi get larger": "a larger destination is filled as far as the object goes, as in the single-buffer calls",
}


def answers(kind: str, pool: Pool, script: str) -> dict:
    """What a script answers under a package."""
    place = installation(kind)
    command = [str(place.python), str(Path(__file__).with_name(script)), f"127.0.0.1:{pool.port}"]
    run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    steps = json.loads(run.stdout.split("\n=====\n")[1])
    names = [name for name, _ in steps]
    assert len(set(names)) == len(names), "two steps have one name"
    return dict(steps)


@pytest.fixture(scope="module", params=SCRIPTS, ids=lambda script: script.removesuffix(".py"))
def both(request, need):
    """A script, the peer's answers, and ours in the same pool of the peer's; the script leaves nothing behind in it."""
    script = request.param
    wheel = SCRIPTS[script]
    need(wheel, OURS)
    with Pool() as pool:
        pool.start_master(wheel)
        pool.start_node(wheel)
        return script, answers(wheel, pool, script), answers(OURS, pool, script)


def test_the_answers_are_the_peers_but_for_the_intended_differences(both):
    _, expected, ours = both
    assert list(ours) == list(expected)
    different = {name: (ours[name], expected[name]) for name in expected if ours[name] != expected[name]}
    unexpected = {name: pair for name, pair in different.items() if name not in INTENDED}
    assert not unexpected, "step: (ours, the peer's)"
    gone = [name for name in expected if name in INTENDED and name not in different]
    assert not gone, "a difference that is listed but gone"


def test_our_own_pool_gives_the_same_answers(need, both):
    need(OURS, program=True)
    script, _, ours = both
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS)
        again = answers(OURS, pool, script)
    assert {name: (again[name], ours[name]) for name in ours if again[name] != ours[name]} == {}


def test_every_listed_difference_is_a_step():
    steps = "".join(Path(__file__).with_name(script).read_text() for script in SCRIPTS)
    assert [name for name in INTENDED if f'step("{name}"' not in steps] == []


def test_the_documentation_lists_every_difference():
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    assert [name for name in INTENDED if f"`{name}`" not in page] == []
