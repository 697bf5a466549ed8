"""A mistake in a call or a setting is named: which argument, which variable, and what it should be."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile

from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore, last_error

MASTER = sys.argv[1]


def refused(error, call, *arguments):
    """The text of an exception of that type."""
    try:
        call(*arguments)
    except error as raised:
        return str(raised)
    raise AssertionError(f"{arguments} did not raise {error.__name__}")


@contextlib.contextmanager
def environment(**variables):
    """Variables that are set meanwhile."""
    kept = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


# Arguments of setup.
store = MooncakeDistributedStore()
for size in ("1GB", -1, 1.5):
    text = refused(TypeError, store.setup, "127.0.0.1", "P2PHANDSHAKE", size, 0, "tcp", "", MASTER)
    assert "global_segment_size" in text and "bytes as an int" in text, text
assert store.setup("127.0.0.1", "P2P", 0, 0, "tcp", "", MASTER) in (0, -600)
assert store.setup("127.0.0.1", "P2P", 1 << 24, 0, "tcp", "", MASTER) == -600
assert 'metadata_server is "P2P"' in store.last_error() and "P2PHANDSHAKE" in store.last_error(), store.last_error()
base = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": MASTER}
assert store.setup(base | {"global_segment_size": "3XB"}) == -600 and "global_segment_size '3xb'" in store.last_error()

# The configuration.
with environment(MOONCAKE_MASTER=MASTER, MOONCAKE_GLOBAL_SEGMENT_SIZE="16xb"):
    text = refused(ValueError, MooncakeConfig.load_from_env)
    assert "global_segment_size" in text and "MOONCAKE_GLOBAL_SEGMENT_SIZE" in text and "'16xb' is not a size" in text, text
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    file.write("{")
    file.flush()
    assert file.name in refused(json.JSONDecodeError, MooncakeConfig.from_file, file.name)

# What is told in the log only.
CHILD = f"""
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup({base!r} | {{"global_segment_size": "0", "tenant": "default", "master_server_adress": "x"}}) == 0
assert store.setup({base!r} | {{"global_segment_size": "{1 << 50}"}}) in (0, -600)
"""
with environment(MOONCAKE_MASTR="m", YB_LOG="bogus"):
    log = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stderr
assert "did you mean MOONCAKE_MASTER?" in log and "did you mean master_server_address?" in log, log
assert "YB_LOG cannot be read" in log and "more than the" in log, log

# Lists of ranges that do not agree are refused as a whole.
assert store.setup(base | {"global_segment_size": "0"}) == 0
room = ctypes.create_string_buffer(64)
at = ctypes.addressof(room)
assert store.register_buffer(at, 64) == 0 and store.put("short", b"0123456789") == 0
snapshot = store.prepare_get_into_ranges_snapshot(["short"])
lists = [[at, at], [["short"], ["short"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[1]], [[1]]]]
assert store.get_into_ranges(*lists) == [[[1]], [[1]]]
for place in range(1, 5):
    fewer = [part if number != place else part[:1] for number, part in enumerate(lists)]
    assert store.get_into_ranges(*fewer) == [[[-600]], [[-600]]], place
    assert store.get_into_ranges_from_snapshot(snapshot, *fewer) == [[[-600]], [[-600]]], place
    assert "differ in length" in store.last_error()

# An object too short for a tensor's header is no tensor, and that is why.
try:
    import numpy  # noqa: F401
except ImportError:
    pass
else:
    assert store.get_tensor("short") is None and "no tensor" in last_error().message
store.close()

# The port of a master is not that of a daemon.
dummy = MooncakeDistributedStore()
assert dummy.setup_dummy(0, 1 << 20, MASTER) == -1 and "no daemon" in dummy.last_error(), dummy.last_error()
