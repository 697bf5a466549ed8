"""A child made by fork has no store of its parent's, whatever it does with it, and the parent's goes on."""

import os
import sys

from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
assert store.put("forked", b"value") == 0
child = os.fork()
if child == 0:
    wrong = store.get("forked") != b"" or store.put("by the child", b"v") != -600 or store.health_check() != 1
    store.close()
    own = MooncakeDistributedStore()
    wrong |= own.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) != 0
    wrong |= own.get("forked") != b"value"
    own.close()
    del store
    sys.exit(wrong)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert store.get("forked") == b"value"
assert store.put("after", b"the fork") == 0 and store.get("after") == b"the fork"
assert store.health_check() == 0
