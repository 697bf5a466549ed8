#!/usr/bin/env python3
"""TransferQueue's store client with the master that it starts itself, and checkpoint-engine's P2PStore, on CPU.

Unmodified classes of both packages; only what needs a GPU or a cluster around them is stood in for: ray (an import that
nothing here calls) and checkpoint-engine's device manager (which would pick an RDMA device).
"""
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.environ.update(RANK="0", LOGURU_LEVEL="WARNING")
# the bootstrap of TransferQueue ends every mooncake_master of the machine that `pgrep` finds: show it none
bin_dir = pathlib.Path(tempfile.mkdtemp(prefix="no-masters-"))
(bin_dir / "pgrep").write_text("#!/bin/sh\nexit 1\n")
(bin_dir / "pgrep").chmod(0o755)
os.environ["PATH"] = f"{bin_dir}{os.pathsep}{os.environ['PATH']}"

import torch

import cpu_stubs

cpu_stubs.install("ray")
from common import HOST, Checks, free_port, wait_tcp, which_mooncake


def transfer_queue(check):
    from omegaconf import OmegaConf
    from transfer_queue.storage.bootstrap import mooncake_bootstrap
    from transfer_queue.storage.clients import mooncake_client
    rpc, http = free_port(), free_port()
    where = {"auto_init": True, "metadata_server": f"{HOST}:{http}", "master_server_address": f"{HOST}:{rpc}",
             "local_hostname": HOST, "protocol": "tcp", "device_name": "", "global_segment_size": 48 << 20,
             "local_buffer_size": 32 << 20}
    conf = OmegaConf.create({"backend": {"MooncakeStore": where}})
    master = mooncake_bootstrap.initialize_mooncake_storage(conf)
    try:
        wait_tcp(rpc, 20, master)
        line = pathlib.Path(f"/proc/{master.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        check("transfer-queue: its bootstrap starts a master", master.poll() is None)
        check("transfer-queue: the process is found by the name mooncake_master", "mooncake_master" in line, line[:80])
        make = lambda **more: mooncake_client.MooncakeStoreClient({**where, **more})
        client, other = make(), make(global_segment_size=0)
        check("transfer-queue: hard pin is on", client.replica_config.with_hard_pin is True)
        values(check, client, other)
        upserts(check, client, other)
        failures(check, client, mooncake_client)
        full_store(check, client, other)
        for c in (other, client):
            c.close()
        check("transfer-queue: close", client._store is None)
    finally:
        master.send_signal(signal.SIGTERM)
        try:
            code = master.wait(10)
            check("transfer-queue: SIGTERM ends the master that it started", True, code)
        except subprocess.TimeoutExpired:
            master.kill()
            check("transfer-queue: SIGTERM ends the master that it started", False)


def values(check, client, other):
    """A mix of tensors and other values, more than two batches of 400 of each, read by another client."""
    random = torch.Generator().manual_seed(3)
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    tensors = [torch.randint(0, 2, (1 + i % 7, 3 + i % 11), generator=random).to(dtypes[i % 5]) for i in range(900)]
    tensors[5] = tensors[5].t()  # not contiguous
    objects = [{"step": i, "text": "x" * (i % 50), "list": list(range(i % 5))} for i in range(450)]
    keys = [f"t{i}" for i in range(900)] + [f"o{i}" for i in range(450)]
    meta = client.put(keys, tensors + objects)
    check("transfer-queue: put of 900 tensors and 450 objects", meta[:900] == [None] * 900 and
          all(m["packed_size"] > 0 for m in meta[900:]))
    got = other.get(keys, [tuple(t.shape) for t in tensors] + [None] * 450, [t.dtype for t in tensors] + [None] * 450,
                    meta)
    check("transfer-queue: another client reads the tensors", all(torch.equal(a, b) for a, b in zip(got, tensors)))
    check("transfer-queue: another client reads the objects", got[900:] == objects)
    fresh = client.get(keys[:1], [tuple(tensors[0].shape)], [tensors[0].dtype])
    check("transfer-queue: memory registered and freed again and again", torch.equal(fresh[0], tensors[0]))


def upserts(check, client, other):
    big = torch.randn(300, 1000)
    for size, name in ((10, "the same size"), (100000, "a larger size"), (3, "a smaller size")):
        value = torch.randn(size)
        client.put(["u"], [value])
        got = other.get(["u"], [(size,)], [torch.float32])[0]
        check(f"transfer-queue: upsert to {name}", torch.equal(got, value))
    threads = [threading.Thread(target=client.put, args=([f"p{n}"], [big + n])) for n in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    got = other.get([f"p{n}" for n in range(8)], [(300, 1000)] * 8, [torch.float32] * 8)
    check("transfer-queue: puts of 8 threads", all(torch.equal(t, big + n) for n, t in enumerate(got)))


def failures(check, client, module):
    module.RETRY_DELAY_SECONDS = 0.05
    try:
        client.get(["t0", "no such key"], [(1, 3), (2,)], [torch.float32, torch.float32])
        check("transfer-queue: a missing key is an error that names it", False)
    except RuntimeError as e:
        check("transfer-queue: a missing key is an error that names it", "no such key" in str(e) and
              "-704" in str(e) and "'t0'" not in str(e), e)
    client.get(["t1"], [(2, 4)], [torch.bfloat16])  # now it is leased
    client.clear(["t1", "never there"])
    check("transfer-queue: clear removes leased and pinned objects", client._store.is_exist("t1") == 0)
    codes = client._store.batch_remove(["never there"], force=True)
    check("transfer-queue: removing what is not there is -704", list(codes) == [-704], codes)


def full_store(check, client, other):
    block = torch.arange(1 << 18, dtype=torch.float32)  # 1 MiB
    stored = 0
    try:
        for stored in range(200):
            client.put([f"full{stored}"], [block + stored])
        check("transfer-queue: a full store is an error", False)
    except RuntimeError as e:
        check("transfer-queue: a full store is an error", "-200" in str(e), str(e)[:160])
    got = other.get([f"full{i}" for i in range(10)], [(1 << 18,)] * 10, [torch.float32] * 10)
    check("transfer-queue: pinned objects stay when it is full", stored > 20 and
          all(torch.equal(t, block + i) for i, t in enumerate(got)), stored)
    # ten only: in our pool the space of what somebody read comes back when its lease ends, and this master's are long
    client.clear([f"full{i}" for i in range(stored)])
    client.put(["after"], [block])
    check("transfer-queue: room again after clear", torch.equal(other.get(["after"], [(1 << 18,)], [torch.float32])[0],
                                                                block))


class CpuDevices:
    """checkpoint-engine's device manager where there is no accelerator: TCP and one pretended device."""

    class device_module:
        @staticmethod
        def device_count():
            return 1

    transfer_engine_protocol = "tcp"

    @staticmethod
    def rdma_device(local_rank):
        return ""


def checkpoint_owner(pipe):
    """The instance that has the parameters, in a process of its own."""
    try:
        from checkpoint_engine import p2p_store
        p2p_store.get_ip = lambda: HOST
        store = p2p_store.P2PStore(CpuDevices())
        tensors = {f"layer.{i}": torch.full((1000 + i, 16), i, dtype=torch.bfloat16) for i in range(20)}
        store.register_named_tensors(tensors)
        pipe.send((store.addr, {n: (t.data_ptr(), t.nbytes) for n, t in tensors.items()}))
        pipe.recv()
        count = store.unregister_named_tensors(list(tensors))
        store.register_named_tensors(dict(tensors))  # the next checkpoint in the same memory
        pipe.send((count, len(store.named_tensors)))
        pipe.recv()
    finally:
        os._exit(0)


def checkpoint_engine(check):
    from checkpoint_engine import p2p_store
    fork = multiprocessing.get_context("fork")
    pipe, theirs = fork.Pipe()
    owner = fork.Process(target=checkpoint_owner, args=(theirs,), daemon=True)
    owner.start()
    theirs.close()
    try:
        addr, regions = receive(pipe)
        p2p_store.get_ip = lambda: HOST
        store = p2p_store.P2PStore(CpuDevices())
        check("checkpoint-engine: address is host:port", store.addr.startswith(HOST + ":") and store.port > 0,
              store.addr)
        buffer = torch.zeros(1 << 20, dtype=torch.uint8)
        store.register_named_tensors({"buffer": buffer})
        local, offset = [], 0
        for _, size in regions.values():
            local.append(buffer.data_ptr() + offset)
            offset += size
        remote, sizes = [p for p, _ in regions.values()], [s for _, s in regions.values()]
        store.batch_transfer_sync_read(addr, local, remote, sizes)
        got = buffer[:offset].view(torch.bfloat16)
        want = torch.cat([torch.full(((1000 + i) * 16,), i, dtype=torch.bfloat16) for i in range(20)])
        check("checkpoint-engine: a batch of 20 tensors is read", torch.equal(got, want))
        try:
            store.batch_transfer_sync_read(addr, local[:1], [8], sizes[:1])
            check("checkpoint-engine: reading what is not registered fails", False)
        except AssertionError:
            check("checkpoint-engine: reading what is not registered fails", True)
        pipe.send("again")
        check("checkpoint-engine: unregister, then register the same memory", receive(pipe) == (20, 20))
        buffer.zero_()
        store.batch_transfer_sync_read(addr, local, remote, sizes)
        check("checkpoint-engine: read after both", torch.equal(buffer[:offset].view(torch.bfloat16), want))
        check("checkpoint-engine: unregister", store.unregister_named_tensors(["buffer"]) == 1)
        store.named_tensors["buffer"] = buffer
        try:
            store.unregister_named_tensors(["buffer"])
            check("checkpoint-engine: unregistering twice fails", False)
        except AssertionError:
            check("checkpoint-engine: unregistering twice fails", True)
        os.kill(owner.pid, signal.SIGKILL)
        owner.join(10)
        begun = time.monotonic()
        try:
            store.batch_transfer_sync_read(addr, local, remote, sizes)
            check("checkpoint-engine: a dead owner is an error", False)
        except AssertionError:
            check("checkpoint-engine: a dead owner is an error", True, f"{time.monotonic() - begun:.1f} s")
    finally:
        owner.kill()
        owner.join(10)


def receive(pipe, secs=60):
    if not pipe.poll(secs):
        raise TimeoutError("the owner of the checkpoint does not answer")
    return pipe.recv()


if __name__ == "__main__":
    check = Checks()
    print("mooncake:", which_mooncake())
    for part in (checkpoint_engine, transfer_queue):  # the first forks, before this process has an engine
        try:
            part(check)
        except Exception:
            traceback.print_exc()
            check(f"{part.__name__} ran", False)
    code = check.finish()
    os._exit(code)
