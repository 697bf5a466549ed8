"""A BufferHandle's memory lives as long as any view of it, also after the store was closed and collected."""

import gc
import sys

from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
value = bytes(range(256)) * 4096
assert store.put("views", value) == 0
handle = store.get_buffer("views")
view = memoryview(handle).cast("B")
address = handle.ptr()
assert address == handle.ptr() and handle.size() == len(handle) == len(value)
part = view[1000:2000]
del handle
store.close()
del store
gc.collect()
filler = [bytearray(1 << 20) for _ in range(32)]
assert bytes(view) == value and bytes(part) == value[1000:2000]
view[0] = 99
assert view[0] == 99, "the view is writable"
