"""Tensors of the store to and from safetensors files (package `safetensors`, and torch)."""

from __future__ import annotations

import logging
import os
from typing import Any

_INVALID = -600
_FILE_NOT_FOUND = -1100
_log = logging.getLogger("mooncake.store")
_MISSING: Any = object()


def _path(name: Any, argument: str) -> str:
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, (str, os.PathLike)):
        raise TypeError(f"{argument} must be str, got {type(name).__name__}")
    return os.fspath(name)


class TensorFileCalls:
    """`save_tensor_to_safetensor` and `load_tensor_from_safetensor`."""

    def save_tensor_to_safetensor(self, key: str | bytes, file_name: Any = None) -> int:
        """Writes the tensor under `key` to a file that names it so; the file's name is the key where none is given. 0;
        -1100: there is no tensor under the key; -600: the file cannot be written, or `safetensors` is not installed."""
        path = _path(key if file_name is None else file_name, "file_name")
        tensor = self.get_tensor(key)
        if tensor is None:
            return _FILE_NOT_FOUND
        try:
            from safetensors.torch import save_file

            save_file({_path(key, "key"): tensor}, path)
        except Exception as error:  # noqa: BLE001 - safetensors raises classes of its own, OSError, and what torch raises
            return self._refuse(f"{path} cannot be written: {error}")
        return 0

    def load_tensor_from_safetensor(self, key: Any = None, file_name: Any = _MISSING) -> Any:
        """Reads the tensor named `key` out of a file, or its first with a warning when it has none of that name, and
        stores it under `key` (the file's name where none is given); an object that is there stays. The tensor, or
        None: the file cannot be read, or the tensor cannot be stored. `file_name` is required."""
        if file_name is _MISSING:
            raise TypeError("load_tensor_from_safetensor() needs file_name")
        path = _path(file_name, "file_name")
        key = path if key is None else key
        try:
            from safetensors.torch import load_file

            tensors = load_file(path)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(f"{path} cannot be read: {error}")
            return None
        if not tensors:
            self._refuse(f"{path} has no tensors")
            return None
        name = _path(key, "key")
        if name not in tensors:
            _log.warning("%s is not in %s; its first tensor is taken", name, path)
        tensor = tensors.get(name, next(iter(tensors.values())))
        return tensor if self.put_tensor(key, tensor) == 0 else None
