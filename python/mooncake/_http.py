"""HTTP/1.1 for the package's small servers: requests, answers, routes, and a server on asyncio streams.

Standard library only. A connection is served by one task; requests on it are answered in their order. What a client may
use up is bounded: bytes of a head and of a body, the seconds that each may take, and what `_http_bounds` has.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from mooncake._http_bounds import Bounds, NoRoom

logger = logging.getLogger(__name__)

#: Bytes of a request line with its headers, and of one line of a body in chunks.
HEAD_LIMIT = 1 << 16
#: Seconds without a byte of a body, for a whole head, and for a connection's first byte.
PATIENCE = 10.0
#: Bytes a second that a body or an answer moves at least, beyond the first `PATIENCE`.
LEAST_SPEED = 1 << 20
#: Seconds that a connection may lie idle between requests.
IDLE = 75.0


class HttpError(Exception):
    """A request that gets no further: its status, why, and further headers of the answer."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None):
        super().__init__(why)
        self.status = status
        self.headers = headers or {}

    def response(self) -> Response:
        """What the client gets."""
        return Response(self.status, json.dumps({"error": str(self)}).encode(), headers=self.headers)


@dataclass
class Request:
    """What a client asked for."""

    method: str
    #: Without the query, still percent-encoded.
    path: str
    query: dict[str, str]
    #: Names in lower case.
    headers: dict[str, str]
    body: bytes = b""
    #: The parts of the path that the route names.
    match_info: dict[str, str] = field(default_factory=dict)
    #: Address of the client; empty where it has none.
    peer: str = ""

    async def read(self) -> bytes:
        """The body."""
        return self.body

    async def json(self) -> Any:
        """The body as JSON; `ValueError` when it is none."""
        return json.loads(self.body)


@dataclass
class Response:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, payload: Any, status: int = 200) -> Response:
        """JSON."""
        return cls(status, json.dumps(payload).encode())

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass
class Streamed:
    """An answer that is sent piece by piece while it comes into being."""

    pieces: AsyncGenerator[bytes, None]
    status: int = 200
    content_type: str = "application/json"


Answer = Response | Streamed
Handler = Callable[[Any], Awaitable[Answer]]


class Route:
    """A method, a path such as `/api/get/{key}` and who answers. The last name takes the rest of the path, decoded."""

    def __init__(self, method: str, path: str, handler: Handler):
        self.method, self.path, self.handler = method, path, handler
        self._pattern = re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(path)))

    def match(self, path: str) -> dict[str, str] | None:
        """The named parts of a path; None when it is another."""
        found = self._pattern.fullmatch(path)
        return None if found is None else {name: unquote(part) for name, part in found.groupdict().items()}


class HttpServer:
    """Answers requests by routes. `allow` may refuse one before it is handled."""

    def __init__(self, routes: Iterable[Route], body_limit: int, allow: Callable[[Request], None] | None = None):
        self.routes = list(routes)
        self._body_limit = body_limit
        self.bounds = Bounds(body_limit)
        self._allow = allow
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens, and says on which port (0 lets the system choose); `OSError` when that cannot be."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_LIMIT)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listens no more and ends every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        peer = name[0] if isinstance(name, tuple) else ""
        if not self.bounds.enter(peer):
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            begins = PATIENCE
            while await self._one(reader, writer, peer, begins):
                begins = IDLE
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.TimeoutError):
            logger.debug("a client went away")
        finally:
            self._connections.discard(task)
            self.bounds.leave(peer)
            writer.close()

    async def _one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, begins: float
    ) -> bool:
        """Answers one request that begins within so many seconds; whether another may follow on the connection."""
        try:
            request = await _head(reader, begins)
            if request is None:
                return False
            request.peer = peer
            size = _body_size(request.headers, self._body_limit)
        except HttpError as error:
            await _send(writer, error.response(), keep=False)
            return False
        try:
            async with self.bounds.room(peer, size, PATIENCE):
                return await self._receive_and_answer(request, reader, writer)
        except NoRoom:
            busy = HttpError(503, "too many bodies are being received", {"Retry-After": "1"})
            await _send(writer, busy.response(), keep=False)
            return False

    async def _receive_and_answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        try:
            if request.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = read_body(reader, request.headers, self._body_limit)
            request.body = await asyncio.wait_for(body, _time_for(_body_size(request.headers, self._body_limit)))
        except HttpError as error:
            await _send(writer, error.response(), keep=False)
            return False
        answer = await self._answer(request)
        keep = request.headers.get("connection", "").lower() != "close"
        await _send(writer, answer, keep, with_body=request.method != "HEAD")
        return keep

    async def _answer(self, request: Request) -> Answer:
        try:
            if self._allow is not None:
                self._allow(request)
            return await self._route(request).handler(request)
        except HttpError as error:
            return error.response()
        except Exception as error:  # noqa: BLE001 - whatever a handler did not foresee ends its request, not the server
            logger.exception("%s %s", request.method, request.path)
            return Response.json({"error": str(error)}, 500)

    def _route(self, request: Request) -> Route:
        method = "GET" if request.method == "HEAD" else request.method
        others = []
        for route in self.routes:
            parts = route.match(request.path)
            if parts is not None and route.method == method:
                request.match_info = parts
                return route
            if parts is not None:
                others.append(route.method)
        if others:
            raise HttpError(405, f"{request.path} takes {', '.join(others)}")
        raise HttpError(404, f"there is no {request.path}")


async def _head(reader: asyncio.StreamReader, begins: float) -> Request | None:
    """The next request without its body; None when the client is done. Bytes that trickle are no progress."""
    first = await asyncio.wait_for(reader.read(1), begins)
    return await asyncio.wait_for(_rest_of_head(first, reader), PATIENCE) if first else None


async def _rest_of_head(first: bytes, reader: asyncio.StreamReader) -> Request:
    # A line of its own is what the first byte was.
    line = first if first == b"\n" else first + await _line(reader, PATIENCE)
    return _parse_head(line, await read_headers(reader))


async def _line(reader: asyncio.StreamReader, patience: float | None) -> bytes:
    """A line of a head, or one before or behind a chunk."""
    try:
        return await asyncio.wait_for(reader.readline(), patience)
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise HttpError(431, f"a line has more than {HEAD_LIMIT} bytes") from error


def _parse_head(first: bytes, headers: dict[str, str]) -> Request:
    words = first.decode("latin-1").split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "this is no HTTP/1 request")
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    path, _, query = words[1].partition("?")
    return Request(words[0].upper(), path, dict(parse_qsl(query, keep_blank_values=True)), headers)


async def read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    """The headers up to the empty line, names in lower case."""
    headers: dict[str, str] = {}
    size = 0
    while True:
        line = await _line(reader, PATIENCE)
        if not line.strip():
            return headers
        size += len(line)
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or size > HEAD_LIMIT:
            raise HttpError(400, "a header cannot be read, or there are too many")
        headers[name.strip().lower()] = value.strip()


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body has more than {limit} bytes")


def _body_size(headers: dict[str, str], limit: int) -> int:
    """Most bytes that the body will have; `HttpError` for more than `limit`."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return limit
    size = _number(headers.get("content-length", "0").encode(), 10)
    if size > limit:
        raise _too_large(limit)
    return size


def _time_for(size: int) -> float:
    """Seconds that so many bytes may take from or to a client."""
    return PATIENCE + size / LEAST_SPEED


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str], limit: int) -> bytes:
    """A whole body; `HttpError` when it has more than `limit` bytes or its length cannot be told."""
    _body_size(headers, limit)
    too_large = _too_large(limit)
    body = bytearray()
    try:
        async for piece in body_pieces(reader, headers, PATIENCE):
            if len(body) + len(piece) > limit:
                raise too_large
            body += piece
        return bytes(body)
    finally:
        # An error holds on to its frames, and so to this, until the collector comes by.
        body.clear()


async def body_pieces(
    reader: asyncio.StreamReader, headers: dict[str, str], patience: float | None
) -> AsyncGenerator[bytes, None]:
    """A body as it arrives, with at most `patience` seconds between two pieces.

    None is for answers: they may take any time, and one without a length lasts until the other side closes. A request
    without a length has no body.
    """
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while left := _number((await _line(reader, patience)).partition(b";")[0], 16):
            async for piece in _pieces(reader, left, patience):
                yield piece
            await _line(reader, patience)
        await read_headers(reader)
    elif "content-length" in headers:
        async for piece in _pieces(reader, _number(headers["content-length"].encode(), 10), patience):
            yield piece
    elif patience is None:
        while piece := await reader.read(HEAD_LIMIT):
            yield piece


async def _pieces(reader: asyncio.StreamReader, left: int, patience: float | None) -> AsyncGenerator[bytes, None]:
    while left:
        piece = await asyncio.wait_for(reader.read(min(left, HEAD_LIMIT)), patience)
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


def _number(digits: bytes, base: int) -> int:
    text = digits.strip().lower()
    if not re.fullmatch(rb"[0-9a-f]{1,15}" if base == 16 else rb"[0-9]{1,18}", text):
        raise HttpError(400, "the length of the body cannot be read")
    return int(text, base)


async def _send(writer: asyncio.StreamWriter, answer: Answer, keep: bool, with_body: bool = True) -> None:
    whole = isinstance(answer, Response)
    reason = http.HTTPStatus(answer.status).phrase
    head = {"Content-Type": answer.content_type, "Connection": "keep-alive" if keep else "close"}
    if whole:
        head |= answer.headers | {"Content-Length": str(len(answer.body))}
    else:
        head["Transfer-Encoding"] = "chunked"
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    writer.write("\r\n".join(lines).encode("latin-1"))
    size = 0
    if with_body and whole:
        size = len(answer.body)
        writer.write(answer.body)
    elif with_body:
        await _send_pieces(writer, answer.pieces)
    await asyncio.wait_for(writer.drain(), _time_for(size))


async def _send_pieces(writer: asyncio.StreamWriter, pieces: AsyncGenerator[bytes, None]) -> None:
    """In chunks; when the pieces end in an error the connection does too, so that the client sees a cut, not an end."""
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await asyncio.wait_for(writer.drain(), _time_for(len(piece)))
    except Exception as error:
        raise ConnectionAbortedError("the answer broke off") from error
    writer.write(b"0\r\n\r\n")
