"""Every name of the peer exists; one that is not built raises NotImplementedError with its own name."""

import mooncake.store as module
from mooncake import _unbuilt

store = module.MooncakeDistributedStore()
for name in _unbuilt.METHODS:
    try:
        getattr(store, name)("anything", key=1)
    except NotImplementedError as error:
        assert f"MooncakeDistributedStore.{name} " in str(error), error
    else:
        raise AssertionError(f"{name} did something")
for name in [*_unbuilt.FUNCTIONS, *_unbuilt.CLASSES]:
    try:
        getattr(module, name)(1)
    except NotImplementedError as error:
        assert f"mooncake.store.{name} " in str(error), error
    else:
        raise AssertionError(f"{name} did something")
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1", enable_ssd_offload=True) == -600
assert "enable_ssd_offload" in store.last_error()
assert module.RegisteredBufferPool is module.BufferPool
assert "enable_ssd_offload" in module.MooncakeDistributedStore.setup.__doc__
assert "force" in module.MooncakeDistributedStore.batch_remove.__doc__
