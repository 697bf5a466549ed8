"""What checksums cost: whole objects of 1 MiB over shared memory with `MOONCAKE_STORE_CHECKSUM` on and off, by turns."""

import statistics
from collections.abc import Callable

#: Least share of the GB/s without checksums that a get with them reaches.
GET_LEAST = 0.80
FIGURES = {"get_into_1MiB": "get_into 1 MiB, checksum on / off", "put_from_1MiB": "put_from 1 MiB, checksum on / off"}


def checksum_rows(measure: Callable[[str], dict], rounds: int, row: Callable, progress: Callable) -> list:
    """Rows of both figures. `measure("1")` and `measure("0")`: figures of `bench/python_store.py` with that setting; in the
    rows "ours" is with checksums, "wheel" without."""
    runs: dict[str, list[dict]] = {"1": [], "0": []}
    for _ in range(rounds):
        for setting, done in runs.items():
            progress(f"checksums: {setting}")
            done.append(measure(setting))
    rows = []
    for figure, name in FIGURES.items():
        on, off = (statistics.median(run[figure]["gb_per_s"] for run in runs[setting]) for setting in ("1", "0"))
        bar = f">= {GET_LEAST:.2f}x" if figure == "get_into_1MiB" else ""
        rows.append(row(name, "GB/s", on, off, bar, on >= GET_LEAST * off if bar else None))
    return rows
