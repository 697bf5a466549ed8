"""A router for vLLM engines that prefill and engines that decode: `python -m mooncake.vllm_v1_proxy_server`.

A request goes to the next prefill engine first, for one token and the parameters of its KV transfer, and with these
parameters to the next decode engine, whose answer is passed on as it comes. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from mooncake._http import HttpError, HttpServer, Request, Response, Route, Streamed, body_pieces, read_headers

logger = logging.getLogger(__name__)

#: Bytes of a request's body: prompts with images are long.
BODY_LIMIT = 100 << 20
#: What asks a prefill engine to keep the KV blocks for another engine.
KEEP_FOR_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


@dataclass(frozen=True)
class Engine:
    """Where an engine listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Proxy:
    """The router: engines of both kinds, each kind taken in turn."""

    def __init__(self, prefillers: Sequence[Engine], decoders: Sequence[Engine]):
        self._counts = {"prefill_instances": len(prefillers), "decode_instances": len(decoders)}
        self._prefillers, self._decoders = itertools.cycle(prefillers), itertools.cycle(decoders)
        self.server = HttpServer(
            [
                Route("POST", "/v1/completions", self.handle_completions),
                Route("POST", "/v1/chat/completions", self.handle_completions),
                Route("GET", "/healthcheck", self.healthcheck),
            ],
            BODY_LIMIT,
        )

    async def healthcheck(self, request: Request) -> Response:
        """GET /healthcheck: the router lives, and how many engines it knows."""
        del request
        return Response.json({"status": "ok", **self._counts})

    async def handle_completions(self, request: Request) -> Streamed:
        """POST /v1/completions, /v1/chat/completions.

        400 for a body that is no JSON object; 502 when an engine cannot be reached; what an engine refuses is passed on
        with its status.
        """
        try:
            wanted = await request.json()
        except ValueError as error:
            raise HttpError(400, f"the body is not JSON: {error}") from error
        if not isinstance(wanted, dict):
            raise HttpError(400, "the body has to be a JSON object")
        request_id = request.headers.get("x-request-id") or str(uuid.uuid4())
        asked = await _ask(next(self._prefillers), request.path, prefill_form(wanted), request_id)
        if asked.status != 200:
            return Streamed(asked.pieces, asked.status, asked.content_type)
        parameters = await _kv_parameters(asked)
        if parameters:
            wanted["kv_transfer_params"] = parameters
        answer = await _ask(next(self._decoders), request.path, wanted, request_id)
        return Streamed(answer.pieces, answer.status, answer.content_type)


def prefill_form(wanted: dict[str, Any]) -> dict[str, Any]:
    """The request for a prefill engine: one token, not streamed, blocks kept."""
    form = wanted | {"kv_transfer_params": dict(KEEP_FOR_DECODE), "stream": False, "max_tokens": 1}
    form.pop("stream_options", None)
    if "max_completion_tokens" in form:
        form["max_completion_tokens"] = 1
    return form


@dataclass
class _Asked:
    """The beginning of an engine's answer, and the rest as it comes."""

    status: int
    content_type: str
    pieces: AsyncGenerator[bytes, None]


async def _kv_parameters(asked: _Asked) -> Any:
    """The parameters of the KV transfer in a prefill engine's answer."""
    body = b"".join([piece async for piece in asked.pieces])
    try:
        return json.loads(body).get("kv_transfer_params")
    except (ValueError, AttributeError) as error:
        raise HttpError(502, "the prefill engine's answer is no JSON object") from error


async def _ask(engine: Engine, path: str, payload: dict[str, Any], request_id: str) -> _Asked:
    """Sends a request to an engine and reads the head of its answer. Engines think long, so nothing here times out."""
    try:
        reader, writer = await asyncio.open_connection(engine.host, engine.port)
    except OSError as error:
        raise HttpError(502, f"engine {engine} cannot be reached: {error}") from error
    try:
        writer.write(_request(engine, path, payload, request_id))
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        headers = await read_headers(reader)
    except (OSError, ValueError, IndexError) as error:
        writer.close()
        raise HttpError(502, f"engine {engine} gave no HTTP answer: {error}") from error
    return _Asked(status, headers.get("content-type", "application/json"), _relayed(reader, writer, headers))


def _request(engine: Engine, path: str, payload: dict[str, Any], request_id: str) -> bytes:
    body = json.dumps(payload).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {engine}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-Request-Id: {request_id}",
        "Connection: close",
    ]
    if key := os.environ.get("OPENAI_API_KEY"):
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def _relayed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in body_pieces(reader, headers, None):
            yield piece
    finally:
        writer.close()


def parse_args() -> argparse.Namespace:
    """The command line; as many ports as hosts of each kind."""
    parser = argparse.ArgumentParser(prog="vllm_v1_proxy_server", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    for kind, port in (("prefiller", 8100), ("decoder", 8200)):
        parser.add_argument(f"--{kind}-hosts", f"--{kind}-host", nargs="+", default=["localhost"])
        parser.add_argument(f"--{kind}-ports", f"--{kind}-port", nargs="+", type=int, default=[port])
    arguments = parser.parse_args()
    for kind in ("prefiller", "decoder"):
        if len(getattr(arguments, f"{kind}_hosts")) != len(getattr(arguments, f"{kind}_ports")):
            parser.error(f"--{kind}-hosts and --{kind}-ports have to be as many")
    return arguments


async def main(arguments: argparse.Namespace) -> None:
    """Serves until it is cancelled."""
    proxy = Proxy(
        [Engine(*place) for place in zip(arguments.prefiller_hosts, arguments.prefiller_ports)],
        [Engine(*place) for place in zip(arguments.decoder_hosts, arguments.decoder_ports)],
    )
    try:
        port = await proxy.server.start(arguments.host, arguments.port)
    except OSError as error:
        sys.exit(f"vllm_v1_proxy_server cannot listen at {arguments.host}:{arguments.port}: {error.strerror or error}")
    logger.info("serving on http://%s:%d", arguments.host, port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(main(parse_args()))
    except KeyboardInterrupt:
        pass
