"""`python -m mooncake.http_metadata_server`: the command `mooncake_http_metadata_server`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from mooncake import _launcher
from mooncake._launcher import mooncake_http_metadata_server as main

__all__ = ["KVBootstrapServer", "KVPoll", "main"]


class KVPoll(Enum):
    """How a server stands."""

    Failed = 0
    Bootstrapping = 1
    WaitingForInput = 2
    Transferring = 3
    Success = 4


class KVBootstrapServer:
    """The metadata server beside this process, as a child that ends with `close`."""

    def __init__(self, port: int, host: str = "0.0.0.0"):
        self.port, self.host = port, host
        self._child: Any = None

    def run(self) -> None:
        """Starts the server and comes back at once; `poll` tells when it listens."""
        # Imported late: the command itself becomes another program and needs none of it.
        import subprocess

        command = ["mooncake_http_metadata_server", f"--host={self.host}", f"--port={self.port}"]
        self._child = subprocess.Popen(command, executable=_launcher.program())

    def poll(self) -> KVPoll:
        """`Bootstrapping` until it listens, then `Success`; `Failed` when it is not running."""
        if self._child is None:
            return KVPoll.Bootstrapping
        if self._child.poll() is not None:
            return KVPoll.Failed
        return KVPoll.Success if self._listens() else KVPoll.Bootstrapping

    def close(self) -> None:
        """Ends the server; again and again if you like."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait()

    def _listens(self) -> bool:
        import socket

        any_address = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
        try:
            socket.create_connection((any_address.get(self.host, self.host), self.port), timeout=1.0).close()
        except OSError:
            return False
        return True


if __name__ == "__main__":
    main()
