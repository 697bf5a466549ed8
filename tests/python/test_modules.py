"""The package's helper modules: the peer's names, arguments and answers, and what is there beyond them."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from pool import OURS, installation
from processes import Process, free_port, listens, wait_until

HERE = Path(__file__).parent


def run(kind, *command, env=None, timeout=60):
    place = installation(kind)
    command = [str(place.python), *command]
    return subprocess.run(
        command, env=place.environment() | (env or {}), capture_output=True, text=True, timeout=timeout, check=False
    )


def answers(kind, generation):
    """What modules_script.py answers under a package."""
    done = run(kind, str(HERE / "modules_script.py"), generation)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = json.loads(done.stdout.split("\n=====\n")[1])
    assert len({name for name, _ in steps}) == len(steps), "two steps have one name"
    return dict(steps)


@pytest.mark.parametrize("generation", ["0.3.13.post1", "0.3.14"])
def test_the_answers_are_the_peers(need, generation):
    need(generation, OURS)
    theirs, ours = answers(generation, generation), answers(OURS, generation)
    assert list(theirs) == list(ours)
    different = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    assert different == {}, "step: (ours, the peer's)"


@pytest.mark.parametrize("module", ["structured_object_store", "dataproto_catalog"])
def test_what_is_not_built_says_so_by_name(need, module):
    need(OURS)
    code = (
        f"import mooncake.{module} as m\n"
        "for name in [n for n in dir(m) if callable(getattr(m, n)) and not n.startswith('_')]:\n"
        "    try: getattr(m, name)(1)\n"
        "    except NotImplementedError as error: assert f'mooncake.{m.__name__[9:]}.{name}' in str(error), error\n"
        "    else: raise SystemExit(f'{name} did something')\n"
        "    print(name)\n"
    )
    done = run(OURS, "-c", code)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 2


def test_every_name_of_the_unbuilt_modules_is_there(need):
    need("0.3.13.post1", OURS)
    # The peer's structured_object_store wants numpy at import; its catalogue does not.
    code = (
        "import mooncake.dataproto_catalog as m\n"
        "print(*[n for n, v in vars(m).items() if getattr(v, '__module__', '') == m.__name__ and not n.startswith('_')])"
    )
    theirs, ours = (set(run(kind, "-c", code).stdout.split()) for kind in ("0.3.13.post1", OURS))
    assert theirs and theirs - ours == set()


@pytest.mark.parametrize("backend, works", [("cpp", True), ("rs", True), ("java", False), ("", False)])
def test_the_backend_variable(need, backend, works):
    need(OURS)
    done = run(OURS, "-c", "import mooncake.store", env={"MOONCAKE_STORE_BACKEND": backend})
    assert (done.returncode == 0) == works, done.stderr
    assert works or "ValueError" in done.stderr


@pytest.mark.parametrize("module, name", [
    ("cli", "mooncake_master"), ("cli_client", "mooncake_client"), ("cli_bench", "transfer_engine_bench"),
    ("http_metadata_server", "mooncake_http_metadata_server"), ("transfer_engine_topology_dump", "transfer_engine_topology_dump"),
])
def test_modules_become_the_program(need, module, name):
    need(OURS, program=True)
    # The peer's flags end --help with 1.
    assert name in run(OURS, "-m", f"mooncake.{module}", "--help").stdout


def test_the_process_of_a_module_is_the_server(need):
    need(OURS, program=True)
    port, place = free_port(), installation(OURS)
    command = [str(place.python), "-m", "mooncake.http_metadata_server", "--host=127.0.0.1", f"--port={port}"]
    server = Process("http-metadata-module", command, place.environment())
    try:
        wait_until("the metadata server to listen", lambda: server.must_run() or listens(port))
        assert Path(f"/proc/{server.child.pid}/cmdline").read_text().startswith("mooncake_http_metadata_server\0")
        server.child.send_signal(signal.SIGTERM)
        assert server.child.wait(10) == 0
    finally:
        server.kill()


def test_a_located_command_is_the_program(need):
    need(OURS, program=True)
    code = "from mooncake._launcher import locate; print(locate('mooncake_master'))"
    path = run(OURS, "-c", code).stdout.strip()
    done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=30, check=False)
    assert "mooncake_master: flags" in done.stdout


def test_the_bootstrap_server_lives_until_it_is_closed(need):
    need(OURS, program=True)
    code = (
        "import sys, time\n"
        "from mooncake.http_metadata_server import KVBootstrapServer, KVPoll\n"
        f"server = KVBootstrapServer({free_port()}, '127.0.0.1')\n"
        "assert server.poll() is KVPoll.Bootstrapping\n"
        "server.run()\n"
        "end = time.monotonic() + 20\n"
        "while server.poll() is not KVPoll.Success: assert time.monotonic() < end; time.sleep(0.02)\n"
        "server.close(); server.close()\n"
        "assert server.poll() is KVPoll.Failed\n"
    )
    done = run(OURS, "-c", code)
    assert done.returncode == 0, done.stderr


def test_coroutines_of_the_store(need, pool):
    need(OURS, program=True)
    pool.start_master(OURS)
    pool.start_node(OURS, size_mib=64)
    done = run(OURS, str(HERE / "async_store_script.py"), f"127.0.0.1:{pool.port}")
    assert done.returncode == 0, done.stderr[-3000:]


def test_importing_the_package_loads_nothing_native(need):
    need(OURS)
    code = "import sys, mooncake; assert not [n for n in sys.modules if n.startswith('mooncake.')]; mooncake.BufferPool"
    assert run(OURS, "-c", code).returncode == 0
