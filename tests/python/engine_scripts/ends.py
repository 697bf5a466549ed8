"""The process ends properly and soon, whatever is under way; each case in a process of its own."""

import os
import subprocess
import sys
import time

PRELUDE = """
import ctypes, mmap, os, sys, threading, time
from mooncake import engine as module
from mooncake.engine import RpcInterface, SharedSegment, TransferEngine, TransferNotify
area = mmap.mmap(-1, 64 << 20)
AT = ctypes.addressof(ctypes.c_char.from_buffer(area))
def made():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return engine
a, b = made(), made()
NAME = f"127.0.0.1:{b.get_rpc_port()}"
b.register_memory(AT, 32 << 20)
"""
CASES = {
    "idle": "",
    "transfers under way": "ids = [a.transfer_submit_write(NAME, AT + (32 << 20), AT, 16 << 20) for _ in range(8)]; assert all(ids)",
    "tickets under way": "keep = a.submit_scatter_write(NAME, [AT + (32 << 20)], [1 << 24], [AT], [1 << 24], [[0]], [[0]], [[1 << 24]])",
    "a thread inside a call": """
def forever():
    while True:
        a.transfer_sync_write(NAME, AT + (32 << 20), AT, 1 << 20)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
""",
    "a server with callbacks": """
server, client = RpcInterface(), module.create_rpc_client()
server.initialize_server("127.0.0.1:0"); server.set_data_receive_callback(lambda d: time.sleep(0.05)); assert server.start_server_async()
def forever():
    while True:
        client.send_data(f"127.0.0.1:{server.get_port()}", b"x")
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
""",
    "an exception": "raise SystemExit(0)",
    "objects in cycles": "class C: pass\nc = C(); c.me = c; c.engines = [a, b]; c.buffer = a.allocate_managed_buffer(100); del a, b, c",
    "a shared segment": "keep = SharedSegment.create('x', 1 << 20, 1, 0); print('segment made by', os.getpid())",
    "a server dropped inside a callback's time": """
server, client, inside = RpcInterface(), module.create_rpc_client(), threading.Event()
server.initialize_server("127.0.0.1:0")
server.set_data_receive_callback(lambda d: (inside.set(), time.sleep(0.3)))
assert server.start_server_async()
threading.Thread(target=client.send_data, args=(f"127.0.0.1:{server.get_port()}", b"x")).start()
assert inside.wait(10)
del server
""",
    "a server in a cycle": """
import gc, weakref
server = RpcInterface()
server.set_data_receive_callback(lambda d, server=server: server)
gone = weakref.ref(server)
del server
gc.collect()
assert gone() is None
""",
    "a registered object": "keep = bytearray(4096); b.register_memory(keep, 4096)",
    "closed twice": "a.close(); a.close(); del a",
    "in a forked child": """
batch = a.transfer_submit_write(NAME, AT + (32 << 20), AT, 16 << 20)
child = os.fork()
if child == 0:
    assert a.transfer_sync_write(NAME, AT + (32 << 20), AT, 8) == -1
    assert a.get_rpc_port() == 0 and a.get_notifies() == []
    a.close()
    fresh = made()
    assert fresh.transfer_sync_write(NAME, AT + (32 << 20), AT, 8) == 0, fresh.last_error()
    fresh.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert a.get_batch_transfer_status([batch]) == 0
""",
}
running, segments = {}, []
for name, body in CASES.items():
    command = [sys.executable, "-c", PRELUDE + body]
    running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
started = time.monotonic()
for name, process in running.items():
    said, errors = process.communicate(timeout=40)
    segments += [int(line.split()[-1]) for line in said.splitlines() if line.startswith("segment made by")]
    assert process.returncode == 0, (name, process.returncode, errors[-2000:])
    assert "Traceback" not in errors and "panicked" not in errors, (name, errors[-2000:])
assert time.monotonic() - started < 40
assert len(segments) == 1
assert [name for name in os.listdir("/dev/shm") if name.startswith(f"mcss_{segments[0]}_")] == [], "a name was left behind"
