"""A long mixed run of one process (`mixed_run.py`): threads, asyncio, forks, collections; memory stays, nothing hangs.

`YB_MIXED_OPERATIONS=1000000` makes it the long one.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation

SCRIPT = Path(__file__).parent / "mixed_run.py"
OPERATIONS = int(os.environ.get("YB_MIXED_OPERATIONS", "40000"))
#: Pages that allocators of threads keep; a leak of one byte in fifty of what moves is more.
SLACK_KIB = 12 << 10


@pytest.fixture(scope="module", name="master")
def master_fixture(need):
    """`host:port` of the master of a small pool."""
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=128)
        yield f"127.0.0.1:{pool.port}"


def mixed(master, operations, **env):
    place = installation(OURS)
    command = [str(place.python), str(SCRIPT), master, str(operations)]
    limit = 120 + operations // 200
    run = subprocess.run(command, env={**place.environment(), **env}, capture_output=True, text=True, timeout=limit,
                         check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = json.loads(run.stdout.splitlines()[-1])
    print(answer)
    return answer


def test_mixed_run(master):
    answer = mixed(master, OPERATIONS)
    assert answer["operations"] >= OPERATIONS - 4
    assert answer["forks"] >= 3
    assert answer["end_kib"] - answer["middle_kib"] <= SLACK_KIB, answer
    assert answer["ticks"] >= 0.9, answer


def test_the_run_notices_a_leak(master):
    answer = mixed(master, 40000, YB_MIXED_LEAK="1")
    assert answer["end_kib"] - answer["middle_kib"] > SLACK_KIB, answer
