"""Objects of the store say in their repr what they are."""

import sys

import mooncake
from mooncake.store import BufferPool, ExistOptions, MooncakeDistributedStore, ReplicateConfig, last_error

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 24, "tcp", "", sys.argv[1]) == 0
assert store.put("repr", b"12345") == 0
(replica,) = store.get_replica_desc("repr")
memory = replica.get_memory_descriptor()
place = memory.buffer_descriptor
for text in (repr(replica), repr(memory), repr(place)):
    for part in ("size=5", f"buffer_address={place.buffer_address}", f"transport_endpoint={place.transport_endpoint}"):
        assert part in text, text
assert repr(replica).startswith("<ReplicaDescriptor memory status=COMPLETE ")
handle = store.get_buffer("repr")
assert repr(handle) == f"<BufferHandle ptr={handle.ptr():#x} size=5>"
lease = BufferPool(store).acquire(4096)
assert repr(lease) == f"<BufferLease ptr={lease.ptr:#x} size=4096>"
lease.release()
assert repr(lease) == "<BufferLease released>"
config = ReplicateConfig()
config.replica_num, config.preferred_segment = 2, "there"
assert "replica_num: 2" in repr(config) and "there" in repr(config)
assert repr(ExistOptions()) == "<ExistOptions prefetch_to_memory=False>"
assert store.get("missing") == b"" and repr(last_error()).startswith("<LastError -704 missing")
assert mooncake.__version__[0].isdigit()
assert "protocol                           \"tcp\"" in MooncakeDistributedStore.setup.__doc__
store.close()
