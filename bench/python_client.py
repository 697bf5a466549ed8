"""What callers of `mooncake.store` see, under either package: latencies, tensors, pages of SGLang; prints one JSON object.

    python bench/python_client.py --master 127.0.0.1:50051 [--seconds 2] [--figure NAME]

The pool is the caller's, its nodes are other processes of this host. Tensors need torch, pages need sglang; without them
their figures are left out. Operations are objects, pages or tensors. The interpreter's ticks are those of a second thread that
counts while `setup` and `close` run, as a share of what it counts while nothing runs.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import mooncake.store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integrations"))
KIB, MIB = 1 << 10, 1 << 20
SMALL, BATCH = 4 * KIB, 32
TENSOR = 64 * MIB
#: Keys that the reads walk over, and objects after which written ones are removed.
KEYS, KEPT = 4096, 16384
PAGE_TOKENS, PAGES = 64, 64


def summary(times, operations):
    """Operations a second while calls ran, and the percentiles of one call."""
    times = sorted(times)
    return {
        "calls": len(times),
        "ops_per_s": operations * len(times) / sum(times),
        "p50_us": statistics.median(times) * 1e6,
        "p99_us": times[int(len(times) * 0.99)] * 1e6,
    }


def measure(call, operations, seconds, prepare=None):
    """Calls `call(0)`, `call(1)`, … for about so long; `prepare` goes before each and is not counted."""
    times, index, ends = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < ends or index < 5:
        if prepare:
            prepare(index)
        begun = time.perf_counter()
        call(index)
        times.append(time.perf_counter() - begun)
        index += 1
    return summary(times, operations)


def check(answer, expected, what):
    """A figure of failed calls is worth nothing."""
    if answer != expected:
        sys.exit(f"{what} answered {answer!r}, expected {expected!r}")


class Ticks:
    """A thread that counts as fast as it gets the interpreter."""

    def __init__(self):
        self.count, self.running = 0, True
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while self.running:
            self.count += 1
            time.sleep(0.0005)

    def during(self, run):
        """Seconds that `run` takes, and ticks meanwhile."""
        before, begun = self.count, time.perf_counter()
        run()
        return time.perf_counter() - begun, self.count - before


class Bench:
    """A store that is set up, and a registered buffer."""

    def __init__(self, master, seconds):
        self.master, self.seconds = master, seconds
        self.store = self.fresh()
        import ctypes
        import mmap
        self.area = mmap.mmap(-1, KEYS * SMALL)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
        ctypes.memset(self.base, 1, KEYS * SMALL)
        check(self.store.register_buffer(self.base, KEYS * SMALL), 0, "register_buffer")

    def fresh(self):
        store = mooncake.store.MooncakeDistributedStore()
        check(store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 256 * MIB, "tcp", "", self.master), 0, "setup")
        return store

    def make_room(self, prefix, objects=1):
        """Removes what was written once it is as much as is kept."""
        def remove(index):
            if index and index * objects % KEPT < objects:
                self.store.remove_by_regex(f"^{prefix}/", True)
        return remove

    def places(self, index):
        return [self.base + (index * BATCH + i) % KEYS * SMALL for i in range(BATCH)]

    def put(self):
        value = b"v" * SMALL
        put = lambda i: check(self.store.put(f"put/{i}", value), 0, "put")  # noqa: E731
        return measure(put, 1, self.seconds, self.make_room("put"))

    def filled(self, prefix):
        keys = [f"{prefix}/{i}" for i in range(KEYS)]
        for start in range(0, KEYS, BATCH):
            part = keys[start : start + BATCH]
            check(self.store.batch_put_from(part, self.places(start // BATCH), [SMALL] * BATCH), [0] * BATCH, "fill")
        return keys

    def get(self):
        keys = self.filled("get")
        return measure(lambda i: check(len(self.store.get(keys[i % KEYS])), SMALL, "get"), 1, self.seconds)

    def batch_put(self):
        def put(index):
            keys = [f"bput/{index}/{i}" for i in range(BATCH)]
            check(self.store.batch_put_from(keys, self.places(index), [SMALL] * BATCH), [0] * BATCH, "batch_put_from")
        return measure(put, BATCH, self.seconds, self.make_room("bput", BATCH))

    def batch_get(self):
        keys = self.filled("bget")
        def get(index):
            start = index * BATCH % KEYS
            got = self.store.batch_get_into(keys[start : start + BATCH], self.places(index), [SMALL] * BATCH)
            check(got, [SMALL] * BATCH, "batch_get_into")
        return measure(get, BATCH, self.seconds)

    def setup_and_close(self):
        """Median seconds of both, and the interpreter's ticks meanwhile as a share of those without. Short ones are repeated
        until there is time for ticks."""
        ticks, setups, closes = Ticks(), [], []
        idle, free = ticks.during(lambda: time.sleep(0.3))
        while len(setups) < 3 or sum(took for took, _ in setups + closes) < 0.3:
            made = []
            setups.append(ticks.during(lambda: made.append(self.fresh())))
            closes.append(ticks.during(lambda: made[0].close()))
        ticks.running = False
        took, seen = (sum(column) for column in zip(*setups, *closes))
        middle = lambda times: statistics.median(took for took, _ in times)  # noqa: E731
        return {"setup_s": middle(setups), "close_s": middle(closes), "ticks": seen / took / (free / idle)}

    def tensors(self):
        import torch
        tensor = torch.arange(TENSOR // 4, dtype=torch.float32)
        def drop(index):
            self.store.remove_by_regex("^tensor/", True)
        put = lambda i: check(self.store.put_tensor(f"tensor/{i}", tensor), 0, "put_tensor")  # noqa: E731
        written = measure(put, 1, self.seconds, drop)
        drop(0)
        check(self.store.put_tensor("kept", tensor), 0, "put_tensor")
        check(bool(torch.equal(self.store.get_tensor("kept"), tensor)), True, "the tensor read")
        read = measure(lambda i: check(self.store.get_tensor("kept").numel(), TENSOR // 4, "get_tensor"), 1, self.seconds)
        return {"put": written, "get": read}

    def pages(self):
        """SGLang's own backend over its own host pool, page first: the zero-copy calls."""
        import cpu_stubs
        import torch
        cpu_stubs.install("triton", "IPython", "gguf", "torchao", "sgl_kernel", "flashinfer", "deep_gemm", "tvm_ffi", "cuda",
                          "timm", "decord", "interegular", "outlines", "modelscope", "datasets")
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
        from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
        from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore
        layers, heads, width = 4, 2, 64
        device = MHATokenToKVPool(PAGE_TOKENS * PAGES, PAGE_TOKENS, torch.float16, heads, width, layers, "cpu", False,
                                  enable_alt_stream=False)
        host = MHATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE_TOKENS, "page_first",
                                    pin_memory=False, device_capacity_tokens=device.size, start_layer=device.start_layer,
                                    end_layer=device.end_layer)
        extra = {"master_server_address": self.master, "local_hostname": "127.0.0.1", "protocol": "tcp",
                 "global_segment_size": 0, "metadata_server": "P2PHANDSHAKE", "check_server": False}
        backend = MooncakeStore(HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
            enable_storage_metrics=False, is_page_first_layout=True, model_name="bench", extra_config=extra))
        backend.register_mem_pool_host(host)
        indices = torch.arange(BATCH * PAGE_TOKENS)
        def set_pages(index):
            keys = [f"page-{index}-{i}" for i in range(BATCH)]
            check(backend.batch_set_v1(keys, indices), [True] * BATCH, "batch_set_v1")
        room = lambda index: index % 32 or self.store.remove_by_regex("^page-", True)  # noqa: E731
        written = measure(set_pages, BATCH, self.seconds, room)
        set_pages(-1)
        keys = [f"page--1-{i}" for i in range(BATCH)]
        get = lambda i: check(backend.batch_get_v1(keys, indices), [True] * BATCH, "batch_get_v1")  # noqa: E731
        return {"set": written, "get": measure(get, BATCH, self.seconds)}


FIGURES = {
    "put_4KiB": Bench.put, "get_4KiB": Bench.get, "batch_put_from_32x4KiB": Bench.batch_put,
    "batch_get_into_32x4KiB": Bench.batch_get, "setup_and_close": Bench.setup_and_close, "tensor_64MiB": Bench.tensors,
    "hicache_pages": Bench.pages,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", required=True, help="host:port of the pool's master")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")
    parser.add_argument("--figure", action="append", choices=list(FIGURES), help="only this one; may be repeated")
    options = parser.parse_args()
    bench = Bench(options.master, options.seconds)
    said = {"package": mooncake.store.__file__, "figures": {}, "left_out": {}}
    for name in options.figure or FIGURES:
        try:
            said["figures"][name] = FIGURES[name](bench)
        except (ImportError, NotImplementedError) as missing:
            said["left_out"][name] = str(missing)
    # The peer's close takes seconds and is a figure of its own.
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
