"""The figures of the Transfer Engine, side by side with the `transfer_engine_bench` of Mooncake's wheel.

Both programs get the same flags, so block, batch, threads and buffers are the same; each is initiator against its own
target over TCP on loopback. CPU is that of both processes: of the initiator from its start to its end, of the target
while the initiator runs. The rounds take turns: the raw connection, ours, the wheel's.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from processes import Process, wait_until

NAME = "transfer_engine_bench"
KIB, MIB = 1 << 10, 1 << 20
LISTENING = re.compile(r"listening on (\S+:\d+)")
COMPLETED = re.compile(r"duration ([\d.]+), batch count (\d+), throughput ([\d.]+)")
#: Name, block, batch, threads, lowest share of the wheel's throughput.
TCP_FIGURES = [
    (f"TCP write, {name} x 16, {threads} thread{'s' if threads > 1 else ''}", block, 16, threads, least)
    for block, name in ((MIB, "1 MiB"), (64 * KIB, "64 KiB"))
    for threads, least in ((1, 1.0), (4, 1.5))
]
RAW_SHARE = 0.85
COPY_SHARE = 0.90
SMALL_SHM_TIMES = 8
SUBMIT_NS, REROUTE_MS = 1000, 50
#: Highest growth of a poll from 10 tasks to 10,000: caches grow colder, the work does not grow.
POLL_GROWTH = 3


@dataclass
class Programs:
    """Our program, the wheel's and its environment, and the runner of our JSON commands."""

    ours: Path
    wheel: Path | None
    wheel_env: dict[str, str]

    def kinds(self) -> list[str]:
        return ["ours", "wheel"] if self.wheel else ["ours"]

    def of(self, kind: str) -> tuple[Path, dict[str, str]]:
        return (self.ours, dict(os.environ)) if kind == "ours" else (self.wheel, self.wheel_env)

    def json(self, *arguments: str) -> dict:
        """What one command of ours prints with --json."""
        done = subprocess.run([str(self.ours), *arguments, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"yuebing {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, all of its threads, ended ones too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench_flags(block: int, batch: int, threads: int, seconds: float) -> list[str]:
    return [
        "--metadata_server=P2PHANDSHAKE", "--protocol=tcp", "--local_server_name=127.0.0.1", f"--block_size={block}",
        f"--batch_size={batch}", f"--threads={threads}", f"--buffer_size={block * batch * threads}",
        f"--duration={max(1, round(seconds))}",
    ]


def bench_run(programs: Programs, kind: str, block: int, batch: int, threads: int, seconds: float) -> dict:
    """One initiator against one fresh target of the same kind: GB/s and CPU seconds per GB of both processes."""
    program, env = programs.of(kind)
    flags = bench_flags(block, batch, threads, seconds)
    target = Process(f"bench-engine-{kind}", [str(program), *flags, "--mode=target"], env, argv0=NAME)
    try:
        def ready():
            target.must_run()
            text = target.log.read_text()
            return LISTENING.search(text) if "DRAM is used" in text else None

        name = wait_until(f"the {kind} target", ready).group(1)
        before = cpu_of(target.child.pid)
        child = subprocess.Popen(
            [NAME, *flags, "--mode=initiator", "--operation=write", f"--segment_id={name}"],
            executable=str(program), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        found = COMPLETED.search(said)
        if child.returncode != 0 or not found:
            raise RuntimeError(f"{kind} {NAME} ended with {child.returncode}: {said[-1000:]}")
        cpu = usage.ru_utime + usage.ru_stime + cpu_of(target.child.pid) - before
    finally:
        target.stop()
    gb = int(found.group(2)) * batch * block / 1e9
    return {"gb_per_s": gb / float(found.group(1)), "cpu_s_per_gb": cpu / gb}


def sweep(programs: Programs, route: str, block: int, batch: int, seconds: float, *more: str) -> dict:
    """One line of `yuebing bench transfer`: what was reached, and the limit of the machine beside it."""
    answer = programs.json(
        "bench", "transfer", "--transport", route, "--block", str(block), "--batch", str(batch), "--threads", "1",
        "--seconds", str(seconds), *more,
    )
    if not answer["lines"]:
        raise RuntimeError(f"{route} was not measured: {answer['missing']}")
    line = answer["lines"][0]
    rate, limit = line["report"]["gb_per_second"], line["limit_gb_per_second"]
    return {"gb_per_s": rate, "limit_gb_per_s": limit, "share": rate / limit}


def median(runs: list[dict], name: str) -> float | None:
    return statistics.median(run[name] for run in runs) if runs else None


def shm_rows(programs: Programs, rounds: int, seconds: float, row) -> list:
    """Large blocks against one memcpy over the same working set, small ones against the wheel over TCP."""
    cache = programs.json("bench", "memcpy", "--seconds", "0.01")["source_bytes"]
    rows = []
    cold = ("--operation", "read", "--cold", "--memory", str(cache))
    for block, name in ((MIB, "1 MiB"), (16 * MIB, "16 MiB")):
        runs = [sweep(programs, "shm", block, 1, seconds, *cold) for _ in range(rounds)]
        share = median(runs, "share")
        rows.append(row(f"shared memory, read {name} blocks", "GB/s", median(runs, "gb_per_s"), None, "", None))
        rows.append(row("  share of one memcpy", "", share, None, f">= {COPY_SHARE:.2f}", share >= COPY_SHARE))
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(sweep(programs, "shm", 4 * KIB, 64, seconds))
        if programs.wheel:
            theirs.append(bench_run(programs, "wheel", 4 * KIB, 64, 1, seconds))
    a, b = median(ours, "gb_per_s"), median(theirs, "gb_per_s")
    reached = a >= SMALL_SHM_TIMES * b if b else None
    rows.append(row("write 4 KiB x 64: shm, wheel over TCP", "GB/s", a, b, f">= {SMALL_SHM_TIMES}x", reached))
    return rows


def tcp_rows(programs: Programs, rounds: int, seconds: float, row) -> list:
    """Throughput and CPU of both benches, and the share of one raw connection."""
    rows = []
    for figure, block, batch, threads, least in TCP_FIGURES:
        runs: dict[str, list[dict]] = {"ours": [], "wheel": []}
        raw = []
        for _ in range(rounds):
            raw.append(programs.json("bench", "raw-tcp", "--memory", str(block * batch), "--seconds", "0.3"))
            for kind in programs.kinds():
                runs[kind].append(bench_run(programs, kind, block, batch, threads, seconds))
        a, b = (median(runs[kind], "gb_per_s") for kind in ("ours", "wheel"))
        rows.append(row(figure, "GB/s", a, b, f">= {least:g}x", a >= least * b if b else None))
        c, d = (median(runs[kind], "cpu_s_per_gb") for kind in ("ours", "wheel"))
        rows.append(row("  CPU of it", "s/GB", c, d, "<= 1x", c <= d if d else None))
        if threads == 1:
            share = a / median(raw, "gb_per_second")
            rows.append(row("  share of one raw connection", "", share, None, f">= {RAW_SHARE:.2f}", share >= RAW_SHARE))
    return rows


def core_rows(programs: Programs, rounds: int, seconds: float, row) -> list:
    """What the engine costs by itself."""
    runs = [programs.json("bench", "submit", "--seconds", str(seconds)) for _ in range(rounds)]
    submit = median(runs, "submit_complete_ns")
    few, many = (statistics.median(run["poll_task_ns"][index] for run in runs) for index in (0, 1))
    growth = many / few
    return [
        row("submit and complete 64 B locally", "ns", submit, None, f"<= {SUBMIT_NS}", submit <= SUBMIT_NS),
        row("one poll, batch of 10", "ns", few, None, "", None),
        row("one poll, batch of 10,000", "ns", many, None, "", None),
        row("  growth", "", growth, None, f"<= {POLL_GROWTH}", growth <= POLL_GROWTH),
    ]


def simulation_rows(example: Path, row) -> list:
    """The worst of ten thousand seeds, in simulated time: the same on every machine."""
    done = subprocess.run([str(example)], capture_output=True, text=True, check=True)
    worst = json.loads(done.stdout)["worst_reroute_ms"]
    return [row("rerouting after a rail's error, worst", "ms", worst, None, f"< {REROUTE_MS}", worst < REROUTE_MS)]


def engine_rows(programs: Programs, example: Path, rounds: int, seconds: float, row, progress) -> list:
    """Every figure of the engine; `row` makes a line of the table, `progress` tells what is going on."""
    rows = []
    for name, part in (("shared memory", shm_rows), ("TCP", tcp_rows), ("submit and poll", core_rows)):
        progress(f"Transfer Engine: {name}")
        rows += part(programs, rounds, seconds, row)
    progress("Transfer Engine: simulation of rails")
    return rows + simulation_rows(example, row)
