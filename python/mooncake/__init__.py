"""Mooncake's Python package on Yuebing's Rust client.

`mooncake.store` has the store; importing `mooncake` alone loads nothing native. See docs/python.md.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
