"""Who may do what over HTTP: the rules of the master's admin server, for the package's own.

Whoever reaches the port may read. A request that changes something needs the token; without one it has to come from the
loopback address, and not from a page of another origin in a browser there. docs/security.md has the settings.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass

from mooncake._http import HttpError, Request

#: Requests with another method change something.
READS = ("GET", "HEAD")


@dataclass(frozen=True)
class Access:
    """The tokens that requests must show; empty: none is asked for."""

    #: For every request, reads too.
    every: str = ""
    #: For requests that change something.
    change: str = ""

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Access:
        """From `YUEBING_ADMIN_TOKEN_FILE` (its first line) or `YUEBING_ADMIN_TOKEN`, and `YB_REST_TOKEN` for every request.

        Raises `ValueError` when a variable is set, but empty (so a lost secret opens nothing), when both of the first are
        set or the file's first line is empty, `OSError` when it cannot be read.
        """
        for name in ("YUEBING_ADMIN_TOKEN", "YUEBING_ADMIN_TOKEN_FILE", "YB_REST_TOKEN"):
            if environment.get(name) == "":
                raise ValueError(f"{name} is set, but empty: give it a value or unset it")
        token, path = environment.get("YUEBING_ADMIN_TOKEN", ""), environment.get("YUEBING_ADMIN_TOKEN_FILE", "")
        if token and path:
            raise ValueError("YUEBING_ADMIN_TOKEN and YUEBING_ADMIN_TOKEN_FILE are both set")
        if path:
            with open(path, encoding="utf-8") as file:
                token = file.readline().strip()
            if not token:
                raise ValueError(f"YUEBING_ADMIN_TOKEN_FILE: the first line of {path} is empty")
        return Access(environment.get("YB_REST_TOKEN", ""), token)

    def describe(self) -> str:
        """The rules in words, without a token."""
        if self.change or self.every:
            reads = "every request needs" if self.every else "requests that change something need"
            return f"{reads} a token"
        return (
            "requests that change something are answered to the loopback address only; from elsewhere they need a token"
            " (YUEBING_ADMIN_TOKEN_FILE)"
        )

    def check(self, request: Request) -> None:
        """Lets a request pass, or raises the `HttpError` that answers it."""
        changes = request.method not in READS
        if not changes and request.path == "/health":
            # Probes have no token, and it tells no more than that the service runs.
            return
        accepted = self._accepted(changes)
        if accepted and not any(_shows(request, token) for token in accepted):
            raise HttpError(401, "this request needs a token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
        if not accepted and changes and not _is_local(request):
            raise HttpError(403, self.describe())

    def _accepted(self, changes: bool) -> list[str]:
        """The tokens of which one has to be shown; none: no token is asked for."""
        tokens = [self.change or self.every] if changes else [self.every, self.change] if self.every else []
        return [token for token in tokens if token]


def _shows(request: Request, token: str) -> bool:
    # The time does not tell how much of it was right.
    given = request.headers.get("authorization", "").encode("latin-1")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


def _is_local(request: Request) -> bool:
    """From this host, and not from a page of another origin in a browser here."""
    try:
        address = ipaddress.ip_address(request.peer)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    origin = request.headers.get("origin")
    same_origin = origin is None or origin.partition("://")[2] == request.headers.get("host", "")
    return address.is_loopback and same_origin and origin != ""
