"""The same calls under the peer's engine and under ours answer alike, but for the differences named here.

0.3.13.post1 is the reference; what came with 0.3.14 is compared with that version, whose other answers are the same.
"""

import functools
import json
import subprocess
import tempfile
from pathlib import Path

import pytest
from pool import OURS, installation

WHEEL, NEW_WHEEL = "0.3.13.post1", "0.3.14"

#: Name of the step to why ours answers otherwise; docs/python-engine.md has the same list for users.
INTENDED = {
    "register null": "a null address is refused; the peer publishes it",
    "write to None": "TypeError as for every other wrong type; the peer says RuntimeError here",
    "batch none with notify": "the notification is sent and 0 answered; the peer says -1",
    "first buffer": "the owner is asked again when it had nothing before; the peer remembers that for ever",
}


class Run:
    """The script under a package, started at once and asked later: the versions run beside each other."""

    def __init__(self, kind: str):
        place = installation(kind)
        command = [str(place.python), str(Path(__file__).with_name("engine_script.py"))]
        self.output = tempfile.TemporaryFile()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=place.environment(), stdout=self.output, stderr=self.errors)

    @functools.cached_property
    def answers(self) -> dict:
        """What it answered, by the names of the steps."""
        returned = self.process.wait(timeout=120)
        assert returned == 0, self._text(self.errors)[-3000:]
        steps = json.loads(self._text(self.output).split("\n=====\n")[1])
        names = [name for name, _ in steps]
        assert len(set(names)) == len(names), "two steps have one name"
        return dict(steps)

    @staticmethod
    def _text(file) -> str:
        file.seek(0)
        return file.read().decode(errors="replace")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", name="runs")
def runs_fixture(need):
    """One run of each package."""
    need(OURS, WHEEL, NEW_WHEEL)
    runs = {kind: Run(kind) for kind in (OURS, WHEEL, NEW_WHEEL)}
    yield runs
    for run in runs.values():
        run.end()


def differences(ours: dict, expected: dict) -> dict:
    return {name: (ours.get(name), answer) for name, answer in expected.items() if ours.get(name) != answer}


def test_the_answers_are_the_peers_but_for_the_intended_differences(runs):
    different = differences(runs[OURS].answers, runs[WHEEL].answers)
    unexpected = {name: pair for name, pair in different.items() if name not in INTENDED}
    assert not unexpected, "step: (ours, the peer's)"
    assert sorted(different) == sorted(INTENDED), "a difference that is listed but gone"


def test_what_is_new_in_the_next_version_answers_alike(runs):
    expected = {name: answer for name, answer in runs[NEW_WHEEL].answers.items() if name.startswith("14 ")}
    assert len(expected) > 40
    assert differences(runs[OURS].answers, expected) == {}


def test_the_documentation_lists_every_difference():
    page = (Path(__file__).parents[2] / "docs" / "python-engine.md").read_text()
    assert [name for name in INTENDED if f"`{name}`" not in page] == []
