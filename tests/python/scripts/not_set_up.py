"""A store that was never set up, that failed to, or that was closed, answers like any failed call, in the call's shape."""

import ctypes
import sys

from mooncake.store import MooncakeDistributedStore

BUFFER = ctypes.create_string_buffer(64)
ADDRESS = ctypes.addressof(BUFFER)
SHAPES = {
    "put": (("k", b"v"), -600), "put_parts": (("k", b"v"), -600), "put_batch": ((["k"], [b"v"]), -600),
    "get": (("k",), b""), "get_batch": ((["k", "l"],), [b"", b""]), "get_buffer": (("k",), None),
    "batch_get_buffer": ((["k", "l"],), [None, None]), "put_from": (("k", ADDRESS, 4), -600),
    "batch_put_from": ((["k", "l"], [ADDRESS] * 2, [4, 4]), [-600, -600]),
    "batch_put_from_multi_buffers": ((["k"], [[ADDRESS]], [[4]]), [-600]),
    "get_into": (("k", ADDRESS, 4), -600), "batch_get_into": ((["k", "l"], [ADDRESS] * 2, [4, 4]), [-600, -600]),
    "batch_get_into_multi_buffers": ((["k"], [[ADDRESS]], [[4]]), [-600]), "is_exist": (("k",), -600),
    "batch_is_exist": ((["k", "l"],), [-600, -600]), "get_size": (("k",), -600), "remove": (("k",), -600),
    "batch_remove": ((["k", "l"],), [-600, -600]), "remove_by_regex": (("k",), -600), "remove_all": ((), -600),
    "get_replica_desc": (("k",), []), "batch_get_replica_desc": ((["k"],), {}),
    "register_buffer": ((ADDRESS, 64), -600), "unregister_buffer": ((ADDRESS,), -600), "get_hostname": ((), ""),
    "put_from_with_metadata": (("k", ADDRESS, ADDRESS, 4, 4), -600), "upsert": (("k", b"v"), -600),
    "upsert_parts": (("k", b"v"), -600), "upsert_batch": ((["k"], [b"v"]), -600), "upsert_from": (("k", ADDRESS, 4), -600),
    "batch_upsert_from": ((["k", "l"], [ADDRESS] * 2, [4, 4]), [-600, -600]), "probe_key": (("k",), -600),
    "batch_probe_key": ((["k", "l"],), [-600, -600]),
    "get_into_ranges": (([ADDRESS], [["k", "l"]], [[[0, 1], [0]]], [[[0, 1], [0]]], [[[1, 1], [1]]]), [[[-600, -600], [-600]]]),
    "get_into_ranges_from_snapshot": ((None, [ADDRESS], [["k"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]]),
    "batch_get_session_start": ((["k", "l"],), [-600, -600]), "batch_get_session_end": ((["k"],), -1),
    "batch_get_into_multi_buffer_ranges": ((["k"], [[ADDRESS]], [[4]], [[0]]), [-600]),
    "batch_put_session_start": ((["k"], [4]), [-600]), "batch_put_session_end": ((["k"],), [-600]),
    "batch_put_from_multi_buffer_ranges": ((["k"], [[ADDRESS]], [[4]], [[0]]), [-600]),
    "batch_put_session_revoke": ((["k"],), [-600]), "create_copy_task": (("k", ["s"]), ((0, 0), -600)),
    "create_move_task": (("k", "s", "t"), ((0, 0), -600)), "query_task": (((1, 2),), (None, -600)),
    "batch_replica_clear": ((["k"],), []), "_get_pyclient_capsule": ((), None),
    "get_offload_rpc_read_count": ((), 0), "health_check": ((), 1), "close": ((), 0),
}


def check(store):
    for name, (arguments, expected) in SHAPES.items():
        answer = getattr(store, name)(*arguments)
        assert answer == expected, (name, answer)
    assert "not set up" in store.last_error()
    assert store.prepare_get_into_ranges_snapshot(["k"]) is not None
    assert store.init_all("tcp", "", 1 << 24) == -600 and "setup()" in store.last_error()


check(MooncakeDistributedStore())
failed = MooncakeDistributedStore()
assert failed.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1") == -600
assert "127.0.0.1:1" in failed.last_error()
check(failed)
closed = MooncakeDistributedStore()
assert closed.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", sys.argv[1]) == 0
assert closed.put("once", b"v") == 0
closed.close()
check(closed)
assert closed.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", sys.argv[1]) == 0, "set up again"
assert closed.put("again", b"v") == 0
assert closed.get("again") == b"v"
