"""unregister_buffer answers 0 only when no call uses the memory: nothing that a read brings comes after it."""

import ctypes
import mmap
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

SIZE = 24 << 20
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
area = mmap.mmap(-1, SIZE)
base = ctypes.addressof(ctypes.c_char.from_buffer(area))
# Two neighbours: a read over both holds both.
assert store.register_buffer(base, SIZE // 2) == store.register_buffer(base + SIZE // 2, SIZE // 2) == 0
ctypes.memset(base, 0xAA, SIZE)
assert store.put_from("large", base, SIZE) == 0
met = 0
deadline = time.monotonic() + 40
while met < 20 and time.monotonic() < deadline:
    ctypes.memset(base, 0xBB, SIZE)
    answers = []
    reader = threading.Thread(target=lambda: answers.append(store.get_into("large", base, SIZE)))
    reader.start()
    # The first byte has come: the read is under way.
    while reader.is_alive() and area[0] != 0xAA:
        pass
    assert store.unregister_buffer(base + SIZE // 2) == 0, store.last_error()
    last = area[SIZE - 1]
    ctypes.memset(base + SIZE // 2, 0xCC, SIZE // 2)
    reader.join()
    assert answers == [SIZE], (answers, store.last_error())
    if last == 0xAA:
        met += 1
        assert area[SIZE // 2 :] == b"\xcc" * (SIZE // 2), "a byte of the read came after the memory was given back"
    assert store.register_buffer(base + SIZE // 2, SIZE // 2) == 0
assert met, "no read was under way when its memory was taken back"
assert store.unregister_buffer(base) == 0 and store.unregister_buffer(base) == -600
