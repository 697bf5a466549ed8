"""A store that is a dummy client of a daemon on this host: codes, shapes, and what only ours has."""

from __future__ import annotations

import pytest
from exchange import fresh
from pool import MIB, OURS, Pool
from processes import free_port


@pytest.fixture(scope="module")
def host(need):
    """A master and a daemon."""
    need(OURS, program=True)
    with Pool() as made:
        made.start_master(OURS)
        made.start_node(OURS)
        yield made


def test_a_daemon_that_is_not_there_is_refused_at_once(host):
    attached = host.start_dummy(OURS, OURS, buffer_mib=0)
    for address in (f"127.0.0.1:{free_port()}", "no such host:1", ""):
        assert attached.ask("call", "setup_dummy", 0, MIB, address) == -1
        assert attached.ask("call", "last_error")
        # The store is as if never set up.
        assert attached.ask("call", "health_check") == 1
        assert attached.ask("call", "is_exist", "k") == -600
    address = f"127.0.0.1:{host.daemons[OURS].port}"
    assert attached.ask("call", "setup_dummy", mem_pool_size=0, local_buffer_size=MIB, server_address=address) == 0


def test_answers_of_a_dummy(host):
    attached = host.start_dummy(OURS, OURS, buffer_mib=4)
    assert attached.ask("call", "get_hostname") == ""
    assert attached.ask("call", "health_check") == 0
    assert attached.ask("put", "empty", [0, 0]) == -600
    keys, values = fresh((3000,), "answers")
    assert attached.ask("put", keys[0], values[0]) == 0
    assert attached.ask("call", "is_exist", "absent") == 0
    # Memory that is not shared with the daemon cannot be registered, but may be named: it is copied once.
    assert attached.ask("use_buffer", 4 * MIB) == -1
    assert attached.ask("get_into", keys[0], values[0]) == "equal"
    shared = attached.ask("call", "alloc_from_mem_pool", 2 * MIB)
    assert attached.ask("call", "get_into", keys[0], shared + 2 * MIB - 3000, 3000) == 3000
    assert attached.ask("call", "get_into", keys[0], shared + 2 * MIB - 2999, 3000) == -600, "over the end of shared memory"
    assert attached.ask("call", "get_into", keys[0], 0, 3000) == -600
    assert attached.ask("call", "close") == 0
    assert attached.ask("call", "is_exist", keys[0]) == -600
