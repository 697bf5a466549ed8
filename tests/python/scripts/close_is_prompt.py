"""close() ends at once although the client pings, and stops no other thread."""

import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

longest, ended = 0.0, False


def watch():
    global longest
    last = time.monotonic()
    while not ended:
        now = time.monotonic()
        longest, last = max(longest, now - last), now


watcher = threading.Thread(target=watch)
watcher.start()
took = []
for _ in range(5):
    store = MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
    before = time.monotonic()
    assert store.close() == 0
    took.append(time.monotonic() - before)
ended = True
watcher.join()
assert min(took) < 0.1, took
assert longest < 1.0, longest
