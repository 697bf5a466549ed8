"""The store over HTTP: what the peer's service answers, and what is there beyond it."""

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from http_calls import ask
from pool import OURS, Pool, installation
from processes import Process, free_port, listens, wait_until

ROOT = Path(__file__).parents[2]
WHEEL = "0.3.13.post1"

#: Name of the request to why ours answers otherwise; docs/store-service.md has the same list for users.
INTENDED = {
    "put of a number": "a mistake of the client: 400",
    "put broken JSON": "a mistake of the client: 400",
    "put of a list": "a mistake of the client: 400",
    "put an empty text": "the store's -600: 400",
    "get a key with a slash": "keys may have any characters",
    "remove a missing key": "404",
    "remove a key that was just read": "409",
    "an unknown path": "JSON",
    "a wrong method": "JSON",
}
#: Name, method, path, body.
REQUESTS = [
    ("put", "PUT", "/api/put", {"key": "k", "value": "hello"}),
    ("put again", "PUT", "/api/put", {"key": "k", "value": "other"}),
    ("get", "GET", "/api/get/k", None),
    ("get a missing key", "GET", "/api/get/missing", None),
    ("exist", "GET", "/api/exist/k", None),
    ("exist not", "GET", "/api/exist/missing", None),
    ("put other letters", "PUT", "/api/put", {"key": "schlüssel 1", "value": "größe"}),
    ("get other letters", "GET", "/api/get/schl%C3%BCssel%201", None),
    ("put a key with a slash", "PUT", "/api/put", {"key": "a/b", "value": "slash"}),
    ("get a key with a slash", "GET", "/api/get/a/b", None),
    ("put without a key", "PUT", "/api/put", {"value": "v"}),
    ("put an empty key", "PUT", "/api/put", {"key": "", "value": "v"}),
    ("put without a value", "PUT", "/api/put", {"key": "k2"}),
    ("put of a number", "PUT", "/api/put", {"key": "k2", "value": 5}),
    ("put broken JSON", "PUT", "/api/put", b"{"),
    ("put of a list", "PUT", "/api/put", [1]),
    ("put an empty text", "PUT", "/api/put", {"key": "k2", "value": ""}),
    ("put for removal", "PUT", "/api/put", {"key": "r", "value": "v"}),
    ("remove", "DELETE", "/api/remove/r", None),
    ("remove a missing key", "DELETE", "/api/remove/r", None),
    ("read before removal", "GET", "/api/get/k", None),
    ("remove a key that was just read", "DELETE", "/api/remove/k", None),
    ("mount no size", "POST", "/api/mount", {}),
    ("mount size 0", "POST", "/api/mount", {"size": 0}),
    ("mount size as text", "POST", "/api/mount", {"size": "16"}),
    ("unmount nothing", "POST", "/api/unmount", {}),
    ("mount_shm without size", "POST", "/api/mount_shm", {"name": "x"}),
    ("mount_shm with a path", "POST", "/api/mount_shm", {"name": "../x", "size": 4096}),
    ("unmount_shm nothing", "POST", "/api/unmount_shm", {"segment_ids": []}),
    ("unmount_local_disk for too long", "POST", "/api/unmount_local_disk", {"grace_period_seconds": 3601}),
    ("reconfigure to nothing", "POST", "/api/reconfigure", {"mode": "x"}),
    ("reconfigure without path", "POST", "/api/reconfigure", {"mode": "decode", "size": 4096}),
    ("reconfigure to prefill", "POST", "/api/reconfigure", {"mode": "prefill"}),
    ("an unknown path", "GET", "/api/nothing", None),
    ("a wrong method", "POST", "/api/put", {"key": "k", "value": "v"}),
]


class Service:
    """A service process of either package."""

    def __init__(self, kind, master, *arguments, env=None):
        place, self.port = installation(kind), free_port()
        settings = {"MOONCAKE_MASTER": master, "MOONCAKE_GLOBAL_SEGMENT_SIZE": "0", "MOONCAKE_LOCAL_BUFFER_SIZE": "16MB"}
        command = [str(place.program("mc_store_rest_server")), f"--port={self.port}", *arguments]
        self.process = Process(f"rest-{kind}", command, place.environment() | settings | (env or {}))
        wait_until(f"the {kind} service to listen", lambda: self.process.must_run() or listens(self.port))

    def ask(self, method, path, body=None, headers=None):
        return ask(self.port, method, path, body, headers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stop()


@pytest.fixture(scope="module", name="master")
def master_fixture(need):
    """`host:port` of a master of ours with a node."""
    need(OURS, program=True)
    with Pool() as pool:
        pool.start_master(OURS)
        pool.start_node(OURS, size_mib=256)
        yield f"127.0.0.1:{pool.port}"


@pytest.fixture(scope="module", name="service")
def service_fixture(master):
    with Service(OURS, master) as service:
        yield service


def test_the_answers_are_the_peers_but_for_the_intended_differences(need):
    need(WHEEL, OURS)
    answers = {}
    for kind in (WHEEL, OURS):
        with Pool() as pool:
            pool.start_master(WHEEL)
            pool.start_node(WHEEL, size_mib=64)
            with Service(kind, f"127.0.0.1:{pool.port}") as service:
                answers[kind] = {name: service.ask(*request).plain() for name, *request in REQUESTS}
    ours, theirs = answers[OURS], answers[WHEEL]
    different = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    assert {name: pair for name, pair in different.items() if name not in INTENDED} == {}, "request: (ours, the peer's)"
    assert sorted(different) == sorted(INTENDED), "a difference that is listed but gone"


def test_the_documentation_lists_every_difference():
    page = (ROOT / "docs" / "store-service.md").read_text()
    assert [name for name in INTENDED if f"`{name}`" not in page] == []


def test_bytes_under_any_key(service):
    value = bytes(range(256)) * 16
    for key in ("bytes", "a/b%2Fc", "%C3%BC%20", "x%3Fy%23z"):
        assert service.ask("PUT", f"/api/put/{key}", value).plain() == [200, {"status": "success"}]
        reply = service.ask("GET", f"/api/get/{key}")
        assert (reply.status, reply.content_type, reply.body) == (200, "application/octet-stream", value)
        assert service.ask("GET", f"/api/exist/{key}").json() == {"exists": True}
        assert service.ask("DELETE", f"/api/remove/{key}?force=true").status == 200
        assert service.ask("GET", f"/api/exist/{key}").json() == {"exists": False}


def test_errors_have_the_stores_number_and_words(service):
    service.ask("PUT", "/api/put/leased", b"v")
    service.ask("GET", "/api/get/leased")
    reply = service.ask("DELETE", "/api/remove/leased")
    assert (reply.status, reply.json()["code"]) == (409, -706) and reply.json()["detail"]
    assert service.ask("DELETE", "/api/remove_all?force=1").json()["status"].startswith("success removed ")


def test_health_head_and_the_description(service):
    assert service.ask("GET", "/health").plain() == [200, {"status": "healthy"}]
    assert service.ask("HEAD", "/health").body == b""
    assert service.ask("GET", "/openapi.json").json()["openapi"].startswith("3.")


def test_the_description_has_every_route(need, service):
    need(OURS)
    code = (
        "import json; from mooncake.mooncake_store_service import MooncakeStoreService as S\n"
        "service = S.__new__(S); print(json.dumps([[r.path, r.method.lower()] for r in service.routes()]))"
    )
    run = subprocess.run([str(installation(OURS).python), "-c", code], capture_output=True, text=True, check=True)
    paths = service.ask("GET", "/openapi.json").json()["paths"]
    described = sorted([path, method] for path, methods in paths.items() for method in methods)
    assert described == sorted(json.loads(run.stdout))
    for path, methods in paths.items():
        for operation in methods.values():
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == ({"key"} if "{key}" in path else set()) and operation["responses"] and operation["summary"]


def test_many_clients_at_once(service):
    def round_trip(number):
        value = bytes([number]) * 50_000
        assert service.ask("PUT", f"/api/put/many/{number}", value).status == 200
        return service.ask("GET", f"/api/get/many/{number}").body == value

    with ThreadPoolExecutor(16) as executor:
        assert all(executor.map(round_trip, range(64)))


def raw(port, data):
    """What comes back for bytes that no client library would send."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.mark.parametrize("data, status", [
    (b"nonsense\r\n\r\n", b" 400 "),
    (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", b" 400 "),
    (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b" 431 "),
    (b"PUT /api/put/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b" 400 "),
    (b"PUT /api/put/k HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", b" 413 "),
    (b"PUT /api/put/k HTTP/1.1\r\nContent-Length: 200\r\n\r\nnot all of it", b""),
    (b"PUT /api/put/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
    (b"PUT /api/put/chunks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b" 200 "),
    (b"GET /health HTTP/1.0\r\n\r\n", b" 200 "),
    (b"GET /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n", b" 200 "),
])
def test_requests_that_are_odd_or_broken(service, data, status):
    answer = raw(service.port, data)
    assert (status in answer.split(b"\r\n")[0]) if status else answer == b""
    assert service.ask("GET", "/health").status == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(service):
    head = b"PUT /api/put/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    limit = 100 << 20
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(head)
        chunk = b"x" * (4 << 20)
        try:
            for _ in range(limit // len(chunk) + 1):
                connection.sendall(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b"HTTP/1.1 413 "
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_token_is_asked_for(master):
    with Service(OURS, master, env={"YB_REST_TOKEN": "secret"}) as service:
        assert service.ask("GET", "/health").status == 200, "probes have no token"
        assert service.ask("GET", "/api/exist/k").status == 401
        assert service.ask("GET", "/api/exist/k", headers={"Authorization": "Bearer other"}).status == 401
        assert service.ask("GET", "/api/exist/k", headers={"Authorization": "Bearer secret"}).status == 200


@pytest.mark.parametrize("name", ["YB_REST_TOKEN", "YUEBING_ADMIN_TOKEN", "YUEBING_ADMIN_TOKEN_FILE"])
def test_a_token_that_is_empty_opens_nothing(master, name):
    done = start("--max-wait-time=60", MOONCAKE_MASTER=master, **{name: ""})
    assert done.returncode == 1 and f"{name} is set, but empty" in done.stderr, done.stderr


#: A request of each kind that changes something.
CHANGES = [
    ("PUT", "/api/put", {"key": "t", "value": "v"}), ("PUT", "/api/put/t", b"v"), ("DELETE", "/api/remove/t", None),
    ("DELETE", "/api/remove_all", None), ("POST", "/api/reconfigure", {"mode": "prefill"}),
]


@pytest.mark.parametrize("as_file", [False, True], ids=["variable", "file"])
def test_what_changes_something_needs_the_admin_token(master, tmp_path, as_file):
    (tmp_path / "token").write_text("a token\nnot this\n")
    env = {"YUEBING_ADMIN_TOKEN_FILE": str(tmp_path / "token")} if as_file else {"YUEBING_ADMIN_TOKEN": "a token"}
    with Service(OURS, master, env=env) as service:
        for request in CHANGES:
            for wrong in ({}, {"Authorization": "Bearer not this"}, {"Authorization": "a token"}):
                assert service.ask(*request, headers=wrong).status == 401, request
        assert service.ask("PUT", "/api/put/t", b"v", headers={"Authorization": "Bearer a token"}).status == 200
        assert service.ask("GET", "/api/get/t").body == b"v"
        assert "a token" not in service.process.log.read_text().replace("need a token", "")


def test_without_a_token_this_host_changes_something_and_no_page_of_somebody_else(service):
    for other in ("http://evil.example", "null", ""):
        for request in CHANGES:
            assert service.ask(*request, headers={"Origin": other}).status == 403, (request, other)
        assert service.ask("GET", "/health", headers={"Origin": other}).status == 200
    own = {"Origin": f"http://127.0.0.1:{service.port}"}
    assert service.ask("PUT", "/api/put/own", b"v", headers=own).status == 200
    assert "loopback address only" in service.process.log.read_text()


def python(code, **env):
    """What a piece of Python prints under our package."""
    place = installation(OURS)
    command = [str(place.python), "-c", code]
    run = subprocess.run(command, env=place.environment() | env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_other_hosts_read_and_change_nothing(need):
    need(OURS)
    code = (
        "from mooncake._access import Access; from mooncake._http import HttpError, Request\n"
        "def status(access, method, peer):\n"
        "    try: access.check(Request(method, '/', {}, {}, peer=peer)); return 200\n"
        "    except HttpError as error: return error.status\n"
        "peers = ['127.0.0.1', '::1', '::ffff:127.0.0.1', '10.0.0.1', 'fe80::1%eth0', '::ffff:10.0.0.1', '']\n"
        "for access in (Access(), Access(change='t'), Access(every='t')):\n"
        "    for method in ('GET', 'HEAD', 'PUT', 'PATCH'): print(*(status(access, method, peer) for peer in peers))"
    )
    here, away = "200 200 200", "403 403 403 403"
    reads, changes = " ".join(["200"] * 7), f"{here} {away}"
    refused = " ".join(["401"] * 7)
    wanted = [reads, reads, changes, changes, reads, reads, refused, refused, *[refused] * 4]
    assert python(code).splitlines() == wanted


def test_a_token_that_cannot_be_read_is_no_start(need, tmp_path):
    need(OURS)
    (tmp_path / "empty").write_text("\n")
    for env, words in [
        ({"YUEBING_ADMIN_TOKEN_FILE": "/nonexistent"}, "/nonexistent"),
        ({"YUEBING_ADMIN_TOKEN_FILE": str(tmp_path / "empty")}, "is empty"),
        ({"YUEBING_ADMIN_TOKEN": "a", "YUEBING_ADMIN_TOKEN_FILE": str(tmp_path / "empty")}, "are both set"),
    ]:
        done = start(**env)
        assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_master_of_this_host_and_half_a_gibibyte_are_the_defaults(need, tmp_path):
    need(OURS)
    (tmp_path / "c.json").write_text(json.dumps(
        {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "file:1"}))
    code = (
        "import sys; from mooncake.mooncake_store_service import MooncakeStoreService as S\n"
        "c = S(sys.argv[1] if len(sys.argv) > 1 else None, {}).config; print(c.master_server_address, c.global_segment_size)"
    )
    half = 512 << 20
    none = {"MOONCAKE_MASTER": "", "MOONCAKE_CONFIG_PATH": None}
    for env, wanted in [
        (none, f"127.0.0.1:50051 {half}"),
        ({"MOONCAKE_MASTER": "m:7"}, f"m:7 {half}"),
        (none | {"MOONCAKE_GLOBAL_SEGMENT_SIZE": "1GB"}, f"127.0.0.1:50051 {1 << 30}"),
        ({"MOONCAKE_CONFIG_PATH": str(tmp_path / "c.json")}, f"file:1 {half}"),
    ]:
        assert python(code, **{name: value for name, value in env.items() if value is not None}).strip() == wanted


def test_a_setting_that_cannot_work_is_not_tried_again(master):
    done = start("--max-wait-time=60", "-D", "global_segment_size=3XB", MOONCAKE_MASTER=master)
    assert done.returncode != 0 and "global_segment_size '3xb' is not a size" in done.stderr, done.stderr
    assert "tried again" not in done.stderr


def test_what_is_lent_is_said_and_nothing_is_said_twice(master):
    settings = {"MOONCAKE_GLOBAL_SEGMENT_SIZE": "32MB"}
    with Service(OURS, master, env=settings) as service:
        wait_until("the line", lambda: "lends 32 MiB of memory" in service.process.log_tail())
    done = start("--max-wait-time=1.5", MOONCAKE_MASTER=f"127.0.0.1:{free_port()}", MOONCAKE_GLOBAL_SEGMENT_SIZE="0")
    lines = done.stderr.splitlines()
    # Two tries, of each of which the store says why; the service says that it tries, and that it gives up.
    assert sum("Connection refused" in line for line in lines) == 2, done.stderr
    assert sum("setup answered -600" in line for line in lines) == 1 and len(lines) == 4, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(master, number):
    with Service(OURS, master, "-D", "global_segment_size=16MB", "--host=127.0.0.1") as service:
        # A connection that stays open does not hold it up.
        with socket.create_connection(("127.0.0.1", service.port)):
            service.process.child.send_signal(number)
            assert service.process.child.wait(20) == 0


def start(*arguments, **env):
    """A service that is not expected to come up."""
    place = installation(OURS)
    command = [str(place.program("mc_store_rest_server")), f"--port={free_port()}", *arguments]
    return subprocess.run(
        command, env=place.environment() | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_what_cannot_start_says_why(need, master):
    need(OURS)
    cases = [
        (start("-D", "nothing", MOONCAKE_MASTER=master), "NAME=VALUE"),
        (start("--config", "/nonexistent.json"), "/nonexistent.json"),
        (start("--max-wait-time=1", MOONCAKE_MASTER=f"127.0.0.1:{free_port()}"), "setup answered -600"),
        (start("--max-wait-time=1", "-D", "protocol=pigeon", MOONCAKE_MASTER=master), "pigeon"),
        (start("--max-wait-time=1", "-D", f"master_server_address=127.0.0.1:{free_port()}"), "setup answered -600"),
    ]
    for done, words in cases:
        assert done.returncode != 0 and words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_a_setting_that_is_none_is_named(need, master):
    need(OURS)
    with Service(OURS, master, "-D", "tenant=x", "-D", "global_segment_size=0") as service:
        assert "there is no setting tenant" in service.process.log_tail()


def test_one_address_does_not_keep_the_others_out(need):
    need(OURS, program=True)
    happened = json.loads(python((ROOT / "tests/python/http_bounds_script.py").read_text()))
    done = "HTTP/1.1 200 OK"
    bodies = happened.pop("bodies that stop")
    assert bodies in ("closed", ["HTTP/1.1 503 Service Unavailable"])
    assert happened == {
        "one too many": "",
        "refused": 1,
        "another, meanwhile": done,
        "the crowd": [""],
        "the greedy, afterwards": done,
        "another, beside bodies that stop": done,
        "in time": True,
        "the greedy, at last": done,
        "a head that trickles": "closed",
        "memory of bodies that stop": "given back",
    }


def test_requests_and_files_that_nobody_should_send(need):
    need(OURS, program=True)
    happened = json.loads(python((ROOT / "tests/python/http_fuzz_script.py").read_text()))
    seen = happened.pop("seen")
    assert happened == {"served": True, "unhandled": [], "surprises": []}
    assert min(seen.get(first, 0) for first in ("", "2", "4")) > 20 and "5" not in seen, seen


def test_a_misspelt_field_is_named(need, tmp_path):
    need(OURS, program=True)
    file = tmp_path / "config.json"
    usual = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"}
    code = (
        "import logging, sys; logging.basicConfig(stream=sys.stdout)\n"
        f"from mooncake.mooncake_config import MooncakeConfig; MooncakeConfig.from_file({str(file)!r})"
    )
    file.write_text(json.dumps(usual | {"global_segment_sise": "1GB", "prefill_url": "a connector's"}))
    said = python(code)
    assert said.count("\n") == 1 and "did you mean 'global_segment_size'" in said
    file.write_text(json.dumps(usual | {"global_segment_size": "1GB"}))
    assert python(code) == ""
