"""The figures of callers: `bench/python_client.py` under our package and under the wheel, in turns, each against a pool of its
own kind with one node in another process.

Tensors and SGLang's pages need a Python that has torch and sglang, named by `YB_TORCH_PYTHON` (`make test-integrations` makes
one); it is given one package or the other by PYTHONPATH. Without it their rows are left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "python_client.py"
PLAIN = ["put_4KiB", "get_4KiB", "batch_put_from_32x4KiB", "batch_get_into_32x4KiB", "setup_and_close"]
WITH_TORCH = ["tensor_64MiB", "hicache_pages"]
SETUP_MOST_S, CLOSE_MOST_S, TICKS_LEAST = 0.3, 0.1, 0.9
#: Title, figure, part of it, least multiple of the wheel's operations a second.
RATES = [
    ("put 4 KiB", "put_4KiB", None, 3), ("get 4 KiB", "get_4KiB", None, 3),
    ("batch_put_from, 32 x 4 KiB", "batch_put_from_32x4KiB", None, 5),
    ("batch_get_into, 32 x 4 KiB", "batch_get_into_32x4KiB", None, 5),
    ("put_tensor 64 MiB", "tensor_64MiB", "put", 3), ("get_tensor 64 MiB", "tensor_64MiB", "get", 3),
    ("SGLang HiCache, pages set", "hicache_pages", "set", 3), ("SGLang HiCache, pages read", "hicache_pages", "get", 3),
]
#: Of these the slowest of a hundred calls is compared too.
WITH_P99 = {"put_4KiB", "get_4KiB"}


@dataclass
class Side:
    """One package: a pool of its kind, a Python that has it, and the environment of its processes."""

    name: str
    pool: Callable[[], AbstractContextManager[tuple[str, list[int]]]]
    python: Path
    env: dict[str, str]

    def package(self) -> Path:
        """The folder of the package `mooncake`."""
        code = "import mooncake; print(list(mooncake.__path__)[0])"
        done = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True, check=True, env=self.env)
        return Path(done.stdout.strip())

    def measure(self, seconds: float) -> dict:
        """All figures of one round."""
        found: dict = {}
        runs = [(self.python, self.env, PLAIN)]
        if torch := os.environ.get("YB_TORCH_PYTHON"):
            runs.append((Path(torch), self.env | {"PYTHONPATH": str(self.package().parent)}, WITH_TORCH))
        for python, env, figures in runs:
            with self.pool() as (address, _):
                named = [part for figure in figures for part in ("--figure", figure)]
                command = [str(python), str(SCRIPT), "--master", address, "--seconds", str(seconds), *named]
                done = subprocess.run(command, capture_output=True, text=True, env=env)
            if done.returncode != 0:
                raise RuntimeError(f"{SCRIPT} under {self.name}: {done.stderr.strip()[-2000:]}")
            said = json.loads(done.stdout.splitlines()[-1])
            found |= said["figures"]
            for figure, why in said["left_out"].items():
                print(f"{self.name}: no {figure}: {why}", file=sys.stderr)
        return found


def bytes_of(folder: Path) -> int:
    """Bytes of an installed package with the libraries that its wheel put beside it."""
    places = [folder, *folder.parent.glob("mooncake*.libs"), *folder.parent.glob("yuebing*.libs")]
    return sum(file.stat().st_size for place in places for file in place.rglob("*") if file.is_file() and file.suffix != ".pyc")


def client_rows(sides: list[Side], rounds: int, seconds: float, row: type, progress: Callable[[str], None]) -> list:
    """All rows; ours first in `sides`, then the wheel's if it is there."""
    runs: dict[str, list[dict]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            progress(f"client: {side.name}")
            runs[side.name].append(side.measure(seconds))

    def median(at: int, figure: str, part: str | None, name: str) -> float | None:
        if at >= len(sides):
            return None
        found = [run[figure][part] if part else run[figure] for run in runs[sides[at].name] if figure in run]
        return statistics.median(one[name] for one in found) if found else None

    rows = []
    for title, figure, part, least in RATES:
        ours, theirs = (median(at, figure, part, "ops_per_s") for at in (0, 1))
        if ours is None:
            continue
        rows.append(row(title, "/s", ours, theirs, f">= {least}x", ours >= least * theirs if theirs else None))
        if figure in WITH_P99:
            ours, theirs = (median(at, figure, part, "p99_us") for at in (0, 1))
            rows.append(row("  p99", "us", ours, theirs, "<= 1/2", ours <= theirs / 2 if theirs else None))
    for title, name, most in (("setup", "setup_s", SETUP_MOST_S), ("close", "close_s", CLOSE_MOST_S)):
        ours, theirs = (median(at, "setup_and_close", None, name) for at in (0, 1))
        rows.append(row(title, "s", ours, theirs, f"<= {most} s", ours <= most))
    ours, theirs = (median(at, "setup_and_close", None, "ticks") for at in (0, 1))
    rows.append(row("  ticks of another thread meanwhile", "", ours, theirs, f">= {TICKS_LEAST}", ours >= TICKS_LEAST))
    sizes = [bytes_of(side.package()) / 1e6 for side in sides]
    theirs = sizes[1] if len(sizes) > 1 else None
    rows.append(row("installed size", "MB", sizes[0], theirs, "<= 1/4", sizes[0] <= theirs / 4 if theirs else None))
    return rows
