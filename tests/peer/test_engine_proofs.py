"""Our engine and the peer's, in processes of their own: each reads and writes the other's memory.

Over TCP with every way of finding each other that the peer has: P2PHANDSHAKE, an HTTP metadata server (ours and the peer's),
etcd; between ours also redis.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import socket
import tempfile

import pytest
from pool import OURS, installation, our_program
from processes import Driver, DriverError, Process, free_port, listens, wait_until

WHEEL, NEW_WHEEL = "0.3.13.post1", "0.3.14"
MIB = 1 << 20
P2P = "P2PHANDSHAKE"
PAIRS = [(OURS, WHEEL), (WHEEL, OURS)]
#: Around the limits where something changes, and large ones; each also one byte off its alignment.
SIZES = (1, 7, 8, 4095, 4096, 65_536, 65_537, MIB, 16 * MIB + 1)

_seeds = itertools.count(1, 1000)


class Engines:
    """Engine processes that end with the test."""

    def __init__(self):
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def keep(self, process):
        self.stack.callback(process.stop)
        return process

    def bare(self, kind, env=None):
        return self.keep(Driver(f"engine-{kind}", installation(kind), env, "engine_driver.py"))

    def start(self, kind, size, metadata=P2P, host="127.0.0.1", env=None):
        """An engine, the name of its segment, and the address of its registered memory."""
        process = self.bare(kind, env)
        name, base = process.ask("initialize", host, metadata, size)
        return process, name, base

    def program(self, name, command, port):
        process = self.keep(Process(name, command, installation(WHEEL).environment() if "mooncake" in " ".join(command) else {}))
        wait_until(f"{name} to listen on {port}", lambda: process.must_run() or listens(port))
        return process


def one_way(op, initiator, target, remote, pieces, shift=0):
    """Moves pieces `[offset, length]` of the initiator's area to or from the same offsets, plus `shift`, of the target's."""
    name, base = remote
    seed = next(_seeds)
    moved = [[offset + shift, length] for offset, length in pieces]
    source, sink, from_, to = (initiator, target, pieces, moved) if op == "Write" else (target, initiator, moved, pieces)
    source.ask("fill", seed, from_)
    sink.ask("clear", to)
    here, there = [offset for offset, _ in pieces], [base + offset for offset, _ in moved]
    assert initiator.ask("move", op, name, here, there, [length for _, length in pieces]) == 0, (op, pieces)
    assert sink.ask("differences", seed, to) == [], op


@pytest.mark.parametrize(("initiator", "target"), PAIRS)
def test_every_size_aligned_and_not(need, initiator, target):
    need(initiator, target)
    with Engines() as engines:
        far, name, base = engines.start(target, 20 * MIB)
        near, _, _ = engines.start(initiator, 20 * MIB)
        for op, size, at, shift in itertools.product(("Write", "Read"), SIZES, (0, 3), (0, 5)):
            one_way(op, near, far, (name, base), [[at, size]], shift)


@pytest.mark.parametrize(("initiator", "target"), PAIRS)
def test_a_quarter_of_a_gigabyte(need, initiator, target):
    need(initiator, target)
    with Engines() as engines:
        far, name, base = engines.start(target, 257 * MIB)
        near, _, _ = engines.start(initiator, 257 * MIB)
        one_way("Write" if initiator == OURS else "Read", near, far, (name, base), [[4096 + 1, 256 * MIB]])


@pytest.mark.parametrize(("initiator", "target"), [*PAIRS, (OURS, NEW_WHEEL), (NEW_WHEEL, OURS), (WHEEL, WHEEL)])
def test_batches_notifications_probes_and_refusals(need, initiator, target):
    need(initiator, target)
    with Engines() as engines:
        far, name, base = engines.start(target, 8 * MIB)
        near, _, _ = engines.start(initiator, 8 * MIB)
        pieces = [[index * 100_003, 1 + index * 1511] for index in range(64)]
        for op in ("Write", "Read"):
            one_way(op, near, far, (name, base), pieces, 7)
        near.ask("fill", 5, pieces)
        there = [base + offset for offset, _ in pieces]
        arguments = [name, [offset for offset, _ in pieces], there, [length for _, length in pieces]]
        assert near.ask("move_async", "Write", *arguments) == 1
        assert far.ask("differences", 5, pieces) == []
        assert near.ask("move_async", "Read", *arguments) == 1
        for index in range(3):
            assert near.ask("move", "Write", name, [0], [base], [64], ["layer", f"{index} ü"]) == 0
        assert far.ask("notifies", 3) == [["layer", f"{index} ü"] for index in range(3)]
        assert near.ask("move", "Write", name, [0], [base], [0], ["alone", ""]) == 0
        assert far.ask("notifies", 1) == [["alone", ""]]
        assert near.ask("call", "send_probe", name) == 0
        assert near.ask("call", "get_first_buffer_address", name) == base
        assert near.ask("move", "Write", name, [0], [base + 8 * MIB - 10], [11]) == -1, "over the end"
        assert near.ask("move", "Read", name, [0], [base - 4096], [8]) == -1, "before the start"
        assert far.ask("call", "unregister_memory", base) == 0
        assert near.ask("move", "Write", name, [0], [base], [8]) == -1, "not registered any more"
        assert near.ask("move_async", "Read", name, [0], [base], [8]) in (-1, 0)
        assert far.ask("call", "register_memory", base, 8 * MIB) == 0
        wait_until("transfers to work again", lambda: near.ask("move", "Write", name, [0], [base], [8]) == 0)


@pytest.mark.parametrize(("initiator", "target"), PAIRS)
def test_a_peer_that_comes_back_on_another_port(need, initiator, target):
    need(initiator, target)
    with Engines() as engines:
        far, name, base = engines.start(target, MIB)
        near, _, _ = engines.start(initiator, MIB, env={"MC_TRANSFER_TIMEOUT": "5"})
        one_way("Write", near, far, (name, base), [[0, 1000]])
        far.kill()
        assert near.ask("move", "Write", name, [0], [base], [1000]) == -1
        assert near.ask("call", "send_probe", name) < 0
        again, new_name, new_base = engines.start(target, MIB)
        assert near.ask("call", "send_probe", new_name) == 0
        for op in ("Write", "Read"):
            one_way(op, near, again, (new_name, new_base), [[0, 1000]])


def program_of(name, package):
    """Path of a program of the system; where it is missing the proof is not run, which with `CI=true` is a failure."""
    path = shutil.which(name)
    if path is None:
        line = f"proof not run: {name} is missing (apt-get install {package})"
        if os.environ.get("CI") == "true":
            pytest.fail(line, pytrace=False)
        pytest.skip(line)
    return path


def metadata_server(engines, kind):
    """A running store; its connection string."""
    port = free_port()
    if kind == "etcd":
        program = program_of("etcd", "etcd-server")
        folder = engines.stack.enter_context(contextlib.closing(Folder()))
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        engines.program("etcd", [
            program, "--data-dir", folder.path, "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        ], port)
        return f"etcd://127.0.0.1:{port}"
    if kind == "redis":
        program = program_of("redis-server", "redis-server")
        engines.program("redis", [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], port)
        return f"redis://127.0.0.1:{port}"
    arguments = ["--host", "127.0.0.1", "--port", str(port)]
    if kind == OURS:
        command = [str(our_program("mooncake_http_metadata_server")), *arguments]
        process = engines.keep(Process("http-ours", command, {}, argv0="mooncake_http_metadata_server"))
        wait_until("our metadata server", lambda: process.must_run() or listens(port))
    else:
        engines.program("http", [str(installation(kind).python), "-m", "mooncake.http_metadata_server", *arguments], port)
    return f"http://127.0.0.1:{port}/metadata"


class Folder:
    """A folder that goes with the test."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="yuebing-test-")

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.mark.parametrize("server", [OURS, WHEEL, "etcd"])
def test_engines_find_each_other_through_a_metadata_server(need, server):
    need(OURS, WHEEL, program=server == OURS)
    with Engines() as engines:
        metadata = metadata_server(engines, server)
        address = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        ours, ours_name, ours_base = engines.start(OURS, 2 * MIB, metadata, "node-a:44201", address)
        wheel, wheel_name, wheel_base = engines.start(WHEEL, 2 * MIB, metadata, "node-b:44202", address)
        for op in ("Write", "Read"):
            one_way(op, ours, wheel, (wheel_name, wheel_base), [[1, MIB + 1]])
            one_way(op, wheel, ours, (ours_name, ours_base), [[1, MIB + 1]])
        assert ours.ask("call", "get_first_buffer_address", wheel_name) == wheel_base
        assert wheel.ask("call", "get_first_buffer_address", ours_name) == ours_base
        assert ours.ask("move", "Write", wheel_name, [0], [wheel_base], [64], ["n", "m"]) == 0
        assert wheel.ask("notifies", 1) == [["n", "m"]]
        ours.kill()
        again, _, new_base = engines.start(OURS, 2 * MIB, metadata, "node-a:44201", address)
        one_way("Write", again, wheel, (wheel_name, wheel_base), [[1, 1000]])
        fresh, _, _ = engines.start(WHEEL, MIB, metadata, "node-c:44203", address)
        one_way("Write", fresh, again, (ours_name, new_base), [[1, 1000]])


def test_ours_find_each_other_through_redis(need):
    need(OURS)
    with Engines() as engines:
        metadata = metadata_server(engines, "redis")
        address = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        first, name, base = engines.start(OURS, MIB, metadata, "node-a:44201", address)
        second, _, _ = engines.start(OURS, MIB, metadata, "node-b:44202", address)
        for op in ("Write", "Read"):
            one_way(op, second, first, (name, base), [[3, 100_000]])
        port = int(metadata.rsplit(":", 1)[1])
        text = redis_get(port, "mooncake/ram/node-a:44201")
        assert text.endswith("\n")
        document = json.loads(text)
        assert document["name"] == "node-a:44201" and document["protocol"] == "tcp"
        assert [(buffer["addr"], buffer["length"]) for buffer in document["buffers"]] == [(base, MIB)]
        where = json.loads(redis_get(port, "mooncake/rpc_meta/node-a:44201"))
        assert where["ip_or_host_name"] == "127.0.0.1" and listens(where["rpc_port"])


def redis_get(port, key):
    """The value of a key, in redis's own words."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n".encode())
        stream = connection.makefile("rb")
        length = int(stream.readline()[1:])
        assert length >= 0, f"redis has no {key}"
        return stream.read(length).decode()


@pytest.mark.parametrize(("sender", "receiver"), [*PAIRS, (OURS, OURS), (NEW_WHEEL, OURS), (OURS, NEW_WHEEL)])
def test_data_and_tensors_over_the_side_channel(need, sender, receiver):
    need(sender, receiver)
    with Engines() as engines:
        near, far = engines.bare(sender), engines.bare(receiver)
        address = f"127.0.0.1:{free_port()}"
        assert far.ask("serve", address) == [True, True]
        wait_until("the receiver to listen", lambda: listens(int(address.rsplit(":", 1)[1])))
        # The peer hands out the longer message again in place of a shorter one that follows on its connection.
        lengths = (1, 9, 255, 256, 1024, 1025, 2000, 100_000) + ((3, 0) if sender == OURS or receiver == OURS else ())
        for index, length in enumerate(lengths):
            text = base64.b64encode(bytes((index + at) % 256 for at in range(length))).decode()
            assert near.ask("send", address, text) == 0
            assert far.ask("take_received") == [["data", text]], (length, sender)
        elements = base64.b64encode(bytes(range(200))).decode()
        assert near.ask("send_tensor", address, elements) == 0
        kinds = [["tensor", "uint8", elements]] if sender == receiver == OURS else [["data", elements]]
        assert far.ask("take_received") == kinds
        marked = bytes([2, 0, 0, 0, 1, 0, 0, 0, 2]) + bytes(31) + bytes(8)
        text = base64.b64encode(marked).decode()
        if receiver == OURS or sender == OURS:
            assert near.ask("send", address, text) == 0
            assert far.ask("take_received") == [["tensor", "float32", text]]


@pytest.mark.parametrize(("owner", "other", "form"), [
    (OURS, WHEEL, ""), (WHEEL, OURS, ""), (OURS, NEW_WHEEL, "memfd"), (NEW_WHEEL, OURS, "memfd"), (WHEEL, WHEEL, ""),
])
def test_a_group_shares_its_segment_with_the_peers_ranks(need, owner, other, form):
    need(owner, other)
    with Engines() as engines:
        first, second = (engines.bare(kind, {"YB_SHARED_SEGMENT_FORM": form}) for kind in (owner, other))
        blobs = [first.ask("segment", 0, 10_000), second.ask("segment", 1, 10_000)]
        assert second.ask("complete", 1, blobs) is True
        assert first.ask("complete", 0, blobs) is True
        first.ask("poke", 0, 9_990, "from owner")
        assert second.ask("peek", 1, 9_990, 10) == "from owner"
        second.ask("poke", 1, 5, "back")
        assert first.ask("peek", 0, 5, 4) == "back"
        with pytest.raises(DriverError, match="already been called"):
            second.ask("complete", 1, blobs)
