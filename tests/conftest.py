"""A proof whose peer is missing is skipped with one line; where `CI=true` says that nothing may be missing, it fails."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "peer"))

from pool import Pool, installation, our_program  # noqa: E402
from venvs import PeerMissing  # noqa: E402


def need(*kinds: str, program: bool = False) -> None:
    """Makes sure that the installations are there, and our program when asked; else skips or fails with one line."""
    try:
        for kind in kinds:
            installation(kind)
        if program:
            our_program("mooncake_master")
    except PeerMissing as missing:
        line = f"proof with the peer not run: {missing}"
        if os.environ.get("CI") == "true":
            pytest.fail(line, pytrace=False)
        pytest.skip(line)


@pytest.fixture(scope="module", name="need")
def need_fixture():
    """The function `need`."""
    return need


@pytest.fixture(scope="module")
def pool():
    """A pool that ends with the test module."""
    with Pool() as made:
        yield made
