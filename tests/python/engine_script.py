"""One sequence of calls on two engines, run under either package; prints a JSON list of [name, answer].

Every answer is a plain value: a number, text, a list, or the name of the exception. The names are the keys of the
intended differences in test_engine_differential.py. Calls that end the peer's process are not here: what ours answers to
them is in engine_scripts/.
"""

import array
import ctypes
import json
import mmap
import os
import pickle
import sys
import time

import mooncake.engine as module

PAGE = 1 << 16
NEW = hasattr(module, "ScatterTransferTicket")
out = []


def plain(value):
    """The value as JSON can hold it."""
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return value if value is None or isinstance(value, (int, str)) else str(value)


def step(name, call):
    """Notes what a call answers."""
    try:
        out.append([name, plain(call())])
    except Exception as error:  # noqa: BLE001 - the name of the exception is the answer
        out.append([name, type(error).__name__])


def memory(size):
    """Anonymous memory and its address."""
    area = mmap.mmap(-1, size)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


def types():
    op = module.TransferOpcode
    step("opcode members", lambda: {k: int(v) for k, v in op.__members__.items()})
    step("opcode text", lambda: [str(op.Write), repr(op.Write), op.Write.name, op.Write.value])
    step("opcode made", lambda: [repr(op(1)), repr(op(7)), op(1) == op.Write])
    step("opcode equality", lambda: [op.Read == 0, op.Read == op.Read, op.Read != op.Write, hash(op.Read) == hash(op(0))])
    step("opcode order", lambda: [op.Read < op.Write, op.Read <= op.Read, op.Write > op.Read, op.Read >= op.Write])
    step("opcode order with int", lambda: op.Read < 1)
    step("opcode or", lambda: op.Read | op.Write)
    step("opcode int", lambda: [int(op.Write), [10, 20][op.Write]])
    step("opcode made of text", lambda: op("Read"))
    step("opcode made negative", lambda: op(-1))
    step("opcode pickled", lambda: [pickle.loads(pickle.dumps(op.Write)) == op.Write])
    step("opcode places", lambda: [module.Read == op.Read, module.Write == op.Write, module.TransferEngine.TransferOpcode is op])
    step("opcode assigned", lambda: setattr(op.Read, "name", "x"))
    step("opcode copies", lambda: [op(op.Read) == op.Read])
    notify = module.TransferNotify
    step("notify empty", lambda: [notify().name, notify().msg])
    step("notify positional", lambda: [notify("n", "m").name, notify("n", "m").msg])
    step("notify keywords", lambda: [notify(msg="m", name="n").name])
    step("notify one argument", lambda: notify("n"))
    step("notify wrong type", lambda: notify(1, 2))
    step("notify bytes", lambda: notify(b"n", b"m").name)

    def assigned():
        made = notify()
        made.name, made.msg = "a", "b"
        return [made.name, made.msg]

    step("notify assigned", assigned)
    step("notify assigned wrong", lambda: setattr(notify(), "name", 3))
    step("notify unknown attribute", lambda: setattr(notify(), "other", 3))
    for name in ("InnerTransferEngine", "ReceivedData", "ReceivedTensor", "SharedSegment"):
        step(f"construct {name}", lambda name=name: getattr(module, name)())
    step("construct engine with argument", lambda: module.TransferEngine(1))
    step("aliases", lambda: module.CoroRPCInterface is module.RpcInterface)


def starts():
    engine = module.TransferEngine
    good = ("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    step("topology before initialize", lambda: [type(engine().get_local_topology()).__name__, engine().get_local_topology(None)[:1]])
    step("initialize", lambda: engine().initialize(*good))
    step("initialize three arguments", lambda: engine().initialize(*good[:3]))
    step("initialize five arguments", lambda: engine().initialize(*good, ""))
    step("initialize keywords", lambda: engine().initialize(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", protocol="tcp", device_name=""))
    step("initialize None", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", None))
    step("initialize number", lambda: engine().initialize(1, "P2PHANDSHAKE", "tcp", ""))
    step("initialize bytes", lambda: engine().initialize(b"127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
    step("initialize with port", lambda: engine().initialize("127.0.0.1:12345", "P2PHANDSHAKE", "tcp", ""))
    step("initialize xgmi", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", ""))
    step("initialize empty protocol", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "", ""))
    step("initialize rdma without a device", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", ""))
    step("initialize unknown protocol", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "pigeon", ""))
    step("initialize no metadata server", lambda: engine().initialize("127.0.0.1:18001", "http://127.0.0.1:1/metadata", "tcp", ""))
    step("initialize device filter", lambda: engine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "mlx5_0,mlx5_1"))
    step("initialize_ext", lambda: engine().initialize_ext("127.0.0.1", "P2PHANDSHAKE", "tcp", "", ""))
    step("initialize_ext four arguments", lambda: engine().initialize_ext(*good))

    def twice():
        made = engine()
        return [made.initialize(*good), made.initialize(*good), made.get_rpc_port() > 0]

    step("initialize twice", twice)


def registrations(engine, base):
    step("register", lambda: engine.register_memory(base, 4 * PAGE))
    step("register again", lambda: engine.register_memory(base, 4 * PAGE))
    step("register inside", lambda: engine.register_memory(base + PAGE, PAGE))
    step("register over the end", lambda: engine.register_memory(base + 3 * PAGE, 2 * PAGE))
    step("register neighbour", lambda: engine.register_memory(base + 4 * PAGE, PAGE))
    step("register nothing", lambda: engine.register_memory(base + 6 * PAGE, 0))
    step("register null", lambda: engine.register_memory(0, PAGE))
    step("register negative", lambda: engine.register_memory(-1, PAGE))
    step("register negative size", lambda: engine.register_memory(base, -1))
    step("register float", lambda: engine.register_memory(1.5, PAGE))
    step("register None", lambda: engine.register_memory(None, PAGE))
    step("register too large", lambda: engine.register_memory(1 << 64, PAGE))
    step("register keywords", lambda: engine.register_memory(buffer_addr=base + 5 * PAGE, capacity=PAGE, location="cpu:0"))
    step("register location number", lambda: engine.register_memory(base + 6 * PAGE, PAGE, 0))
    step("register unknown keyword", lambda: engine.register_memory(base + 6 * PAGE, PAGE, nope=1))
    step("unregister keyword", lambda: engine.unregister_memory(buffer_addr=base + 4 * PAGE))
    step("unregister", lambda: [engine.unregister_memory(base + 4 * PAGE), engine.unregister_memory(base + 5 * PAGE)])
    step("unregister again", lambda: engine.unregister_memory(base + 4 * PAGE))
    step("unregister inside", lambda: engine.unregister_memory(base + PAGE))
    step("unregister unknown", lambda: engine.unregister_memory(12345))
    step("unregister negative", lambda: engine.unregister_memory(-1))
    places = [base + 8 * PAGE, base + 10 * PAGE]
    step("batch register", lambda: engine.batch_register_memory(places, [PAGE, PAGE]))
    step("batch register again", lambda: engine.batch_register_memory(places, [PAGE, PAGE]))
    step("batch unregister", lambda: engine.batch_unregister_memory(places))
    step("batch unregister again", lambda: engine.batch_unregister_memory(places))
    step("batch register one overlaps", lambda: engine.batch_register_memory([base + 8 * PAGE, base], [PAGE, PAGE]))
    step("batch register none of them", lambda: engine.unregister_memory(base + 8 * PAGE))
    step("batch register lengths", lambda: engine.batch_register_memory(places, [PAGE]))
    step("batch register nothing", lambda: engine.batch_register_memory([], []))
    step("batch unregister nothing", lambda: engine.batch_unregister_memory([]))
    step("batch register tuple", lambda: [engine.batch_register_memory(tuple(places), (PAGE, PAGE), "cpu:0"), engine.batch_unregister_memory(tuple(places))])
    step("batch register keywords", lambda: [engine.batch_register_memory(buffer_addresses=places, capacities=[PAGE, PAGE], location="*"), engine.batch_unregister_memory(places)])
    step("batch register number", lambda: engine.batch_register_memory(places[0], PAGE))
    step("batch register negative", lambda: engine.batch_register_memory([-1], [PAGE]))


def transfers(a, b, name, here, area_here, there, area_there):
    area_here[:16] = b"0123456789abcdef"
    step("write", lambda: [a.transfer_sync_write(name, here, there, 16), area_there[:16]])
    step("read", lambda: [a.transfer_sync_read(name, here + 100, there + 4, 8), area_here[100:108]])
    step("write again", lambda: a.transfer_sync_write(name, here, there, 16))
    step("write keywords", lambda: a.transfer_sync_write(target_hostname=name, buffer=here, peer_buffer_address=there, length=4, transport_hint=""))
    step("write hint", lambda: a.transfer_sync_write(name, here, there, 4, "pigeon"))
    step("write nothing", lambda: a.transfer_sync_write(name, here, there, 0))
    step("write negative", lambda: a.transfer_sync_write(name, here, there, -1))
    step("write float", lambda: a.transfer_sync_write(name, here, there, 1.5))
    step("write None", lambda: a.transfer_sync_write(name, None, there, 1))
    step("write to None", lambda: a.transfer_sync_write(None, here, there, 1))
    step("write too few", lambda: a.transfer_sync_write(name, here, there))
    step("write empty name", lambda: a.transfer_sync_write("", here, there, 4))
    step("write slash name", lambda: a.transfer_sync_write("/" + name, here, there, 4))
    step("write nobody", lambda: a.transfer_sync_write("127.0.0.1:1", here, there, 4))
    step("write unregistered there", lambda: a.transfer_sync_write(name, here, there + 64 * PAGE, 4))
    step("write over the end there", lambda: a.transfer_sync_write(name, here, there + 4 * PAGE - 2, 4))
    step("write unregistered here", lambda: [a.transfer_sync_write(name, here + 20 * PAGE, there, 16), area_there[:2]])
    settle(a, name, here, there)
    step("sync opcode", lambda: [a.transfer_sync(name, here, there + 32, 16, module.TransferOpcode.Write), area_there[32:48]])
    step("sync opcode number", lambda: a.transfer_sync(name, here, there, 16, 1))
    step("sync read", lambda: [a.transfer_sync(name, here + 200, there + 32, 16, module.Read), area_here[200:216]])
    step("sync with notify", lambda: [a.transfer_sync(name, here, there, 16, module.Write, module.TransferNotify("n", "m")), noted(b)])
    step("sync notify keyword", lambda: [a.transfer_sync(name, here, there, 16, opcode=module.Write, notify=module.TransferNotify("k", "kw")), noted(b)])
    step("sync notify alone", lambda: [a.transfer_sync(name, here, there, 0, module.Write, module.TransferNotify("z", "zero")), noted(b)])
    step("sync notify None", lambda: a.transfer_sync(name, here, there, 16, module.Write, None))
    step("sync notify text", lambda: a.transfer_sync(name, here, there, 16, module.Write, "n"))
    step("sync failing notify", lambda: [a.transfer_sync(name, here, there + 64 * PAGE, 16, module.Write, module.TransferNotify("f", "")), len(b.get_notifies())])
    settle(a, name, here, there)
    step("no notifies", lambda: b.get_notifies())
    own = f"127.0.0.1:{a.get_rpc_port()}"
    step("write to itself", lambda: [a.transfer_sync_write(own, here, here + 300, 16), area_here[300:316]])


def settle(engine, name, here, there):
    """After a refusal the peer's next transfer can fail too, as its connection was closed."""
    until = time.monotonic() + 5
    while engine.transfer_sync_write(name, here, there, 1) != 0 and time.monotonic() < until:
        time.sleep(0.01)


def noted(engine):
    """What came within a second; each version sends it at another moment."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        found = [[note.name, note.msg] for note in engine.get_notifies()]
        if found:
            return found
        time.sleep(0.01)
    return []


def batches(a, b, name, here, area_here, there, area_there):
    ours, theirs = [here, here + PAGE], [there + PAGE, there + 2 * PAGE]
    area_here[:4], area_here[PAGE:PAGE + 4] = b"abcd", b"efgh"
    step("batch write", lambda: [a.batch_transfer_sync_write(name, ours, theirs, [4, 4]), area_there[PAGE:PAGE + 4], area_there[2 * PAGE:2 * PAGE + 4]])
    step("batch read", lambda: [a.batch_transfer_sync_read(name, [here + 400, here + 500], theirs, [4, 4]), area_here[400:404], area_here[500:504]])
    step("batch none", lambda: a.batch_transfer_sync_write(name, [], [], []))
    step("batch none to nobody", lambda: a.batch_transfer_sync_write("127.0.0.1:1", [], [], []))
    step("batch lengths", lambda: a.batch_transfer_sync_write(name, ours, theirs, [4]))
    step("batch remotes", lambda: a.batch_transfer_sync_write(name, ours, theirs[:1], [4, 4]))
    step("batch zero length inside", lambda: a.batch_transfer_sync_write(name, ours, theirs, [0, 4]))
    step("batch one unregistered", lambda: a.batch_transfer_sync_write(name, ours, [theirs[0], there + 64 * PAGE], [4, 4]))
    settle(a, name, here, there)
    step("batch negative", lambda: a.batch_transfer_sync_write(name, [-1], [there], [4]))
    step("batch text", lambda: a.batch_transfer_sync_write(name, "ab", "cd", "ef"))
    step("batch number", lambda: a.batch_transfer_sync_write(name, here, there, 4))
    step("batch tuples", lambda: a.batch_transfer_sync_write(name, tuple(ours), tuple(theirs), (4, 4)))
    step("batch arrays", lambda: a.batch_transfer_sync_write(name, array.array("Q", ours), array.array("Q", theirs), array.array("Q", [4, 4])))
    step("batch range", lambda: a.batch_transfer_sync_write(name, range(here, here + 2), range(there, there + 2), [1, 1]))
    step("batch keywords", lambda: a.batch_transfer_sync_write(target_hostname=name, buffers=ours, peer_buffer_addresses=theirs, lengths=[4, 4], transport_hint=""))
    step("batch nobody", lambda: a.batch_transfer_sync_write("127.0.0.1:1", ours, theirs, [4, 4]))
    step("batch opcode", lambda: [a.batch_transfer_sync(name, ours, theirs, [4, 4], module.Write), a.batch_transfer_sync(name, ours, theirs, [4, 4], module.Read)])
    step("batch with notify", lambda: [a.batch_transfer_sync(name, ours, theirs, [4, 4], module.Write, module.TransferNotify("b", "batch")), noted(b)])
    step("batch none with notify", lambda: a.batch_transfer_sync(name, [], [], [], module.Write, module.TransferNotify("e", "")))
    step("batch of 1000", lambda: [a.batch_transfer_sync_write(name, [here + 8 * i for i in range(1000)], [there + PAGE + 8 * i for i in range(1000)], [8] * 1000), area_there[PAGE:PAGE + 8000] == area_here[:8000]])


def asynchronous(a, name, here, area_here, there, area_there):
    def finished(batch):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            answer = a.transfer_check_status(batch)
            if answer != 0:
                return answer
        return "never"

    step("submit", lambda: [finished(a.transfer_submit_write(name, here, there, 16)), area_there[:4] == area_here[:4]])
    step("submit kind", lambda: type(a.transfer_submit_write(name, here, there, 16)).__name__)
    step("submit nobody", lambda: a.transfer_submit_write("127.0.0.1:1", here, there, 16))
    step("submit nothing", lambda: finished(a.transfer_submit_write(name, here, there, 0)))
    step("submit unregistered", lambda: finished(a.transfer_submit_write(name, here, there + 64 * PAGE, 16)))
    settle(a, name, here, there)
    step("submit id is small", lambda: 0 < a.transfer_submit_write(name, here, there, 16) < 1 << 63)
    step("check negative", lambda: a.transfer_check_status(-1))
    step("check text", lambda: a.transfer_check_status("x"))

    def waited(ids):
        return a.get_batch_transfer_status(ids)

    two = ([here, here + 100], [there, there + PAGE], [16, 16])
    step("async write", lambda: waited([a.batch_transfer_async_write(name, *two)]))
    step("async read", lambda: waited([a.batch_transfer_async_read(name, *two)]))
    step("async opcode", lambda: waited([a.batch_transfer_async(name, *two, module.Write), a.batch_transfer_async(name, *two, module.Read)]))
    step("async opcode missing", lambda: a.batch_transfer_async(name, *two))
    step("async none", lambda: waited([a.batch_transfer_async_write(name, [], [], [])]))
    step("async lengths", lambda: a.batch_transfer_async_write(name, two[0], two[1], [16]))
    step("async nobody", lambda: a.batch_transfer_async_write("127.0.0.1:1", *two))
    step("async unregistered", lambda: waited([a.batch_transfer_async_write(name, two[0], [there, there + 64 * PAGE], two[2])]))
    step("status of none", lambda: waited([]))
    step("status number", lambda: a.get_batch_transfer_status(5))
    step("status negative", lambda: a.get_batch_transfer_status([-1]))


def managed(engine, name, other, there, area_there):
    sizes = (1, 8192, 8193, 100_000, 1 << 20)
    made = {}

    def allocate(size):
        made[size] = engine.allocate_managed_buffer(size)
        return made[size] > 0

    for size in sizes:
        step(f"managed {size}", lambda size=size: allocate(size))
    step("managed apart", lambda: len(set(made.values())) == len(sizes))
    place = made.get(100_000, 0)
    step("managed write", lambda: [engine.write_bytes_to_buffer(place, b"hello", 5), engine.read_bytes_from_buffer(place, 5)])
    step("managed write text", lambda: [engine.write_bytes_to_buffer(place, "h\u00e9\u00e9", 3), engine.read_bytes_from_buffer(place, 3)])
    step("managed write part", lambda: [engine.write_bytes_to_buffer(place, b"world", 2), engine.read_bytes_from_buffer(place, 5)])
    step("managed write view", lambda: engine.write_bytes_to_buffer(place, memoryview(b"abc"), 3))
    step("managed write nothing", lambda: engine.write_bytes_to_buffer(place, b"", 0))
    step("managed write NUL", lambda: [engine.write_bytes_to_buffer(place, b"a\0b", 3), engine.read_bytes_from_buffer(place, 3)])
    step("managed read nothing", lambda: engine.read_bytes_from_buffer(place, 0))
    step("managed transfer", lambda: [engine.transfer_sync_write(name, place, there, 3), area_there[:3]])
    step("managed as target", lambda: [engine.write_bytes_to_buffer(place, b"remote", 6), other.transfer_sync_read(f"127.0.0.1:{engine.get_rpc_port()}", there + 50, place, 6), area_there[50:56]])
    step("managed negative", lambda: engine.allocate_managed_buffer(-1))
    step("managed float", lambda: engine.allocate_managed_buffer(1.5))
    for size in sizes:
        step(f"managed free {size}", lambda size=size: engine.free_managed_buffer(made[size], size))
    step("managed again", lambda: [engine.free_managed_buffer(engine.allocate_managed_buffer(4096), 4096) for _ in range(3)])


def asked(a, b, name, there):
    step("first buffer", lambda: a.get_first_buffer_address(name) == there)
    step("first buffer nobody", lambda: a.get_first_buffer_address("127.0.0.1:1"))
    step("first buffer empty name", lambda: a.get_first_buffer_address(""))
    step("first buffer number", lambda: a.get_first_buffer_address(1))
    step("probe", lambda: a.send_probe(name))
    step("probe keyword", lambda: a.send_probe(peer_server_name=name))
    step("probe nobody", lambda: a.send_probe("127.0.0.1:1"))
    step("probe nonsense", lambda: a.send_probe("nonsense"))
    step("probe empty", lambda: a.send_probe(""))
    step("probe None", lambda: a.send_probe(None))
    step("warmup", lambda: a.warmup_efa_segment(name))
    step("warmup keyword", lambda: a.warmup_efa_segment(segment_name=name))
    step("warmup nobody", lambda: a.warmup_efa_segment("127.0.0.1:1"))
    step("engine", lambda: type(a.get_engine()).__name__)
    step("engine pointer", lambda: [type(a.get_engine_ptr()).__name__, a.get_engine_ptr() > 0, a.get_engine_ptr() == a.get_engine_ptr()])
    step("topology", lambda: type(json.loads(a.get_local_topology())).__name__)
    step("topology text", lambda: a.get_local_topology())
    step("topology keyword", lambda: type(a.get_local_topology(device_name="mlx5_0")).__name__)
    step("rpc port", lambda: 15000 <= a.get_rpc_port() <= 17000)


def versions(a, name, here, area_here, there, area_there):
    """What came with 0.3.14."""
    words = lambda *numbers: array.array("Q", numbers)  # noqa: E731
    area_here[:64] = bytes(range(64))
    step("14 nic hint", lambda: a.transfer_sync_write(name, here, there, 16, "", "mlx5_9"))
    step("14 nic hint keyword", lambda: a.batch_transfer_sync_write(name, [here], [there], [16], nic_hint="x"))
    step("14 remote_accessible", lambda: [a.register_memory(here + 40 * PAGE, PAGE, "*", False), a.unregister_memory(here + 40 * PAGE)])
    step("14 arrays", lambda: [a.batch_transfer_sync_write_arrays(name, words(here, here + 16), words(there, there + 100), words(16, 16)), area_there[100:116]])
    step("14 arrays read", lambda: [a.batch_transfer_sync_read_arrays(name, words(here + 600), words(there + 100), words(16)), area_here[600:616]])
    step("14 arrays async", lambda: [a.get_batch_transfer_status([a.batch_transfer_async_write_arrays(name, words(here), words(there), words(16)), a.batch_transfer_async_read_arrays(name, words(here), words(there), words(16))])])
    step("14 arrays signed", lambda: a.batch_transfer_sync_write_arrays(name, array.array("q", [here]), array.array("q", [there]), array.array("q", [16])))
    step("14 arrays lists", lambda: a.batch_transfer_sync_write_arrays(name, [here], [there], [16]))
    step("14 arrays narrow", lambda: a.batch_transfer_sync_write_arrays(name, array.array("I", [1]), array.array("I", [1]), array.array("I", [1])))
    step("14 arrays float", lambda: a.batch_transfer_sync_write_arrays(name, array.array("d", [1]), array.array("d", [1]), array.array("d", [1])))
    step("14 arrays lengths", lambda: a.batch_transfer_sync_write_arrays(name, words(here), words(there, there), words(16)))
    step("14 arrays empty", lambda: a.batch_transfer_sync_write_arrays(name, words(), words(), words()))
    step("14 arrays read-only", lambda: a.batch_transfer_sync_write_arrays(name, memoryview(words(here)).toreadonly(), words(there), words(16)))
    step("14 arrays bytes", lambda: a.batch_transfer_sync_write_arrays(name, bytes(8), bytes(8), bytes(8)))
    step("14 arrays strided", lambda: a.batch_transfer_sync_write_arrays(name, memoryview(words(here, 1, here + 16, 1))[::2], words(there, there), words(16, 16)))
    step("14 arrays nobody", lambda: a.batch_transfer_sync_write_arrays("127.0.0.1:1", words(here), words(there), words(16)))
    fields = memoryview(words(here, 1000, there + PAGE, 2000, 8, here + 8, 1000, there + PAGE + 8, 2000, 8)).cast("B").cast("Q", (2, 5))
    pages = (words(0, 1), words(1, 0))
    step("14 pages", lambda: [a.batch_transfer_sync_write_pages(name, *pages, fields), area_there[PAGE + 2000:PAGE + 2016], area_there[PAGE:PAGE + 16] == area_here[1000:1016]])
    step("14 pages read", lambda: [a.batch_transfer_sync_read_pages(name, words(3), words(1), fields), area_here[3000:3016]])
    step("14 pages cut", lambda: a.batch_transfer_sync_write_pages(name, *pages, fields, 1))
    step("14 pages cut keyword", lambda: a.batch_transfer_sync_write_pages(name, *pages, fields, max_batch_size=3))
    step("14 pages negative", lambda: a.batch_transfer_sync_write_pages(name, *pages, fields, -1))
    step("14 pages lengths", lambda: a.batch_transfer_sync_write_pages(name, words(0), words(0, 1), fields))
    step("14 pages flat fields", lambda: a.batch_transfer_sync_write_pages(name, *pages, words(1, 2, 3, 4, 5)))
    step("14 pages four columns", lambda: a.batch_transfer_sync_write_pages(name, *pages, memoryview(words(1, 2, 3, 4)).cast("B").cast("Q", (1, 4))))
    step("14 pages no pages", lambda: a.batch_transfer_sync_write_pages(name, words(), words(), fields))
    status = module.ScatterTransferCompletionStatus
    step("14 status members", lambda: {k: int(v) for k, v in status.__members__.items()})
    step("14 status text", lambda: [str(status.COMPLETED), repr(status.FAILED_DRAINED), repr(status(-2)), status.COMPLETED == 0])
    step("14 status order", lambda: status.COMPLETED < status.FAILED_DRAINED)
    step("14 construct ticket", lambda: module.ScatterTransferTicket())
    region = ([here], [PAGE], [there], [PAGE])
    pieces = ([[0, 100]], [[200, 300]], [[16, 16]])

    def drained(ticket):
        first = str(ticket.drain(5000))
        return [first, str(ticket.status), ticket.drained, str(ticket.drain(0))]

    step("14 scatter write", lambda: [drained(a.submit_scatter_write(name, *region, *pieces)), area_there[200:216] == area_here[:16]])
    step("14 scatter read", lambda: drained(a.submit_scatter_read(name, *region, *pieces)))
    step("14 scatter fresh", lambda: [type(a.submit_scatter_write(name, *region, *pieces)).__name__])
    step("14 scatter nobody", lambda: drained(a.submit_scatter_write("127.0.0.1:1", *region, *pieces)))
    step("14 scatter outside", lambda: drained(a.submit_scatter_write(name, [here], [10], [there], [PAGE], *pieces)))
    step("14 scatter outside there", lambda: drained(a.submit_scatter_write(name, [here], [PAGE], [there], [10], *pieces)))
    step("14 scatter lengths", lambda: drained(a.submit_scatter_write(name, [here], [PAGE, PAGE], [there], [PAGE], *pieces)))
    step("14 scatter piece lengths", lambda: drained(a.submit_scatter_write(name, *region, [[0]], [[0, 1]], [[1]])))
    step("14 scatter none", lambda: drained(a.submit_scatter_write(name, [], [], [], [], [], [], [])))
    step("14 scatter negative", lambda: a.submit_scatter_write(name, [-1], [PAGE], [there], [PAGE], *pieces))
    step("14 scatter unregistered", lambda: drained(a.submit_scatter_write(name, [here], [PAGE], [there + 64 * PAGE], [PAGE], *pieces)))
    step("14 scatter sync", lambda: [[str(t.status), t.drained] for t in (a.scatter_transfer_sync_write_with_ticket(name, *region, *pieces), a.scatter_transfer_sync_read_with_ticket(name, *region, *pieces))])
    step("14 drain negative", lambda: a.submit_scatter_write(name, *region, *pieces).drain(-1))
    for cuda in ("transfer_write_on_cuda", "transfer_read_on_cuda"):
        step(f"14 {cuda}", lambda cuda=cuda: getattr(a, cuda)(name, here, there, 16))
        step(f"14 {cuda} keyword", lambda cuda=cuda: getattr(a, cuda)(name, here, there, 16, stream_ptr=0))
    for cuda in ("batch_transfer_write_on_cuda", "batch_transfer_read_on_cuda"):
        step(f"14 {cuda}", lambda cuda=cuda: getattr(a, cuda)(name, [here], [there], [16]))


def groups():
    segment = module.SharedSegment
    step("group supported", lambda: [segment.supported(), segment.supported(False), segment.supported(True, True), segment.supported(mmap=True, host_register=False)])
    for name, arguments in {
        "size 0": ("a", 0, 1, 0), "size negative": ("a", -1, 1, 0), "size huge": ("a", 1 << 62, 1, 0), "no ranks": ("a", 4096, 0, 0),
        "rank outside": ("a", 4096, 2, 2), "owner outside": ("a", 4096, 2, 0, 5), "too few": ("a", 4096), "name number": (1, 4096, 1, 0),
        "no mmap": ("a", 4096, 1, 0, 0, 0, False), "host register": ("a", 4096, 1, 0, 0, 0, True, True),
    }.items():
        step(f"group {name}", lambda arguments=arguments: segment.create(*arguments))

    def texts(call):
        try:
            return call()
        except RuntimeError as error:
            return str(error)

    step("group texts", lambda: [texts(lambda: segment.create("a", 0, 1, 0)), texts(lambda: segment.create("a", 1, 0, 0)), texts(lambda: segment.create("a", 1, 1, 1)), texts(lambda: segment.create("a", 1, 1, 0, mmap=False)), texts(lambda: segment.create("a", 1, 1, 0, host_register=True)), texts(lambda: segment.create("a", 1, 1, 0, mmap=False, host_register=True))])

    def whole(change=None):
        (owner, first), (other, second) = segment.create("t1", 8192, 2, 0), segment.create("t1", 8192, 2, 1)
        before = [owner.ready(), other.ready(), owner.base_addr() > 0, other.base_addr() > 0, owner.size(), owner.device_addr()]
        blobs = [first, second] if change is None else change(first, second)
        answers = [texts(lambda: other.complete(blobs)), texts(lambda: owner.complete(blobs))]
        if other.ready():
            ctypes.memmove(owner.base_addr(), b"shared", 6)
            answers.append(ctypes.string_at(other.base_addr(), 6))
            answers.append(texts(lambda: other.complete(blobs)))
        return [before, answers, owner.ready(), other.ready()]

    step("group whole", whole)
    step("group fingerprint", lambda: segment.create("t1", 8192, 2, 1, device_id=4)[1][:24])
    step("group keywords", lambda: len(segment.create(name="k", size=1, world_size=1, rank_id=0, owner_rank=0, device_id=0, mmap=True, host_register=False)[1]))
    for name, change in {
        "none": lambda a, b: [], "one": lambda a, b: [a], "swapped": lambda a, b: [b, a], "twice": lambda a, b: [a, a], "short": lambda a, b: [a[:100], b],
        "magic": lambda a, b: [b"x" + a[1:], b], "version": lambda a, b: [a[:4] + b"\2\0" + a[6:], b], "backend": lambda a, b: [a[:6] + b"\2\0" + a[8:], b],
        "handle length": lambda a, b: [a[:12] + b"\x81\0\0\0" + a[16:], b], "no handle": lambda a, b: [a[:12] + bytes(4) + a[16:32] + bytes(128), b],
        "other name": lambda a, b: [a, segment.create("t2", 8192, 2, 1)[1]], "other size": lambda a, b: [a, segment.create("t1", 9000, 2, 1)[1]],
        "allocation": lambda a, b: [a[:24] + (4096).to_bytes(8, "little") + a[32:], b],
        "gone": lambda a, b: [a[:32] + b"/mcss_1_ffffffffffffffff".ljust(128, b"\0"), b],
        "text": lambda a, b: ["x", b], "number": lambda a, b: 5, "bytearray": lambda a, b: [bytearray(a), bytearray(b)],
    }.items():
        step(f"group blobs {name}", lambda change=change: whole(change))


def main():
    """Everything, on two engines where engines are needed."""
    for part in (types, starts, groups):
        part()
    a, b = module.TransferEngine(), module.TransferEngine()
    step("two engines", lambda: [e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") for e in (a, b)])
    area_here, here = memory(64 * PAGE)
    area_there, there = memory(128 * PAGE)
    name = f"127.0.0.1:{b.get_rpc_port()}"
    step("first buffer of none", lambda: a.get_first_buffer_address(name))
    registrations(a, here)
    b.register_memory(there, 4 * PAGE)
    a.get_first_buffer_address(name)
    fresh, place = module.TransferEngine(), memory(PAGE)
    fresh.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    fresh.register_memory(place[1], PAGE)
    transfers(a, b, name, here, area_here, there, area_there)
    batches(a, b, name, here, area_here, there, area_there)
    asynchronous(a, name, here, area_here, there, area_there)
    asked(a, b, name, there)
    managed(fresh, name, b, there, area_there)
    if NEW:
        versions(a, name, here, area_here, there, area_there)
    sys.stdout.write("\n=====\n" + json.dumps(out))
    sys.stdout.flush()
    os._exit(0)


main()
