#!/usr/bin/env python3
"""SGLang's own HiCache Mooncake backend, driven on CPU.

Uses the unmodified classes of the installed sglang: MooncakeStore (v1, v2, plain and
zero-copy calls), MHATokenToKVPoolHost / MLATokenToKVPoolHost as the host memory pools,
MooncakeEmbeddingStore (encoder global cache), MooncakeHostTensorAllocator with the
stand-alone (dummy client) mode, and the test file that sglang ships with the backend.
"""
import os
import subprocess
import sys
import tempfile

import cpu_stubs
import torch  # before the stubs, so that torch sees that triton is absent
from common import HOST, Checks, Master, free_port, wait_tcp, wait_until, which_mooncake

STUBS = ("triton", "IPython", "gguf", "torchao", "sgl_kernel", "flashinfer", "deep_gemm", "tvm_ffi",
         "cuda", "timm", "decord", "interegular", "outlines", "modelscope", "datasets")
cpu_stubs.install(*STUBS)
import warnings

warnings.filterwarnings("ignore")
check = Checks()
print("mooncake:", which_mooncake())
import sglang

print("sglang:", sglang.__version__, "torch:", torch.__version__)
from sglang.srt.mem_cache.hicache_storage import (HiCacheStorageConfig, HiCacheStorageExtraInfo, PoolHitPolicy,
                                                  PoolName, PoolTransfer)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_embedding_store import MooncakeEmbeddingStore
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

PAGE, LAYERS = 16, 3


def config(mla=False, rank=0, size=1, extra=None, model="org/tiny"):
    return HiCacheStorageConfig(tp_rank=rank, tp_size=size, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                is_mla_model=mla, enable_storage_metrics=True, is_page_first_layout=True,
                                model_name=model, extra_config=extra)


def mha_host(layout, allocator="default", pages=16):
    dev = MHATokenToKVPool(PAGE * pages, PAGE, torch.float16, 2, 32, LAYERS, "cpu", False, enable_alt_stream=False)
    return MHATokenToKVPoolHost(dev.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE, layout, pin_memory=False,
                                allocator_type=allocator, device_capacity_tokens=dev.size,
                                start_layer=dev.start_layer, end_layer=dev.end_layer)


def mla_host(layout, pages=16, allocator="default"):
    dev = MLATokenToKVPool(PAGE * pages, PAGE, torch.float16, 48, 16, LAYERS, "cpu", False)
    return MLATokenToKVPoolHost(dev.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE, layout, pin_memory=False,
                                allocator_type=allocator, device_capacity_tokens=dev.size, start_layer=dev.start_layer,
                                end_layer=dev.end_layer, target_layer_num=LAYERS)


def idx(first, n):
    return torch.arange(first * PAGE, (first + n) * PAGE)


def page_bytes(pool, page):
    """What the pool itself says makes up a page, as bytes."""
    import ctypes
    ptrs, sizes = pool.get_page_buffer_meta(idx(page, 1))
    return b"".join(ctypes.string_at(p, s) for p, s in zip(ptrs, sizes))


def fill(pool):
    pool.kv_buffer.view(torch.uint8).random_(0, 256)


keep = []  # a pool must outlive its registration: a new one at the same address is refused (-600)


def roundtrip(name, store, pool, tag):
    keep.append(pool)
    fill(pool)
    store.register_mem_pool_host(pool)
    keys = [f"{tag}-{i}" for i in range(8)]
    want = [page_bytes(pool, i) for i in range(8)]
    check(f"{name}: batch_exists before", store.batch_exists(keys) == 0)
    check(f"{name}: batch_set_v1 of 5 pages", store.batch_set_v1(keys[:5], idx(0, 5)) == [True] * 5)
    check(f"{name}: batch_exists is the prefix length", store.batch_exists(keys) == 5)
    check(f"{name}: set again is a success (skips what exists)",
          store.batch_set_v1(keys[:6], idx(0, 6)) == [True] * 6)
    check(f"{name}: a hole ends the prefix", store.batch_exists([keys[0], "nope", keys[1]]) == 1)
    got = store.batch_get_v1(keys[:6], idx(8, 6))
    check(f"{name}: batch_get_v1", got == [True] * 6, got)
    check(f"{name}: bytes", all(page_bytes(pool, 8 + i) == want[i] for i in range(6)))
    before = page_bytes(pool, 15)
    got = store.batch_get_v1([keys[0], "nope"], torch.cat([idx(14, 1), idx(15, 1)]))
    check(f"{name}: a missing page is False, others True", got == [True, False], got)
    check(f"{name}: the target of a missing page is untouched", page_bytes(pool, 15) == before)


m = Master("--default_kv_lease_ttl=500")
os.environ.update(MOONCAKE_MASTER=m.addr, MOONCAKE_PROTOCOL="tcp", MOONCAKE_LOCAL_HOSTNAME=HOST,
                  MOONCAKE_GLOBAL_SEGMENT_SIZE=str(96 << 20), MC_MS_AUTO_DISC="0",
                  MOONCAKE_MASTER_METRICS_PORT=str(m.metrics), MOONCAKE_CHECK_SERVER="0")
extra_procs = []
try:
    # 1. v1 calls over the real host pools
    store = MooncakeStore(config())
    for layout in ("page_first", "page_first_direct"):
        roundtrip(f"MHA {layout}", store, mha_host(layout), f"mha-{layout}")
    # what sglang does with --hicache-storage-backend mooncake: the pool in mooncake's own host memory
    roundtrip("MHA in mooncake memory", store, mha_host("page_first", allocator="mooncake"), "mha-mem")
    mla = MooncakeStore(config(mla=True))
    for layout in ("page_first", "layer_first"):  # layer_first: one object of many buffers
        roundtrip(f"MLA {layout}", mla, mla_host(layout), f"mla-{layout}")

    # 2. another client reads what the first wrote; its rank has its own keys
    pool2 = mha_host("page_first")
    other = MooncakeStore(config(extra={"master_server_address": m.addr, "local_hostname": HOST, "protocol": "tcp",
                                        "global_segment_size": 32 << 20, "metadata_server": "P2PHANDSHAKE"}))
    other.register_mem_pool_host(pool2)
    check("second client sees the pages", other.batch_exists([f"mha-page_first-{i}" for i in range(6)]) == 6)
    check("second client reads them", other.batch_get_v1([f"mha-page_first-{i}" for i in range(6)], idx(0, 6))
          == [True] * 6)
    rank1 = MooncakeStore(config(rank=1, size=2))
    rank1.register_mem_pool_host(mha_host("page_first"))
    check("another TP rank has other keys", rank1.batch_exists(["mha-page_first-0"]) == 0)

    # 3. group ids and v2 (side pools); the store must take or lack ReplicateConfig.group_ids
    grp = MooncakeStore(config(extra={"master_server_address": m.addr, "local_hostname": HOST, "protocol": "tcp",
                                      "global_segment_size": 32 << 20, "enable_group_semantics": True,
                                      "extra_backend_tag": "grp"}))
    print("      group ids in use:", grp._can_use_group_semantics(), "session ids:", grp._supports_session_ids)
    kv, swa = mha_host("page_first"), mha_host("page_first")
    fill(kv), fill(swa)
    grp.register_mem_pool_host(kv)
    grp.register_mem_host_pool_v2(swa, PoolName.SWA)
    keys = [f"g{i}" for i in range(4)]
    check("groups: batch_set_v1", grp.batch_set_v1(keys, idx(0, 4)) == [True] * 4)
    t = PoolTransfer(name=PoolName.SWA, keys=keys[2:], host_indices=idx(2, 2), hit_policy=PoolHitPolicy.TRAILING_PAGES)
    res = grp.batch_set_v2([t], HiCacheStorageExtraInfo(extra_info={"session_id": "s1"}))
    check("v2: batch_set_v2", res == {PoolName.SWA: [True, True]}, res)
    res = grp.batch_exists_v2(keys, [t])
    check("v2: batch_exists_v2", res.kv_hit_pages == 4 and res.extra_pool_hit_pages.get(PoolName.SWA) == 4
          if hasattr(res, "kv_hit_pages") else 4 in (getattr(res, "restorable_prefix_pages", None) or [4]), res)
    want = [page_bytes(swa, 2), page_bytes(swa, 3)]
    res = grp.batch_get_v2([PoolTransfer(name=PoolName.SWA, keys=keys[2:], host_indices=idx(8, 2))])
    check("v2: batch_get_v2", res == {PoolName.SWA: [True, True]}, res)
    check("v2: bytes", [page_bytes(swa, 8), page_bytes(swa, 9)] == want)

    # 4. capacity: pages that do not fit are reported False, the rest stays readable
    small = Master("--default_kv_lease_ttl=500", "--eviction_high_watermark_ratio=1.0", "--eviction_ratio=0.0001")
    try:
        tiny = MooncakeStore(config(model=None, extra={"master_server_address": small.addr, "local_hostname": HOST,
                                                       "protocol": "tcp", "global_segment_size": 16 << 20}))
        big = mha_host("page_first", pages=1024)
        tiny.register_mem_pool_host(big)
        n = 1500
        ok = tiny.batch_set_v1([f"b{i}" for i in range(n)], torch.arange(n * PAGE))
        check("full store: some pages are set, some are not", True in ok and False in ok,
              f"{sum(ok)} of {n}")
        good = [i for i, v in enumerate(ok) if v]
        # the last ones: an early one may have been evicted when space ran out (0.3.14 does so at times)
        got = tiny.batch_get_v1([f"b{i}" for i in good[-4:]], idx(0, 4))
        check("full store: what was set can be read", got == [True] * 4, got)
    finally:
        del tiny
        small.stop()

    # 5. clear()
    wait_until(lambda: store.clear() or not m.keys(), 20)  # what was read is leased for a while
    check("clear() empties the store", store.batch_exists(["mha-page_first-0"]) == 0)
    s = store.get_stats()
    check("storage metrics", len(s.backup_pgs) > 0 and len(s.prefetch_pgs) > 0)

    # 6. encoder global cache
    emb = MooncakeEmbeddingStore()
    buf = torch.zeros(64 << 10, dtype=torch.uint8)
    emb.register_buffer(buf)
    buf[:32 << 10].random_(0, 256)
    p = buf.data_ptr()
    K = 1 << 10
    check("embedding: put", emb.batch_put(["a", "b"], [p, p + 4 * K], [4 * K, 8 * K]) == [True, True])
    check("embedding: put again", emb.batch_put(["a", "c"], [p, p + 12 * K], [4 * K, K]) == [True, True])
    check("embedding: exists", emb.batch_is_exist(["a", "zz", "c"]) == [True, False, True])
    check("embedding: get", emb.batch_get(["a", "zz", "b"], [p + 32 * K, p + 40 * K, p + 48 * K], [4 * K, K, 8 * K])
          == [True, False, True])
    check("embedding: bytes", torch.equal(buf[:4 * K], buf[32 * K:36 * K]) and
          torch.equal(buf[4 * K:12 * K], buf[48 * K:56 * K]))
    check("embedding: multi-buffer put", emb.batch_put_from_multi_buffers(
        ["m"], [[p, p + 8 * K, p + 20 * K]], [[100, 1000, 3 * K]]) == [True])
    check("embedding: multi-buffer get", emb.batch_get_into_multi_buffers(
        ["m", "zz"], [[p + 40 * K, p + 42 * K], [p + 60 * K]], [[1100, 3 * K], [10]]) == [True, False])
    check("embedding: multi-buffer bytes", bytes(buf[40 * K:40 * K + 1100].tolist()) ==
          bytes(buf[:100].tolist()) + bytes(buf[8 * K:8 * K + 1000].tolist()) and
          torch.equal(buf[42 * K:45 * K], buf[20 * K:23 * K]))

    # 7. session reads of ranges (the direct linker's layer-wise load)
    raw = store.store
    data = torch.randint(0, 256, (6 * K,), dtype=torch.uint8)
    dst = torch.zeros(6 * K, dtype=torch.uint8)
    for b in (data, dst):
        assert raw.register_buffer(b.data_ptr(), b.numel()) == 0
    if hasattr(raw, "batch_get_session_start"):
        assert raw.batch_put_from(["r1"], [data.data_ptr()], [6 * K]) == [0]
        check("ranges: session start", list(raw.batch_get_session_start(["r1"])) == [0])
        ok = True
        for layer in range(3):
            off = [layer * 2 * K, layer * 2 * K + K]
            r = raw.batch_get_into_multi_buffer_ranges(["r1"], [[dst.data_ptr() + o for o in off]], [[K, K]], [off])
            ok = ok and list(r) == [2 * K]
        check("ranges: every layer read gives its byte count", ok)
        check("ranges: bytes", torch.equal(data, dst))
        raw.batch_get_session_end(["r1"])
        check("ranges: a missing key does not start", list(raw.batch_get_session_start(["nokey"])) != [0])
    else:
        check.skipped("ranges", "this mooncake has no batch_get_session_start")

    # 8. stand-alone storage: mooncake_client owns memory and transfer engine, sglang is a dummy client
    cport, chttp = free_port(), free_port()
    before = set(m.segments())
    log = open(tempfile.mktemp(prefix="mc-client-", suffix=".log"), "w")
    pc = subprocess.Popen([sys.executable, "-m", "mooncake.cli_client", f"--host={HOST}", f"--port={cport}",
                           f"--master_server_address={m.addr}", "--metadata_server=P2PHANDSHAKE", "--protocol=tcp",
                           "--device_names=", f"--global_segment_size={64 << 20}", "--enable_http_server=true",
                           f"--http_port={chttp}"], stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    extra_procs.append(pc)
    wait_tcp(cport, 30, pc)
    check("stand-alone: the client process brings its segment", wait_until(lambda: set(m.segments()) - before, 30))
    where = {"client_server_address": f"{HOST}:{cport}", "standalone_storage": True}
    pool = mla_host("page_first", allocator="mooncake")
    check("stand-alone: host pool is in mooncake memory",
          type(pool.allocator).__name__ == "MooncakeHostTensorAllocator")
    alone = MooncakeStore(config(mla=True, model="alone", extra=where), pool)
    roundtrip("stand-alone MLA", alone, pool, "alone")
    # sglang registers the K half and the V half of an MHA pool apart; the dummy client of
    # mooncake 0.3.13.post1 takes only a whole shared-memory segment (-1), so this fails there.
    pool = mha_host("page_first", allocator="mooncake")
    try:
        alone = MooncakeStore(config(model="alone", extra=where), pool)
        roundtrip("stand-alone MHA", alone, pool, "alone")
    except RuntimeError as e:
        check.skipped("stand-alone MHA", f"known refusal of sub-ranges of a segment: {e}")

    # 9. the master's HTTP pages that sglang polls
    check("get_all_segments is not empty", m.segments() != [])
    check("metrics page has key count", any(l.startswith("master_key_count ") for l in m.page("/metrics").splitlines()))

    # 10. the backend's own test file
    code = ("import torch, cpu_stubs, runpy, warnings; warnings.filterwarnings('ignore'); cpu_stubs.install(*%r); "
            "runpy.run_module('sglang.srt.mem_cache.storage.mooncake_store.test_mooncake_store', run_name='__main__')"
            % (STUBS,))
    # it divides the segment by tp_size 8, and a segment under 16 MiB is refused (-600)
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")])
    env = dict(os.environ, MOONCAKE_GLOBAL_SEGMENT_SIZE=str(256 << 20), PYTHONPATH=path)
    r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=180)
    check("sglang's test_mooncake_store.py", r.returncode == 0 and "All tests passed" in r.stdout + r.stderr,
          "" if r.returncode == 0 else (r.stdout + r.stderr)[-1500:])
finally:
    for p in extra_procs:
        p.terminate()
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
    m.stop()
rc = check.finish()
sys.stdout.flush()
os._exit(rc)
