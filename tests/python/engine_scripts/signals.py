"""Ctrl-C gets through every call that waits, the interpreter is free meanwhile, and nothing is in flight after it."""

import ctypes
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time

from mooncake.engine import RpcInterface, TransferEngine

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
SIZE = 4 << 20
area = mmap.mmap(-1, SIZE)
AT = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert engine.register_memory(AT, SIZE) == 0


def interrupted(what, call):
    """The call is ended by an interrupt that comes while it waits; a second thread runs all the time."""
    turns, longest, stop = [0], [0.0], threading.Event()

    def count():
        last = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            longest[0], last, turns[0] = max(longest[0], now - last), now, turns[0] + 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        answer = call()
    except KeyboardInterrupt:
        answer = KeyboardInterrupt
    took = time.monotonic() - started
    stop.set()
    counter.join()
    timer.join()
    assert answer is KeyboardInterrupt, (what, answer)
    assert 0.2 < took < 3, (what, took)
    assert turns[0] > 20, (what, turns, longest)


def silent():
    """A listener that accepts and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


class Stalling:
    """A peer whose handshake answers and whose data port takes bytes but never says that they arrived."""

    def __init__(self):
        self.handshake = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.data = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self.handshake.getsockname()[1]
        self.name = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        desc = (
            f'{{"buffers":[{{"addr":4096,"length":{SIZE},"name":"{self.name}"}}],"name":"{self.name}","protocol":"tcp",'
            f'"rdma_server_name":"","tcp_data_host":"127.0.0.1","tcp_data_port":{self.data.getsockname()[1]},'
            '"tcp_proto_version":2,"timestamp":"2026-11-29 15:03:39.274273"}\n'
        ).encode()
        while True:
            peer, _ = self.handshake.accept()
            length = struct.unpack("<Q", peer.recv(8, socket.MSG_WAITALL))[0]
            kind = peer.recv(length, socket.MSG_WAITALL)[:1]
            peer.sendall(struct.pack("<Q", len(desc) + 1) + kind + desc)
            peer.shutdown(socket.SHUT_WR)


quiet, quiet_name = silent()
interrupted("open", lambda: engine.transfer_sync_write(quiet_name, AT, 4096, 8))
interrupted("probe", lambda: engine.send_probe(quiet_name))
interrupted("first buffer", lambda: engine.get_first_buffer_address(quiet_name))
stalling = Stalling()
interrupted("write", lambda: engine.transfer_sync_write(stalling.name, AT, 4096, SIZE))
interrupted("read", lambda: engine.transfer_sync_read(stalling.name, AT, 4096, SIZE))
interrupted("batch", lambda: engine.batch_transfer_sync_read(stalling.name, [AT, AT + 64], [4096, 8192], [64, 64]))
batch = engine.batch_transfer_async_read(stalling.name, [AT], [4096], [64])
assert batch > 0 and engine.transfer_check_status(batch) == 0
interrupted("status", lambda: engine.get_batch_transfer_status([batch]))
ticket = engine.submit_scatter_read(stalling.name, [AT], [64], [4096], [64], [[0]], [[0]], [[64]])
interrupted("drain", lambda: ticket.drain(10_000))
client, server = RpcInterface(), RpcInterface()
assert client.initialize_client() and server.initialize_server("127.0.0.1:0")
interrupted("send", lambda: client.send_data(quiet_name, b"x"))
interrupted("serve", server.start_server)
assert server.get_port() == 0, "an interrupted server has stopped"
sys.stdout.flush()
del ticket
engine.close()
assert engine.transfer_check_status(batch) == -1
