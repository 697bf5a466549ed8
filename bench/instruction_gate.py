"""Instructions of the master per operation against recorded ceilings: what CI can compare on any machine.

    python3 bench/instruction_gate.py [--bless]

A master runs under callgrind, which counts every instruction in user space. For each operation the same load runs twice,
short and long; the difference of the instructions over the difference of the operations is the cost of one, without
start, filling and connecting. The ceilings are in `bench/instructions.tsv`; `--bless` writes what was measured plus 15 %.
Without valgrind the gate says so and passes, with CI=true it fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests" / "peer"))

from processes import Process, free_port, listens, wait_until  # noqa: E402

CEILINGS = REPO / "bench" / "instructions.tsv"
ALLOWANCE = 1.15
SHORT, LONG = 0.3, 1.5
#: Operation of `yuebing bench rpc` and what one operation is.
OPERATIONS = {
    "ready": "one ServiceReady: the RPC layer alone",
    "exist": "one ExistKey",
    "get": "one GetReplicaList",
    "batch-exist": "one key of a BatchExistKey of 128",
    "batch-get": "one key of a BatchGetReplicaList of 128",
    "put": "one PutStart with its PutEnd",
    "batch-put": "one object of a BatchPutStart of 128 with its BatchPutEnd",
}


def binary() -> Path:
    place = Path(os.environ.get("YB_BINARY", REPO / "target" / "release" / "yuebing"))
    if not place.exists():
        sys.exit(f"{place} is not there: cargo build --release -p yb-cli")
    return place


class CountedMaster:
    """A master under callgrind."""

    def __init__(self, folder: Path):
        self.counts = folder / "callgrind"
        self.port, admin = free_port(), free_port()
        self.process = Process("gate-master", [
            shutil.which("valgrind"), "--tool=callgrind", f"--callgrind-out-file={self.counts}", str(binary()), "master",
            f"--rpc_port={self.port}", "--rpc_address=127.0.0.1", f"--metrics_port={admin}", "--rpc_thread_num=1",
            "--rpc_backend=epoll", "--minloglevel=1",
        ], dict(os.environ))
        wait_until("the master under callgrind", lambda: self.process.must_run() or listens(self.port), 60)
        self.dumps = 0

    def instructions(self) -> int:
        """Instructions since the last time this was asked."""
        self.dumps += 1
        dump = Path(f"{self.counts}.{self.dumps}")
        subprocess.run(["callgrind_control", "--dump", str(self.process.child.pid)], check=True, capture_output=True)
        text = wait_until("the counts", lambda: dump.exists() and "totals:" in dump.read_text() and dump.read_text())
        return int(re.search(r"^totals: (\d+)", text, re.MULTILINE)[1])

    def load(self, operation: str, seconds: float) -> int:
        """Operations that were done."""
        done = subprocess.run([
            str(binary()), "bench", "rpc", "--json", "--master", f"127.0.0.1:{self.port}", "--operation", operation,
            "--connections", "1", "--keys", "2000", "--warm-up", "0", "--seconds", str(seconds),
        ], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"load of {operation}: {done.stderr.strip()}\n{self.process.log_tail()}")
        return json.loads(done.stdout)["operations"]

    def per_operation(self, operation: str) -> float:
        self.instructions()
        few = self.load(operation, SHORT)
        base = self.instructions()
        many = self.load(operation, LONG)
        return (self.instructions() - base) / (many - few)


def ceilings() -> dict[str, float]:
    lines = [line.split("\t") for line in CEILINGS.read_text().splitlines() if line and not line.startswith("#")]
    return {operation: float(ceiling) for operation, ceiling, _ in lines}


def bless(measured: dict[str, float]) -> None:
    lines = ["# Highest number of user-space instructions of the master; written by bench/instruction_gate.py --bless.",
             "# operation\tceiling\twhat one operation is"]
    lines += [f"{operation}\t{cost * ALLOWANCE:.0f}\t{OPERATIONS[operation]}" for operation, cost in measured.items()]
    CEILINGS.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bless", action="store_true", help="record what is measured as the new ceilings")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("instructions not counted: valgrind is not installed")
        return 1 if os.environ.get("CI") == "true" else 0
    with tempfile.TemporaryDirectory() as folder:
        master = CountedMaster(Path(folder))
        try:
            measured = {operation: master.per_operation(operation) for operation in OPERATIONS}
        finally:
            master.process.stop()
    if options.bless:
        bless(measured)
    allowed, over = ceilings(), 0
    print(f"{'operation':<12} {'instructions':>12} {'ceiling':>8}")
    for operation, cost in measured.items():
        passed = cost <= allowed[operation]
        over += not passed
        mark = "" if passed else "  OVER"
        print(f"{operation:<12} {cost:>12.0f} {allowed[operation]:>8.0f}{mark}  {OPERATIONS[operation]}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
