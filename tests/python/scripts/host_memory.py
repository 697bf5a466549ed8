"""Memory for others: shared buffers, allocation functions, NUMA nodes."""

import ctypes
import sys

from mooncake.store import (
    MooncakeDistributedStore,
    MooncakeHostMemAllocator,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)

allocator = MooncakeHostMemAllocator()
address = allocator.alloc(1 << 20)
assert isinstance(address, int) and address % 4096 == 0
assert ctypes.string_at(address, 1 << 20) == bytes(1 << 20)
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
assert store.register_buffer(address, 1 << 19) == store.register_buffer(address + (1 << 19), 1 << 19) == 0, "in halves"
ctypes.memset(address, 7, 1 << 20)
assert store.put_from("host memory", address, 1 << 20) == 0 and store.get("host memory") == b"\7" * (1 << 20)
assert store.unregister_buffer(address) == store.unregister_buffer(address + (1 << 19)) == 0
assert allocator.free(address + 1) == -1 and allocator.free(address) == 0 and allocator.free(address) == -1
for impossible in (0, 1 << 62):
    try:
        allocator.alloc(impossible)
        raise AssertionError(impossible)
    except RuntimeError:
        pass
other = MooncakeHostMemAllocator()
shared = allocator.alloc(4096)
assert other.free(shared) == 0, "one list for the process"

allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(get_alloc_func_addr())
release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(get_free_func_addr())
for size in (0, 1, 4096, 2 << 20, (5 << 20) + 1):
    memory = allocate(size, 0, None)
    assert memory and (size < 2 << 20 or memory % (2 << 20) == 0)
    ctypes.memset(memory, 1, size)
    release(memory, size, 0, None)
assert not allocate(2**64 - 1, 0, None) and not allocate(1 << 62, 0, None)
release(None, 5, 0, None)


def mapped():
    return sum(1 for _ in open("/proc/self/maps"))


before = mapped()
for _ in range(200):
    release(allocate(3 << 20, 0, None), 3 << 20, 0, None)
assert mapped() <= before + 2, "nothing stays mapped"
assert bind_to_numa_node(0) is None and bind_to_numa_node(4000) is None and bind_to_numa_node(-1) is None
