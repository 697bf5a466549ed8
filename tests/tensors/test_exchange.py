"""Tensors that one package stored are read by the other: every element type, every way of cutting, every form of a read."""

from pathlib import Path

import pytest
from pool import OURS, Pool
from with_torch import run, torch_python

WHEEL = "0.3.13.post1"
SCRIPT = Path(__file__).with_name("exchange.py")


@pytest.fixture(scope="module", name="port")
def port_fixture(need):
    """A pool with our master, and a node of either kind."""
    torch_python()
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS)
        pool.start_node(WHEEL)
        yield pool.port


@pytest.mark.parametrize("writer, reader", [(WHEEL, OURS), (OURS, WHEEL), (OURS, OURS)])
def test_one_reads_what_the_other_stored(port, writer, reader):
    for kind, what in ((writer, "write"), (reader, "read")):
        done = run(kind, SCRIPT, f"127.0.0.1:{port}", what, f"{writer}-{reader}")
        assert done.returncode == 0 and "done" in done.stdout, f"{kind} {what}: {done.stderr[-3000:]}"
