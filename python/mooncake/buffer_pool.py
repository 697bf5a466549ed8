"""Pools of registered memory; the classes are those of `mooncake.store`."""

from mooncake.store import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
