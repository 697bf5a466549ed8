"""The package as it is installed: what it needs, how fast it is there, where it runs, what it puts beside the interpreter."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import zipfile
from pathlib import Path

import pytest
from pool import OURS, Pool, installation, our_program
from venvs import REPO, peer
from wheels import check_wheel

#: Commands of the peer's distribution, and ours.
COMMANDS = ["mc_store_rest_server", "mooncake_client", "mooncake_http_metadata_server", "mooncake_master", "transfer_engine_bench",
            "transfer_engine_topology_dump", "yuebing"]
#: Heavy modules that nothing but their users may load.
HEAVY = ["aiohttp", "asyncio", "numpy", "requests", "torch"]


def ours(code, **more):
    """What a piece of Python prints under our package."""
    place = installation(OURS)
    command = [str(place.python), "-c", code]
    run = subprocess.run(command, env=place.environment(), capture_output=True, text=True, timeout=60, check=False, **more)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.fixture(scope="module", autouse=True)
def _installed(need):
    need(OURS, program=True)


def test_import_loads_nothing_heavy_and_is_quick():
    code = f"import sys, mooncake.store; print([name for name in {HEAVY} if name in sys.modules])"
    assert ours(code).strip() == "[]"
    # Processor time, which a busy machine does not stretch; the best of some runs, without the interpreter's own start.
    code = "import resource as r{}; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"

    def best(what):
        return min(float(ours(code.format(what))) for _ in range(5))

    assert best(", mooncake.store") - best("") < 0.1


def test_every_command_of_the_peer_is_there():
    found = ours("import importlib.metadata as m; print(*(e.name for e in m.distribution('yuebing').entry_points))").split()
    assert sorted(found) == COMMANDS
    code = "import importlib.metadata as m\nfor e in m.distribution('yuebing').entry_points: assert callable(e.load()), e"
    ours(code)


def test_the_wheel_without_files_satisfies_the_name(tmp_path):
    build = REPO / "packaging" / "mooncake-transfer-engine" / "build.py"
    made = subprocess.run([sys.executable, str(build), str(tmp_path)], capture_output=True, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(made) as wheel:
        names = wheel.namelist()
        assert all(".dist-info/" in name for name in names), names
        wheel.extractall(tmp_path / "site")
    found = ours(
        "import importlib.metadata as m; d = m.distribution('mooncake-transfer-engine'); print(d.version, *d.requires)",
        cwd=tmp_path / "site",
    ).split()
    assert found[0] == "0.3.14" and found[1].startswith("yuebing>=")
    # Whoever looks at the version to find a feature goes on with ours.
    assert ours("import importlib.metadata as m; print(m.version('yuebing'))").strip() == found[1].removeprefix("yuebing>=")


def test_what_is_installed_is_small(need):
    need("0.3.13.post1")
    check = check_wheel()
    theirs = check.peer_bytes(peer("0.3.13.post1").python.parents[1])
    code = ("import importlib.metadata as m; d = m.distribution('yuebing');"
            "print(sum(f.locate().stat().st_size for f in d.files if '__pycache__' not in str(f)))")
    size = int(ours(code))
    print(f"ours {size / 1e6:.1f} MB, the peer's {theirs / 1e6:.1f} MB")
    if "debug" not in _kind():
        assert size <= theirs * check.SHARE


def test_a_portable_wheel_asks_for_nothing_new():
    wheels = sorted((REPO / "dist").glob("yuebing-*manylinux*.whl"))
    if not wheels:
        if os.environ.get("CI") == "true":
            pytest.fail("no portable wheel in dist/: make wheel")
        pytest.skip("no portable wheel in dist/: make wheel")
    check = check_wheel()
    for wheel in wheels:
        lines, wrong, _ = check.check(wheel, (2, 28))
        assert wrong == []
        # The extension and the program.
        assert sum(line.startswith("  mooncake/") for line in lines) == 2


def test_the_wheel_for_cpython_310_works(tmp_path):
    """Where it was built (make wheels): puts, gets, views and leases, as the other one does."""
    python = os.environ.get("PYTHON310") or shutil.which("python3.10")
    if not list((REPO / "dist").glob("yuebing-*-cp310-cp310-*.whl")) or not python:
        pytest.skip("no wheel for CPython 3.10 in dist/: make wheels, with PYTHON310 naming one")
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    install = ["install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", str(REPO / "dist"), "yuebing"]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(tmp_path / "bin" / "python"), *install], check=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        code = (
            "import sys, mooncake.engine, mooncake.async_store; from mooncake.store import BufferPool, MooncakeDistributedStore;"
            "assert sys.version_info[:2] == (3, 10); store = MooncakeDistributedStore();"
            f"assert store.setup('127.0.0.1', 'P2PHANDSHAKE', 0, 16 << 20, 'tcp', '', '127.0.0.1:{pool.port}') == 0;"
            "assert store.put('key', bytearray(b'value')) == 0 and store.get('key') == b'value';"
            "handle = store.get_buffer('key'); assert bytes(memoryview(handle)) == b'value'; lease = BufferPool(store).acquire(4096);"
            "view = lease.buffer; view[:5] = b'other'; assert store.put_from('two', lease.ptr, 5) == 0;"
            "assert store.get('two') == b'other'; del view, handle; lease.release(); print(store.close())"
        )
        run = subprocess.run([str(tmp_path / "bin" / "python"), "-c", code], env=installation(OURS).environment(), capture_output=True,
                             text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "0\n", ""), run.stderr


def test_the_check_bites(tmp_path):
    """A library that needs more than it may is found."""
    check = check_wheel()
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(sys.executable if Path(sys.executable).read_bytes()[:4] == b"\x7fELF" else "/bin/sh", "python")
    lines, wrong, _ = check.check(wheel, (2, 1))
    assert any("needs glibc" in line for line in wrong), lines


def _kind():
    """`debug` or `release`: the optimised extension has no assertions in it."""
    code = "import mooncake._native as n; print('debug' if b'attempt to add with overflow' in open(n.__file__, 'rb').read() else 'release')"
    return ours(code).strip()


class Terminal:
    """A program that has a terminal."""

    def __init__(self, *command):
        self.master, slave = pty.openpty()
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.child = subprocess.Popen([str(part) for part in command], stdin=slave, stdout=slave, stderr=slave, process_group=0)
        self.seen = b""

    def until(self, text, seconds=20):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.seen[-2000:]!r}"
            self.seen += os.read(self.master, 65536)

    def left_clean(self):
        """The old page, the cursor and the modes of the terminal are back."""
        self.until(b"\x1b[?25h\x1b[?1049l")
        code = self.child.wait(20)
        after = termios.tcgetattr(self.slave)
        assert after[:4] == self.before[:4]
        os.close(self.master)
        os.close(self.slave)
        return code


def test_top_gives_the_terminal_back_however_it_ends():
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        for leave in ("q", signal.SIGINT, signal.SIGTERM):
            top = Terminal(our_program("yuebing"), "top", "--interval", "0.1", "--admin", f"127.0.0.1:{pool.metrics_port}")
            top.until(b"keys 0")
            assert b"\x1b[?1049h" in top.seen
            if leave == "q":
                os.write(top.master, b"q")
            else:
                top.child.send_signal(leave)
            assert top.left_clean() == 0


def test_long_work_shows_itself_on_a_terminal_and_leaves_no_trace():
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=64)
        command = [our_program("yuebing"), "bench", "store", "--size", "64KiB", "--keys", "16", "--seconds", "0.4", "--master",
                   f"127.0.0.1:{pool.port}"]
        bench = Terminal(*command)
        bench.until(b"look up and remove")
        bench.until(b"objects a call")
        assert bench.child.wait(20) == 0
        run = subprocess.run([str(part) for part in command], capture_output=True, timeout=60, check=True)
        assert run.stderr == b"" and b"look up and remove" not in run.stdout


@pytest.fixture(name="site")
def site_fixture(tmp_path):
    """A folder of packages with ours in it."""
    place = Path(ours("import importlib.metadata as m; print(m.distribution('yuebing').locate_file(''))").strip())
    for part in [*place.glob("yuebing-*.dist-info"), place / "mooncake"]:
        shutil.copytree(part, tmp_path / "site" / part.name)
    return tmp_path / "site"


def doctor(site):
    """What the doctor says of the packages in a folder."""
    command = [str(our_program("yuebing")), "doctor", "--json", "--python", str(site)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return next(check for check in json.loads(run.stdout)["checks"] if check["id"] == "python-packages")


@pytest.mark.parametrize("version", ["0.3.13.post1", "0.3.14"])
def test_doctor_finds_both_distributions(need, site, version):
    """As pip leaves it when the peer's wheel is installed over ours."""
    need(version)
    assert doctor(site)["status"] == "ok"
    theirs = next(peer(version).python.parents[1].glob("lib/python*/site-packages"))
    home = next(theirs.glob("mooncake_transfer_engine*.dist-info"))
    shutil.copytree(home, site / home.name)
    replaced = 0
    for row in (home / "RECORD").read_text().splitlines():
        name = row.split(",")[0]
        if name.startswith("mooncake/") and name.endswith((".py", ".so")) and (theirs / name).exists():
            replaced += (site / name).exists()
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).unlink(missing_ok=True)
            (site / name).symlink_to(theirs / name)
    assert replaced > 5
    found = doctor(site)
    assert found["status"] == "fail" and "are both installed" in found["text"], found
    taken = "mooncake/store/__init__.py" if version == "0.3.14" else "mooncake/store.so"
    assert f"takes {taken} of mooncake-transfer-engine" in found["text"], found
    name = home.name.split("-")[0].replace("_", "-")
    assert f"uninstall -y {name} yuebing" in found["hint"], found
    # pip takes the peer's away again, with the files that were ours.
    shutil.rmtree(site / home.name)
    for path in [path for path in site.rglob("*") if path.is_symlink()]:
        path.unlink()
    found = doctor(site)
    assert found["status"] == "fail" and "missing" in found["text"] and "--force-reinstall" in found["hint"], found


def test_the_wheel_without_files_is_no_clash(site, tmp_path):
    build = REPO / "packaging" / "mooncake-transfer-engine" / "build.py"
    made = subprocess.run([sys.executable, str(build), str(tmp_path)], capture_output=True, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(made) as wheel:
        wheel.extractall(site)
    found = doctor(site)
    assert found["status"] == "ok" and found["text"].endswith("mooncake-transfer-engine 0.3.14 without files stands for it"), found
