"""The admin port of our master beside those of the peer's masters: same paths, codes, shapes, error bodies and metrics.

Every difference that is meant has its name and its reason in `DIFFERENCES`; `docs/admin.md` tells them to users.
"""

from __future__ import annotations

import http.client
import json
import re
from urllib.parse import quote

import pytest
from pool import OURS, Pool

WHEELS = ("0.3.13.post1", "0.3.14")
CLIENT = "0.3.13.post1"
KEYS = ["a", "b/c", "x y", "a,b", "p%q", "é", "a&b", "a+b"]

#: Requests that both answer alike: method, path (`SEG` is the name of the segment, `ENC` the same percent-encoded), body.
ALIKE = [
    ("GET", "/health", None),
    ("GET", "/role", None),
    ("GET", "/ha_status", None),
    ("GET", "/leader", None),
    ("GET", "/query_key?key=a", None),
    ("GET", "/query_key?key=", None),
    ("GET", "/query_key", None),
    ("GET", "/query_key?key=nope", None),
    ("GET", "/batch_query_keys?keys=a,nope,a", None),
    ("GET", "/batch_query_keys?keys=", None),
    ("GET", "/batch_query_keys", None),
    ("GET", "/batch_query_keys?keys=a,,b%2Fc", None),
    ("GET", "/batch_query_keys?keys=a%2Cb", None),
    ("GET", "/batch_query_keys?keys=x%20y", None),
    ("GET", "/batch_query_keys?keys=%C3%A9", None),
    ("GET", "/get_all_segments", None),
    ("GET", "/get_segments_detail", None),
    ("GET", "/query_segment?segment=SEG", None),
    ("GET", "/query_segment?segment=no", None),
    ("GET", "/query_segment", None),
    ("GET", "/api/v1/segments/status", None),
    ("GET", "/api/v1/segments/status?segment=", None),
    ("GET", "/api/v1/segments/status?segment=SEG", None),
    ("GET", "/api/v1/segments/status?segment=ENC", None),
    ("GET", "/api/v1/segments/status?segment=no", None),
    ("GET", "/api/v1/tenant_quotas", None),
    ("GET", "/api/v1/tenant_quotas?tenant_id=default", None),
    ("DELETE", "/api/v1/tenant_quotas?tenant_id=t1", None),
    ("GET", "/api/v1/drain_jobs", None),
    ("POST", "/api/v1/drain_jobs", "{}"),
    ("POST", "/api/v1/drain_jobs", '{"segments":["nope"]}'),
    ("GET", "/api/v1/drain_jobs/query", None),
    ("GET", "/api/v1/drain_jobs/query?job_id=x", None),
    ("GET", "/api/v1/drain_jobs/query?job_id=1-2", None),
    ("POST", "/api/v1/drain_jobs/cancel", None),
    ("POST", "/api/v1/drain_jobs/cancel?job_id=x", None),
    ("POST", "/api/v1/drain_jobs/cancel?job_id=1-2", None),
    ("PUT", "/api/v1/tenant_quotas", '{"requested_quota_bytes":1000}'),
    ("PUT", "/api/v1/tenant_quotas?tenant_id=t1", '{"requested_quota_bytes":1000}'),
    ("PUT", "/api/v1/tenant_quotas?tenant_id=t1", '{"requested_quota_bytes":0}'),
    ("PUT", "/api/v1/tenant_quotas?tenant_id=t1", "{}"),
    ("DELETE", "/api/v1/tenant_quotas", None),
    ("GET", "/nowhere", None),
    ("POST", "/health", None),
    ("GET", "/api/v1/remove_all", None),
]

#: What ours answers otherwise, and why.
DIFFERENCES = [
    ("GET", "/query_key?key=b%2Fc", None, "percent-decoded everywhere; the peer looks for the undecoded text"),
    ("GET", "/query_segment?segment=ENC", None, "percent-decoded everywhere"),
    ("HEAD", "/metrics", None, "HEAD is answered; the peer says 404"),
    ("HEAD", "/health", None, "HEAD is answered; the peer says 404"),
    ("GET", "/", None, "the status page"),
    ("GET", "/openapi.json", None, "the endpoints described"),
    ("GET", "/batch_query_keys?keys=x+y", None, "+ is a plus sign everywhere; the peer reads a blank here, a plus sign elsewhere"),
]


def ask(port: int, method: str, path: str, body: str | None = None):
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body=body)
    answer = connection.getresponse()
    return answer.status, answer.getheader("content-type"), answer.read().decode()


def shape(value, key: str = ""):
    """JSON with the values replaced that differ between two masters: addresses, ids, sizes."""
    if isinstance(value, dict):
        return {k: shape(v, k) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [shape(item, key) for item in value]
    if key in ("error_code", "error_message", "success", "ok", "error", "status", "status_name", "size_", "total_segments",
               "protocol", "protocol_", "size_bytes", "size_human", "allocator_capacity_bytes"):
        return value
    # A whole number may be written as one, or with a point.
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def seen(answer, segment: str):
    """An answer in a form that can be compared."""
    status, kind, body = answer
    body = body.replace(segment, "SEG")
    if body and kind and kind.startswith("application/json"):
        return status, kind, shape(json.loads(body))
    return status, kind if body != "404 Not Found" else None, re.sub(r"\d+", "N", body)


class Side:
    """A master with one client of the peer that lends a segment and stored some keys."""

    def __init__(self, kind: str):
        self.pool = Pool()
        self.pool.start_master(kind)
        self.client = self.pool.start_client(CLIENT, segment_mib=64, buffer_mib=16)
        (self.segment,) = self.pool.segment_names()
        for at, key in enumerate(KEYS):
            assert self.client.ask("put", key, [at, 100]) == 0

    def ask(self, method: str, path: str, body: str | None = None):
        path = path.replace("SEG", self.segment).replace("ENC", quote(self.segment, safe=""))
        return ask(self.pool.metrics_port, method, path, body)


@pytest.fixture(scope="module", params=WHEELS)
def sides(request, need):
    need(request.param, CLIENT, program=True)
    theirs = Side(request.param)
    ours = Side(OURS)
    yield theirs, ours
    theirs.pool.close()
    ours.pool.close()


def test_answers_are_alike(sides):
    theirs, ours = sides
    for method, path, body in ALIKE:
        expected, got = (seen(side.ask(method, path, body), side.segment) for side in (theirs, ours))
        assert got == expected, f"{method} {path}"


@pytest.mark.parametrize("method, path", [("POST", "/api/v1/drain_jobs"), ("PUT", "/api/v1/tenant_quotas?tenant_id=t1")])
def test_bodies_that_are_no_json_are_refused_alike(sides, method, path):
    theirs, ours = (side.ask(method, path, "{") for side in sides)
    assert ours[:2] == theirs[:2]
    for _, _, body in (theirs, ours):
        answer = json.loads(body)
        assert answer["error_message"].startswith("Invalid JSON body: ") and answer["error_code"] == -600


def test_differences_are_those_that_are_named(sides):
    theirs, ours = sides
    for method, path, body, reason in DIFFERENCES:
        expected, got = (seen(side.ask(method, path, body), side.segment) for side in (theirs, ours))
        assert got != expected, f"{method} {path} is no difference any more: {reason}"
        assert got[0] == 200, f"{method} {path}: {reason}"


def test_events_status_has_the_fields_of_both_generations(sides):
    theirs, ours = sides
    expected, got = (json.loads(side.ask("GET", "/kv_events/status")[2]) for side in (theirs, ours))
    assert expected.items() <= got.items()


def test_key_lists_hold_the_same_keys(sides):
    theirs, ours = sides
    expected, got = (side.ask("GET", "/get_all_keys") for side in (theirs, ours))
    assert got[:2] == expected[:2]
    assert sorted(got[2].splitlines()) == sorted(expected[2].splitlines()) == sorted(KEYS)


def test_every_key_can_be_addressed(sides):
    _, ours = sides
    for key in KEYS:
        status, _, body = ours.ask("GET", f"/query_key?key={quote(key, safe='')}")
        assert status == 200 and json.loads(body)["data"][0]["size_"] == 100, key
        status, _, body = ours.ask("GET", f"/batch_query_keys?key={quote(key, safe='')}")
        assert json.loads(body)["data"][key]["ok"], key
    # A page is as long as about `limit` and tells where to go on.
    found, after = [], "0"
    while after is not None:
        page = json.loads(ours.ask("GET", f"/api/v1/keys?limit=3&after={after}")[2])
        found, after = found + page["keys"], page["next"]
    assert sorted(found) == sorted(key.replace("%", "%25") for key in KEYS)


def test_looking_at_a_key_changes_nothing(sides):
    """The peer grants a lease here; ours does not, so that a curious operator protects nothing from eviction."""
    _, ours = sides
    before = metrics(ours)["total_get_nums_"]
    assert ours.ask("GET", "/query_key?key=a")[0] == 200
    assert metrics(ours)["total_get_nums_"] == before


def metrics(side: Side) -> dict[str, float]:
    """Samples without labels."""
    lines = side.ask("GET", "/metrics")[2].splitlines()
    return {name: float(value) for name, value in (line.split(" ") for line in lines if line[0] != "#" and "{" not in line)}


def families(side: Side) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and label names of every family."""
    status, kind, page = side.ask("GET", "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    labels: dict[str, set[str]] = {}
    for name, text in re.findall(r"^([A-Za-z_:][\w:]*)\{(.*)\} \S+$", page, re.M):
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        family = stem if types.get(stem) == "histogram" else name
        labels.setdefault(family, set()).update(set(re.findall(r'(\w+)="', text)) - {"le"})
    return {name: (kind, frozenset(labels.get(name, ()))) for name, kind in types.items()}


def test_every_metric_of_the_peer_is_there(sides):
    theirs, ours = map(families, sides)
    assert len(theirs) > 100
    for name, what in theirs.items():
        assert ours.get(name) == what, name


def test_numbers_agree_after_the_same_calls(sides):
    theirs, ours = map(metrics, sides)
    same = ("master_key_count", "master_total_capacity_bytes", "master_put_start_requests_total", "mem_cache_nums_",
            "master_put_end_requests_total", "master_mount_segment_requests_total", "master_evicted_key_count")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


def test_the_summary_has_every_field_of_the_peers(sides):
    theirs, ours = (side.ask("GET", "/metrics/summary")[2] for side in sides)
    fields = lambda line: [re.sub(r"[\d.]+|true|false|(?<= )[KMGT]?B\b", "", field) for field in re.findall(r"[\w ().-]+[:=]", line)]
    rest = iter(fields(ours))
    for field in fields(theirs):
        assert field in rest, f"{field!r} is missing or misplaced in {ours}"


def test_remove_all_removes(sides):
    """Last: the other tests need the keys."""
    for side in sides:
        assert side.ask("POST", "/api/v1/remove_all?force=yes")[0] == 200
        assert side.ask("POST", "/api/v1/remove_all?force=true")[0] == 200
        assert side.ask("GET", "/get_all_keys")[2] == ""
    theirs, ours = (seen(side.ask("POST", "/api/v1/remove_all"), side.segment) for side in sides)
    assert ours == theirs
