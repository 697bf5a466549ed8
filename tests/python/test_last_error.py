"""`mooncake.store.last_error()`: four answers that the peer's numbers and empty bytes do not tell apart, and their metric and
log lines. A node and a master are killed under one process (`last_error_script.py`)."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from pool import OURS, Pool, installation
from processes import free_port, wait_until

SCRIPT = Path(__file__).parent / "last_error_script.py"


class Asker:
    """The process of the script: one answer a step."""

    def __init__(self, pool):
        place = installation(OURS)
        # Over shared memory the bytes of a dead node can still be read.
        env = {**place.environment(), "YB_SHM": "0", "PAGE_PORT": str(free_port())}
        self.process = subprocess.Popen([str(place.python), str(SCRIPT), f"127.0.0.1:{pool.port}"], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def step(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=30)[1][-3000:]
        return json.loads(line)

    def end(self):
        """Its log."""
        _, log = self.process.communicate("end\n", timeout=30)
        assert self.process.returncode == 0, log[-3000:]
        return log


@pytest.fixture(name="pool")
def pool_fixture(need):
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        yield pool


def test_missing_empty_failed_and_unreachable_are_four_answers(pool):
    asker = Asker(pool)
    put = asker.step("put")
    assert put == [0, 0, None], put
    value, missing = asker.step("get missing")
    assert value == "" and missing["key"] == "missing"
    assert (missing["code"], missing["reason"], missing["peer"], missing["retryable"]) == (-704, "missing", None, False)
    assert asker.step("get empty") == ["", None], "an empty object is a success"
    assert asker.step("get there") == ["bytes", None]

    node = asker.step("where there")
    pool.daemons[OURS].process.kill()
    value, failed = asker.step("get there")
    assert value == "" and failed["key"] == "there"
    assert (failed["code"], failed["reason"], failed["retryable"]) == (-800, "transfer", True)
    assert failed["peer"] == node and failed["stage"] in ("connect", "read"), failed
    assert 0 <= failed["elapsed"] < 5 and failed["peer"] in failed["message"]

    pool.processes[0].kill()
    value, unreachable = asker.step("get there")
    assert value == "" and unreachable["code"] in (-900, -901), unreachable
    assert (unreachable["reason"], unreachable["retryable"]) == ("master_unreachable", True)
    assert unreachable["peer"] == f"127.0.0.1:{pool.port}" and unreachable["stage"] == "GetReplicaList"
    assert 0 <= unreachable["elapsed"] < 10

    counted = asker.step("metrics")
    assert counted["missing"] == 1 and counted["transfer"] == 1 and counted["master_unreachable"] >= 1, counted
    told = [line for line in asker.end().splitlines() if "call failed" in line]
    assert any('reason="transfer"' in line and node in line for line in told), told
    assert any('reason="master_unreachable"' in line for line in told), told
    assert not any('reason="missing"' in line for line in told), "a miss is an answer, not news"


def test_who_stands_in_the_way_is_named(need):
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS, flags=(
            "--client_ttl=10", "--client_suspicion_ttl_sec=600", "--default_kv_lease_ttl=600000",
        ))
        name = pool.start_node(OURS, size_mib=64)
        asker = Asker(pool)
        assert asker.step("put") == [0, 0, None]
        assert asker.step("begin written") == [0]
        value, busy = asker.step("get written")
        assert value == "" and (busy["code"], busy["reason"], busy["cause"]) == (-703, "busy", "writer"), busy
        assert busy["node"] == name and busy["writer"] and busy["writer_host"].startswith("127.0.0.1:"), busy
        assert busy["age"] >= 0 and busy["writer_host"] in busy["message"] and busy["peer"] is None, busy

        assert asker.step("get there") == ["bytes", None]
        code, leased = asker.step("remove there")
        assert code == -706 and leased["cause"] == "lease" and 0 < leased["left"] <= 600, leased
        code, large = asker.step("large big")
        assert code == -200 and large["cause"] == "too_large", large
        assert (large["amount"], large["limit"]) == (65 << 20, 64 << 20), large

        node = asker.step("where there")
        process = pool.daemons[OURS].process.child
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until("its objects not to be offered", lambda: asker.step("exists there")[0] == 0, seconds=60)
            value, silent = asker.step("get there")
        finally:
            process.send_signal(signal.SIGCONT)
        assert value == "" and silent["retryable"], silent
        assert (silent["code"], silent["cause"]) == (-703, "silent_node"), silent
        assert (silent["node"], silent["peer"]) == (name, node) and silent["age"] >= 10, silent
        assert name in silent["message"], silent
        told = [line for line in asker.end().splitlines() if "call failed" in line]
        assert any('cause="writer"' in line and busy["writer"] in line for line in told), told
