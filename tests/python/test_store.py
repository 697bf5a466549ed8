"""What our package promises beyond the peer: each script of `scripts/` runs under it, with a pool of ours."""

import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation

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


def test_the_commands_become_the_program(need):
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        names = [Path(f"/proc/{process.child.pid}/comm").read_text().strip() for process in pool.processes]
        assert names == ["mooncake_master", "mooncake_client"]
