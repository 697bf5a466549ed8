"""A store lends memory beside its first segment, from files too, and takes it back, at once or after a while."""

import os
import sys
import tempfile
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

MIB = 1 << 20
fresh = MooncakeDistributedStore()
assert fresh.mount_segment("/x", 16 * MIB) == {"ret": -1, "segment_ids": []}
assert fresh.allocate_and_mount_segment(16 * MIB) == {"ret": -1, "segment_ids": [], "allocated_size": 0}
assert fresh.unmount_segment(["1-2"]) == fresh.unmount_and_free_segment([]) == fresh.unmount_local_disk_segment() == -1

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1]) == 0
here = ReplicateConfig()
here.preferred_segments = [store.get_hostname()]


def owners(key):
    return [r.get_memory_descriptor().buffer_descriptor.transport_endpoint for r in store.get_replica_desc(key)]


assert store.put("elsewhere", b"v", here) == 0
made = store.allocate_and_mount_segment(20 * MIB, location="cpu:0")
assert made["ret"] == 0 and made["allocated_size"] == 32 * MIB, (made, store.last_error())
(allocated,) = made["segment_ids"]
first, second = allocated.split("-")
assert first.isdigit() and second.isdigit()
assert store.put("segments", b"x" * MIB, here) == 0
assert owners("segments") != owners("elsewhere")
with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
    os.ftruncate(file.fileno(), 17 * MIB)
    mounted = store.mount_segment(file.name, 16 * MIB, offset=4096)
    assert mounted["ret"] == 0, store.last_error()
    for wrong in (dict(offset=100), dict(size=64 * MIB), dict(path="/no/such"), dict(protocol="rdma"), dict(location="gpu")):
        arguments = dict(path=file.name, size=16 * MIB) | wrong
        assert store.mount_segment(**arguments) == {"ret": -1, "segment_ids": []}, wrong
        assert store.last_error()
    assert store.unmount_segment(mounted["segment_ids"]) == 0
assert store.unmount_segment(mounted["segment_ids"]) == -1 and store.unmount_segment(["nonsense"]) == -1
assert store.unmount_local_disk_segment() == 0
assert store.get("segments") == b"x" * MIB
assert store.unmount_and_free_segment([allocated], grace_period_seconds=1) == 0
assert store.get("segments") == b"x" * MIB, "still to be read"
end = time.monotonic() + 20
while store.is_exist("segments") == 1:
    assert time.monotonic() < end
    time.sleep(0.05)
assert store.get("elsewhere") == b"v"
assert store.remove("elsewhere", force=True) == 0
store.close()
