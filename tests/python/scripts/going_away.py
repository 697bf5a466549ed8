"""Leaving politely: views outlive the store, a close under load ends every call, exit without close loses nothing of
others, and a client that leaves is gone from the pool at once."""

import os
import signal
import subprocess
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

MASTER = sys.argv[1]
LEAVER = """
import sys, threading
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
here = ReplicateConfig()
here.preferred_segments = [store.get_hostname()]
assert store.put("leaver", b"x" * 100_000, here) == 0
def load():
    while True:
        store.get("leaver")
        store.upsert("load", b"y" * 1000, here)
for _ in range(2):
    threading.Thread(target=load, daemon=True).start()
print("ready", flush=True)
how = sys.argv[2]
if how == "exit":
    sys.stdin.readline()
elif how == "handled":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("set", flush=True)
    threading.Event().wait()
else:
    print("set", flush=True)
    threading.Event().wait()
"""


def opened(segment=0):
    store = MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 0, "tcp", "", MASTER) == 0
    return store


reader = opened()


def leaves(how, end, expected):
    """A client under load goes; its object must be gone with it."""
    child = subprocess.Popen([sys.executable, "-c", LEAVER, MASTER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    if how != "exit":
        assert child.stdout.readline() == b"set\n"
    assert reader.get_size("leaver") == 100_000
    before = time.monotonic()
    end(child)
    _, errors = child.communicate(timeout=30)
    took = time.monotonic() - before
    assert child.returncode == expected, (how, child.returncode, errors[-2000:])
    assert took < 5, (how, took)
    assert reader.is_exist("leaver") == 0, f"{how}: its object is still advertised"
    assert reader.get("leaver") == b""


leaves("exit", lambda child: None, 0)
leaves("handled", lambda child: child.send_signal(signal.SIGTERM), 0)
leaves("interrupted", lambda child: child.send_signal(signal.SIGINT), -signal.SIGINT)

store = opened(64 << 20)
assert store.put("kept", b"kept bytes") == 0
handle = store.get_buffer("kept")
view = memoryview(handle)
assert store.close() == 0 and store.close() == 0
assert bytes(view.cast("B")) == b"kept bytes", "a view after the close"
assert (store.get("kept"), store.put("late", b"v"), store.get_buffer("kept")) == (b"", -600, None)
assert "not set up, or closed" in store.last_error()
view.release()
del handle

store = opened(64 << 20)
assert store.put("shared", b"s" * 50_000) == 0
answers, stop = [], threading.Event()


def use():
    while not stop.is_set():
        answers.append((store.get("shared") in (b"s" * 50_000, b""), store.put("more", b"v") in (0, -600, -200, -900, -800)))


threads = [threading.Thread(target=use) for _ in range(3)]
for thread in threads:
    thread.start()
deadline = time.monotonic() + 20
while len(answers) < 30:
    assert time.monotonic() < deadline, "the threads stand still"
    time.sleep(0.01)
before = time.monotonic()
assert store.close() == 0
took = time.monotonic() - before
already = len(answers)
while len(answers) < already + 30:
    assert time.monotonic() < deadline, "the threads stand still after the close"
    time.sleep(0.01)
stop.set()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert took < 5, took
assert all(right and known for right, known in answers), "a call that was under way ended neither right nor with an error"
reader.close()
