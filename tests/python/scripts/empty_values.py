"""Values of no bytes: refused as the peer does, or stored when the setting allows it."""

import ctypes
import os
import sys

from mooncake.store import MooncakeDistributedStore

BUFFER = ctypes.create_string_buffer(64)
ADDRESS = ctypes.addressof(BUFFER)


def store(allow):
    os.environ["YB_ALLOW_EMPTY"] = allow
    made = MooncakeDistributedStore()
    assert made.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
    return made


refusing, allowing = store("0"), store("1")
assert refusing.put("e", b"") == -600
assert "YB_ALLOW_EMPTY" in refusing.last_error()
assert refusing.is_exist("e") == 0
assert allowing.put("e", b"") == 0
assert (allowing.is_exist("e"), allowing.get_size("e"), allowing.get("e")) == (1, 0, b"")
assert allowing.get_into("e", ADDRESS, 64) == 0
assert len(allowing.get_buffer("e")) == 0
assert allowing.put_parts("ep") == 0 and allowing.get_size("ep") == 0
assert allowing.batch_put_from(["ef", "full"], [ADDRESS, ADDRESS], [0, 4]) == [0, 0]
assert allowing.batch_get_into(["ef", "full"], [ADDRESS, ADDRESS], [64, 64]) == [0, 4]
assert allowing.get_batch(["ef", "missing"]) == [b"", b""]
assert refusing.get_size("ef") == 0, "what others stored is readable all the same"
