"""Calls of the helper modules, run under either package; prints a JSON list of [name, answer], as script.py does.

Arguments: the parts to run. An answer is plain; of an exception it is the name of its type.
"""

import ctypes
import importlib
import inspect
import json
import logging
import os
import sys
import tempfile
import types

out = []
#: Names whose signatures are compared, by module. Attributes of a class follow a dot.
NAMES = {
    "async_store": ["MooncakeDistributedStoreAsync.__getattr__"],
    "cli": ["main"],
    "cli_bench": ["main"],
    "cli_client": ["main"],
    "fabric_allocator_utils": ["get_mooncake_so_path", "probe_allocator_backend"],
    "http_metadata_server": [
        "KVBootstrapServer", "KVBootstrapServer.close", "KVBootstrapServer.poll", "KVBootstrapServer.run", "KVPoll", "main",
    ],
    "mooncake_config": [
        "MooncakeConfig", "MooncakeConfig.from_file", "MooncakeConfig.load_from_env", "_parse_bool", "_parse_segment_size",
    ],
    "mooncake_store_service": [
        "MooncakeStoreService", "MooncakeStoreService.handle_exist", "MooncakeStoreService.handle_get",
        "MooncakeStoreService.handle_mount", "MooncakeStoreService.handle_mount_shm", "MooncakeStoreService.handle_put",
        "MooncakeStoreService.handle_reconfigure", "MooncakeStoreService.handle_remove",
        "MooncakeStoreService.handle_remove_all", "MooncakeStoreService.handle_unmount",
        "MooncakeStoreService.handle_unmount_local_disk", "MooncakeStoreService.handle_unmount_shm",
        "MooncakeStoreService.start_http_service", "MooncakeStoreService.start_store_service",
        "MooncakeStoreService.stop", "main", "parse_arguments", "sync_main",
    ],
    "shared_segment": [
        "SharedSegment.base_addr", "SharedSegment.tensors", "SharedSegment.total_size", "create_shared_segment",
        "shared_segment_supported",
    ],
    "transfer_engine_topology_dump": ["main"],
}
NEWER_NAMES = {
    "_launcher": ["locate", "store_rs_admin", "store_rs_bench", "store_rs_client"],
    "_partial_read": ["MatrixReadPlan", "plan_matrix_read"],
    "allocator": [
        "BarexAllocator.get_allocator", "MemoryBackend", "NVLinkAllocator.detect_mem_backend", "NVLinkAllocator.get_allocator",
    ],
}


def step(name, call):
    """Does one call and keeps what came of it."""
    try:
        answer = call()
        out.append([name, vars(answer) if type(answer).__name__ == "MooncakeConfig" else answer])
    except Exception as error:  # noqa: BLE001 - the kind of exception is the answer
        out.append([name, type(error).__name__])


def found(module, name):
    """An attribute, by its dotted name, of a module of the package."""
    value = importlib.import_module(f"mooncake.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


def form(value):
    """Parameters of a callable with their kinds and defaults, and whether it is a coroutine function."""
    if isinstance(value, type) and issubclass(value, int) or type(value).__name__ == "EnumType":
        return {name: member.value for name, member in value.__members__.items()}
    parameters = inspect.signature(value).parameters.values()
    default = [None if p.default is p.empty else str(p.default) for p in parameters]
    kinds = [[p.name, str(p.kind)] for p in parameters]
    return [kinds, default, inspect.iscoroutinefunction(value)]


def signatures(names):
    for module, members in names.items():
        for name in members:
            step(f"signature {module}.{name}", lambda: form(found(module, name)))


def constants():
    config = importlib.import_module("mooncake.mooncake_config")
    step("constants", lambda: [config.DEFAULT_GLOBAL_SEGMENT_SIZE, config.DEFAULT_LOCAL_BUFFER_SIZE])
    import mooncake

    step("pools", lambda: mooncake.BufferPool is mooncake.RegisteredBufferPool is found("buffer_pool", "BufferPool"))


def texts():
    size, truth = found("mooncake_config", "_parse_segment_size"), found("mooncake_config", "_parse_bool")
    for value in [
        0, 1.5, "1", "1.5 GB", "  3 gb ", "512k", "4096B", "2Tb", "1e3", "1_000", "-1", "", "  ", "gb", "abc", "1 x", "infinite",
        "0x10", "nan", "inf", "5%", None, [1],
    ]:
        step(f"size {value!r}", lambda: size(value))
    for value in [
        True, 0, 2, 1.5, "true", " YES ", "on", "1", "enable", "disable", "off", "no", "0", "", " ", None, "enabled", "maybe", "t", [],
    ]:
        step(f"truth {value!r}", lambda: truth(value))


def made():
    config = found("mooncake_config", "MooncakeConfig")
    base = ["h", "P2PHANDSHAKE", 0, 0, "tcp", "", "m:1"]
    names = ["local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol", "device_name",
             "master_server_address"]
    step("config positional", lambda: config(*base))
    for name, value in [
        ("protocol", "RDMA "), ("protocol", ""), ("protocol", None), ("protocol", 5), ("protocol", "pigeon"), ("local_hostname", " "),
        ("local_hostname", None), ("metadata_server", ""), ("master_server_address", 5), ("global_segment_size", -1),
        ("global_segment_size", "1gb"), ("local_buffer_size", None), ("local_buffer_size", 1.5), ("device_name", None),
        ("tenant_id", ""), ("client_http_port", 70000), ("colour", "red"),
    ]:
        step(f"config {name}={value!r}", lambda: config(**(dict(zip(names, base)) | {name: value})))


def from_file(**changes):
    """A configuration from a file; `...` takes a field out."""
    content = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"} | changes
    return from_text(json.dumps({name: value for name, value in content.items() if value is not ...}))


def from_text(text):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        return found("mooncake_config", "MooncakeConfig").from_file(file.name)


def files():
    for name, value in [
        ("local_hostname", ...), ("metadata_server", ...), ("master_server_address", ...), ("local_hostname", ""),
        ("local_hostname", None), ("global_segment_size", "1.5 gb"), ("global_segment_size", "x"), ("global_segment_size", None),
        ("local_buffer_size", "2mb"), ("local_buffer_size", -1), ("protocol", None), ("protocol", "RDMA"), ("device_name", None),
        ("device_name", ["a", "b"]), ("tenant_id", None), ("tenant_id", ""), ("tenant_id", 5), ("client_http_port", "19444"),
        ("client_http_port", "x"), ("client_http_port", None), ("enable_ssd_offload", "on"), ("enable_ssd_offload", "maybe"),
        ("enable_ssd_offload", None), ("ssd_offload_path", None), ("ssd_offload_path", 5), ("enable_client_http_server", "enable"),
        ("unknown", 1),
    ]:
        shown = "missing" if value is ... else repr(value)
        step(f"file {name} {shown}", lambda: from_file(**{name: value}))
    step("file broken", lambda: from_text("{bad"))
    step("file list", lambda: from_text("[1]"))
    step("file not there", lambda: found("mooncake_config", "MooncakeConfig").from_file("/nonexistent.json"))


def from_environment(**variables):
    for name in [name for name in os.environ if name.startswith("MOONCAKE_")]:
        del os.environ[name]
    os.environ.update(variables)
    return found("mooncake_config", "MooncakeConfig").load_from_env()


def environment():
    step("environment empty", from_environment)
    step("environment master empty", lambda: from_environment(MOONCAKE_MASTER=""))
    step("environment path empty", lambda: from_environment(MOONCAKE_CONFIG_PATH="", MOONCAKE_MASTER="m:1"))
    step("environment path wrong", lambda: from_environment(MOONCAKE_CONFIG_PATH="/nonexistent", MOONCAKE_MASTER="m:1"))
    for name, value in [
        ("MASTER", "m:1"), ("LOCAL_HOSTNAME", "x"), ("LOCAL_HOSTNAME", ""), ("TE_META_DATA_SERVER", "http://a/metadata"),
        ("TE_META_DATA_SERVER", ""), ("GLOBAL_SEGMENT_SIZE", "1gb"), ("GLOBAL_SEGMENT_SIZE", ""), ("LOCAL_BUFFER_SIZE", "2 mb"),
        ("PROTOCOL", "RDMA"), ("PROTOCOL", ""), ("DEVICE", "eth0"), ("OFFLOAD_ENABLED", "enable"), ("OFFLOAD_ENABLED", "x"),
        ("OFFLOAD_FILE_STORAGE_PATH", "/p"), ("TENANT_ID", "t"), ("TENANT_ID", ""), ("ENABLE_CLIENT_HTTP_SERVER", "on"),
        ("CLIENT_HTTP_PORT", "1"), ("CLIENT_HTTP_PORT", "x"), ("CLIENT_HTTP_PORT", ""),
    ]:
        variables = {"MOONCAKE_MASTER": "m:1", f"MOONCAKE_{name}": value}
        step(f"environment {name}={value!r}", lambda: from_environment(**variables))


def matrices():
    plan = found("_partial_read", "plan_matrix_read")
    whole, cut = slice(0, 8), slice(2, 4)
    for arguments in [
        ((4, 8), 2, range(4), whole, 10), ((4, 8), 2, range(1, 3), whole, 10), ((4, 8), 2, range(0, 4, 2), whole, 10),
        ((4, 8), 2, range(4), cut, 10), ((4, 8), 2, range(4), cut, 3), ((4, 8), 2, range(4), cut, 4),
        ((4, 8), 2, range(4), whole, 0), ((4, 8), 2, range(4), whole, 1), ((4, 8), 2, (0, 1, 3), whole, 5),
        ((4, 8), 2, (3, 2, 1), whole, 5), ((4, 8), 2, (1, 1), whole, 5), ((4, 8), 2, (1, -1), whole, 5),
        ((4, 8), 2, (4,), whole, 5), ((4, 8), 2, (), whole, 5), ((4, 8), 2, range(0), whole, 5),
        ((4, 8), 2, range(4), slice(3, 3), 0), ((4, 8), 2, range(4), slice(5, 3), 5), ((4, 8), 2, range(4), slice(None), 5),
        ((4, 8), 2, range(4), slice(-2, None), 5), ((4, 8), 2, range(4), slice(0, 100), 5),
        ((4, 8), 2, range(4), slice(0, 8, 2), 5), ((4, 8), 2, range(3, -1, -1), whole, 5), ((4, 8), 2, range(5), whole, 5),
        ((4, 8), 2, range(-1, 3), whole, 5), ((4, 8), 2, [0, 1], whole, 5), ((4, 8), 2, (0, 1.5), whole, 5),
        ((4, 8), 2, ("a",), whole, 5), ((4, 8), 2, range(4), 3, 5), ((4, 8), 0, range(4), whole, 5), ((4,), 2, range(4), whole, 5),
        ((4, 8, 1), 2, range(4), whole, 5), ((4, -8), 2, range(4), whole, 5), ((4, 1.5), 2, range(4), whole, 5),
        ((0, 8), 2, range(0), whole, 5), ((0, 8), 2, (0,), whole, 5), ((4, 0), 2, range(4), slice(0, 0), 5),
        ((1 << 31, 1 << 32), 1, range(1), whole, 5), ((1 << 31, 1 << 31), 1, range((1 << 31) - 1, 1 << 31), whole, 5),
        ((3, 1), 4, (0, 1, 2), slice(0, 1), 1), ((3, 4), 4, (0, 2), slice(0, 4), 1),
    ]:
        def planned():
            made_of = plan(*arguments)
            return [made_of.shape, made_of.nbytes, made_of.ranges]

        step(f"matrix {arguments}", planned)


def stand_in_for_torch():
    """Modules that import torch can be looked at without it, and what they ask of it needs no device."""
    names = ("torch", "torch.cuda", "torch.cuda.memory", "torch.distributed")
    made = {name: types.ModuleType(name) for name in names}
    made["torch"].device, made["torch"].distributed = str, made["torch.distributed"]
    made["torch.cuda.memory"].CUDAPluggableAllocator = lambda *arguments: list(arguments)
    sys.modules.update(made)


def allocators():
    path, probe = found("fabric_allocator_utils", "get_mooncake_so_path"), found("fabric_allocator_utils", "probe_allocator_backend")
    step("library missing", lambda: path("nothing.so", "no such library"))
    libc = "libc.so.6"
    step("probe answers", lambda: probe(libc, "getpid", ctypes.c_int, -2) == os.getpid())
    step("probe no function", lambda: probe(libc, "no_such_function", ctypes.c_int, -2))
    step("probe no library", lambda: probe("/nonexistent.so", "f", ctypes.c_int, -2))
    step("barex", lambda: found("allocator", "BarexAllocator").get_allocator("cuda:0"))


def launchers():
    step("locate unknown", lambda: found("_launcher", "locate")("no-such-command"))
    for name in ("store_rs_admin", "store_rs_bench", "store_rs_client"):
        step(f"{name} without the program", lambda: found("_launcher", name)())


PARTS = {
    "0.3.13.post1": [lambda: signatures(NAMES), constants, texts, made, files, environment],
    "0.3.14": [allocators, lambda: signatures(NEWER_NAMES), matrices, launchers],
}


def main():
    logging.disable()
    stand_in_for_torch()
    for part in PARTS[sys.argv[1]]:
        part()
    sys.stdout.write("\n=====\n" + json.dumps(out, default=str))
    sys.stdout.flush()
    os._exit(0)


main()
