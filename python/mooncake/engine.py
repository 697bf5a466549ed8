"""The Transfer Engine: moves bytes between registered memory of processes.

Names, defaults and numbers are the peer's (0.3.13.post1 and 0.3.14); docs/python-engine.md lists the intended differences.
"""

import atexit as _atexit

from mooncake import _native
from mooncake._native import (
    InnerTransferEngine,
    ReceivedData,
    ReceivedTensor,
    RpcInterface,
    ScatterTransferCompletionStatus,
    ScatterTransferTicket,
    SharedSegment,
    TransferEngine,
    TransferNotify,
    TransferOpcode,
)

__all__ = [
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MULTI_PROTOCOL",
    "SUPPORT_MUSA",
    "ScatterTransferCompletionStatus",
    "ScatterTransferTicket",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
]

CoroRPCInterface = RpcInterface
Read = TransferOpcode.Read
Write = TransferOpcode.Write

#: Whether transfers can be queued on CUDA streams, and which device fabrics there are: none is built.
SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False
#: Whether one segment can be reached by several protocols of the caller's choice.
SUPPORT_MULTI_PROTOCOL = False


def create_rpc_client(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An interface that is ready to send. The arguments mean nothing, as with the peer."""
    return _native._rpc_client()


def create_rpc_server(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An interface whose server, on port 8080 of every address, is ready to be started."""
    return _native._rpc_server()


# Before the interpreter goes, no thread may be left that asks for it.
_atexit.register(_native._close_engines)
