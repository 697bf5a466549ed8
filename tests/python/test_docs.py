"""The documentation: complete, with links that lead somewhere, and blocks of code that do what the page says."""

import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import blocks
import names
import pytest
from pool import OURS, installation, our_program
from venvs import REPO

DOCS = REPO / "docs"
#: Of a page; a machine may be busy with a build.
LIMIT_SECONDS = 300


def summary() -> list[Path]:
    """The pages of the site."""
    return [DOCS / link for link in re.findall(r"\]\(([^)]+\.md)\)", (DOCS / "SUMMARY.md").read_text())]


PAGES = [*summary(), REPO / "README.md"]


def runs(page: Path) -> bool:
    """Whether a block of the page is run."""
    return any("not run" not in block.marks and block.language in blocks.RUN for block in blocks.blocks(page))


def test_the_site_has_every_page():
    pages = [page.resolve() for page in summary()]
    assert [page for page in pages if not page.is_file()] == []
    assert len(pages) == len(set(pages))
    there = {page.resolve() for page in DOCS.rglob("*.md")} - {DOCS / "SUMMARY.md"}
    assert sorted(there - set(pages)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """What links to headings of the page may name."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_run_or_says_why_not(page):
    for block in blocks.blocks(page):
        place = f"{block.page}:{block.line}"
        if "not run" in block.marks or block.language in blocks.RUN:
            continue
        assert blocks.is_data(block), f"{place}: {block.language} is neither run nor marked `not run`"


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.stem)
def test_blocks_run(page, need, tmp_path):
    need(OURS, program=True)
    installs = "--find-links dist" in "".join(block.text for block in blocks.blocks(page) if "not run" not in block.marks)
    if installs and not any((REPO / "dist").glob("yuebing-*.whl")):
        pytest.skip("no wheel in dist/: make wheel")
    (tmp_path / "dist").symlink_to(REPO / "dist")
    script = tmp_path / ".block-script"
    script.write_text(blocks.script(blocks.blocks(page), tmp_path))
    environment = {k: v for k, v in installation(OURS).environment().items() if not k.startswith("YUEBING")}
    programs = [installation(OURS).python.parent, our_program("yuebing").parent]
    environment["PATH"] = ":".join([*map(str, programs), os.environ["PATH"]])
    # A network of its own: the pages name the usual ports.
    command = [*_alone(), sys.executable, __file__, "bash", str(script)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    now = tmp_path / ".block-now"
    assert run.returncode == 0, f"{now.read_text() if now.exists() else page}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}"


def _alone() -> list[str]:
    """The command that gives what follows a network of its own; nothing where a test machine may not make one."""
    for command in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    if os.environ.get("CI") != "true":
        pytest.skip("no network namespace can be made here, and the pages' blocks use the usual ports")
    # A machine of its own for the tests has the usual ports free.
    return []


def test_a_transcript_is_compared():
    expected = ["a", "…", "b … d"]
    assert blocks.matches(expected, ["a", "b c d"]) and blocks.matches(expected, ["a", "x", "y", "b  d"])
    assert not blocks.matches(expected, ["a", "b c"]) and not blocks.matches(["a"], ["a", "b"]) and not blocks.matches([], ["a"])
    assert blocks.transcript("$ one\nx\ny\n$ two\n") == [("one", ["x", "y"]), ("two", [])]


def test_a_block_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\nA=1\n```\n\n```console\n$ echo $A\n2\n```\n")
    script = blocks.script(blocks.blocks(page), tmp_path)
    run = subprocess.run(["bash"], input=script, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1 and "and this came:" in run.stdout
    page.write_text(page.read_text().replace("\n2\n", "\n1\n"))
    script = blocks.script(blocks.blocks(page), tmp_path)
    assert subprocess.run(["bash"], input=script, cwd=tmp_path, text=True, timeout=60, check=False).returncode == 0


def test_the_table_of_names_is_true(need):
    need("0.3.13.post1", "0.3.14", OURS)
    now = names.page()
    # A new row in a page of differences is a new link here; that may wait for the next writing.
    linked = r"; see \[differences\]\([^)]*\)"
    there = re.sub(linked, "", (DOCS / "book" / "names.md").read_text())
    assert there == re.sub(linked, "", now), "make names writes it anew"


def loopback_up() -> None:
    """A new network has a loopback device that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        get, put, up = 0x8913, 0x8914, 0x1
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(probe, get, request))[1]
        fcntl.ioctl(probe, put, struct.pack("16sH14s", b"lo", flags | up, b""))


if __name__ == "__main__":
    loopback_up()
    os.execvp(sys.argv[1], sys.argv[1:])
