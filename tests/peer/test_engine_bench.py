"""`transfer_engine_bench` of ours and of the peer's wheel, each as initiator and as target."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from pool import OURS, installation, our_program
from processes import Process, wait_until

WHEEL = "0.3.13.post1"
NAME = "transfer_engine_bench"
LISTENING = re.compile(r"Transfer Engine RPC using P2P handshake, listening on (\S+:\d+)")
COMPLETED = re.compile(r"Test completed: duration ([\d.]+), batch count (\d+), throughput ([\d.]+) (\S+)/s")
#: A line as glog writes it.
GLOG = re.compile(r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] ")


def command(kind: str) -> tuple[Path, dict[str, str]]:
    """The program of that kind, without a launcher, and its environment."""
    if kind == OURS:
        return our_program(NAME), dict(os.environ)
    wheel = installation(kind)
    code = "import mooncake; print(list(mooncake.__path__)[0])"
    found = subprocess.run(
        [str(wheel.python), "-c", code], capture_output=True, text=True, check=True, env=wheel.environment()
    )
    return Path(found.stdout.strip()) / NAME, wheel.environment()


def common(*flags: str) -> list[str]:
    return ["--metadata_server=P2PHANDSHAKE", "--protocol=tcp", "--local_server_name=127.0.0.1", *flags]


class Target:
    """A running target and the name of its segment."""

    def __init__(self, kind: str):
        program, env = command(kind)
        size = ["--buffer_size=67108864", "--threads=2", "--batch_size=16"]
        self.process = Process(f"bench-target-{kind}", [str(program), *common("--mode=target", *size)], env, argv0=NAME)
        said = wait_until("the target to listen", self._listening)
        self.name = said.group(1)

    def _listening(self):
        self.process.must_run()
        text = self.process.log.read_text()
        return LISTENING.search(text) if "DRAM is used" in text else None

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_) -> None:
        self.process.stop()


def initiate(kind: str, target: str, *flags: str) -> subprocess.CompletedProcess:
    program, env = command(kind)
    flags = common("--mode=initiator", f"--segment_id={target}", "--threads=2", "--batch_size=16", "--duration=1",
                   "--buffer_size=67108864", *flags)
    return subprocess.run([NAME, *flags], executable=program, capture_output=True, text=True, env=env, timeout=60)


@pytest.mark.parametrize("initiator, target", [(OURS, WHEEL), (WHEEL, OURS), (OURS, OURS)])
@pytest.mark.parametrize("operation", ["write", "read"])
def test_one_measures_against_the_other(need, initiator, target, operation):
    need(WHEEL, program=True)
    with Target(target) as served:
        verify = ["--verify"] if initiator == OURS else []
        done = initiate(initiator, served.name, f"--operation={operation}", "--block_size=65536", *verify)
        assert done.returncode == 0, done.stderr
        found = COMPLETED.search(done.stderr)
        assert found and int(found.group(2)) > 0 and float(found.group(3)) > 0 and found.group(4) == "GB", done.stderr
        assert done.stderr.count(" stopped!") == 2
        assert len([line for line in done.stderr.splitlines() if GLOG.match(line)]) >= 4
        if verify:
            assert "Verified 32 blocks" in done.stderr
        served.process.must_run()


def test_flags_are_read_as_gflags_reads_them(need):
    need(WHEEL, program=True)
    with Target(OURS) as served:
        done = initiate(OURS, served.name, "-operation", "write", "--noauto_discovery", "--block_size", "4096",
                        "--report_unit=MiB", "-report_precision=4")
        assert done.returncode == 0, done.stderr
        assert re.search(r"throughput \d+\.\d{4} MiB/s", done.stderr)


@pytest.mark.parametrize("flags", [["--bogus=1"], ["--mode=neither"], ["--operation=none"], ["--help"]])
def test_exit_codes_are_those_of_the_peer(need, flags):
    need(WHEEL, program=True)
    assert initiate(OURS, "127.0.0.1:9", *flags).returncode == 1
    # The peer's program now and then dies of SIGSEGV while it ends.
    codes = (initiate(WHEEL, "127.0.0.1:9", *flags).returncode for _ in range(5))
    assert next((code for code in codes if code != -signal.SIGSEGV), None) == 1


def test_a_target_that_is_not_there(need):
    need(program=True)
    done = initiate(OURS, "127.0.0.1:9")
    assert done.returncode == 1
    assert "Unable to get target segment ID, please recheck" in done.stderr
