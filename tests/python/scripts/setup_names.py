"""The dict form takes both names of the master, tells unknown names in the log, and refuses what contradicts itself."""

import os
import sys
import tempfile

from mooncake.store import MooncakeDistributedStore

base = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": "0"}
for name in ("master_server_addr", "master_server_address"):
    store = MooncakeDistributedStore()
    assert store.setup(base | {name: sys.argv[1], "device_name": ""}) == 0, store.last_error()
    assert store.is_exist("nothing") == 0
    store.close()
both = base | {"master_server_addr": sys.argv[1], "master_server_address": sys.argv[1]}
assert MooncakeDistributedStore().setup(both) == 0
store = MooncakeDistributedStore()
assert store.setup(both | {"master_server_address": "127.0.0.1:1"}) == -600 and "two names" in store.last_error()
assert store.setup(base | {"master_server_addr": sys.argv[1], "client_http_port": "many"}) == -600

asks = MooncakeDistributedStore()
assert asks.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "rpc_only", "", sys.argv[1]) == 0, asks.last_error()
assert asks.batch_is_exist(["nothing"]) == [0]
assert asks.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "rpc_only", "", sys.argv[1]) == -600
try:
    asks.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", sys.argv[1], enable_ssd_ofload=True)
    raise AssertionError
except TypeError as error:
    assert "enable_ssd_ofload" in str(error)

# What is strange is told in the log: an unknown name, and a variable that does nothing here.
with tempfile.TemporaryFile() as log:
    kept = os.dup(2)
    os.dup2(log.fileno(), 2)
    os.environ["MC_STORE_MEMCPY"] = "1"
    try:
        assert store.setup(base | {"master_server_addr": sys.argv[1], "gobal_segment_size": "16MB"}) == 0
    finally:
        os.dup2(kept, 2)
        del os.environ["MC_STORE_MEMCPY"]
    log.seek(0)
    lines = log.read().decode()
assert "gobal_segment_size" in lines and "MC_STORE_MEMCPY" in lines, lines
os.environ["MC_STORE_LOCAL_HOT_CACHE_SIZE"] = "plenty"
assert store.setup(both) == -600 and "MC_STORE_LOCAL_HOT_CACHE_SIZE" in store.last_error()
del os.environ["MC_STORE_LOCAL_HOT_CACHE_SIZE"]
os.environ["MC_RPC_PROTOCOL"] = "rdma"
assert store.setup(both) == -600 and "MC_RPC_PROTOCOL" in store.last_error()
