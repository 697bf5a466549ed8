"""Copy and move tasks and drain jobs of our master, done by the peer's clients, which nobody changed; and the other way
round, tasks of the peer's master done by our clients."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from pool import MIB, OURS, Pool
from processes import http_get, wait_until

WHEEL = "0.3.13.post1"
NEWER = "0.3.14"
SUCCESS = 3
VALUE = (7, 3 * MIB + 5)


def ask(pool: Pool, method: str, path: str, body: object = None) -> dict:
    """A JSON answer of the master's admin port, whatever its status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{pool.metrics_port}{path}", data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def replicas(pool: Pool, key: str) -> int:
    """Memory replicas of a key, asked of the admin port."""
    answer = json.loads(http_get(pool.metrics_port, f"/query_key?key={key}") or "{}")
    return len(answer.get("data") or [])


def done(client, task) -> None:
    """Waits for the end of a task, which must be a success."""
    wait_until("the task ends", lambda: client.ask("task_status", task)[0] >= 2, seconds=30)
    status, message = client.ask("task_status", task)
    assert status == SUCCESS, message


@pytest.mark.parametrize(("master", "kind"), [(OURS, WHEEL), (OURS, NEWER), (WHEEL, OURS), (OURS, OURS)])
def test_copies_and_moves_are_asked_for_and_made_by_one_kind_under_the_other(need, master, kind):
    need(WHEEL, kind, program=master == OURS)
    with Pool() as pool:
        pool.start_master(master)
        first = pool.start_client(kind, buffer_mib=32, segment_mib=64)
        second = pool.start_client(kind, buffer_mib=32, segment_mib=64)
        asker = pool.start_client(kind, buffer_mib=0)
        names = [client.ask("call", "get_hostname") for client in (first, second)]
        where = {"preferred_segments": [names[0]]}
        assert first.ask("put", "copied", VALUE, where) == 0
        assert first.ask("put", "moved", VALUE, where) == 0
        task, code = asker.ask("call", "create_copy_task", "copied", [names[1]])
        assert code == 0
        done(asker, task)
        assert replicas(pool, "copied") == 2
        task, code = asker.ask("call", "create_move_task", "moved", names[0], names[1])
        assert code == 0
        done(asker, task)
        assert replicas(pool, "moved") == 1
        # The first one leaves: what is read then was copied.
        first.ask("call", "close")
        wait_until("the first segment is gone", lambda: names[0] not in pool.segment_names())
        for key in ("copied", "moved"):
            assert second.ask("get", key, VALUE) == "equal", key


@pytest.mark.parametrize("kind", [WHEEL, OURS])
def test_a_drain_of_our_master_empties_a_node(need, kind):
    need(WHEEL, kind, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        leaving = pool.start_client(kind, buffer_mib=32, segment_mib=64)
        staying = pool.start_client(kind, buffer_mib=32, segment_mib=64)
        name = leaving.ask("call", "get_hostname")
        values = {f"k{i}": (i, 100_000 + i) for i in range(40)}
        for i, (key, value) in enumerate(values.items()):
            config = {"preferred_segments": [name], "with_hard_pin": i % 10 == 0}
            assert leaving.ask("put", key, value, config) == 0
        created = ask(pool, "POST", "/api/v1/drain_jobs", {"segments": [name], "max_concurrency": 16})
        assert created["success"] and created["status"] == "CREATED"
        path = f"/api/v1/drain_jobs/query?job_id={created['job_id']}"
        wait_until("the drain ends", lambda: ask(pool, "GET", path)["status"] >= 3, seconds=40)
        job = ask(pool, "GET", path)
        assert (job["status_name"], job["succeeded_units"], job["failed_units"]) == ("SUCCEEDED", 40, 0), job
        assert job["migrated_bytes"] == sum(length for _seed, length in values.values())
        assert ask(pool, "GET", f"/api/v1/segments/status?segment={name}")["status_name"] == "DRAINED"
        leaving.ask("call", "close")
        for key, value in values.items():
            assert staying.ask("get", key, value) == "equal", key


def test_a_hot_object_of_our_master_is_copied_by_the_peers_client(need):
    need(WHEEL, program=True)
    with Pool() as pool:
        pool.start_master(OURS, flags=("--dynamic_replication_mode=enforce",))
        first = pool.start_client(WHEEL, buffer_mib=32, segment_mib=64)
        second = pool.start_client(WHEEL, buffer_mib=32, segment_mib=64)
        where = {"preferred_segments": [first.ask("call", "get_hostname")]}
        assert first.ask("put", "hot", VALUE, where) == 0
        for _ in range(10):
            assert second.ask("get", "hot", VALUE) == "equal"
        wait_until("the hot object has two replicas", lambda: replicas(pool, "hot") == 2)
        first.ask("call", "close")
        assert second.ask("get", "hot", VALUE) == "equal"
