"""HTTP as the tests speak it: one request, its status, type and body."""

import http.client
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    content_type: str
    body: bytes

    def json(self):
        """The body as JSON."""
        return json.loads(self.body)

    def plain(self):
        """Status and content, JSON read; what ours adds to an error (`code`, `detail`) is left out."""
        if not self.content_type.startswith("application/json"):
            return [self.status, self.body.decode("latin-1")]
        content = self.json()
        if isinstance(content, dict):
            content = {name: value for name, value in content.items() if name not in ("code", "detail")}
        return [self.status, content]


def ask(port, method, path, body=None, headers=None):
    """One request on a connection of its own; what is no bytes goes as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, payload, {"Content-Type": "application/json"} | (headers or {}))
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers.get("Content-Type", ""), reply.read())
    finally:
        connection.close()
