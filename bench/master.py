"""The figures of the master, whole: what an RPC costs, what a second worker costs, and what the pool's parts do.

Both masters get the same frames from the same generator, pinned to one core with one worker, in turns; a figure is the
median of its rounds. What the catalog, the allocators and the policies do by themselves comes from their own benches:
`cargo build --release -p yb-catalog -p yb-master --examples`; a row whose program or trace is not there says so.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
SINGLE = ["--connections", "64", "--outstanding", "1"]
BATCH = ["--connections", "16", "--outstanding", "1", "--batch", "128"]
#: Name, arguments of `yuebing bench rpc`, highest share of the wheel's CPU per operation.
RPC_FIGURES = [
    ("CPU per ExistKey, 64 x 1", ["--operation", "exist", *SINGLE], 1 / 2.5),
    ("CPU per GetReplicaList, 64 x 1", ["--operation", "get", *SINGLE], 1 / 2.5),
    ("CPU per put (start + end), 64 x 1", ["--operation", "put", *SINGLE], 1 / 2.5),
    ("CPU per key, BatchExistKey of 128", ["--operation", "batch-exist", *BATCH], 1 / 8),
    ("CPU per key, BatchGetReplicaList of 128", ["--operation", "batch-get", *BATCH], 1 / 8),
    ("CPU per object, batch put of 128", ["--operation", "batch-put", *BATCH], 1 / 5),
]
MIXED = ["--operation", "mixed", "--connections", "32", "--outstanding", "2", "--batch", "32"]
TWO_WORKERS_MOST = 1.1
#: Trace file, blocks of the pool, LRU, lowest block hit ratio, Belady's.
HIT_FIGURES = [
    ("conversation_trace.jsonl", 5_000, 0.110, 0.175, 0.341),
    ("conversation_trace.jsonl", 10_000, 0.211, 0.245, 0.366),
    ("conversation_trace.jsonl", 20_000, 0.288, 0.305, 0.366),
    ("synthetic_trace.jsonl", 1_000, 0.083, 0.10, 0.277),
    ("synthetic_trace.jsonl", 5_000, 0.279, 0.305, 0.526),
    ("synthetic_trace.jsonl", 10_000, 0.424, 0.46, 0.618),
]
TRACES = Path(os.environ.get("YB_TRACES", REPO.parent / "shared" / "data" / "traces"))


@dataclass
class Figure:
    """A bar over a number that a bench prints: the group of `pattern`; of several lines the worst counts."""

    title: str
    unit: str
    pattern: str
    bar: str
    worst: Callable[[list[float]], float]
    reached: Callable[[float], bool]


@dataclass
class Bench:
    """A program beside `yuebing`, built with `cargo build --release -p yb-catalog -p yb-master --examples`."""

    program: str
    arguments: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def at_least(bound: float, unit: str = "") -> tuple[str, Callable, Callable[[float], bool]]:
    return f">= {bound:g}{unit}", min, lambda value: value >= bound


def at_most(bound: float, unit: str = "") -> tuple[str, Callable, Callable[[float], bool]]:
    return f"<= {bound:g}{unit}", max, lambda value: value <= bound


@dataclass
class Tools:
    """What the caller measures with."""

    #: Kind of master, arguments, seconds, workers -> the report of one fresh master.
    rpc_run: Callable[..., dict]
    kinds: list[str]
    yuebing: Callable[..., dict]
    binary: Path
    row: type
    progress: Callable[[str], None]


def master_rows(tools: Tools, rounds: int, seconds: float) -> list:
    """All rows."""
    rows = rpc_rows(tools, rounds, seconds) + worker_rows(tools, rounds, seconds)
    for bench in BENCHES:
        rows += bench_rows(tools, bench)
    return rows + hit_rows(tools)


def medians(tools: Tools, rounds: int, runs: list[tuple[str, Callable[[], dict]]], title: str) -> dict[str, float | None]:
    """CPU per operation by name, the runs taking turns."""
    seen: dict[str, list[float]] = {name: [] for name, _ in runs}
    for _ in range(rounds):
        for name, run in runs:
            tools.progress(f"{title}: {name}")
            seen[name].append(run()["server_cpu_us_per_operation"])
    return {name: statistics.median(values) if values else None for name, values in seen.items()}


def rpc_rows(tools: Tools, rounds: int, seconds: float) -> list:
    rows = []
    for title, arguments, most in RPC_FIGURES:
        runs = [(kind, lambda kind=kind: tools.rpc_run(kind, arguments, seconds)) for kind in tools.kinds]
        cpu = medians(tools, rounds, runs, title)
        ours, theirs = cpu.get("ours"), cpu.get("wheel")
        reached = ours <= most * theirs if theirs else None
        rows.append(tools.row(title, "us", ours, theirs, f"<= 1/{1 / most:g}", reached))
    return rows


def worker_rows(tools: Tools, rounds: int, seconds: float) -> list:
    """One worker and two under the same load, neither pinned: what sharing costs."""
    runs = [
        (str(workers), lambda workers=workers: tools.rpc_run("ours", MIXED, seconds, workers=workers, pin=False))
        for workers in (1, 2)
    ]
    cpu = medians(tools, rounds, runs, "workers")
    ratio = cpu["2"] / cpu["1"]
    return [
        tools.row("CPU per request, mixed load, one worker", "us", cpu["1"], None, "", None),
        tools.row("CPU per request, mixed load, two workers", "us", cpu["2"], None, "", None),
        tools.row("  two workers over one", "", ratio, None, f"<= {TWO_WORKERS_MOST}x", ratio <= TWO_WORKERS_MOST),
    ]


def pause(what: str, keys: int) -> Bench:
    """Probes beside an event."""
    return Bench("pause_bench", [what, str(keys)], [
        Figure(f"probe p99 with {what} over without, {keys:,} keys", "", rf"^{what}:.*\(([\d.]+) times\)", *at_most(2, "x")),
        Figure("  worst probe", "ms", rf"^{what}:.*worst ([\d.]+) ms", *at_most(50, " ms")),
    ])


def wiped(keys: int) -> Bench:
    """Memory of a master by its keys, and what is left of it."""
    share = lambda text: [float(left) / float(of) for left, of in text]  # noqa: E731
    return Bench("pause_bench", ["wipe", str(keys)], [
        Figure(f"bytes per key, {keys:,} keys of 45 bytes", "B", r"keys: ([\d.]+) bytes a key", *at_most(220, " B")),
        Figure("  share left after remove_all", "", r"left (\d+) MiB above the start, of (\d+) MiB", "", lambda pairs:
               max(share(pairs)), lambda _: True),
    ])


#: The benches of the parts.
BENCHES: list[Bench] = [
    Bench("catalog_bench", ["1000000", "--json"], [
        Figure("catalog, two threads over one, all calls", "", r'"two_threads_all": ([\d.]+)', *at_least(1.8, "x")),
    ]),
    wiped(1_000_000),
    wiped(5_000_000),
    Bench("eviction_bench", ["victims"], [
        Figure("cost of a victim, up to 5 M keys over 10 k", "", r"victim, ([\d.]+) of 10,000", *at_most(1.5, "x")),
    ]),
    pause("loss", 5_000_000),
    pause("turnover", 1_000_000),
]


def bench_rows(tools: Tools, bench: Bench) -> list:
    program = tools.binary.parent / "examples" / bench.program
    if not program.exists():
        print(f"no figures of {bench.program}: {program} is not there", file=sys.stderr)
        return []
    tools.progress(bench.program)
    done = subprocess.run([str(program), *bench.arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program}: {done.stderr.strip()[-500:]}")
    rows = []
    for figure in bench.figures:
        found = re.findall(figure.pattern, done.stdout, re.MULTILINE)
        if not found:
            raise RuntimeError(f"{bench.program} says nothing of {figure.title}:\n{done.stdout[-1000:]}")
        value = figure.worst([float(one) for one in found] if isinstance(found[0], str) else found)
        rows.append(tools.row(figure.title, figure.unit, value, None, figure.bar, figure.reached(value) if figure.bar else None))
    return rows


def hit_rows(tools: Tools) -> list:
    """Block hit ratios of the default policy; where the wheel's column would be stands LRU."""
    rows = []
    for trace, blocks, lru, least, belady in HIT_FIGURES:
        path = TRACES / trace
        if not path.exists():
            print(f"no hit ratio for {trace}: {path} is not there (YB_TRACES)", file=sys.stderr)
            continue
        tools.progress(f"{trace}, {blocks} blocks")
        said = tools.yuebing("replay", "--simulate", "--capacity", str(blocks), str(path))
        ratio = said["block_hit_ratio"]
        title = f"block hit ratio, {trace.split('_')[0]}, {blocks:,} blocks (LRU {lru}, Belady {belady})"
        rows.append(tools.row(title, "", ratio, None, f">= {least}", ratio >= least))
        rows.append(tools.row("  prefix hit ratio of it", "", said["prefix_hit_ratio"], None, "", None))
    return rows
