#!/usr/bin/env python3
"""Builds the wheel `mooncake-transfer-engine` that has no files, only the requirement of `yuebing`.

    build.py FOLDER

Packages that require Mooncake by the name of its distribution, or look that name up, are satisfied by ours where this wheel is
installed. It stands in a folder of its own, so that nobody who installs `yuebing` gets it unasked.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

#: The version of the peer whose names and calls ours answers to.
VERSION = "0.3.14"
NAME = "mooncake_transfer_engine"
#: By this `yuebing doctor` and people tell it from the peer's own distribution.
GENERATOR = "yuebing (no files)"
#: Of every entry, so that the same source gives the same bytes.
DATE = (2020, 1, 1, 0, 0, 0)


def our_version() -> str:
    """The version of the workspace."""
    for line in (Path(__file__).parents[2] / "Cargo.toml").read_text().splitlines():
        if line.startswith("version = "):
            return line.split('"')[1]
    raise SystemExit("no version in Cargo.toml")


def files() -> dict[str, str]:
    """Name and text of all files but the record."""
    about = (Path(__file__).parent / "README.md").read_text()
    metadata = f"""Metadata-Version: 2.1
Name: mooncake-transfer-engine
Version: {VERSION}
Summary: Stands in for Mooncake's distribution; the package `mooncake` comes from `yuebing`
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: yuebing>={our_version()}
Description-Content-Type: text/markdown

{about}"""
    wheel = f"Wheel-Version: 1.0\nGenerator: {GENERATOR}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    home = f"{NAME}-{VERSION}.dist-info"
    return {f"{home}/METADATA": metadata, f"{home}/WHEEL": wheel}


def record(written: dict[str, str], own: str) -> str:
    """The list of files with their hashes."""
    rows = []
    for name, text in written.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}\n")
    return "".join(rows) + f"{own},,\n"


def build(folder: Path) -> Path:
    """Writes the wheel into `folder` and answers its path."""
    folder.mkdir(parents=True, exist_ok=True)
    written = files()
    own = f"{NAME}-{VERSION}.dist-info/RECORD"
    written[own] = record(written, own)
    path = folder / f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in written.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1])))
