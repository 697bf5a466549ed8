"""Requests and configuration files that nobody should send, mutated; run by `test_store_service.py`, which reads what it
prints: one JSON object. Every connection ends in time, nothing is left unhandled, and the next request is served."""

import asyncio
import json
import logging
import random
import tempfile
from pathlib import Path

from mooncake import _http
from mooncake.mooncake_config import MooncakeConfig

RANDOM = random.Random(1)
REQUESTS = 2000
FILES = 2000
HEADS = [
    b"PUT /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /x/a%2Fb?force=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
    b"HEAD /x/%ff%zz?& HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
]
PIECES = [b"\r\n", b"\0", b"%", b"\xff", b": ", b"-1", b"99999999999999999999", b"ffffffffffffff\r\n", b"x" * 70_000, b" "]
GOOD = {
    "local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1", "protocol": "tcp",
    "global_segment_size": "1GB", "local_buffer_size": 1, "enable_client_http_server": True, "client_http_port": 1,
}
VALUES = [None, True, [], {}, -1, 1e308, "1e9GB", "", "\ud800", 2**70, "nan", "inf", "99999999999999TB", "0x10", " "]


def mutated(data):
    """A few random changes."""
    data = bytearray(data)
    for _ in range(RANDOM.randrange(4)):
        at = RANDOM.randrange(len(data) + 1)
        match RANDOM.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = RANDOM.choice(PIECES)
            case 2 if at < len(data):
                data[at] = RANDOM.randrange(256)
            case _:
                del data[at : at + RANDOM.randrange(8)]
    return bytes(data)


async def answer(port, request):
    """What comes until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def requests(unhandled):
    """Statuses by their first digit; empty for closed without an answer."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(str(context)))

    async def handler(request):
        return _http.Response.json({"got": len(await request.read()), **request.match_info})

    routes = [_http.Route("PUT", "/x", handler), _http.Route("GET", "/x/{key}", handler)]
    server = _http.HttpServer(routes, 1 << 20)
    port = await server.start("127.0.0.1", 0)
    seen = {}
    for _ in range(REQUESTS):
        first = (await answer(port, mutated(RANDOM.choice(HEADS))))[9:10].decode("latin-1")
        seen[first] = seen.get(first, 0) + 1
    last = await answer(port, HEADS[0])
    await server.close()
    return seen, last.startswith(b"HTTP/1.1 200")


def files():
    """Errors of mutated files that are not those that are documented."""
    surprises = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        for _ in range(FILES):
            content = dict(GOOD)
            for _ in range(RANDOM.randrange(1, 3)):
                content[RANDOM.choice([*GOOD, "tenant_id", "unheard_of"])] = RANDOM.choice(VALUES)
            text = json.dumps(content).encode()
            path.write_bytes(text if RANDOM.randrange(2) else mutated(text))
            try:
                MooncakeConfig.from_file(str(path))
            except (OSError, ValueError, TypeError):
                pass
            except Exception as error:  # noqa: BLE001 - what this looks for
                surprises.append(f"{error!r} of {path.read_bytes()[:300]!r}")
    return surprises


def main():
    """Prints what happened."""
    logging.disable(logging.WARNING)
    unhandled = []
    seen, served = asyncio.run(requests(unhandled))
    print(json.dumps({"seen": seen, "served": served, "unhandled": unhandled[:3], "surprises": files()[:3]}))


main()
