"""An engine that was never initialized, that failed to, or that was closed, answers like any failed call, in its shape."""

import array
import ctypes

from mooncake.engine import Read, ScatterTransferCompletionStatus, TransferEngine, Write

BUFFER = ctypes.create_string_buffer(4096)
AT = ctypes.addressof(BUFFER)
WORDS = array.array("Q", [AT])
SIZES = array.array("Q", [8])
FIELDS = memoryview(array.array("Q", [AT, 8, AT, 8, 8])).cast("B").cast("Q", (1, 5))
ONE, MANY = ("127.0.0.1:1", AT, AT, 8), ("127.0.0.1:1", [AT], [AT], [8])
REGIONS = ("127.0.0.1:1", [AT], [64], [AT], [64], [[0]], [[0]], [[8]])
SHAPES = {
    "transfer_sync_write": (ONE, -1), "transfer_sync_read": (ONE, -1), "transfer_sync": ((*ONE, Write), -1),
    "batch_transfer_sync_write": (MANY, -1), "batch_transfer_sync_read": (MANY, -1),
    "batch_transfer_sync": ((*MANY, Read), -1), "batch_transfer_async_write": (MANY, 0),
    "batch_transfer_async_read": (MANY, 0), "batch_transfer_async": ((*MANY, Write), 0), "transfer_submit_write": (ONE, 0),
    "batch_transfer_sync_write_arrays": (("x", WORDS, WORDS, SIZES), -1),
    "batch_transfer_sync_read_arrays": (("x", WORDS, WORDS, SIZES), -1),
    "batch_transfer_async_write_arrays": (("x", WORDS, WORDS, SIZES), 0),
    "batch_transfer_async_read_arrays": (("x", WORDS, WORDS, SIZES), 0),
    "batch_transfer_sync_write_pages": (("x", WORDS[:0] + array.array("Q", [0]), array.array("Q", [0]), FIELDS), -1),
    "batch_transfer_sync_read_pages": (("x", array.array("Q", [0]), array.array("Q", [0]), FIELDS), -1),
    "transfer_check_status": ((7,), -1), "get_batch_transfer_status": (([7],), -1),
    "register_memory": ((AT, 64), -1), "unregister_memory": ((AT,), -1), "batch_register_memory": (([AT], [64]), -1),
    "batch_unregister_memory": (([AT],), -1), "allocate_managed_buffer": ((64,), 0), "free_managed_buffer": ((AT, 64), -1),
    "write_bytes_to_buffer": ((AT, b"x", 1), RuntimeError), "read_bytes_from_buffer": ((AT, 1), RuntimeError),
    "get_first_buffer_address": (("127.0.0.1:1",), 0), "get_notifies": ((), []), "send_probe": (("127.0.0.1:1",), -1),
    "warmup_efa_segment": (("x",), -1), "get_engine": ((), RuntimeError), "get_engine_ptr": ((), 0), "get_rpc_port": ((), 0),
    "transfer_write_on_cuda": (ONE, RuntimeError), "transfer_read_on_cuda": (ONE, RuntimeError),
    "batch_transfer_write_on_cuda": (MANY, RuntimeError), "batch_transfer_read_on_cuda": (MANY, RuntimeError),
    "close": ((), None),
}
TICKETS = (
    "submit_scatter_write", "submit_scatter_read", "scatter_transfer_sync_write_with_ticket",
    "scatter_transfer_sync_read_with_ticket",
)


def check(engine):
    for name, (arguments, expected) in SHAPES.items():
        try:
            answer = getattr(engine, name)(*arguments)
        except RuntimeError:
            answer = RuntimeError
        assert answer == expected, (name, answer)
    for name in TICKETS:
        ticket = getattr(engine, name)(*REGIONS)
        assert ticket.status == ticket.drain(0) == ScatterTransferCompletionStatus.FAILED_DRAINED and ticket.drained, name
    assert "not initialized" in engine.last_error() or "no CUDA" in engine.last_error()
    assert engine.get_local_topology().startswith("{")


missing = [name for name in dir(TransferEngine) if not name.startswith("_") and name not in SHAPES and name not in TICKETS]
assert sorted(missing) == ["TransferOpcode", "get_local_topology", "initialize", "initialize_ext", "last_error"], missing
check(TransferEngine())
failed = TransferEngine()
assert failed.initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", "") == -1
assert "xgmi" in failed.last_error()
check(failed)
closed = TransferEngine()
assert closed.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
place = closed.allocate_managed_buffer(100)
batch = closed.transfer_submit_write(f"127.0.0.1:{closed.get_rpc_port()}", place, place, 8)
ticket = closed.submit_scatter_write(f"127.0.0.1:{closed.get_rpc_port()}", [place], [64], [place], [64], [[0]], [[0]], [[8]])
assert batch > 0
closed.close()
check(closed)
assert closed.transfer_check_status(batch) == -1
assert ticket.drain(1000) != ScatterTransferCompletionStatus.COMPLETION_UNKNOWN
assert closed.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, "initialize again"
assert closed.register_memory(AT, 4096) == 0
assert closed.transfer_sync_write(f"127.0.0.1:{closed.get_rpc_port()}", AT, AT + 64, 8) == 0
