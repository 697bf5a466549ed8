"""Addresses: neighbouring registrations count as one, what leaves registered memory is refused and nothing is moved."""

import ctypes
import mmap
import sys

from mooncake.store import MooncakeDistributedStore

PAGE = 4096
area = mmap.mmap(-1, 8 * PAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(area))
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
assert store.register_buffer(base, PAGE) == 0
assert store.register_buffer(base + PAGE, PAGE) == 0, "a neighbour"
assert store.register_buffer(base + 2 * PAGE - 1, 2) == -600, "an overlap"
assert store.register_buffer(base - 1, 8 * PAGE) == -600, "around all of it"
area[: 2 * PAGE] = bytes(i % 251 for i in range(2 * PAGE))
assert store.put_from("addresses", base, 2 * PAGE) == 0, "over two neighbours"
assert store.get("addresses") == area[: 2 * PAGE]
assert store.put_from("over", base, 2 * PAGE + 1) == -600
assert "registered" in store.last_error()
assert store.is_exist("over") == 0
area[2 * PAGE :] = b"\xee" * (6 * PAGE)
assert store.get_into("addresses", base + PAGE, 2 * PAGE) == -600
assert area[2 * PAGE :] == b"\xee" * (6 * PAGE), "nothing was written over the end"
assert store.get_into("addresses", base + 4 * PAGE, 2 * PAGE) == 2 * PAGE, "memory that was never registered"
assert area[4 * PAGE : 6 * PAGE] == area[: 2 * PAGE]
assert area[6 * PAGE :] == b"\xee" * (2 * PAGE)
assert store.get_into("addresses", (1 << 64) - 10, 100) == -600, "over the end of the address space"
assert store.batch_get_into(["addresses", "addresses"], [0, base], [PAGE * 2, PAGE * 2]) == [-600, 2 * PAGE]
assert store.unregister_buffer(base + 1) == -600
assert store.unregister_buffer(base) == 0
assert store.register_buffer(base, 2 * PAGE) == -600, "the neighbour is still there"
assert store.unregister_buffer(base + PAGE) == 0
assert store.register_buffer(base, 2 * PAGE) == 0
for _ in range(500):
    assert store.unregister_buffer(base) == 0
    assert store.register_buffer(base, 2 * PAGE) == 0
