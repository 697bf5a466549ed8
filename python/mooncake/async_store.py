"""The store for asyncio: `await store.async_get(key)` is `store.get(key)` in the default executor of the running loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from mooncake.store import LastError, MooncakeDistributedStore, last_error

#: Why the last call that this task awaited failed.
_LAST: contextvars.ContextVar[LastError | None] = contextvars.ContextVar("mooncake_last_error", default=None)


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A store with a coroutine function `async_X` for each method `X`, with the same arguments and answers.

    The calls release the interpreter, so as many run at a time as the executor has threads. A cancelled await does not end
    a call that runs: memory handed to a zero-copy call has to stay until the call itself is over.
    `mooncake.store.last_error()` is of the calling thread; `awaited_error()` is of the calls that the task itself awaited.
    """

    @staticmethod
    def awaited_error() -> LastError | None:
        """Why the last call that this task awaited failed; None when it succeeded, or there was none."""
        return _LAST.get()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self, name.removeprefix("async_"), None) if name.startswith("async_") else None
        if not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _in_executor(method, name)


def _in_executor(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        def work() -> tuple[Any, LastError | None]:
            return method(*args, **kwargs), last_error()

        answer, failure = await asyncio.get_running_loop().run_in_executor(None, work)
        _LAST.set(failure)
        return answer

    call.__name__, call.__qualname__, call.__doc__ = name, f"MooncakeDistributedStoreAsync.{name}", method.__doc__
    return call
