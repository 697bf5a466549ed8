"""RpcInterface beyond the peer: failures are told, order is kept, servers restart, futures resolve, tensors keep their shape."""

import array
import asyncio
import gc
import threading
import weakref

from mooncake.engine import CoroRPCInterface, ReceivedTensor, RpcInterface, create_rpc_client, create_rpc_server

assert CoroRPCInterface is RpcInterface


def refuses(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


# Nothing before initialize.
bare = RpcInterface()
assert bare.send_data("127.0.0.1:1", b"x") == -1 and bare.send_tensor("127.0.0.1:1", array.array("B", b"x")) == -1
assert bare.start_server() is False and bare.start_server_async() is False and bare.stop_server() is None
assert bare.get_port() == 0
for wrong in (None, 5, "text"):
    refuses(TypeError, lambda: bare.set_data_receive_callback(wrong))
    refuses(TypeError, lambda: bare.set_tensor_receive_callback(wrong))
for wrong in ("text", bytearray(b"x"), memoryview(b"x"), None, 5):
    refuses(TypeError, lambda: bare.send_data("127.0.0.1:1", wrong))
refuses(TypeError, lambda: bare.initialize_client(-1))
refuses(TypeError, lambda: bare.initialize_server())
refuses(TypeError, lambda: RpcInterface(1))
for place in ("nonsense", "", "1.2.3.4:70000", "256.1.1.1:1"):
    server = RpcInterface()
    assert server.initialize_server(place) is True and server.start_server_async() is False

received, happened = [], threading.Condition()


def keep(message):
    with happened:
        received.append(message)
        happened.notify_all()


server, client = RpcInterface(), create_rpc_client()
assert server.initialize("127.0.0.1:0", 4) is True
server.set_data_receive_callback(keep)
assert server.start_server_async() is True and server.start_server_async() is False
TO = f"127.0.0.1:{server.get_port()}"
for length in (0, 1, 1024, 1025, 1 << 20, 5, 0):
    assert client.send_data(TO, b"\x07" * length) == 0
    message = received.pop()
    assert message["data"] == b"\x07" * length and message["source"].startswith("127.0.0.1:"), length
assert not received
assert client.send_data("127.0.0.1:1", b"x") == -1 and client.send_data("nonsense", b"x") == -1
server.set_data_receive_callback(lambda message: 1 / 0)
assert client.send_data(TO, b"a callback that raises costs nobody else anything") == 0
server.set_data_receive_callback(keep)
assert server.send_data(TO, b"to itself") == 0 and received.pop()["data"] == b"to itself"


# Tensors: by `data_ptr`, moved to the host and straightened first where they have to be.
class Tensor:
    def __init__(self, values, shape, dtype="torch.float32", device="cpu", straight=True):
        self.values, self.shape, self.dtype, self.straight = array.array("f", values), shape, dtype, straight
        self.device = type("Device", (), {"type": device})

    def data_ptr(self):
        return self.values.buffer_info()[0] if self.straight and self.device.type == "cpu" else 1

    def numel(self):
        return len(self.values)

    def element_size(self):
        return 4

    def is_contiguous(self):
        return self.straight

    def cpu(self):
        return Tensor(self.values, self.shape, self.dtype, "cpu", self.straight)

    def contiguous(self):
        return Tensor(self.values, self.shape, self.dtype, self.device.type)


values = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
raw = array.array("f", values).tobytes()
assert client.send_tensor(TO, Tensor(values, (2, 3))) == 0
assert received.pop()["data"] == raw, "without a callback of their own tensors are data"
server.set_tensor_receive_callback(keep)
for tensor, dtype in (
    (Tensor(values, (2, 3)), "float32"), (Tensor(values, (1, 1, 2, 1, 3)), "float32"), (Tensor(values, [2, 3], device="cuda"), "float32"),
    (Tensor(values, (3, 2), straight=False), "float32"), (Tensor(values, (6,), device="cuda", straight=False), "float32"),
):
    assert client.send_tensor(TO, tensor) == 0
    came = received.pop()
    assert isinstance(came, ReceivedTensor) and came.shape == list(tensor.shape) and came.dtype == dtype
    assert came.get_data_as_bytes() == raw == bytes(came.get_memory_view()) and came.total_bytes == came.get_data_size() == 24
    assert came.source_address.startswith("127.0.0.1:")
assert client.send_tensor(TO, Tensor(values, (7,))) == 0 and received.pop()["data"] == raw, "a shape that does not fit is no shape"
assert client.send_tensor(TO, Tensor(values, (6,), "torch.strange")) == 0 and received.pop()["data"] == raw
for nothing in (None, b"bytes", 5, [1.0], object()):
    assert client.send_tensor(TO, nothing) == -1
null = Tensor(values, (6,))
null.data_ptr = lambda: 0
assert client.send_tensor(TO, null) == -1


# Futures.
async def later():
    loop = asyncio.get_running_loop()
    assert await client.send_data_async(TO, b"later", loop) == 0
    assert received.pop()["data"] == b"later"
    assert await client.send_data_async(TO, b"x" * 5000, None) == 0
    assert len(received.pop()["data"]) == 5000
    assert await client.send_tensor_async(TO, Tensor(values, (6,)), loop) == 0
    assert received.pop().shape == [6]
    assert await client.send_data_async("127.0.0.1:1", b"x", loop) == -1
    assert await client.send_data_async("nonsense", b"x", loop) == -1
    assert await client.send_tensor_async(TO, None, loop) == -1
    answers = await asyncio.gather(*(client.send_data_async(TO, bytes([i]), loop) for i in range(100)))
    assert answers == [0] * 100 and sorted(message["data"][0] for message in received) == list(range(100))
    received.clear()
    cancelled = client.send_data_async(TO, b"cancelled", loop)
    cancelled.cancel()
    with_error = bare.send_data_async(TO, b"x", loop)
    try:
        await with_error
        raise AssertionError("no RuntimeError")
    except RuntimeError as error:
        assert "not initialized" in str(error)
    with happened:
        assert happened.wait_for(lambda: received, 10)
    received.clear()


asyncio.run(later())
refuses(RuntimeError, lambda: client.send_data_async(TO, b"x", None))

# A slow callback holds up its own connection only; stop waits for it; a callback may stop its own server.
gate, inside = threading.Event(), threading.Event()


def slow(message):
    if message["data"] == b"slow":
        inside.set()
        assert gate.wait(20)
    keep(message)


server.set_data_receive_callback(slow)
outcome = []
waiting = threading.Thread(target=lambda: outcome.append(client.send_data(TO, b"slow")))
waiting.start()
assert inside.wait(10)
others = [create_rpc_client() for _ in range(16)]
quick = []
threads = [threading.Thread(target=lambda c=c: quick.append(c.send_data(TO, b"quick"))) for c in others]
for thread in threads:
    thread.start()
with happened:
    assert happened.wait_for(lambda: len(received) >= 1, 10), "every connection waits for the slow one"
gate.set()
for thread in (*threads, waiting):
    thread.join(20)
assert outcome == [0] and quick == [0] * 16
received.clear()
server.stop_server()
server.stop_server()
assert server.get_port() == 0 and client.send_data(TO, b"x") == -1
assert server.start_server_async() is True, "it may be started again"
TO = f"127.0.0.1:{server.get_port()}"
server.set_data_receive_callback(lambda message: server.stop_server())
client.send_data(TO, b"stop yourself")
assert server.get_port() == 0

# A server that blocks ends when it is stopped from elsewhere.
blocking = RpcInterface()
assert blocking.initialize_server("127.0.0.1:0", 1)
ended = []
thread = threading.Thread(target=lambda: ended.append(blocking.start_server()))
thread.start()
while blocking.get_port() == 0:
    pass
blocking.stop_server()
thread.join(10)
assert ended == [True]
gone = weakref.ref(blocking)
del blocking, thread
gc.collect()
assert gone() is None
assert isinstance(create_rpc_server(1, 2), RpcInterface)
