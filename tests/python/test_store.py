"""What our package promises beyond the peer: each script of `scripts/` runs under it, with a pool of ours."""

import json
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.fixture(scope="module", name="master")
def master_fixture(need):
    """`host:port` of the master of a small pool."""
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=256)
        yield f"127.0.0.1:{pool.port}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(master, script):
    place = installation(OURS)
    command = [str(place.python), str(script), master]
    run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize("shm", ["0", "1"], ids=["tcp", "shared_memory"])
def test_edges_of_name_and_size_in_memory_of_another_process(need, shm):
    need(OURS, program=True)
    place = installation(OURS)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=512)
        command = [str(place.python), str(ROOT / "tests/python/scripts/edges_of_name_and_size.py"), f"127.0.0.1:{pool.port}"]
        env = place.environment() | {"YB_SHM": shm, "YB_ELSEWHERE": "1", "YB_MANY": "2000"}
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


def test_every_public_name_of_the_peer_is_there(need):
    need("0.3.13.post1", OURS)
    code = (
        "import mooncake.store as s; names = lambda of: {n for n in dir(of) if not n.startswith('__') and 'pybind' not in n};"
        "print(*sorted(names(s)), *sorted('MooncakeDistributedStore.' + n for n in names(s.MooncakeDistributedStore)))"
    )
    found = {}
    for kind in ("0.3.13.post1", OURS):
        place = installation(kind)
        command = [str(place.python), "-c", code]
        run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, check=True)
        found[kind] = set(run.stdout.split())
    assert sorted(found["0.3.13.post1"] - found[OURS]) == []


@pytest.mark.parametrize("module", ["store", "engine"])
def test_stubs_and_help_say_the_same(need, module):
    need(OURS)
    place = installation(OURS)
    stub = ROOT / "python" / "mooncake" / f"{module}.pyi"
    command = [str(place.python), str(ROOT / "tests" / "python" / "stubs_script.py"), f"mooncake.{module}", str(stub)]
    run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


def test_the_commands_become_the_program(need):
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        names = [Path(f"/proc/{process.child.pid}/comm").read_text().strip() for process in pool.processes]
        assert names == ["mooncake_master", "mooncake_client"]
