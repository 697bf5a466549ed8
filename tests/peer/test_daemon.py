"""Daemons and dummy clients of both kinds: the wheel's dummies at our daemon, ours at the wheel's (docs/daemon.md)."""

from __future__ import annotations

import pytest
from exchange import everything, fresh
from pool import MIB, OURS, Pool
from processes import wait_until

WHEEL = "0.3.13.post1"


@pytest.fixture(scope="module")
def mixed(need):
    """Our master with a daemon of each kind."""
    need(WHEEL, OURS, program=True)
    with Pool() as made:
        made.start_master(OURS)
        for kind in (OURS, WHEEL):
            made.start_node(kind)
        yield made


@pytest.mark.parametrize(("dummy", "daemon"), [(WHEEL, OURS), (OURS, WHEEL), (OURS, OURS)])
def test_a_dummy_of_one_kind_at_a_daemon_of_the_other(mixed, dummy, daemon):
    attached = mixed.start_dummy(dummy, daemon)
    plain = mixed.start_client(OURS)
    everything(attached, plain, f"{dummy}-at-{daemon}/out")
    everything(plain, attached, f"{dummy}-at-{daemon}/in")


def test_the_newest_dummy_at_our_daemon(need, mixed):
    need("0.3.14")
    attached = mixed.start_dummy("0.3.14", OURS)
    plain = mixed.start_client(OURS)
    everything(attached, plain, "new/out")
    everything(plain, attached, "new/in")


@pytest.mark.parametrize("daemon", [OURS, WHEEL])
def test_halves_of_shared_memory_are_registered(mixed, daemon):
    """The K half and the V half of a host pool, as SGLang registers them; the peer's dummy takes only the whole."""
    attached = mixed.start_dummy(OURS, daemon, buffer_mib=0)
    assert attached.ask("use_shared_buffer", 4 * MIB, [[0, 2 * MIB], [2 * MIB, 2 * MIB]]) == [0, 0]
    keys, values = fresh((2 * MIB - 100, 3000), f"halves/{daemon}")
    assert attached.ask("batch_put_from", keys, values) == [0, 0]
    assert attached.ask("batch_get_into", keys, values) == ["equal", "equal"]


@pytest.mark.parametrize("dummy", [OURS, WHEEL])
def test_a_dummy_outlives_its_daemon(need, dummy):
    """The daemon is killed and started again at its port: the dummy attaches to it by itself."""
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        attached = pool.start_dummy(dummy, OURS)
        keys, values = fresh((5000,), f"outlives/{dummy}")
        assert attached.ask("put_from", keys[0], values[0]) == 0
        pool.restart_node(OURS, size_mib=64)
        wait_until("the dummy is healthy", lambda: attached.ask("call", "health_check") == 0, 30)
        keys, values = fresh((6000,), f"outlives/{dummy}/again")
        wait_until("a put through the new daemon", lambda: attached.ask("put_from", keys[0], values[0]) == 0, 30)
        assert attached.ask("get_into", keys[0], values[0]) == "equal"


def test_a_killed_dummy_of_the_peer_is_reclaimed(need):
    """Our daemon says in its log that the dummy is gone, long before its silence would tell."""
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        attached = pool.start_dummy(WHEEL, OURS)
        keys, values = fresh((5000,), "killed")
        assert attached.ask("put_from", keys[0], values[0]) == 0
        attached.kill()
        daemon = pool.daemons[OURS].process
        wait_until("the daemon to forget it", lambda: "its process ended" in daemon.log_tail(), 8)
        other = pool.start_client(OURS)
        assert other.ask("get", keys[0], values[0]) == "equal"
