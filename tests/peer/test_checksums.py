"""Checksums: what either kind writes with one, the other compares without complaint, and the number is the same."""

import pytest
from pool import OURS, Pool

WHEEL = "0.3.13.post1"
ON = {"MOONCAKE_STORE_CHECKSUM": "1"}
VALUES = {"small": (1, 100), "odd": (2, 70_001), "large": (3, (20 << 20) + 3)}


@pytest.mark.parametrize("master", [WHEEL, OURS])
def test_each_kind_compares_what_the_other_wrote(need, master):
    need(WHEEL, OURS, program=True)
    with Pool() as pool:
        pool.start_master(master)
        pool.start_node(WHEEL)
        ours = pool.start_client(OURS, buffer_mib=64, env=ON)
        theirs = pool.start_client(WHEEL, buffer_mib=64, env=ON)
        for writer, reader, name in ((ours, theirs, "ours"), (theirs, ours, "theirs")):
            for key, value in VALUES.items():
                assert writer.ask("put", f"{name}/{key}", value) == 0
                assert reader.ask("get", f"{name}/{key}", value) == "equal"
                assert reader.ask("get_into", f"{name}/{key}", value) == "equal"
            keys = [f"{name}/batch/{key}" for key in VALUES]
            assert writer.ask("batch_put_from", keys, list(VALUES.values())) == [0] * len(keys)
            assert reader.ask("batch_get_into", keys, list(VALUES.values())) == ["equal"] * len(keys)
