"""Our package on a machine that has nothing but the C library and a Python, for a user who may do nothing."""

import os
import re

import bare
import pytest
from pool import OURS
from wheels import check_wheel

#: Between the user and his own machine stands nobody, whatever the environment says.
PROXY = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "all")}
PROXIES = {**PROXY, **{name.upper(): value for name, value in PROXY.items()}}


@pytest.fixture(scope="module", name="made")
def made_fixture(need, tmp_path_factory):
    """Makes machines."""
    need(OURS, program=True)
    if reason := bare.reason_against():
        # What a machine's kernel refuses is like hardware that it lacks.
        pytest.skip(f"no bare machine can be made here: {reason}")
    return lambda baits=(): bare.BareMachine(tmp_path_factory.mktemp("bare"), baits)


@pytest.fixture(scope="module", name="baited")
def baited_fixture(made):
    return made(bare.BAITS)


@pytest.mark.parametrize(("environment", "ipv6_only"), [
    ({}, False),
    ({**PROXIES, "LC_ALL": "C", "LANG": "C"}, False),
    ({"LC_ALL": "C"}, True),
], ids=["nothing set", "proxy and locale C", "IPv6 only"])
def test_a_pool_works_with_what_is_set_by_itself(baited, environment, ipv6_only):
    baited.watch.opened()
    report = baited.run("serve", environment=environment, ipv6_only=ipv6_only)
    assert baited.watch.opened() == [], "hardware or libraries of hardware were looked for, though nobody asked"
    assert report["setup"] == [0, ""] and report["put"] == 0 and report["right"]
    assert report["stat"]["code"] == 0 and '"bytes":1024' in report["stat"]["out"], report["stat"]
    assert report["ls"] == {"code": 0, "out": "key\n", "error": ""}
    assert report["left"] == [0, 0] and report["close"] == 0
    assert report["log"] == ""
    for log in (report["master"], report["node"]):
        # The only node of its pool leaves with what it holds, and says so.
        said = [line for line in log.splitlines() if "not all was moved to other nodes" not in line]
        assert not re.search(r"\b(ERROR|WARN)\b", "\n".join(said)), log
    # What the master itself uses, which a busy machine does not stretch.
    assert report["start_processor_seconds"] < 2 and report["import_seconds"] < 0.3, report
    assert report["idle_bytes"] < 50 << 20, report


def test_what_cannot_be_had_is_refused_with_its_reason(made):
    report = made().run("refuse")
    node = report["node_with_rdma"]
    reasons = [line for line in (node["out"] + node["error"]).splitlines() if "rdma" in line.lower()]
    assert node["code"] != 0 and len(reasons) == 1, node
    code, reason = report["client_with_rdma"]
    assert code == -600 and "rdma" in reason, report["client_with_rdma"]
    doctor = report["doctor"]
    assert doctor["code"] == 0, doctor
    for told in (r"ok +advertised +127\.0\.0\.1", r"ok +free-memory .*available", r"ok +python-packages +mooncake is yuebing \d",
                 r"ok +versions +.*\d+\.\d+", r"ok +rdma +no RDMA device", r"^yes: "):
        assert re.search(told, doctor["out"], flags=re.M), (told, doctor["out"])


def test_nothing_but_the_c_library_is_linked(baited):
    check = check_wheel()
    assert len(baited.binaries()) == 2
    for binary in baited.binaries():
        needed = set(check.read_elf(binary.read_bytes()).needed)
        assert needed <= check.EVERYWHERE, f"{binary.name}: {needed - check.EVERYWHERE}"


def test_a_bait_that_is_taken_is_seen(tmp_path):
    (tmp_path / "libibverbs.so.1").touch()
    watch = bare.Watch([tmp_path, tmp_path / "libibverbs.so.1"])
    assert watch.opened() == []
    (tmp_path / "libibverbs.so.1").read_bytes()
    os.listdir(tmp_path)
    assert watch.opened() == [tmp_path, tmp_path / "libibverbs.so.1"]
