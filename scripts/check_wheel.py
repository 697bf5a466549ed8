#!/usr/bin/env python3
"""What a wheel asks of the machine it is installed on, and whether that is more than it promises.

    check_wheel.py WHEEL... [--glibc 2.28] [--peer VENV]

For each program and library in each wheel: size, libraries it is linked against, newest symbol version of the C library. Exit code
1 when one needs a newer C library than `--glibc`, or a library that is not on every machine. With `--peer`, a virtual environment
with the peer's wheel, also 1 when ours takes more than a quarter of its installed size.
"""

from __future__ import annotations

import argparse
import csv
import struct
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

#: Libraries of every Linux with glibc, whatever is installed.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libgcc_s.so.1", "librt.so.1", "libutil.so.1",
              "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
#: Ours may take this share of what the peer's takes.
SHARE = 0.25

_DYNAMIC, _VERSIONS_NEEDED = 6, 0x6FFFFFFE
_NEEDED = 1


@dataclass
class Elf:
    """A program or library: what it is linked against, and the symbol versions it asks for (library -> names)."""

    needed: list[str] = field(default_factory=list)
    versions: dict[str, set[str]] = field(default_factory=dict)

    def newest(self, prefix: str) -> tuple[int, ...]:
        """The newest version of symbols named `prefix_1.2.3`; `()` if there are none."""
        found = {name.removeprefix(prefix + "_") for names in self.versions.values() for name in names
                 if name.startswith(prefix + "_")}
        return max((tuple(int(part) for part in text.split(".")) for text in found if text[:1].isdigit()), default=())


def read_elf(data: bytes) -> Elf:
    """Reads the sections that tell what a 64-bit little-endian file needs; `ValueError` for another kind."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    # name, type, flags, address, offset, size, link, info
    sections = [struct.unpack_from("<IIQQQQII", data, table + size * index) for index in range(count)]
    elf = Elf()
    for _, kind, _, _, offset, length, link, info in sections:
        if kind not in (_DYNAMIC, _VERSIONS_NEEDED):
            continue
        names = data[sections[link][4] :][: sections[link][5]]
        if kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", data[offset : offset + length]):
                if tag == _NEEDED:
                    elf.needed.append(_text(names, value))
        else:
            elf.versions.update(_versions(data, offset, info, names))
    return elf


def _versions(data: bytes, offset: int, count: int, names: bytes) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for _ in range(count):
        _, entries, library, first, following = struct.unpack_from("<HHIII", data, offset)
        wanted = found.setdefault(_text(names, library), set())
        at = offset + first
        for _ in range(entries):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, at)
            wanted.add(_text(names, name))
            at += step
        offset += following
    return found


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()


def check(wheel: Path, limit: tuple[int, ...]) -> tuple[list[str], list[str], int]:
    """Lines to print, what is wrong, and the bytes that an installation takes."""
    lines, wrong, installed = [wheel.name], [], 0
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            installed += entry.file_size
            data = archive.read(entry)
            if data[:4] != b"\x7fELF":
                continue
            elf = read_elf(data)
            newest = elf.newest("GLIBC")
            shown = ".".join(map(str, newest)) or "none"
            lines.append(f"  {entry.filename}: {len(data) / 1e6:.1f} MB, glibc {shown}, {' '.join(elf.needed)}")
            if newest > limit:
                wrong.append(f"{entry.filename} needs glibc {shown}, more than {'.'.join(map(str, limit))}")
            wrong += [f"{entry.filename} is linked against {name}" for name in elf.needed if name not in EVERYWHERE]
            if any("private" in names.lower() for group in elf.versions.values() for names in group):
                wrong.append(f"{entry.filename} uses private symbols of the C library")
    lines.append(f"  installed: {installed / 1e6:.1f} MB")
    return lines, wrong, installed


def peer_bytes(environment: Path) -> int:
    """Bytes of the peer's distribution in a virtual environment, by its own record."""
    records = sorted(environment.glob("lib/python*/site-packages/mooncake_transfer_engine*.dist-info/RECORD"))
    if not records:
        raise SystemExit(f"the peer's wheel is not installed in {environment}")
    with records[0].open(newline="") as rows:
        return sum(int(row[2]) for row in csv.reader(rows) if len(row) > 2 and row[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--glibc", default="2.28")
    parser.add_argument("--peer", type=Path, help="virtual environment with the peer's wheel")
    args = parser.parse_args()
    limit = tuple(int(part) for part in args.glibc.split("."))
    theirs = peer_bytes(args.peer) if args.peer else 0
    failed = False
    for wheel in args.wheels:
        lines, wrong, installed = check(wheel, limit)
        if theirs:
            lines.append(f"  the peer's: {theirs / 1e6:.1f} MB; ours is {100 * installed / theirs:.1f} % of it")
            if installed > SHARE * theirs:
                wrong.append(f"more than {SHARE:.0%} of the peer's installed size")
        print("\n".join(lines))
        for line in wrong:
            print(f"  WRONG: {line}", file=sys.stderr)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
