"""Whatever is passed, a call gives a number or raises; the process lives and the engine works afterwards."""

import ctypes
import itertools
import mmap

from mooncake.engine import Read, TransferEngine, TransferNotify, TransferOpcode, Write

a, b = TransferEngine(), TransferEngine()
assert [engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") for engine in (a, b)] == [0, 0]
NAME = f"127.0.0.1:{b.get_rpc_port()}"
area = mmap.mmap(-1, 1 << 16)
AT = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert b.register_memory(AT, 1 << 16) == 0
odd = [
    None, -1, 0, 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1.5, "text", b"bytes", "", [], [None], [-1], [1 << 64], ["x"], [[1]], (), {}, {1: 2},
    object(), TransferEngine, a, Read, TransferNotify(), True, float("nan"), "\0", "127.0.0.1:0", "127.0.0.1:99999", "[::1", "a" * 10000,
]
methods = [
    name for name in dir(TransferEngine)
    if not name.startswith("_") and name not in ("TransferOpcode", "initialize", "initialize_ext", "close", "get_rpc_port")
]
calls = 0
for method in methods:
    for count in range(10):
        for value in odd:
            # The name of a peer that is there, or the odd value itself, then odd values.
            for arguments in ([value] * count, [NAME, *[value] * count], [NAME, AT, AT, *[value] * count]):
                if "probe" in method or "first_buffer" in method:
                    arguments = arguments[:1] if isinstance(value, str) and len(value) < 3 else arguments[:2]
                try:
                    getattr(a, method)(*arguments)
                except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError, BufferError, UnicodeError):
                    pass
                calls += 1
assert calls > 10000

# Memory that is not there: never mapped, freed since, read-only, wrapped around.
gone = mmap.mmap(-1, 1 << 16)
view = ctypes.c_char.from_buffer(gone)
freed = ctypes.addressof(view)
del view
gone.close()
constant = bytes(4096)
read_only = id(constant) & ~4095  # whatever page the object is in is writable; the text of the program is not
text = ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value
for place, length in itertools.product((0, 1, 4096, freed, (1 << 64) - 4096, (1 << 47) - 4096), (1, 4096, 1 << 20, 1 << 40, (1 << 64) - 1)):
    assert a.transfer_sync_write(NAME, place, AT, length) == -1, (place, length)
    assert a.transfer_sync_read(NAME, place, AT, length) == -1, (place, length)
    assert a.batch_transfer_sync_write(NAME, [AT, place], [AT, AT], [1, length]) == -1
    assert a.transfer_submit_write(NAME, place, AT, length) == 0
assert a.transfer_sync_read(NAME, text, AT, 8) == -1, "the program's text is not writable"
assert a.transfer_sync_write(NAME, text, AT, 8) == 0, "but readable"
for place in (0, 1, freed, (1 << 64) - 1):
    assert a.transfer_sync_write(NAME, AT, place, 8) == -1, "not registered there"

# Registered and freed since, on the peer's side.
late = mmap.mmap(-1, 1 << 16)
view = ctypes.c_char.from_buffer(late)
late_at = ctypes.addressof(view)
assert b.register_memory(late_at, 1 << 16) == 0
del view
late.close()
assert a.transfer_sync_write(NAME, AT, late_at, 1 << 16) == -1
assert a.transfer_sync_read(NAME, AT, late_at, 1 << 16) == -1
assert b.unregister_memory(late_at) == 0

for bad in ("", "/", "nonsense", "127.0.0.1", "127.0.0.1:", ":1", "\0", "a b:1", "127.0.0.1:99999", "256.0.0.1:1", "[::1]", "ü:1"):
    assert a.transfer_sync_write(bad, AT, AT, 8) == -1, bad
    assert a.get_first_buffer_address(bad) == 0, bad
    assert a.send_probe(bad) < 0, bad
    assert a.last_error()
for batch in (0, 1, 7, 1 << 40, (1 << 64) - 1):
    assert a.transfer_check_status(batch) == -1
    assert a.get_batch_transfer_status([batch]) == -1
assert a.transfer_sync(NAME, AT, AT, 8, TransferOpcode(7)) == -1
spent = a.transfer_submit_write(NAME, AT, AT + 100, 8)
while a.transfer_check_status(spent) == 0:
    pass
assert a.transfer_check_status(spent) == -1, "a number is good for one answer"
assert a.transfer_sync(NAME, AT, AT + 8, 8, Write) == 0, "and everything still works"
