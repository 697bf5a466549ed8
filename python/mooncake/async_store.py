"""The store for asyncio: `await store.async_get(key)` is `store.get(key)` in the default executor of the running loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from mooncake.store import MooncakeDistributedStore


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A store with a coroutine function `async_X` for each method `X`, with the same arguments and answers.

    The calls release the interpreter, so as many run at a time as the executor has threads. A cancelled await does not end
    a call that runs: memory handed to a zero-copy call has to stay until the call itself is over.
    """

    def __getattr__(self, name: str) -> Any:
        method = getattr(self, name.removeprefix("async_"), None) if name.startswith("async_") else None
        if not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _in_executor(method, name)


def _in_executor(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        work = functools.partial(method, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(None, work)

    call.__name__, call.__qualname__, call.__doc__ = name, f"MooncakeDistributedStoreAsync.{name}", method.__doc__
    return call
