"""Objects stand for their memory: buffers and tensors by `data_ptr`, kept alive and in place while they are used."""

import array
import ctypes
import gc
import weakref

from mooncake.engine import TransferEngine

a, b = TransferEngine(), TransferEngine()
assert [engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") for engine in (a, b)] == [0, 0]
NAME = f"127.0.0.1:{b.get_rpc_port()}"
target = bytearray(4096)
assert b.register_memory(target, len(target)) == 0
AT = a.get_first_buffer_address(NAME)
try:
    target.extend(b"x")
    raise AssertionError("registered memory was moved")
except BufferError:
    pass

assert a.transfer_sync_write(NAME, b"constant", AT, 8) == 0
assert target[:8] == b"constant"
into = bytearray(8)
assert a.transfer_sync_read(NAME, into, AT, 8) == 0
assert into == b"constant"
into.extend(b"and it may grow again")
numbers = array.array("i", [1, 2, 3])
assert a.batch_transfer_sync_write(NAME, [numbers, memoryview(b"tail")], [AT + 64, AT + 128], [12, 4]) == 0
assert target[64:76] == numbers.tobytes() and target[128:132] == b"tail"
for what, arguments, error in (
    ("longer than the object", (NAME, b"abc", AT, 4), ValueError),
    ("strided", (NAME, memoryview(b"abcdef")[::2], AT, 3), ValueError),
    ("no memory", (NAME, object(), AT, 4), TypeError),
    ("text", (NAME, "abc", AT, 3), TypeError),
):
    try:
        a.transfer_sync_write(*arguments)
        raise AssertionError(what)
    except error:
        pass
try:
    a.transfer_sync_read(NAME, b"constant", AT, 4)
    raise AssertionError("read into a constant")
except TypeError:
    pass


class Tensor:
    """As libraries make them."""

    def __init__(self, values, contiguous=True):
        self.values, self.contiguous = array.array("f", values), contiguous

    def data_ptr(self):
        return self.values.buffer_info()[0]

    def numel(self):
        return len(self.values)

    def element_size(self):
        return 4

    def is_contiguous(self):
        return self.contiguous


tensor = Tensor([1.0, 2.0])
assert a.transfer_sync_write(NAME, tensor, AT + 256, 8) == 0
assert target[256:264] == tensor.values.tobytes()
for bad, length in ((tensor, 9), (Tensor([1.0], contiguous=False), 4)):
    try:
        a.transfer_sync_write(NAME, bad, AT, length)
        raise AssertionError("a tensor that does not fit")
    except ValueError:
        pass

# An asynchronous call keeps what it uses until it was asked for.
sent = Tensor([3.0] * 8)
gone = weakref.ref(sent)
batch = a.batch_transfer_async_write(NAME, [sent], [AT + 512], [32])
del sent
gc.collect()
assert gone() is not None
assert a.get_batch_transfer_status([batch]) == 0
gc.collect()
assert gone() is None
assert target[512:544] == array.array("f", [3.0] * 8).tobytes()

# And registration until it is taken back.
held = Tensor([4.0] * 1024)
gone = weakref.ref(held)
place = held.data_ptr()
assert b.register_memory(held, 4096) == 0
del held
gc.collect()
assert gone() is not None and a.transfer_sync_write(NAME, b"kept", place, 4) == 0
assert ctypes.string_at(place, 4) == b"kept"
assert b.unregister_memory(place) == 0
gc.collect()
assert gone() is None
assert b.batch_register_memory([numbers, tensor], [12, 8]) == 0
assert b.batch_unregister_memory([numbers, tensor]) == 0
assert b.unregister_memory(target) == 0
target.extend(b"and it may grow")
