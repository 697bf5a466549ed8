"""How full segments get, how fast extents are given out, how evenly placement fills a pool.

    cargo build --release -p yb-alloc --example fill
    cargo build --release -p yb-catalog --example placement_bench
    python3 bench/space.py

`bench/compare.py` has the same rows in its section `space`. Nothing here is compared with the wheel: its allocator cannot be
called alone; what it publishes stands in the bars.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
#: Key of the example's answer, figure, unit, bar, whether more is better.
FILL_FIGURES = [
    ("adaptive.uniform_worst", "stored at first refusal, 54 uniform sizes, worst", "", 0.98, True),
    ("adaptive.two_blocks_refused_at_0.97", "refused of 200,000 puts at 0.97 full, two block sizes", "", 0, False),
    ("adaptive.two_blocks_lowest_refusal", "lowest fill at a refusal, two block sizes", "", 0.97, True),
    ("adaptive.three_sizes_refused_at_0.95", "refused of 200,000 puts at 0.95 full, three sizes", "", 0, False),
    ("adaptive.three_sizes_lowest_refusal", "lowest fill at a refusal, three sizes", "", 0.95, True),
    ("adaptive.allocations_per_second_two_blocks", "allocations, 16 segments, two block sizes", "1/s", 1e6, True),
    ("adaptive.allocations_per_second_three_sizes", "allocations, 16 segments, three sizes", "1/s", 1e6, True),
    ("adaptive.allocations_per_second_4k", "allocations, 16 segments, 4 KiB", "1/s", 1e6, True),
    ("adaptive.bookkeeping_bytes_4k", "bookkeeping of an extent of 4 KiB", "B", 24, False),
]
PLACEMENT_FIGURES = [
    ("balanced.fill_spread", "fullest less emptiest of 16 unequal segments", "", 0.05, False),
    ("balanced.empty_over_fair", "new objects of an empty segment over its share", "", 2.0, False),
]


def example(name: str) -> dict[str, float]:
    """The figures of an example that was built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target"))
    program = target / "release" / "examples" / name
    if not program.exists():
        crate = {"fill": "yb-alloc", "placement_bench": "yb-catalog"}[name]
        sys.exit(f"{program} is not there: cargo build --release -p {crate} --example {name}")
    return json.loads(subprocess.run([program, "--json"], check=True, capture_output=True, text=True).stdout)


def space_rows(row: Callable, progress: Callable[[str], None]) -> list:
    """The rows of the table; `row` makes one of figure, unit, ours, wheel, bar, reached."""
    rows = []
    for name, figures in (("fill", FILL_FIGURES), ("placement_bench", PLACEMENT_FIGURES)):
        progress(f"space: {name}")
        found = example(name)
        for key, figure, unit, bar, more in figures:
            value = found[key]
            reached = value >= bar if more else value <= bar
            rows.append(row(figure, unit, value, None, f"{'>=' if more else '<='} {bar:g}", reached))
    return rows


def main() -> int:
    rows = space_rows(lambda *columns: columns, lambda text: print(text, file=sys.stderr))
    for figure, unit, value, _, bar, reached in rows:
        print(f"{figure:<58} {value:>14.4f} {unit:<4} {bar:<10} {'reached' if reached else 'MISSED'}")
    return 0 if all(reached for *_, reached in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
