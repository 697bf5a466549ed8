"""Names of the peer's API that are not built yet: they exist, and say so when they are used."""

from __future__ import annotations

from typing import Any, NoReturn

#: Methods of `MooncakeDistributedStore`.
METHODS = """
alloc_from_mem_pool
allocate_and_mount_segment
batch_get_tensor
batch_get_tensor_into
batch_get_tensor_into_cuda
batch_get_tensor_with_parallelism
batch_get_tensor_with_parallelism_into
batch_get_tensor_with_tp
batch_get_tensor_with_tp_into
batch_pub_tensor
batch_pub_tensor_with_tp
batch_put_tensor
batch_put_tensor_from
batch_put_tensor_with_parallelism
batch_put_tensor_with_parallelism_from
batch_put_tensor_with_tp
batch_put_tensor_with_tp_from
batch_upsert_pub_tensor
batch_upsert_tensor
batch_upsert_tensor_from
batch_upsert_tensor_with_parallelism
batch_upsert_tensor_with_parallelism_from
begin_weight_snapshot
get_tensor
get_tensor_into
get_tensor_into_cuda
get_tensor_with_parallelism
get_tensor_with_parallelism_into
get_tensor_with_tp
get_tensor_with_tp_into
load_tensor_from_safetensor
mount_segment
pub_tensor
pub_tensor_with_tp
put_tensor
put_tensor_from
put_tensor_with_parallelism
put_tensor_with_parallelism_from
put_tensor_with_tp
put_tensor_with_tp_from
save_tensor_to_safetensor
setup_dummy
unmount_and_free_segment
unmount_local_disk_segment
unmount_segment
upsert_pub_tensor
upsert_tensor
upsert_tensor_from
upsert_tensor_with_parallelism
upsert_tensor_with_parallelism_from
""".split()

#: Classes of the module.
CLASSES = """
BufferPool BufferLease BufferLeaseView MooncakeHostMemAllocator ParallelAxis TensorParallelism ReadTarget
MooncakeDistributedNoFRegister EngramStore EngramStoreConfig
""".split()

#: Functions of the module.
FUNCTIONS = """
bind_to_numa_node get_alloc_func_addr get_free_func_addr _serialize_tensor _deserialize_tensor _tensor_metadata_size
""".split()


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not built yet")


def method(owner: str, name: str) -> Any:
    """A method that raises `NotImplementedError` with its own name."""

    def unbuilt(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{owner}.{name}")

    return _named(unbuilt, name, f"{owner}.{name}")


def function(name: str, module: str = "mooncake.store") -> Any:
    """A function of a module that raises `NotImplementedError` with its own name."""

    def unbuilt(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{module}.{name}")

    return _named(unbuilt, name, name, module)


def class_named(name: str, module: str = "mooncake.store") -> type:
    """A class that cannot be made yet."""
    constructor = _named(lambda self, *args, **kwargs: _refuse(f"{module}.{name}"), "__init__", f"{name}.__init__", module)
    return type(name, (), {"__init__": constructor, "__doc__": "Not built yet.", "__module__": module})


def fill(namespace: dict[str, Any], classes: list[str], functions: list[str]) -> None:
    """Puts classes and functions that are not built yet into the namespace of a module."""
    module = namespace["__name__"]
    namespace.update({name: class_named(name, module) for name in classes})
    namespace.update({name: function(name, module) for name in functions})


def _named(what: Any, name: str, qualified: str, module: str = "mooncake.store") -> Any:
    what.__name__, what.__qualname__, what.__module__ = name, qualified, module
    what.__doc__ = "Not built yet: raises NotImplementedError."
    return what
