"""Ours and the peer's in one pool, nothing of the peer changed.

(a) the peer's clients on our master and our node; (b) our client on the peer's master and node; (c) one pool with a
node of each kind, under either master; (d) older and newer clients beside each other on our master.
"""

from itertools import product

import pytest
from exchange import everything, fresh
from pool import MIB, OURS, Pool

WHEEL = "0.3.13.post1"


def test_a_the_peers_clients_use_our_master_and_our_node(need):
    need(WHEEL, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS)
        writer, reader = pool.start_client(WHEEL), pool.start_client(WHEEL)
        everything(writer, reader, "a")
        everything(reader, writer, "a-back")


def test_a_a_client_of_the_peer_lends_memory_to_our_master(need):
    need(WHEEL, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        owner = pool.start_client(WHEEL, segment_mib=512)
        assert owner.ask("call", "get_hostname") in pool.segment_names()
        other = pool.start_client(WHEEL)
        everything(other, owner, "lent")


def test_b_our_clients_use_the_peers_master_and_node(need):
    need(WHEEL, OURS)
    with Pool() as pool:
        pool.start_master(WHEEL)
        pool.start_node(WHEEL)
        writer, reader, wheel = (pool.start_client(kind) for kind in (OURS, OURS, WHEEL))
        everything(writer, reader, "b")
        everything(wheel, writer, "b-in")
        everything(writer, wheel, "b-out")


def test_b_our_client_lends_memory_to_the_peers_master(need):
    need(WHEEL, OURS)
    with Pool() as pool:
        pool.start_master(WHEEL)
        owner = pool.start_client(OURS, segment_mib=512)
        assert owner.ask("call", "get_hostname") in pool.segment_names()
        wheel = pool.start_client(WHEEL)
        everything(wheel, owner, "lent")
        everything(owner, wheel, "lent-back")


@pytest.mark.parametrize("master", [OURS, WHEEL])
def test_c_a_node_of_each_kind_in_one_pool(need, master):
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(master)
        nodes = {kind: pool.start_node(kind) for kind in (OURS, WHEEL)}
        clients = {kind: pool.start_client(kind) for kind in (OURS, WHEEL)}
        for (node, segment), (writer, reader) in product(nodes.items(), ((OURS, WHEEL), (WHEEL, OURS))):
            config = {"preferred_segments": [segment]}
            everything(clients[writer], clients[reader], f"c/{node}/{writer}", config)


def test_c_one_batch_spread_over_both_nodes(need):
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        for kind in (OURS, WHEEL):
            pool.start_node(kind)
        clients = {kind: pool.start_client(kind) for kind in (OURS, WHEEL)}
        for writer, reader in ((OURS, WHEEL), (WHEEL, OURS)):
            keys, values = fresh((4096, MIB) * 32, f"spread/{writer}")
            assert clients[writer].ask("batch_put_from", keys, values) == [0] * len(keys)
            assert clients[reader].ask("batch_get_into", keys, values) == ["equal"] * len(keys)


def test_d_three_generations_of_the_peer_on_our_master(need):
    need("0.3.12", WHEEL, "0.3.14", program=True)
    with Pool() as pool:
        pool.start_master(OURS, compat=("0.3.12",))
        pool.start_node(OURS)
        old = pool.start_client("0.3.12", port=pool.compat_ports["0.3.12"])
        middle, new = pool.start_client(WHEEL), pool.start_client("0.3.14")
        for writer, reader in ((old, middle), (middle, new), (new, old)):
            everything(writer, reader, f"d/{writer.name}")
