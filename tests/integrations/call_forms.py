#!/usr/bin/env python3
"""The call forms of consumers that do not run here (no NPU, no RDMA, or not on the package registry): vllm-ascend,
TorchSpec, FlexKV, lmdeploy. Each function does what that consumer's own code does with the package: the same way of
set-up, the same names and argument forms, the same tests of the results.
"""
import importlib.metadata
import inspect
import os
import subprocess
import sys
import traceback

import torch
from common import HOST, Checks, Master, free_port, wait_tcp, wait_until, which_mooncake
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

K = 1 << 10
PEER = "127.0.0.1"


def buffer(n, fill=True):
    return torch.randint(0, 256, (n,), dtype=torch.uint8) if fill else torch.zeros(n, dtype=torch.uint8)


def engine(protocol="tcp"):
    e = TransferEngine()
    assert e.initialize(PEER, "P2PHANDSHAKE", protocol, "") == 0
    return e


def vllm_ascend(check, master):
    """Keyword set-up over a shared engine; buffers are registered on the engine only."""
    name = "vllm-ascend"
    doc = MooncakeDistributedStore.setup.__doc__ or ""
    try:
        in_signature = "enable_ssd_offload" in inspect.signature(MooncakeDistributedStore.setup).parameters
    except ValueError:
        in_signature = False
    check(f"{name}: setup shows enable_ssd_offload", "enable_ssd_offload" in doc or in_signature)
    shared = engine()
    store = MooncakeDistributedStore()
    ret = store.setup(local_hostname=f"{PEER}:{shared.get_rpc_port()}", metadata_server="P2PHANDSHAKE",
                      global_segment_size=64 << 20, local_buffer_size=16 << 20, protocol="tcp", rdma_devices="",
                      master_server_addr=master.addr, engine=shared.get_engine())
    check(f"{name}: set-up by keywords over a shared engine", ret == 0, ret)
    check(f"{name}: the store has the engine's name", store.get_hostname() == f"{PEER}:{shared.get_rpc_port()}",
          store.get_hostname())
    source, target = buffer(96 * K), buffer(96 * K, fill=False)
    for b in (source, target):
        assert shared.register_memory(b.data_ptr(), b.nbytes) == 0
    keys = [f"asc{i}" for i in range(3)]
    ptrs = [[source.data_ptr() + (4 * i + j) * 8 * K for j in range(4)] for i in range(3)]
    sizes = [[8 * K] * 4] * 3
    config = ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    config.prefer_alloc_in_same_node = True
    res = store.batch_put_from_multi_buffers(keys, ptrs, sizes, config)
    check(f"{name}: put of memory that only the engine knows", list(res) == [0, 0, 0], res)
    check(f"{name}: batch_is_exist", list(store.batch_is_exist(keys + ["none"])) == [1, 1, 1, 0])
    there = [[target.data_ptr() + (4 * i + j) * 8 * K for j in range(4)] for i in range(3)]
    res = store.batch_get_into_multi_buffers(keys, there, sizes)
    check(f"{name}: get into memory that only the engine knows", list(res) == [32 * K] * 3, res)
    check(f"{name}: bytes", torch.equal(source, target))
    check(f"{name}: unregister on the engine", [shared.unregister_memory(b.data_ptr()) for b in (source, target)]
          == [0, 0])
    check(f"{name}: close, and the engine lives on", store.close() == 0 and shared.get_rpc_port() > 0 and
          shared.register_memory(source.data_ptr(), source.nbytes) == 0)
    try:
        MooncakeDistributedStore().setup(local_hostname=PEER, metadata_server="P2PHANDSHAKE",
                                         global_segment_size=16 << 20, local_buffer_size=0, protocol="tcp",
                                         rdma_devices="", master_server_addr=master.addr, no_such_option=True)
        check(f"{name}: an unknown keyword is a TypeError that names it", False)
    except TypeError as e:
        check(f"{name}: an unknown keyword is a TypeError that names it", "no_such_option" in str(e))


def torch_spec(check, master):
    """Keyword set-up, hard-pinned batches, forced removal."""
    name = "TorchSpec"
    store = MooncakeDistributedStore()
    ret = store.setup(local_hostname=PEER, metadata_server="P2PHANDSHAKE", global_segment_size=32 << 20,
                      local_buffer_size=16 << 20, protocol="tcp", rdma_devices="", master_server_addr=master.addr)
    check(f"{name}: set-up by keywords", ret is None or ret == 0, ret)
    check(f"{name}: batch_remove's docstring tells of force", "force" in (store.batch_remove.__doc__ or ""))
    try:
        version = importlib.metadata.version("mooncake-transfer-engine")
        check(f"{name}: the distribution has a version it takes", tuple(map(int, version.split(".")[:3])) >= (0, 3, 10))
    except importlib.metadata.PackageNotFoundError:
        print("      no distribution named mooncake-transfer-engine here")
    config = ReplicateConfig()
    check(f"{name}: hard pin exists", hasattr(config, "with_hard_pin"))
    config.with_hard_pin = True
    data = [buffer(20 * K + i) for i in range(6)]
    for d in data:
        assert store.register_buffer(d.data_ptr(), d.nbytes) == 0
    keys = [f"spec{i}" for i in range(6)]
    res = store.batch_put_from(keys, [d.data_ptr() for d in data], [d.nbytes for d in data], config)
    check(f"{name}: batch_put_from", list(res) == [0] * 6, res)
    check(f"{name}: is_exist", [store.is_exist(k) for k in keys + ["none"]] == [1] * 6 + [0])
    check(f"{name}: bytes", all(store.get(k) == d.numpy().tobytes() for k, d in zip(keys, data)))
    res = store.batch_remove(keys + ["none"], force=True)
    check(f"{name}: forced removal of leased, pinned objects", list(res) == [0] * 6 + [-704], res)
    check(f"{name}: unregister", [store.unregister_buffer(d.data_ptr()) for d in data] == [0] * 6)
    check(f"{name}: close", store.close() in (0, None))


def flex_kv_store(check, master):
    """P x 7 set-up, warm-up by value, a look-up process that only asks the master."""
    name = "FlexKV"
    store = MooncakeDistributedStore()
    check(f"{name}: set-up", store.setup(PEER, "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", master.addr) == 0)
    warm = os.urandom(4 * K)
    check(f"{name}: warm-up", store.put("warm", warm) == 0 and store.get("warm") == warm)
    lookup = MooncakeDistributedStore()
    ret = lookup.setup(PEER, "P2PHANDSHAKE", 0, 0, "rpc_only", "", master.addr)
    check(f"{name}: a look-up client by rpc_only", ret == 0, ret)
    b = buffer(8 * K)
    assert store.register_buffer(b.data_ptr(), b.nbytes) == 0
    keys = [f"flex{i}" for i in range(8)]
    res = store.batch_put_from(keys, [b.data_ptr() + i * K for i in range(8)], [K] * 8)
    check(f"{name}: batch_put_from", list(res) == [0] * 8, res)
    check(f"{name}: the look-up client sees the keys", list(lookup.batch_is_exist(keys + ["none"])) == [1] * 8 + [0])
    target = buffer(8 * K, fill=False)
    assert store.register_buffer(target.data_ptr(), target.nbytes) == 0
    res = store.batch_get_into(keys, [target.data_ptr() + i * K for i in range(8)], [K] * 8)
    check(f"{name}: batch_get_into", list(res) == [K] * 8 and torch.equal(b, target), res)
    check(f"{name}: a missing key", store.get("never") == b"" and store.batch_get_into(
        ["never"], [target.data_ptr()], [K])[0] < 0)
    lookup.close(), store.close()


def flex_kv_engine(check):
    """Transfers with notices between two engines."""
    name = "FlexKV engine"
    a, b = engine(), engine()
    session = f"{PEER}:{b.get_rpc_port()}"
    src, dst = buffer(64 * K), buffer(64 * K, fill=False)
    assert a.register_memory(src.data_ptr(), src.nbytes) == 0 and b.register_memory(dst.data_ptr(), dst.nbytes) == 0
    got = []

    def arrived(n):
        got.extend((m.name, m.msg) for m in b.get_notifies())
        return len(got) >= n
    ret = a.transfer_sync(session, src.data_ptr(), dst.data_ptr(), 32 * K, TransferOpcode.Write,
                          TransferNotify("task-1", "done:32768"))
    check(f"{name}: transfer with a notice", ret == 0, ret)
    check(f"{name}: the notice arrives", wait_until(lambda: arrived(1), 10) and got == [("task-1", "done:32768")], got)
    check(f"{name}: bytes", torch.equal(src[:32 * K], dst[:32 * K]) and not dst[32 * K:].any())
    ret = a.transfer_sync(session, src.data_ptr(), dst.data_ptr(), 0, TransferOpcode.Write,
                          TransferNotify("task-2", "nothing to move"))
    check(f"{name}: a notice alone", wait_until(lambda: arrived(2), 10) and got[1:] == [("task-2", "nothing to move")],
          (ret, got))
    ret = a.transfer_sync_write(session, src.data_ptr() + 32 * K, dst.data_ptr() + 32 * K, 32 * K)
    check(f"{name}: write", ret == 0 and torch.equal(src, dst), ret)
    src.zero_()
    check(f"{name}: read", a.transfer_sync_read(session, src.data_ptr(), dst.data_ptr(), 64 * K) == 0
          and torch.equal(src, dst))
    dst.random_(0, 256)
    pages = [(i * 8 % 64) * K for i in range(8)]
    at = lambda t: [t.data_ptr() + p for p in pages]
    check(f"{name}: batch read", a.batch_transfer_sync_read(session, at(src), at(dst), [4 * K] * 8) == 0 and
          all(torch.equal(src[p:p + 4 * K], dst[p:p + 4 * K]) for p in pages))
    src.random_(0, 256)
    check(f"{name}: batch write", a.batch_transfer_sync_write(session, at(src), at(dst), [4 * K] * 8) == 0 and
          all(torch.equal(src[p:p + 4 * K], dst[p:p + 4 * K]) for p in pages))
    dead = f"{PEER}:{free_port()}"
    check(f"{name}: no such peer is negative", a.transfer_sync_write(dead, src.data_ptr(), dst.data_ptr(), K) < 0)
    check(f"{name}: unregister", a.unregister_memory(src.data_ptr()) == 0 and b.unregister_memory(dst.data_ptr()) == 0)
    check(f"{name}: unregister of an unknown address", a.unregister_memory(4096) != 0)


def flex_kv_metadata(check):
    """`initialize_ext` with a fixed port and a metadata store (HTTP here; FlexKV's own is Redis)."""
    name = "FlexKV metadata"
    port = free_port()
    command = [sys.executable, "-m", "mooncake.http_metadata_server", "--host", HOST, "--port", str(port)]
    meta = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_tcp(port, 20, meta)
        url = f"http://{HOST}:{port}/metadata"
        names = [f"{PEER}:{free_port()}" for _ in range(2)]
        engines = [TransferEngine() for _ in names]
        rets = [e.initialize_ext(n, url, "tcp", "", "http") for e, n in zip(engines, names)]
        check(f"{name}: initialize_ext", rets == [0, 0], rets)
        src, dst = buffer(16 * K), buffer(16 * K, fill=False)
        assert engines[0].register_memory(src.data_ptr(), src.nbytes) == 0
        assert engines[1].register_memory(dst.data_ptr(), dst.nbytes) == 0
        ret = engines[0].transfer_sync_write(names[1], src.data_ptr(), dst.data_ptr(), src.nbytes)
        check(f"{name}: transfer by name", ret == 0 and torch.equal(src, dst), ret)
    finally:
        meta.terminate()
        meta.wait(10)


def lmdeploy(check):
    """One block at a time, read by the decode side."""
    name = "lmdeploy"
    producer, consumer = engine(), engine()
    session = f"{PEER}:{producer.get_rpc_port()}"
    src, dst = buffer(32 * 4 * K), buffer(32 * 4 * K, fill=False)
    check(f"{name}: register", producer.register_memory(src.data_ptr(), src.nbytes) == 0 and
          consumer.register_memory(dst.data_ptr(), dst.nbytes) == 0)
    order = torch.randperm(32).tolist()
    rets = [consumer.transfer_sync_read(session, dst.data_ptr() + i * 4 * K, src.data_ptr() + i * 4 * K, 4 * K)
            for i in order]
    check(f"{name}: block by block", rets == [0] * 32 and torch.equal(src, dst), set(rets))


def lmcache_channel(check):
    """The asynchronous read of LMCache's transfer channel, by its own rules for batch ids and states."""
    name = "async read"
    a, b = engine(), engine()
    src, dst = buffer(256 * K), buffer(256 * K, fill=False)
    assert b.register_memory(src.data_ptr(), src.nbytes) == 0 and a.register_memory(dst.data_ptr(), dst.nbytes) == 0
    at = lambda t: [t.data_ptr() + i * 64 * K for i in range(4)]
    batch = a.batch_transfer_async_read(f"{PEER}:{b.get_rpc_port()}", at(dst), at(src), [64 * K] * 4)
    check(f"{name}: batch id", 0 < batch < 1 << 63, batch)
    states = []
    wait_until(lambda: states.append(a.transfer_check_status(batch)) or states[-1] != 0, 20)
    check(f"{name}: ends as done", states[-1] == 1 and torch.equal(src, dst), states[-3:])


if __name__ == "__main__":
    check = Checks()
    print("mooncake:", which_mooncake())
    with Master("--default_kv_lease_ttl=5000") as m:
        parts = [lambda c: vllm_ascend(c, m), lambda c: torch_spec(c, m), lambda c: flex_kv_store(c, m), flex_kv_engine,
                 flex_kv_metadata, lmdeploy, lmcache_channel]
        for part in parts:
            try:
                part(check)
            except Exception:
                traceback.print_exc()
                check("part ran", False)
    os._exit(check.finish())
