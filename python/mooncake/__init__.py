"""Mooncake's Python package on Yuebing's Rust client.

`mooncake.store` has the store; importing `mooncake` alone loads nothing native. `mooncake.__version__` is the version of
the distribution `yuebing`. See docs/python.md.
"""

from pkgutil import extend_path
from typing import Any

__path__ = extend_path(__path__, __name__)
__all__ = ["BufferPool", "RegisteredBufferPool"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("yuebing")
    if name not in __all__:
        raise AttributeError(f"module 'mooncake' has no attribute {name!r}")
    from mooncake import buffer_pool

    return getattr(buffer_pool, name)
