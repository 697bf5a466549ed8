"""`YB_LOG` says what the native code logs; without it, and where it cannot be read, warnings and errors."""

import os
import subprocess
import sys

#: A warning about a name that setup does not know, an error about a master that is not there; then a setup that works.
CHILD = """
from mooncake.store import MooncakeDistributedStore
form = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": "127.0.0.1:1"}
assert MooncakeDistributedStore().setup(form | {"no_such_name": "x"}) == -600
assert MooncakeDistributedStore().setup(form | {"master_server_addr": "%s"}) == 0
"""


def log(level):
    """What a child says with `YB_LOG` set to that."""
    env = {name: value for name, value in os.environ.items() if name != "YB_LOG"}
    env |= {} if level is None else {"YB_LOG": level}
    run = subprocess.run([sys.executable, "-c", CHILD % sys.argv[1]], env=env, capture_output=True, text=True, check=True)
    return run.stderr


def levels(text):
    return {level for level in ("ERROR", "WARN", "INFO", "DEBUG") if f" {level} " in text}


assert levels(log(None)) == levels(log("")) == levels(log("warn")) == {"ERROR", "WARN"}
assert levels(log("error")) == {"ERROR"}
assert levels(log("off")) == set()
assert "DEBUG" in levels(log("debug"))
assert {"ERROR", "WARN"} <= levels(log("yb_client=debug,warn"))
unread = log("no=such=level")
assert levels(unread) == {"ERROR", "WARN"} and unread.count("YB_LOG cannot be read") == 1, unread
