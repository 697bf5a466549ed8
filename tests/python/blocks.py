"""Blocks of code in a page of the documentation, and their run.

A page is one session: its blocks run in order, in one folder. Shell blocks share one shell. In a transcript, lines that begin with
`$ ` are commands; what they print must be the lines below, where `…` stands for anything, alone on a line for any lines. A comment
directly above a block says what else is to be known:

    <!-- not run: REASON -->        it cannot run in a test
    <!-- background: TEXT -->       it runs on; the next block begins once it has printed TEXT
    <!-- exit: any -->              it may fail: it tells about this machine
    <!-- file: NAME -->             it is the text of a file that later blocks read
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

MARK = re.compile(r"<!-- (not run|background|exit|file): (.+) -->")
#: Languages whose blocks are run, and those that are only data or pictures.
RUN = {"sh", "python", "console"}
DATA = {"json", "toml", "yaml", "ini", "dockerfile", "text", ""}
#: What a background block may take until it has said its text.
START_SECONDS = 30


@dataclass
class Block:
    """A block of code: where it stands, what it is, what is said of it."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    lines = iter(enumerate(page.read_text().splitlines(), 1))
    for number, line in lines:
        if mark := MARK.fullmatch(line.strip()):
            marks[mark[1]] = mark[2]
        elif line.startswith("```"):
            body = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                body.append(inner)
            language = line.removeprefix("```").strip().split(",")[0]
            # A transcript without its name.
            if not language and body and body[0].startswith("$ "):
                language = "console"
            found.append(Block(page.name, number, language, "\n".join(body) + "\n", marks))
            marks = {}
        elif line.strip():
            marks = {}
    return found


def script(page: list[Block], folder: Path) -> str:
    """A shell script that runs the blocks of a page in `folder`; what it writes there besides begins with `.block-`."""
    lines = ["set -euo pipefail", "set -m", "background=()", "trap 'for pid in \"${background[@]}\"; do kill -TERM -- -$pid 2>/dev/null || true; done; wait' EXIT"]
    for block in page:
        if "not run" in block.marks:
            continue
        if name := block.marks.get("file"):
            (folder / ".block-files").mkdir(exist_ok=True)
            kept = folder / ".block-files" / name
            kept.write_text(block.text)
            lines.append(f"cp {shlex.quote(str(kept))} {shlex.quote(name)}")
        elif block.language in RUN:
            lines.append(f"echo '{block.page}:{block.line}' >.block-now")
            lines += _run(block, folder)
    return "\n".join(lines) + "\n"


def _run(block: Block, folder: Path) -> list[str]:
    if block.language == "python":
        path = folder / f".block-{block.line}.py"
        path.write_text(block.text)
        return [f"python {shlex.quote(str(path))}"]
    if block.language == "console":
        return _transcript(block, folder)
    if text := block.marks.get("background"):
        log = f".block-{block.line}.log"
        body = block.text.rstrip().removesuffix(" 2>&1")
        return [
            f"( {body}\n) >{log} 2>&1 &",
            "background+=($!)",
            f"for _ in $(seq {START_SECONDS * 20}); do grep -qF {shlex.quote(text)} {log} && break; sleep 0.05; done",
            f"grep -qF {shlex.quote(text)} {log} || {{ cat {log}; exit 1; }}",
        ]
    if block.marks.get("exit") == "any":
        return [f"( {block.text}) || true"]
    return [block.text]


def _transcript(block: Block, folder: Path) -> list[str]:
    """Each command, and a check of what it printed."""
    lines: list[str] = []
    for number, (command, expected) in enumerate(transcript(block.text)):
        log, wanted = f".block-{block.line}-{number}.log", folder / f".block-{block.line}-{number}.wanted"
        wanted.write_text(json.dumps(expected))
        # In a group: the command may send its output elsewhere itself.
        lines.append(f"{{ {command}\n}} >{log}")
        lines.append(f"{shlex.quote(sys.executable)} {shlex.quote(__file__)} {shlex.quote(str(wanted))} {log}")
    return lines


def transcript(text: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines below them."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether the lines are those that are expected."""
    if not expected:
        return not printed
    if expected[0] == "…":
        return any(matches(expected[1:], printed[skipped:]) for skipped in range(len(printed) + 1))
    pattern = ".*".join(re.escape(part) for part in expected[0].split("…"))
    return bool(printed) and bool(re.fullmatch(pattern, printed[0])) and matches(expected[1:], printed[1:])


def is_data(block: Block) -> bool:
    """Whether a block that is not run can be read as what it says it is; raises what its parser raises."""
    if block.language == "json":
        json.loads(block.text)
    if block.language == "toml":
        tomllib.loads(block.text)
    return block.language in DATA


def main(arguments: list[str]) -> int:
    """Compares what a command printed with what the page shows."""
    expected, printed = json.loads(Path(arguments[0]).read_text()), Path(arguments[1]).read_text().splitlines()
    if matches(expected, printed):
        return 0
    print("the page shows:", *expected, "and this came:", *printed, sep="\n  ")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
