"""The peer with itself, each version: shows that the bodies ask nothing that the peer does not do."""

import pytest
from exchange import everything
from pool import Pool


@pytest.mark.parametrize("version", ["0.3.12", "0.3.13.post1", "0.3.14"])
def test_the_bodies_hold_for_the_peer_alone(need, version):
    need(version)
    with Pool() as pool:
        pool.start_master(version)
        pool.start_node(version)
        writer, reader = pool.start_client(version), pool.start_client(version)
        everything(writer, reader, "alone")
