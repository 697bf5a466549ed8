"""Eight threads on one store: every byte that is read is one that was written, while others write, read and remove."""

import random
import sys
import threading

from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
failures = []


def work(number):
    rng = random.Random(number)
    for turn in range(60):
        key, value = f"t{number}/{turn}", rng.randbytes(rng.choice((1, 100, 4096, 70_000, 1 << 20)))
        if store.put(key, value) != 0 or store.get(key) != value or bytes(store.get_buffer(key)) != value:
            failures.append((key, store.last_error()))
        if store.remove(key, force=True) != 0:
            failures.append((key, "remove", store.last_error()))


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures[:3]
