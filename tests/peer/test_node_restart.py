"""A node of ours whose memory outlives its process is started anew: the peer's clients go on reading from it."""

from __future__ import annotations

import tempfile

import pytest
from exchange import fresh
from pool import OURS, Pool
from processes import http_get, wait_until


@pytest.mark.parametrize("wheel", ["0.3.13.post1", "0.3.14"])
def test_the_peers_clients_reach_a_node_that_was_started_anew(need, wheel):
    need(wheel, OURS, program=True)
    # Kept memory lies on a tmpfs.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Pool() as pool:
        pool.start_master(OURS)
        file = f"--segment_file={folder}/memory"
        name = pool.start_node(OURS, size_mib=128, flags=(file,))
        client = pool.start_client(wheel, buffer_mib=64)
        keys, values = fresh((100, 70_001, 1 << 20) * 8, f"restarted/{wheel}")
        assert [client.ask("put", key, value) for key, value in zip(keys, values, strict=True)] == [0] * len(keys)

        def all_equal() -> bool:
            return [client.ask("get", k, v) for k, v in zip(keys, values, strict=True)] == ["equal"] * len(keys)

        assert all_equal()
        for end in ("kill", "stop"):
            node = pool.start_node_again(end)
            # One failed read may tell the client that its connection is gone.
            wait_until(f"all to be read again after {end}", lambda: node.must_run() or all_equal(), 30)
            assert name in http_get(pool.metrics_port, "/get_all_segments")
