"""What `put_tensor` and `get_tensor` reach from Python, under either package; prints one JSON object.

    python bench/python_tensors.py --master 127.0.0.1:50051 [--mib 64] [--rounds 12]

Needs torch. The pool is the caller's: its nodes are other processes of this host, with room for three tensors. Times are
seconds of wall clock, medians of the rounds; each put is of a new key, each get gives a tensor that is dropped before the
next. The limits are measured in the same run: one memcpy of as many bytes between two tensors that are there already,
and one into a tensor that is new, whose pages the system has to bring.
"""

import argparse
import json
import os
import statistics
import sys
import time

import mooncake.store
import torch

MIB = 1 << 20


def timed(call):
    """Seconds of one call, and its answer."""
    before = time.perf_counter()
    answer = call()
    return time.perf_counter() - before, answer


def figure(times, size):
    """The median and what it means."""
    median = statistics.median(times)
    return {"p50_ms": median * 1e3, "gb_per_s": size / median / 1e9, "rounds": len(times)}


def check(answer, what):
    """Stops at the first answer that is wrong: a figure of failed calls is worth nothing."""
    if not answer:
        sys.exit(f"{what} failed")


def main():
    """Measures, prints, and ends the process without what the peer does at its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size = arguments.mib * MIB
    store = mooncake.store.MooncakeDistributedStore()
    # The peer stages tensors in its scratch buffer.
    check(store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 4 * size, "tcp", "", arguments.master) == 0, "setup")
    tensor = torch.randint(0, 255, (size // 1024, 1024), dtype=torch.uint8)
    other = torch.ones_like(tensor)
    put, got, copied, fresh = [], [], [], []
    for turn in range(arguments.rounds + 2):
        copied.append(timed(lambda: other.copy_(tensor))[0])
        fresh.append(timed(lambda: torch.empty_like(tensor).copy_(tensor))[0])
        key = f"bench-{turn}"
        seconds, answer = timed(lambda key=key: store.put_tensor(key, tensor))
        check(answer == 0, "put_tensor")
        put.append(seconds)
        seconds, found = timed(lambda key=key: store.get_tensor(key))
        check(found is not None and torch.equal(found, tensor), "get_tensor")
        got.append(seconds)
        del found
        check(store.remove(key, True) == 0, "remove")
    # The first rounds bring in pages and connections.
    rows = {"put_tensor": put, "get_tensor": got, "memcpy": copied, "memcpy_to_new": fresh}
    print(json.dumps({"bytes": size} | {name: figure(times[2:], size) for name, times in rows.items()}, indent=1), flush=True)
    os._exit(0)


main()
