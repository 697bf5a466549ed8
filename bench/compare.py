"""The figures of this project, side by side with Mooncake's wheel in one run; prints a table and the machine.

    python3 bench/compare.py [--only rpc,memory,python,tcp,engine,space,master,client] [--rounds 3] [--seconds 2] [--json FILE] [--gate]

Both masters get the same frames from the same load generator (`yuebing bench rpc`), pinned to one core with one worker,
in turns; a figure is the median of its rounds. The Python figures come from `bench/python_store.py`, run by each
package's own interpreter against a pool of its own kind; `client` brings them too. The figures of the Transfer Engine are in `bench/engine.py`, those of
the master in `bench/master.py`, those of callers in `bench/client.py`. The wheel is `YB_PEER_VENVS/v0.3.13.post1`, or is installed
below `target/peer`; our package is `YB_OURS_PYTHON`, else the wheel in `dist/` is installed below `target/peer/ours`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests" / "peer"))

from checksums import FIGURES, checksum_rows  # noqa: E402
from client import Side, client_rows  # noqa: E402
from engine import Programs, engine_rows  # noqa: E402
from master import Tools, master_rows  # noqa: E402
from processes import Process, free_port, http_get, listens, wait_until  # noqa: E402
from space import space_rows  # noqa: E402
from venvs import WORK, Installation, PeerMissing, peer  # noqa: E402

OURS, WHEEL = "ours", "wheel"
WHEEL_VERSION = "0.3.13.post1"
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[-1], CORES[0]
MIB = 1 << 20
#: Sections of the run, in order.
SECTIONS = ("rpc", "memory", "python", "tcp", "engine", "space", "master", "client", "checksums")
#: name, arguments of `yuebing bench rpc`, highest share of the wheel's CPU per operation.
RPC_FIGURES = [
    ("CPU per GetReplicaList, 64 x 1", ["--operation", "get", "--connections", "64", "--outstanding", "1"], 1 / 2),
    ("CPU per GetReplicaList, 16 x 8", ["--operation", "get", "--connections", "16", "--outstanding", "8"], 1 / 8),
    ("CPU per key, BatchGetReplicaList of 128", ["--operation", "batch-get", "--connections", "16"], 1 / 5),
    ("CPU per key, BatchExistKey of 128", ["--operation", "batch-exist", "--connections", "16"], 1 / 5),
    ("CPU per object, BatchPutStart + End of 128", ["--operation", "batch-put", "--connections", "16"], 1 / 4),
]
BYTES_PER_KEY_BAR = 300
#: Least multiple of the wheel's throughput with objects of 1 MiB, and least share of one memcpy.
LARGE_LEAST, MEMCPY_LEAST = 4, 0.8


@dataclass
class Row:
    """One line of the table. `reached` is None where there is nothing to compare with."""

    figure: str
    unit: str
    ours: float | None
    wheel: float | None
    bar: str
    reached: bool | None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.wheel if self.ours is not None and self.wheel else None


def binary() -> Path:
    """The program that is measured: optimised."""
    place = Path(os.environ.get("YB_BINARY", REPO / "target" / "release" / "yuebing"))
    if not place.exists():
        sys.exit(f"{place} is not there: cargo build --release -p yb-cli")
    return place


def rerouting() -> Path:
    """The simulation of rails, built beside the program."""
    place = binary().parent / "examples" / "rerouting"
    if not place.exists():
        sys.exit(f"{place} is not there: cargo build --release -p yb-sched --example rerouting")
    return place


def yuebing(*arguments: str, env: dict[str, str] | None = None) -> dict:
    """Runs one command of ours with --json and returns what it printed."""
    done = subprocess.run([str(binary()), *arguments, "--json"], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"yuebing {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def our_python() -> Path:
    """A Python that has our package."""
    if named := os.environ.get("YB_OURS_PYTHON"):
        return Path(named)
    wheels = sorted((REPO / "dist").glob("yuebing-*.whl"))
    if not wheels:
        sys.exit("no wheel in dist/: make wheel")
    home = WORK / "ours"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--force-reinstall", str(wheels[-1])], check=True)
    return python


class Wheel:
    """The peer's programs without their Python launchers, so that a process number is that of the server."""

    def __init__(self, installation: Installation):
        self.python = installation.python
        self.env = installation.environment()
        found = subprocess.run(
            [str(self.python), "-c", "import mooncake; print(list(mooncake.__path__)[0])"],
            capture_output=True, text=True, check=True, env=self.env,
        )
        self.folder = Path(found.stdout.strip())

    def program(self, name: str) -> Path:
        return self.folder / name


@contextlib.contextmanager
def ended(process: Process):
    """Ends the process when the block is left."""
    try:
        yield process
    finally:
        process.stop()


def pinned(command: list[str]) -> list[str]:
    """The same command on the server's core; `taskset` becomes the command, so the process number stays."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(SERVER_CORE), *command] if taskset and SERVER_CORE != LOAD_CORE else command


def master(kind: str, wheel: Wheel | None, *, pin: bool, workers: int = 1) -> tuple[Process, int]:
    """A running master of that kind and its port."""
    port, admin = free_port(), free_port()
    command, env = ([str(binary()), "master"], dict(os.environ)) if kind == OURS else (
        [str(wheel.program("mooncake_master"))], wheel.env)
    command += [f"--rpc_port={port}", "--rpc_address=127.0.0.1", f"--metrics_port={admin}", f"--rpc_thread_num={workers}"]
    process = Process(f"bench-master-{kind}", pinned(command) if pin else command, env)
    for wanted in (port, admin):
        wait_until(f"the {kind} master on port {wanted}", lambda p=wanted: process.must_run() or listens(p))
    return process, port


def rpc_run(
    kind: str, wheel: Wheel | None, arguments: list[str], seconds: float, *, workers: int = 1, pin: bool = True
) -> dict:
    """One measurement of one fresh master."""
    process, port = master(kind, wheel, pin=pin, workers=workers)
    with ended(process):
        core = ["--core", str(LOAD_CORE)] if pin and SERVER_CORE != LOAD_CORE else []
        return yuebing(
            "bench", "rpc", "--master", f"127.0.0.1:{port}", "--server-pid", str(process.child.pid),
            "--seconds", str(seconds), *core, *arguments,
        )


def kinds(wheel: Wheel | None) -> list[str]:
    return [OURS, WHEEL] if wheel else [OURS]


def median_of(runs: list[dict], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return statistics.median(values) if values else None


def rpc_rows(wheel: Wheel | None, rounds: int, seconds: float) -> list[Row]:
    """CPU of the master, ours and the wheel's in turns."""
    rows = []
    for figure, arguments, most in RPC_FIGURES:
        runs: dict[str, list[dict]] = {OURS: [], WHEEL: []}
        for _ in range(rounds):
            for kind in kinds(wheel):
                progress(f"{figure}: {kind}")
                runs[kind].append(rpc_run(kind, wheel, arguments, seconds))
        ours, theirs = (median_of(runs[k], "server_cpu_us_per_operation") for k in (OURS, WHEEL))
        reached = ours <= most * theirs if theirs else None
        rows.append(Row(figure, "us", ours, theirs, f"<= 1/{round(1 / most)}", reached))
        ours, theirs = (median_of(runs[k], "server_instructions_per_operation") for k in (OURS, WHEEL))
        if ours:
            rows.append(Row("  instructions of it", "", ours, theirs, "", None))
    return rows


def memory_rows(wheel: Wheel | None) -> list[Row]:
    """Memory of a master per stored key: 45-byte keys, one replica."""
    grown = {}
    for kind in kinds(wheel):
        progress(f"memory per key: {kind}")
        run = rpc_run(kind, wheel, ["--operation", "exist", "--keys", "1000000"], 0.2)
        grown[kind] = run.get("server_bytes_per_key")
    ours = grown[OURS]
    reached = ours <= BYTES_PER_KEY_BAR if ours is not None else None
    return [Row("master memory per stored key", "B", ours, grown.get(WHEEL), f"<= {BYTES_PER_KEY_BAR} B", reached)]


@contextlib.contextmanager
def pool(kind: str, wheel: Wheel | None, env: dict[str, str]):
    """A master and one node of that kind: the master's address, process numbers of both."""
    if kind == OURS:
        up = Process("bench-up", [str(binary()), "up", "--json", "--nodes", "1", "--memory", "4GiB"], env)
        with ended(up):
            said = wait_until("our pool", lambda: up.must_run() or up.log.read_text())
            said = json.loads(said.splitlines()[0])
            yield said["master"], [process["pid"] for process in said["processes"]]
        return
    process, port = master(WHEEL, wheel, pin=False)
    with ended(process):
        node = Process("bench-node-wheel", [
            str(wheel.program("mooncake_client")), "--host=127.0.0.1", f"--port={free_port()}",
            f"--master_server_address=127.0.0.1:{port}", "--metadata_server=P2PHANDSHAKE", "--protocol=tcp",
            "--global_segment_size=4096 MB",
        ], wheel.env)
        with ended(node):
            flags = process.child.args
            admin = next(int(f.split("=")[1]) for f in flags if f.startswith("--metrics_port="))
            wait_until("the wheel's node", lambda: node.must_run() or http_get(admin, "/get_all_segments").strip())
            yield f"127.0.0.1:{port}", [process.child.pid, node.child.pid]


def our_env(checksum: str = "0") -> dict[str, str]:
    """The environment of our processes; without checksums, as the wheel has them off unless somebody asks for them."""
    return {**os.environ, "MOONCAKE_STORE_CHECKSUM": checksum}


def python_run(
    kind: str, wheel: Wheel | None, python: Path, seconds: float, *options: str, shm: bool = True, checksum: str = "0"
) -> dict:
    """The figures of `bench/python_store.py` in a pool of that kind."""
    env = our_env(checksum) if kind == OURS else dict(wheel.env)
    if not shm:
        env["YB_SHM"] = "0"
    script = str(REPO / "bench" / "python_store.py")
    with pool(kind, wheel, env) as (address, pids):
        servers = [part for pid in pids for part in ("--server-pid", str(pid))]
        command = [str(python), script, "--master", address, "--seconds", str(seconds), *servers, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{script} under {kind}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])["figures"]


def client_sides(wheel: Wheel | None) -> list[Side]:
    """Our package and the wheel's, each with pools of its kind."""
    env = our_env()
    sides = [Side(OURS, lambda: pool(OURS, wheel, env), our_python(), env)]
    return sides + ([Side(WHEEL, lambda: pool(WHEEL, wheel, wheel.env), wheel.python, wheel.env)] if wheel else [])


def best(runs: list[dict], figure: str, name: str) -> float | None:
    """The median over rounds of one number of one figure."""
    return statistics.median(run[figure][name] for run in runs) if runs else None


def python_rows(runs: dict[str, list[dict]]) -> list[Row]:
    """Ours over shared memory, the wheel as it comes."""
    number = lambda kind, figure, name: best(runs[kind], figure, name)  # noqa: E731
    copy = number(OURS, "memcpy_1MiB", "gb_per_s")
    rows = [Row("one memcpy of 1 MiB", "GB/s", copy, number(WHEEL, "memcpy_1MiB", "gb_per_s"), "", None)]
    for figure, name in (("get_into_1MiB", "Python get_into 1 MiB"), ("put_from_1MiB", "Python put_from 1 MiB")):
        ours, theirs = number(OURS, figure, "gb_per_s"), number(WHEEL, figure, "gb_per_s")
        bar = ours >= LARGE_LEAST * theirs if theirs else None
        rows.append(Row(name, "GB/s", ours, theirs, f">= {LARGE_LEAST}x", bar))
        rows.append(Row("  share of one memcpy", "", ours / copy, None, f">= {MEMCPY_LEAST:.2f}", ours >= MEMCPY_LEAST * copy))
    ours, theirs = (number(kind, "get_into_4KiB", "p50_us") for kind in (OURS, WHEEL))
    rows.append(Row("Python get_into 4 KiB, p50", "us", ours, theirs, "<= 1/3", ours <= theirs / 3 if theirs else None))
    ours, theirs = (number(kind, "batch_get_into_32x64KiB", "gb_per_s") for kind in (OURS, WHEEL))
    bar = ours >= 4 * theirs if theirs else None
    rows.append(Row("Python batch_get_into 32 x 64 KiB", "GB/s", ours, theirs, ">= 4x", bar))
    return rows


def tcp_rows(ours_runs: list[dict], wheel_runs: list[dict]) -> list[Row]:
    """Both over TCP; CPU is that of client, node and master together."""
    rows = []
    for figure, name in (("get_into_1MiB", "TCP only, get_into 1 MiB"), ("put_from_1MiB", "TCP only, put_from 1 MiB")):
        ours, theirs = best(ours_runs, figure, "gb_per_s"), best(wheel_runs, figure, "gb_per_s")
        rows.append(Row(name, "GB/s", ours, theirs, ">= 1x", ours >= theirs if theirs else None))
        ours, theirs = best(ours_runs, figure, "all_cpu_s_per_gb"), best(wheel_runs, figure, "all_cpu_s_per_gb")
        rows.append(Row("  CPU of it", "s/GB", ours, theirs, "<= 1x", ours <= theirs if theirs else None))
    return rows


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text} ...", end="", file=sys.stderr, flush=True)


def machine() -> str:
    model = "unknown CPU"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load average {load:.1f}"


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    text = f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
    return f"{text} {unit}".strip()


def table(rows: list[Row]) -> str:
    header = ["figure", "ours", "wheel", "ours/wheel", "bar", ""]
    lines = [header]
    for row in rows:
        verdict = {True: "reached", False: "MISSED", None: ""}[row.reached]
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        lines.append([row.figure, number(row.ours, row.unit), number(row.wheel, row.unit), ratio, row.bar, verdict])
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)


def run(options: argparse.Namespace) -> list[Row]:
    try:
        wheel: Wheel | None = Wheel(peer(WHEEL_VERSION))
    except PeerMissing as missing:
        print(f"without the wheel: {missing}", file=sys.stderr)
        wheel = None
    only, rows = options.only.split(","), []
    if unknown := set(only) - set(SECTIONS):
        sys.exit(f"--only takes {', '.join(SECTIONS)}, not {', '.join(sorted(unknown))}")
    if "client" in only:
        # Its objects of 1 MiB are there.
        only.append("python")
    if "rpc" in only:
        rows += rpc_rows(wheel, options.rounds, options.seconds)
    if "memory" in only:
        rows += memory_rows(wheel)
    if "engine" in only:
        programs = Programs(binary(), wheel and wheel.program("transfer_engine_bench"), wheel.env if wheel else {})
        rows += engine_rows(programs, rerouting(), options.rounds, options.seconds, Row, progress)
    if "space" in only:
        rows += space_rows(Row, progress)
    if "master" in only:
        measure = lambda kind, *args, **how: rpc_run(kind, wheel, *args, **how)  # noqa: E731
        rows += master_rows(Tools(measure, kinds(wheel), yuebing, binary(), Row, progress), options.rounds, options.seconds)
    if "client" in only:
        rows += client_rows(client_sides(wheel), options.rounds, options.seconds, Row, progress)
    if "checksums" in only:
        figures = [part for figure in FIGURES for part in ("--figure", figure)]
        measure = lambda on: python_run(OURS, None, our_python(), options.seconds, *figures, checksum=on)  # noqa: E731
        rows += checksum_rows(measure, options.rounds, Row, progress)
    if not {"python", "tcp"} & set(only):
        return rows
    pythons = {OURS: our_python(), WHEEL: wheel.python if wheel else None}
    runs: dict[str, list[dict]] = {OURS: [], WHEEL: []}
    tcp: list[dict] = []
    for _ in range(options.rounds):
        for kind in kinds(wheel):
            progress(f"Python: {kind}")
            if kind == WHEEL or "python" in only:
                runs[kind].append(python_run(kind, wheel, pythons[kind], options.seconds))
        if "tcp" in only:
            progress("Python: ours over TCP")
            figures = ("--figure", "get_into_1MiB", "--figure", "put_from_1MiB")
            tcp.append(python_run(OURS, wheel, pythons[OURS], options.seconds, *figures, shm=False))
    if "python" in only:
        rows += python_rows(runs)
    if "tcp" in only:
        rows += tcp_rows(tcp, runs[WHEEL])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, of {','.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure; the median counts")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one measurement")
    parser.add_argument("--json", type=Path, default=REPO / "target" / "bench" / "figures.json", help="also write here")
    parser.add_argument("--gate", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args()
    rows = run(options)
    progress("")
    print(f"\n{table(rows)}\n\n{machine()}\nwheel: mooncake-transfer-engine {WHEEL_VERSION}; servers pinned to core "
          f"{SERVER_CORE} with one worker for the master's figures; medians of {options.rounds} rounds of "
          f"{options.seconds:g} s")
    judged = [row.reached for row in rows if row.reached is not None]
    print(f"{sum(judged)} of {len(judged)} bars reached")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": machine(), "rows": [vars(row) for row in rows]}, indent=1) + "\n")
    return 1 if options.gate and not all(judged) else 0


if __name__ == "__main__":
    sys.exit(main())
