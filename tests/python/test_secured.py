"""Our package in a secured pool: the variables of docs/security.md alone do it, what does not know the secret is told so."""

import json
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation, our_program
from processes import wait_until
from test_store_service import Service

SCRIPTS = Path(__file__).parent / "scripts"
#: Scripts of every kind of call, of a client that lends, of dummies beside a store, and of many threads.
SELECTION = ["addresses", "buffer_pool", "empty_values", "host_memory", "hot_cache", "many_threads", "segments", "serves_dummies",
             "setup_names", "views_outlive_the_store"]
KEY = "YUEBING_SECRET_FILE"


class Secured:
    """A pool all of whose processes have the variables, and what was written in its logs."""

    def __init__(self, pool, variables, secret):
        self.pool, self.variables, self.secret, self.said = pool, variables, secret, []

    @property
    def master(self):
        return f"127.0.0.1:{self.pool.port}"

    def python(self, *arguments, **env):
        """A Python under our package with the variables, and others; the output is kept."""
        place = installation(OURS)
        env = {name: value for name, value in (place.environment() | {"YB_LOG": "trace"} | env).items() if value is not None}
        command = [str(place.python), *map(str, arguments)]
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        self.said.append(run.stdout + run.stderr)
        return run


@pytest.fixture(scope="module", params=["secret", "secret and TLS"])
def secured(request, need, tmp_path_factory):
    """A master and a node; the variables are in the environment of this process, and so of all that it starts."""
    need(OURS, program=True)
    folder = tmp_path_factory.mktemp("certs")
    made = subprocess.run([str(our_program("yuebing")), "certs", str(folder)], capture_output=True, text=True, check=True)
    lines = [line.removeprefix("export ") for line in made.stdout.splitlines() if line.startswith("export ")]
    variables = dict(line.split("#")[0].strip().split("=", 1) for line in lines)
    tls = {f"YUEBING_TLS_{name}" for name in ("CA", "CERT", "KEY", "MUTUAL")}
    assert set(variables) == {KEY, *tls}
    if request.param == "secret":
        variables = {KEY: variables[KEY]}
    with pytest.MonkeyPatch.context() as patch, Pool() as pool:
        for name, value in variables.items():
            patch.setenv(name, value)
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=256)
        yield Secured(pool, variables, Path(variables[KEY]).read_text().strip())


@pytest.mark.parametrize("script", SELECTION)
def test_the_calls_work(secured, script):
    run = secured.python(SCRIPTS / f"{script}.py", secured.master, YB_LOG="warn")
    assert run.returncode == 0, run.stderr[-3000:]


SETUP = """
import sys
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore
c, store = MooncakeConfig.load_from_env(), MooncakeDistributedStore()
code = store.setup(c.local_hostname, c.metadata_server, c.global_segment_size, c.local_buffer_size, c.protocol, c.device_name,
                   c.master_server_address)
assert code == 0, store.last_error()
assert store.upsert("from " + sys.argv[1], b"value" * 1000) == 0 and store.get("from " + sys.argv[1]) == b"value" * 1000
assert store.close() == 0
"""


@pytest.mark.parametrize("shm", ["0", "1"], ids=["tcp", "shared_memory"])
@pytest.mark.parametrize("source", ["file", "environment"])
def test_setup_from_a_file_and_from_the_environment(secured, tmp_path, source, shm):
    if source == "file":
        (tmp_path / "c.json").write_text(json.dumps({
            "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_address": secured.master,
            "global_segment_size": "16MB", "local_buffer_size": "16MB"}))
        env = {"MOONCAKE_CONFIG_PATH": str(tmp_path / "c.json")}
    else:
        env = {"MOONCAKE_MASTER": secured.master, "MOONCAKE_GLOBAL_SEGMENT_SIZE": "16MB", "MOONCAKE_LOCAL_BUFFER_SIZE": "16MB"}
    run = secured.python("-c", SETUP, source, YB_SHM=shm, **env)
    assert run.returncode == 0, run.stderr[-3000:]


def test_a_dummy_and_the_rest_service(secured):
    dummy = secured.pool.start_dummy(OURS, OURS, buffer_mib=1)
    assert dummy.ask("put", "dummy", [7, 3000]) == 0 and dummy.ask("get", "dummy", [7, 3000]) == "equal"
    assert dummy.ask("put_from", "dummy 2", [8, 70_000]) == 0 and dummy.ask("get_into", "dummy 2", [8, 70_000]) == "equal"
    with Service(OURS, secured.master, env={"YB_LOG": "trace", "YUEBING_ADMIN_TOKEN": "a token of the test"}) as service:
        token = {"Authorization": "Bearer a token of the test"}
        assert service.ask("PUT", "/api/put/rest", b"v" * 5000, token).status == 200
        assert service.ask("GET", "/api/get/rest").body == b"v" * 5000
        said = service.process.log.read_text()
    secured.said.append(said)
    assert "a token of the test" not in said


REFUSED = """
import json, sys
import mooncake.store as s
store = s.MooncakeDistributedStore()
code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1])
first = s.last_error()
dummy = s.MooncakeDistributedStore()
answers = [code, first.code, first.reason, str(first), dummy.setup_dummy(0, 16 << 20, sys.argv[2]), dummy.last_error()]
print("=" + json.dumps(answers))
"""


@pytest.mark.parametrize("wrong", ["another secret", "none at all"])
def test_who_does_not_know_the_secret_is_told_so(secured, wrong):
    other = "0123456789abcdef of another pool"
    secret = {"YUEBING_SECRET": other} if wrong == "another secret" else {}
    # Without the secret there is none of it; the certificates stay.
    daemon = f"127.0.0.1:{secured.pool.daemons[OURS].port}"
    run = secured.python("-c", REFUSED, secured.master, daemon, **{KEY: None}, **secret)
    assert run.returncode == 0, run.stderr[-3000:]
    code, again, reason, why, dummy, dummy_why = json.loads(run.stdout.rpartition("=")[2])
    assert (code, dummy) == (-600, -1) and reason in ("setup", "master_unreachable") and again < 0, (again, reason, why)
    words = "secrets are not the same" if secret else "secured connections only" if KEY in secured.variables else ""
    if wrong == "none at all" and len(secured.variables) > 1:
        words = "secret"
    assert words in why and words in dummy_why, (why, dummy_why)
    assert other not in run.stdout + run.stderr
    refused = wait_until("the master's line", lambda: "connection_refused" in secured.pool.processes[0].log.read_text())
    assert refused


def test_a_misspelt_variable_is_named_once(need):
    need(OURS)
    place = installation(OURS)
    code = "import mooncake.store as s\nfor _ in range(2): s.MooncakeDistributedStore().setup(*%r)"
    nobody = ("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", "127.0.0.1:1")
    env = place.environment() | {"YUEBING_SECRT": "1"}
    run = subprocess.run([str(place.python), "-c", code % (nobody,)], env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and run.stderr.count("did you mean YUEBING_SECRET?") == 1, run.stderr[-3000:]


def test_no_secret_is_in_any_log(secured):
    """Last: of all that the tests above made be said."""
    # Also in a client that has the secret itself in its environment.
    run = secured.python("-c", SETUP, "variable", MOONCAKE_MASTER=secured.master, MOONCAKE_GLOBAL_SEGMENT_SIZE="0",
                         **{KEY: None, "YUEBING_SECRET": secured.secret})
    assert run.returncode == 0, run.stderr[-3000:]
    logs = [process.log.read_text(errors="replace") for process in secured.pool.processes]
    assert len(secured.said) > 5 and len(secured.secret) >= 32
    key = Path(secured.variables.get("YUEBING_TLS_KEY", secured.variables[KEY])).read_text().splitlines()
    parts = [secured.secret, *[line for line in key if not line.startswith("-----")]]
    assert [part for part in parts for text in [*logs, *secured.said] if part in text] == []
    assert any("TRACE" in text or "DEBUG" in text for text in secured.said)
