"""Mooncake Store's client: `MooncakeDistributedStore` and what belongs to it.

Names, defaults and numbers are the peer's (0.3.13.post1); docs/python.md lists the intended differences.
Status calls answer 0 or a negative code; calls that move or measure bytes answer how many, or a negative code.
"""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from typing import Any

from mooncake import _native, _setup, _unbuilt
from mooncake._native import (
    BufferHandle,
    BufferLease,
    BufferLeaseView,
    BufferPool,
    Descriptor,
    DiskDescriptor,
    ExistOptions,
    LastError,
    LocalDiskDescriptor,
    MemoryDescriptor,
    MooncakeHostMemAllocator,
    ObjectDataType,
    QueryTaskResponse,
    RangedReadSnapshot,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
    _get_pyclient_from_wrapper,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
    last_error,
)
from mooncake._engram import EngramStore, EngramStoreConfig
from mooncake._tensor_calls import TensorCalls
from mooncake._tensor_files import TensorFileCalls
from mooncake._tensor_layout import HEADER_BYTES
from mooncake._tensor_memory import deserialize as _deserialize_tensor
from mooncake._tensor_memory import serialize as _serialize_tensor
from mooncake._tensor_parallel_calls import ParallelTensorCalls
from mooncake._tensor_parallelism import ParallelAxis, ReadTarget, TensorParallelism

#: The peer has two clients behind this name and lets the environment choose; here both names mean this one.
if os.environ.get("MOONCAKE_STORE_BACKEND", "cpp") not in ("cpp", "rs"):
    raise ValueError("MOONCAKE_STORE_BACKEND has to be 'cpp' or 'rs'")

_INVALID = -600


class _Required:
    """In the place of an argument that has no default; `help()` shows it."""

    def __repr__(self) -> str:
        return "<required>"


_MISSING: Any = _Required()
_live: weakref.WeakSet[MooncakeDistributedStore] = weakref.WeakSet()


class MooncakeDistributedStore(TensorCalls, ParallelTensorCalls, TensorFileCalls, _native.Store):
    """A client of a pool: nothing before `setup`, and again nothing after `close`.

    Every data call may be made from many threads at once; none holds the interpreter while it waits. A call on a store
    that is not set up answers like any failed call (-600, `b''`, None, lists of these).
    """

    def setup(
        self,
        local_hostname: Any = _MISSING,
        metadata_server: str = _MISSING,
        global_segment_size: int = _MISSING,
        local_buffer_size: int = _MISSING,
        protocol: str = _MISSING,
        rdma_devices: str = _MISSING,
        master_server_addr: str = _MISSING,
        engine: Any = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
        *,
        config: dict[str, Any] = _MISSING,
    ) -> int:
        """Joins a pool: 0, or -600 (see `last_error`).

        Either the first seven, all of them, by position or by name, and what follows them by choice; or one dict, by position
        or as `config`, whose values are taken as text:

            local_hostname, metadata_server    required
            global_segment_size                16777216 (16 MiB); bytes, or text such as "1.5 GB"
            local_buffer_size                  16777216
            protocol                           "tcp"
            rdma_devices                       ""
            master_server_addr                 "127.0.0.1:50051"
            tenant_id                          "default"
            enable_client_http_server          False
            client_http_port                   9300
            ipc_socket_path                    ""

        `local_hostname` is `host` or `host:port`; `metadata_server` is "P2PHANDSHAKE" or a store of names
        (`http://host:port/metadata`, `etcd://…`, `redis://…`); `global_segment_size` bytes are lent to the pool: 0, or at least 16 MiB.
        `engine` may be what `TransferEngine.get_engine()` gives: the store then moves its bytes with it, memory that is
        registered there is known to the store, and the name is `ip:rpc_port` of that engine.
        `protocol` is "tcp", or "rpc_only" for a store that lends nothing (`global_segment_size` 0). The dict form also
        takes `master_server_address` for `master_server_addr` and `device_name` for `rdma_devices`, and `ipc_socket_path`: the
        name of a side channel (`@mooncake_client_<port>.sock`) behind which this store serves dummy clients as the daemon
        `mooncake_client` does, with `setup_dummy(0, size, "127.0.0.1:<port>")` on their side. Names that it does not know
        are told in the log. `enable_client_http_server` serves `/health`, `/metrics` and `/metrics/summary` on
        `client_http_port`. `enable_ssd_offload` is not built yet and has to stay off.
        """
        form = local_hostname if config is _MISSING else config
        if isinstance(form, dict):
            others = (metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices, master_server_addr)
            if any(value is not _MISSING for value in others) or (config is not _MISSING and local_hostname is not _MISSING):
                raise TypeError("setup() takes either a dict or the seven required arguments")
            unknown = _setup.unknown_names(form)
            if unknown:
                self._warn_setup(f"setup knows nothing of {', '.join(map(_setup.with_nearest, unknown))}")
            return self._setup_refusing(lambda: _setup.from_dict(form))
        if config is not _MISSING:
            raise TypeError("setup(config=...) has to be a dict")
        values = (local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices,
                  master_server_addr)
        missing = [name for name, value in zip(_setup.REQUIRED, values) if value is _MISSING]
        if missing:
            raise TypeError(f"setup() is missing {', '.join(missing)}; it takes {', '.join(_setup.REQUIRED)}, or one dict")
        if engine is not None:
            if not isinstance(engine, _native.InnerTransferEngine):
                raise TypeError("setup(engine=...) takes what TransferEngine.get_engine() gives")
        _setup.check_types(dict(zip(_setup.REQUIRED, values)) | {"client_http_port": client_http_port})
        arguments = dict(zip(_setup.REQUIRED, values)) | {
            "tenant_id": tenant_id,
            "enable_ssd_offload": bool(enable_ssd_offload),
            "enable_client_http_server": bool(enable_client_http_server),
            "client_http_port": client_http_port,
            "engine": engine,
        }
        return self._setup_refusing(lambda: arguments)

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Attaches to the daemon of this host (`mooncake_client`) at `server_address`, `host:port` (port 50052 if there is
        none): 0, or -1 (see `last_error`).

        The daemon then puts and gets for this store. Values go over shared memory: memory of `alloc_from_mem_pool` and
        of `MooncakeHostMemAllocator` as it is, any other memory over a window of `local_buffer_size` bytes (at least 1
        MiB). `mem_pool_size` is ignored, as in the peer. What belongs to an owner of memory (sessions, segments, tasks)
        answers as a closed store does.
        """
        if not isinstance(mem_pool_size, int):
            raise TypeError("setup_dummy(mem_pool_size=...) takes an int")
        answer = self._setup_dummy(local_buffer_size, server_address)
        if answer == 0:
            _live.add(self)
        return answer

    def _setup_refusing(self, arguments: Any) -> int:
        try:
            checked = _setup.finish(arguments())
        except _setup.SetupRefused as refused:
            self._refuse_setup(str(refused))
            return _INVALID
        answer = self._setup(checked)
        if answer == 0:
            _live.add(self)
        return answer


def _succeeded(answer: Any) -> bool:
    """Whether the answer of a call says that all of it was done."""
    if isinstance(answer, (list, tuple)):
        return all(map(_succeeded, answer))
    return answer is not None and not (isinstance(answer, int) and answer < 0)


def _whole(method: Any) -> Any:
    """The method as one call for `last_error()`, however many calls of the native store it is made of."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        succeeded = False
        _native._enter_call()
        try:
            answer = method(*args, **kwargs)
            succeeded = _succeeded(answer)
            return answer
        finally:
            _native._leave_call(succeeded)

    return call


for _calls in (TensorCalls, ParallelTensorCalls, TensorFileCalls):
    for _name, _method in vars(_calls).items():
        if not _name.startswith("_") and callable(_method):
            setattr(MooncakeDistributedStore, _name, _whole(_method))
del _calls, _method
for _name in _unbuilt.METHODS:
    setattr(MooncakeDistributedStore, _name, _unbuilt.method("MooncakeDistributedStore", _name))
for _name in _unbuilt.CLASSES:
    globals()[_name] = _unbuilt.class_named(_name)
for _name in _unbuilt.FUNCTIONS:
    globals()[_name] = _unbuilt.function(_name)
RegisteredBufferPool = BufferPool
RegisteredBufferLease = BufferLease
RegisteredBufferLeaseView = BufferLeaseView
# The peer exports the members too; those of TaskStatus come last and shadow PROCESSING and FAILED of ReplicaStatus.
for _enum in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):
    globals().update(_enum.__members__)
del _name, _enum


def _tensor_metadata_size() -> int:
    """Bytes of the header in front of a stored tensor's elements."""
    return HEADER_BYTES


for _name in (ParallelAxis, TensorParallelism, ReadTarget, EngramStore, EngramStoreConfig):
    _name.__module__ = "mooncake.store"
del _name


@atexit.register
def _close_live() -> None:
    for store in list(_live):
        store.close()


def _forget_live() -> None:
    for store in list(_live):
        store._forget()


os.register_at_fork(after_in_child=_forget_live)
