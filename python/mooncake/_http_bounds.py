"""What the clients of a small HTTP server may use up, together and from one address.

A connection costs a descriptor, an unfinished body costs memory. Connections beyond the bound are closed at once; a body
that finds no room waits for some, without being read, and is refused with 503 when none comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections import Counter
from collections.abc import AsyncGenerator

logger = logging.getLogger(__name__)

#: Connections at once, where there are descriptors for them.
CONNECTIONS = 1024
#: Largest bodies that may be in memory at once.
BODIES = 8
#: Refused connections between two lines of the log.
SAID_EVERY = 1000


class NoRoom(Exception):
    """No room for a body came within the time; the same request may find some later."""


class Bounds:
    """Connections and bytes of bodies of one server; one address may have half of each."""

    def __init__(self, body_limit: int):
        self.connections = min(CONNECTIONS, _descriptors() // 2)
        self.bytes = BODIES * body_limit
        #: Connections that were closed because there were too many.
        self.refused = 0
        self._connections: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    def enter(self, peer: str) -> bool:
        """Another connection of that address; False when it may have none. `leave` gives it back."""
        if self._connections.total() < self.connections and self._connections[peer] < self.connections // 2:
            self._connections[peer] += 1
            return True
        if self.refused % SAID_EVERY == 0:
            logger.warning("too many connections: one of %s is refused, as %d were before", peer, self.refused)
        self.refused += 1
        return False

    def leave(self, peer: str) -> None:
        """A connection that entered is closed."""
        _take(self._connections, peer, 1)

    @contextlib.asynccontextmanager
    async def room(self, peer: str, size: int, patience: float) -> AsyncGenerator[None, None]:
        """Room for a body of `size` bytes; `NoRoom` when there is none within `patience` seconds."""
        end = asyncio.get_running_loop().time() + patience
        while not self._has_room(peer, size):
            await self._wait_until(end)
        self._bytes[peer] += size
        try:
            yield
        finally:
            _take(self._bytes, peer, size)
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _has_room(self, peer: str, size: int) -> bool:
        return self._bytes.total() + size <= self.bytes and self._bytes[peer] + size <= self.bytes // 2

    async def _wait_until(self, end: float) -> None:
        """Waits until a body has gone; `NoRoom` at the end of the time."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait_for(waiter, end - loop.time())
        except asyncio.TimeoutError as error:
            raise NoRoom from error
        finally:
            self._waiting.discard(waiter)


def _take(counter: Counter[str], peer: str, count: int) -> None:
    counter[peer] -= count
    if counter[peer] == 0:
        del counter[peer]


def _descriptors() -> int:
    """Files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS * 2 if soft == resource.RLIM_INFINITY else soft


def take_all_descriptors() -> None:
    """Raises the limit of open files as far as it goes without rights."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
