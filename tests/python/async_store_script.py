"""Coroutines of the store on one loop: answers as from the plain calls, many at a time, and a loop that goes on meanwhile."""

import asyncio
import os
import sys

from mooncake.async_store import MooncakeDistributedStoreAsync

MASTER = sys.argv[1]
# Not of this test: how fast a busy machine is.
os.environ["MC_RPC_TIMEOUT_MS"] = "20000"


async def main():
    store = MooncakeDistributedStoreAsync()
    assert await store.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", MASTER) == 0
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    values = [bytes([number]) * 4096 for number in range(64)]
    stored = await asyncio.gather(*(store.async_put(f"a{number}", value) for number, value in enumerate(values)))
    assert stored == [0] * 64
    assert await asyncio.gather(*(store.async_get(f"a{number}") for number in range(64))) == values
    assert await store.async_put(key="keyword", value=b"v") == 0 and store.get("keyword") == b"v"
    assert await store.async_get_size("missing") == -704
    assert ticks > 64
    ticking.cancel()
    for name in ("async_nothing", "async_", "nothing"):
        try:
            getattr(store, name)
        except AttributeError as error:
            assert name in str(error)
        else:
            raise SystemExit(f"there is a {name}")
    try:
        await store.async_put("k")
    except TypeError:
        pass
    else:
        raise SystemExit("a call with too few arguments was taken")
    assert await store.async_close() == 0


asyncio.run(main())
