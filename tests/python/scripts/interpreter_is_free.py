"""No call holds the interpreter while it waits: other threads go on while a silent master keeps a setup waiting."""

import socket
import threading
import time

from mooncake.store import MooncakeDistributedStore

silent = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{silent.getsockname()[1]}"
done = threading.Event()


def wait():
    MooncakeDistributedStore().setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", address)
    done.set()


threading.Thread(target=wait, daemon=True).start()
connection, _ = silent.accept()
connection.recv(1)
turns, longest, last = 0, 0.0, time.monotonic()
until = last + 0.3
while last < until:
    now = time.monotonic()
    longest, last, turns = max(longest, now - last), now, turns + 1
assert not done.is_set(), "the setup did not wait, so this shows nothing"
assert longest < 0.2, f"this thread stood still for {longest:.3f} s"
connection.close()
assert done.wait(20), "the setup did not end when the master went away"
