"""The router for vLLM: what it asks of the engines, and how their answers come back, under both kinds of failure."""

import http.server
import json
import threading

import pytest
from http_calls import ask
from pool import OURS, installation
from processes import Process, free_port, listens, wait_until

KEEP = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}


class Engine:
    """An engine that answers what the test wants and keeps what it was asked."""

    def __init__(self, name):
        self.name, self.asked, self.status = name, [], 200
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.asked.append((self.path, body, dict(self.headers)))
                if body.get("stream"):
                    self.stream()
                else:
                    self.whole()

            def whole(self):
                answer = {"from": engine.name, "kv_transfer_params": {"blocks": engine.name}}
                payload = json.dumps(answer).encode()
                self.send_response(engine.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def stream(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for number in range(3):
                    piece = b"data: %d\n\n" % number
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(name="engines")
def engines_fixture():
    made = [Engine("p0"), Engine("p1"), Engine("d0")]
    yield made
    for engine in made:
        engine.server.shutdown()
        engine.server.server_close()


def start(prefillers, decoders, env=None):
    """A router in front of engines, and its port."""
    port, place = free_port(), installation(OURS)
    hosts = lambda kind, ports: [f"--{kind}-hosts", *["127.0.0.1"] * len(ports), f"--{kind}-ports", *map(str, ports)]  # noqa: E731
    command = [str(place.python), "-m", "mooncake.vllm_v1_proxy_server", f"--port={port}"]
    command += [*hosts("prefiller", prefillers), *hosts("decoder", decoders)]
    router = Process("vllm-router", command, place.environment() | (env or {}))
    wait_until("the router to listen", lambda: router.must_run() or listens(port))
    return router, port


@pytest.fixture(name="port")
def port_fixture(need, engines):
    need(OURS)
    router, port = start([engines[0].port, engines[1].port], [engines[2].port], {"OPENAI_API_KEY": "secret"})
    yield port
    router.stop()


def test_a_request_is_prefilled_then_decoded(port, engines):
    request = {"prompt": "hi", "max_tokens": 20}
    reply = ask(port, "POST", "/v1/completions", request, {"X-Request-Id": "7"})
    assert (reply.status, reply.json()["from"]) == (200, "d0")
    path, prefill, headers = engines[0].asked[0]
    assert path == "/v1/completions"
    assert prefill == request | {"max_tokens": 1, "stream": False, "kv_transfer_params": KEEP}
    assert (headers["X-Request-Id"], headers["Authorization"]) == ("7", "Bearer secret")
    assert engines[2].asked[0][1] == request | {"kv_transfer_params": {"blocks": "p0"}}


def test_engines_take_turns_and_chat_works_too(port, engines):
    for _ in range(4):
        request = {"messages": [], "max_completion_tokens": 9}
        assert ask(port, "POST", "/v1/chat/completions", request).status == 200
    assert [len(engine.asked) for engine in engines] == [2, 2, 4]
    path, prefill, _ = engines[1].asked[0]
    assert path == "/v1/chat/completions" and prefill["max_completion_tokens"] == 1


def test_a_stream_is_passed_on(port, engines):
    request = {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}}
    reply = ask(port, "POST", "/v1/completions", request)
    assert (reply.status, reply.content_type) == (200, "text/event-stream")
    assert reply.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert "stream_options" not in engines[0].asked[0][1] and engines[0].asked[0][1]["stream"] is False


def test_refusals_come_back(port, engines):
    engines[0].status = engines[1].status = 429
    assert ask(port, "POST", "/v1/completions", {"prompt": "x"}).status == 429
    assert engines[2].asked == []
    engines[0].status = engines[1].status = 200
    engines[2].status = 503
    reply = ask(port, "POST", "/v1/completions", {"prompt": "x"})
    assert (reply.status, reply.json()["from"]) == (503, "d0")


def test_mistakes_of_the_client(port, engines):
    assert ask(port, "POST", "/v1/completions", b"xx").status == 400
    assert ask(port, "POST", "/v1/completions", [1]).status == 400
    assert ask(port, "GET", "/v1/completions").status == 405
    assert ask(port, "GET", "/v1/models").status == 404
    assert engines[0].asked == []


def test_health_and_an_engine_that_is_not_there(need, engines):
    need(OURS)
    router, port = start([engines[0].port], [free_port(), free_port()])
    try:
        health = {"status": "ok", "prefill_instances": 1, "decode_instances": 2}
        assert ask(port, "GET", "/healthcheck").plain() == [200, health]
        reply = ask(port, "POST", "/v1/completions", {"prompt": "x"})
        assert reply.status == 502 and "cannot be reached" in reply.json()["error"]
        assert "Authorization" not in engines[0].asked[0][2]
    finally:
        router.stop()
