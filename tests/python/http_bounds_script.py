"""A small HTTP server under one address that takes all it can get, and another that wants its turn; run by
`test_store_service.py`, which reads what it prints: one JSON object."""

import asyncio
import gc
import json
import time
from pathlib import Path

from mooncake import _http, _http_bounds

LIMIT = 1000
GREEDY, MODEST = "127.0.0.2", "127.0.0.1"


class Client:
    """One connection from an address of this host."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port, address):
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))

    def send(self, data):
        self.writer.write(data)

    async def end(self):
        """What comes until the server closes, and the seconds it takes."""
        start = time.monotonic()
        try:
            answer = await asyncio.wait_for(self.reader.read(), 30)
        except ConnectionError:
            answer = b""
        return answer.split(b"\r\n")[0].decode(), time.monotonic() - start

    async def ask(self, body):
        self.send(b"PUT /x HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return (await self.end())[0]


async def keep(request):
    """Takes any body."""
    return _http.Response.json({"bytes": len(request.body)})


async def main():
    """Prints what happened."""
    _http.PATIENCE = 1.5
    server = _http.HttpServer([_http.Route("PUT", "/x", keep)], LIMIT)
    server.bounds.connections = 40
    port = await server.start("127.0.0.1", 0)
    body = b"b" * LIMIT
    happened = {}

    # More connections than one address may have; they say nothing.
    crowd = [await Client.connect(port, GREEDY) for _ in range(21)]
    happened["one too many"] = (await crowd[-1].end())[0]
    happened["refused"] = server.bounds.refused
    happened["another, meanwhile"] = await (await Client.connect(port, MODEST)).ask(body)
    happened["the crowd"] = sorted({answer for answer, _ in [await client.end() for client in crowd]})
    happened["the greedy, afterwards"] = await (await Client.connect(port, GREEDY)).ask(body)

    # Bodies that stop: half of the room, and one that waits for some.
    stopped = [await Client.connect(port, GREEDY) for _ in range(_http_bounds.BODIES // 2 + 1)]
    for client in stopped:
        client.send(b"PUT /x HTTP/1.1\r\nContent-Length: %d\r\n\r\nb" % LIMIT)
    await asyncio.sleep(0.2)
    happened["another, beside bodies that stop"] = await (await Client.connect(port, MODEST)).ask(body)
    ends = await asyncio.gather(*(client.end() for client in stopped))
    happened["bodies that stop"] = sorted({answer for answer, _ in ends} - {""}) or "closed"
    happened["in time"] = max(seconds for _, seconds in ends) < 20
    happened["the greedy, at last"] = await (await Client.connect(port, GREEDY)).ask(body)

    # A head that trickles is no progress.
    slow = await Client.connect(port, MODEST)
    trickle = asyncio.ensure_future(drip(slow))
    happened["a head that trickles"] = (await slow.end())[0] or "closed"
    trickle.cancel()
    await server.close()
    happened["memory of bodies that stop"] = "given back" if await kept_bytes() < 32 << 20 else "kept"
    print(json.dumps(happened))


def resident():
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def kept_bytes():
    """What is left of large bodies that stopped, without the collector's help."""
    gc.disable()
    server = _http.HttpServer([_http.Route("PUT", "/x", keep)], 32 << 20)
    port = await server.start("127.0.0.1", 0)
    before = resident()
    clients = [await Client.connect(port, GREEDY) for _ in range(_http_bounds.BODIES // 2)]
    for client in clients:
        client.send(b"PUT /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (32 << 20))
        for _ in range(31):
            client.send(bytes(1 << 20))
            await client.writer.drain()
    await asyncio.gather(*(client.end() for client in clients))
    await server.close()
    return resident() - before


async def drip(client):
    """A header, byte by byte."""
    client.send(b"GET /x HTTP/1.1\r\nx: ")
    while True:
        await asyncio.sleep(0.1)
        client.send(b"x")


asyncio.run(main())
