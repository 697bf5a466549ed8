"""The log of our master: it is killed, and what lies on nodes of the peer, which tell nothing, is known again."""

from __future__ import annotations

import re

import pytest
from exchange import fresh
from pool import OURS, Pool
from processes import http_get, wait_until

WHEELS = ["0.3.13.post1", "0.3.14"]
#: What a client answers of an object of 1 MiB that is not there.
MISSING = f"0 bytes instead of {1 << 20}"


def metric(pool: Pool, name: str) -> int:
    """A counter of the master; 0 while it does not answer."""
    found = re.search(rf"^{name} (\d+)", http_get(pool.metrics_port, "/metrics"), re.M)
    return int(found[1]) if found else 0


def settled(pool: Pool) -> None:
    """Returns when the log has nothing more to write than that its master lives."""
    seen = []

    def quiet() -> bool:
        seen.append(metric(pool, "yuebing_journal_bytes_total"))
        return len(seen) > 20 and seen[-1] - seen[-20] < 200

    wait_until("the log to be at rest", quiet)


def kill_and_start(pool: Pool) -> None:
    """The master dies at once and comes back at its ports, with the log it had."""
    pool.processes[0].kill()
    pool.processes[0] = pool.restart_master()


@pytest.mark.parametrize("wheel", WHEELS)
def test_objects_on_nodes_of_the_peer_outlive_the_master(need, wheel, tmp_path):
    need(wheel, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS, flags=(f"--journal_file={tmp_path}/master.log",))
        pool.start_node(wheel, size_mib=256)
        client = pool.start_client(wheel, buffer_mib=64)
        keys, values = fresh((100, 70_001, 1 << 20) * 20, f"kept/{wheel}")
        for key, value in zip(keys, values, strict=True):
            assert client.ask("put", key, value) == 0
        for round in range(3):
            settled(pool)
            kill_and_start(pool)
            wait_until("all to be known", lambda: metric(pool, "yuebing_directory_adopted_total") >= len(keys), 30)
            # The wheel finds out at its first call that its connection is gone, and calls that a miss.
            wait_until("the client to find the master", lambda: client.ask("get", keys[0], values[0]) == "equal", 10)
            for key, value in zip(keys, values, strict=True):
                assert client.ask("get", key, value) == "equal", key
            # There is room beside them, and nothing of theirs is written over.
            more, others = fresh((1 << 20,) * 20, f"more/{wheel}/{round}")
            wait_until("room for new objects", lambda: client.ask("put", more[0], others[0]) == 0, 30)
            assert [client.ask("put", k, v) for k, v in zip(more[1:], others[1:], strict=True)] == [0] * 19
            keys, values = keys + more, values + others
            assert [client.ask("get", k, v) for k, v in zip(keys, values, strict=True)] == ["equal"] * len(keys)


def test_a_node_that_comes_back_as_another_process_brings_nothing(need, tmp_path):
    wheel = WHEELS[0]
    need(wheel, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS, flags=(f"--journal_file={tmp_path}/master.log",))
        pool.start_node(wheel, size_mib=128)
        client = pool.start_client(wheel, buffer_mib=64)
        keys, values = fresh((1 << 20,) * 30, "gone")
        assert [client.ask("put", k, v) for k, v in zip(keys, values, strict=True)] == [0] * 30
        settled(pool)
        pool.processes[0].kill()
        pool.daemons[wheel].process.kill()
        pool.processes[0] = pool.restart_master()
        pool.start_node(wheel, size_mib=128, port=pool.daemons[wheel].port)
        wait_until("room for new objects", lambda: client.ask("put", "new", [7, 1 << 20]) == 0, 30)
        assert {client.ask("get", k, v) for k, v in zip(keys, values, strict=True)} == {MISSING}
        assert client.ask("get", "new", [7, 1 << 20]) == "equal"
        assert metric(pool, "yuebing_directory_adopted_total") == 0


def test_a_log_that_was_damaged_is_kept_aside_and_nothing_of_it_is_used(need, tmp_path):
    wheel = WHEELS[0]
    need(wheel, OURS, program=True)
    log = tmp_path / "master.log"
    with Pool() as pool:
        pool.start_master(OURS, flags=(f"--journal_file={log}",))
        pool.start_node(wheel, size_mib=128)
        client = pool.start_client(wheel, buffer_mib=64)
        keys, values = fresh((1 << 20,) * 30, "damaged")
        assert [client.ask("put", k, v) for k, v in zip(keys, values, strict=True)] == [0] * 30
        settled(pool)
        pool.processes[0].kill()
        bytes_of_log = bytearray(log.read_bytes())
        bytes_of_log[len(bytes_of_log) // 2] ^= 1
        log.write_bytes(bytes_of_log)
        pool.processes[0] = pool.restart_master()
        wait_until("room for new objects", lambda: client.ask("put", "new", [7, 1 << 20]) == 0, 30)
        assert {client.ask("get", k, v) for k, v in zip(keys, values, strict=True)} == {MISSING}
        assert (tmp_path / "master.log.damaged").read_bytes() == bytes(bytes_of_log)
