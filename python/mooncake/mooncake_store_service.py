"""A store over HTTP: `mc_store_rest_server`, `python -m mooncake.mooncake_store_service`.

One store of one process, set up from a file, from the environment or with `-D name=value`. Paths and answers are the
peer's; `/openapi.json` describes them, docs/store-service.md has what differs. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

from mooncake._access import Access
from mooncake._http import HttpError, HttpServer, Response, Route
from mooncake._http_bounds import take_all_descriptors
from mooncake._setup import DICT_DEFAULTS
from mooncake.mooncake_config import MooncakeConfig, from_env, is_given
from mooncake.store import MooncakeDistributedStore, last_error

logger = logging.getLogger(__name__)

#: Why the store refused what the request asked for, in its words.
_WHY: contextvars.ContextVar[str] = contextvars.ContextVar("mooncake_store_service_why", default="")

#: Bytes of a request's body.
BODY_LIMIT = 100 << 20
MOST_GRACE_SECONDS = 3600
#: Bytes lent to the pool when nothing says how many: a gateway beside other programs is no storage node.
LENT_BYTES = 512 << 20
#: The field that says it.
LENT = "global_segment_size"
#: Seconds between two tries to set the store up.
RETRY_SECONDS = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Status of an answer by the store's code; 500 for every other.
STATUS = {-600: 400, -704: 404, -703: 409, -706: 409, -708: 409, -200: 507, -1700: 507, -900: 503, -901: 503}
#: Key of setup's dict form to field of the configuration.
SETUP = {
    "local_hostname": "local_hostname",
    "metadata_server": "metadata_server",
    "global_segment_size": "global_segment_size",
    "local_buffer_size": "local_buffer_size",
    "protocol": "protocol",
    "rdma_devices": "device_name",
    "master_server_addr": "master_server_address",
    "enable_ssd_offload": "enable_ssd_offload",
    "ssd_offload_path": "ssd_offload_path",
    "tenant_id": "tenant_id",
    "enable_client_http_server": "enable_client_http_server",
    "client_http_port": "client_http_port",
}


def _answering(work: Callable[[Any, Any], Awaitable[Response]]) -> Callable[[Any, Any], Awaitable[Response]]:
    """A handler that answers also when its work refuses the request or breaks."""

    @functools.wraps(work)
    async def handle(self: Any, request: Any) -> Response:
        try:
            return await work(self, request)
        except HttpError as error:
            return error.response()
        except NotImplementedError as error:
            return Response.json({"error": str(error)}, 501)
        except Exception as error:  # noqa: BLE001 - the client gets the words, as from the peer
            logger.exception("a request failed")
            return Response.json({"error": str(error)}, 500)

    return handle


class MooncakeStoreService:
    """A store and the server in front of it.

    The store's calls run in the default executor, so a slow one holds up nobody else. Changes of what is mounted happen
    one after the other.
    """

    #: Address to listen on.
    host = "0.0.0.0"
    _server: HttpServer | None = None

    def __init__(self, config_path: str | None = None, cli_config: dict[str, Any] | None = None):
        """Reads `config_path`, else the environment; `cli_config` overrides fields of the configuration as they are."""
        self.access = Access.from_environment()
        self.config = _configuration(config_path)
        #: Whether somebody said how much memory is lent.
        self._lent_is_given = is_given(LENT, config_path) or LENT in (cli_config or {})
        if not self._lent_is_given:
            self.config.global_segment_size = LENT_BYTES
        known = {field.name for field in dataclasses.fields(MooncakeConfig)}
        for name, value in (cli_config or {}).items():
            if name in known:
                setattr(self.config, name, value)
            else:
                logger.warning("there is no setting %s; it is ignored (there are: %s)", name, ", ".join(sorted(known)))
        self.store: Any = None
        self.current_mode = "prefill"
        #: Segments that `reconfigure` has mounted.
        self.mounted_segment_ids: list[str] = []
        self.last_mount_info: dict[str, Any] = {}
        self._state_lock = asyncio.Lock()

    # Life.

    async def start_store_service(self, max_wait_time: float = 60, shutdown_event: asyncio.Event | None = None) -> bool:
        """Sets the store up, trying again for `max_wait_time` seconds; False when that ended, or the event was set."""
        shutdown = shutdown_event or asyncio.Event()
        end = time.monotonic() + max_wait_time
        told = False
        while not shutdown.is_set():
            # In this thread: nobody is served yet, and the store's own deadlines bound it.
            store, why, final = self._set_up()
            await asyncio.sleep(0)
            if store is not None and not shutdown.is_set():
                self.store = store
                self._say_what_is_lent()
                return True
            if store is not None:
                store.close()
                break
            if final:
                logger.error("the store cannot be set up: %s", why)
                break
            # Why each try failed is in the log of the store, so it is not said twice.
            if not told:
                logger.warning("%s; it is tried again for %.0f s", why, max(0.0, end - time.monotonic()))
                told = True
            if time.monotonic() + RETRY_SECONDS > end:
                logger.error("the store could not be set up in time")
                break
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(shutdown.wait(), RETRY_SECONDS)
        return False

    def _set_up(self) -> tuple[Any, str, bool]:
        """A store that is set up, or None and why not; whether that is so for good, as for a setting that cannot work."""
        arguments = {key: getattr(self.config, name) for key, name in SETUP.items() if hasattr(self.config, name)}
        arguments["rdma_devices"] = arguments.get("rdma_devices") or ""
        store = None
        try:
            store = MooncakeDistributedStore()
            code = store.setup(arguments)
            if code == 0:
                return store, "", False
            failure = last_error()
            final = failure is not None and failure.reason == "invalid"
            why = f"setup answered {code}"
            if final:
                why += f": {failure.message}"
        except Exception as error:  # noqa: BLE001 - it is tried again, whatever it was
            why, final = str(error), False
        with contextlib.suppress(Exception):
            store.close()
        return None, why, final

    def _say_what_is_lent(self) -> None:
        size = getattr(self.config, LENT)
        lent = f"{size >> 20} MiB" if isinstance(size, int) else size
        origin = "" if self._lent_is_given else f" as nothing says how much ({LENT}, MOONCAKE_GLOBAL_SEGMENT_SIZE)"
        logger.info("in the pool of %s; lends %s of memory to it%s", self.config.master_server_address, lent, origin)

    async def start_http_service(self, port: int = 8080) -> bool:
        """Listens on `host:port`; False when it cannot."""
        server = HttpServer(self.routes(), BODY_LIMIT, self.access.check)
        try:
            port = await server.start(self.host, port)
        except OSError as error:
            logger.error("cannot listen on %s port %d: %s", self.host, port, error)
            return False
        self._server = server
        logger.info("serving on http://%s:%d; %s", self.host, port, self.access.describe())
        return True

    async def stop(self) -> None:
        """Ends the server, then the store; a second time nothing happens."""
        if self._server is not None:
            await self._server.close()
            self._server = None
        store, self.store = self.store, None
        if store is not None:
            code = store.close()
            if code != 0:
                logger.warning("close returned %s", code)

    def routes(self) -> list[Route]:
        """Every path, and who answers."""
        return [
            Route("PUT", "/api/put", self.handle_put),
            Route("PUT", "/api/put/{key}", self.handle_put_bytes),
            Route("GET", "/api/get/{key}", self.handle_get),
            Route("GET", "/api/exist/{key}", self.handle_exist),
            Route("DELETE", "/api/remove/{key}", self.handle_remove),
            Route("DELETE", "/api/remove_all", self.handle_remove_all),
            Route("POST", "/api/mount", self.handle_mount),
            Route("POST", "/api/unmount", self.handle_unmount),
            Route("POST", "/api/mount_shm", self.handle_mount_shm),
            Route("POST", "/api/unmount_shm", self.handle_unmount_shm),
            Route("POST", "/api/unmount_local_disk", self.handle_unmount_local_disk),
            Route("POST", "/api/reconfigure", self.handle_reconfigure),
            Route("GET", "/health", self.handle_health),
            Route("GET", "/openapi.json", self.handle_openapi),
        ]

    # Objects.

    @_answering
    async def handle_put(self, request: Any) -> Response:
        """PUT /api/put: `{"key": text, "value": text}`; the text is stored as UTF-8."""
        body = await _object(request)
        key, value = body.get("key"), body.get("value")
        if not key or value is None:
            raise HttpError(400, "Missing key or value")
        if not isinstance(key, str) or not isinstance(value, str):
            raise HttpError(400, "key and value have to be text; PUT /api/put/{key} takes bytes")
        return await self._store_bytes(key, value.encode())

    @_answering
    async def handle_put_bytes(self, request: Any) -> Response:
        """PUT /api/put/{key}: the body is the value, as it is."""
        return await self._store_bytes(request.match_info["key"], await request.read())

    async def _store_bytes(self, key: str, value: bytes) -> Response:
        code = await self._call(self.store.put, key, value)
        return self._refused("PUT operation failed", code) if code != 0 else Response.json({"status": "success"})

    @_answering
    async def handle_get(self, request: Any) -> Response:
        """GET /api/get/{key}: the bytes."""
        key = request.match_info["key"]
        for _ in range(2):
            exists = await self._call(self.store.is_exist, key)
            if exists < 0:
                return self._refused("Exist check failed", exists)
            if exists == 0:
                raise HttpError(404, "Key not found")
            value = await self._call(self.store.get, key)
            if value is None:
                return self._refused("GET operation failed", -1)
            if value:
                return Response(body=bytes(value), content_type="application/octet-stream")
        # No bytes twice: an object without bytes, or one that cannot be read.
        size = await self._call(self.store.get_size, key) if hasattr(self.store, "get_size") else 0
        if size != 0:
            return self._refused("GET operation failed", min(size, -1))
        return Response(content_type="application/octet-stream")

    @_answering
    async def handle_exist(self, request: Any) -> Response:
        """GET /api/exist/{key}: `{"exists": bool}`."""
        exists = await self._call(self.store.is_exist, request.match_info["key"])
        if exists < 0:
            return self._refused("Exist check failed", exists)
        return Response.json({"exists": bool(exists)})

    @_answering
    async def handle_remove(self, request: Any) -> Response:
        """DELETE /api/remove/{key}; with `?force=true` also what was read a short time ago."""
        key = request.match_info["key"]
        code = await self._call(self.store.remove, key, *_force(request))
        return self._refused("Remove operation failed", code) if code != 0 else Response.json({"status": "success"})

    @_answering
    async def handle_remove_all(self, request: Any) -> Response:
        """DELETE /api/remove_all; `?force=true` as for one."""
        removed = await self._call(self.store.remove_all, *_force(request))
        if removed < 0:
            return self._refused("RemoveAll operation failed", removed)
        return Response.json({"status": f"success removed {removed} keys"})

    # Memory.

    @_answering
    async def handle_mount(self, request: Any) -> Response:
        """POST /api/mount: lends new memory to the pool; `{"size": bytes}`, and `protocol`, `location`."""
        body = await _object(request)
        size = body.get("size")
        if not _is_count(size) or size == 0:
            raise HttpError(400, "Invalid size, must be a positive integer")
        where = self._where(body)
        mounted = await self._call(self.store.allocate_and_mount_segment, size, where["protocol"], where["location"])
        if mounted["ret"] != 0:
            return self._refused(f"Mount failed, ret={mounted['ret']}", mounted["ret"])
        return Response.json(_success(segment_ids=mounted["segment_ids"], allocated_size=mounted["allocated_size"]))

    @_answering
    async def handle_unmount(self, request: Any) -> Response:
        """POST /api/unmount: takes it back; `{"segment_ids": [...]}`, and `grace_period_seconds`."""
        ids, grace = _unmounted(await _object(request))
        code = await self._call(self.store.unmount_and_free_segment, ids, grace)
        if code != 0:
            return self._refused(f"Unmount and free failed, ret={code}", code)
        return Response.json(_success())

    @_answering
    async def handle_mount_shm(self, request: Any) -> Response:
        """POST /api/mount_shm: lends a file of /dev/shm; `{"name", "size"}`, and `offset`, `protocol`, `location`."""
        body = await _object(request)
        path = _shm_name_to_path(body.get("name"))
        if path is None or not _is_count(body.get("size")) or body["size"] == 0:
            raise HttpError(400, "Missing or invalid name or size")
        mounted = await self._mount_file(self._where(body) | {"path": path, "size": body["size"]})
        if mounted["ret"] != 0:
            return self._refused(f"Mount failed, ret={mounted['ret']}", mounted["ret"])
        return Response.json(_success(segment_ids=mounted["segment_ids"]))

    @_answering
    async def handle_unmount_shm(self, request: Any) -> Response:
        """POST /api/unmount_shm: takes it back; as unmount."""
        ids, grace = _unmounted(await _object(request))
        async with self._state_lock:
            failed = await self._unmount_each(ids, grace)
            gone = set(ids) - failed.keys()
            if gone & set(self.mounted_segment_ids):
                self._now_mounted([segment for segment in self.mounted_segment_ids if segment not in gone])
        if failed:
            code = next(iter(failed.values()))
            return self._refused(f"Unmount failed, ret={code}", code, failed_segment_ids=list(failed))
        return Response.json(_success())

    @_answering
    async def handle_unmount_local_disk(self, request: Any) -> Response:
        """POST /api/unmount_local_disk: takes the disk out of the pool; `{"grace_period_seconds"}`."""
        grace = (await _object(request)).get("grace_period_seconds", 0)
        if not _is_count(grace) or grace > MOST_GRACE_SECONDS:
            most = f"no greater than {MOST_GRACE_SECONDS}"
            raise HttpError(400, f"Invalid grace_period_seconds, must be a non-negative integer {most}")
        code = await self._call(self.store.unmount_local_disk_segment, grace)
        if code != 0:
            return self._refused(f"Unmount failed, ret={code}", code)
        return Response.json(_success())

    @_answering
    async def handle_reconfigure(self, request: Any) -> Response:
        """POST /api/reconfigure: `{"mode": "decode", "path", "size"}` lends a file, `{"mode": "prefill"}` none."""
        body = await _object(request)
        mode = body.get("mode")
        if mode == "prefill":
            async with self._state_lock:
                return await self._to_prefill()
        if mode != "decode":
            raise HttpError(400, "Invalid mode. Use 'decode' or 'prefill'")
        path, size = body.get("path"), body.get("size")
        if not isinstance(path, str) or not path or not _is_count(size) or size == 0:
            raise HttpError(400, "Missing path or size for decode mode")
        async with self._state_lock:
            return await self._to_decode(self._where(body) | {"path": path, "size": size})

    async def _to_prefill(self) -> Response:
        failed = await self._unmount_each(self.mounted_segment_ids, 0)
        self._now_mounted(list(failed))
        if failed:
            code = next(iter(failed.values()))
            return self._refused(f"Unmount failed, ret={code}", code, mode=self.current_mode)
        return Response.json(_success(mode=self.current_mode))

    async def _to_decode(self, file: dict[str, Any]) -> Response:
        """Mounts the new file before the old ones go, so that the node is never without memory."""
        mounted = await self._mount_file(file)
        if mounted["ret"] != 0:
            kept = "keeping previous decode segments" if self.mounted_segment_ids else "rolled back to prefill"
            self._now_mounted(self.mounted_segment_ids)
            return self._refused(f"Mount failed, ret={mounted['ret']}; {kept}", mounted["ret"], mode=self.current_mode)
        failed = await self._unmount_each(self.mounted_segment_ids, 0)
        if failed:
            logger.warning("segments that were to be replaced are still mounted: %s", ", ".join(failed))
        self._now_mounted([*mounted["segment_ids"], *failed])
        self.last_mount_info = file
        return Response.json(_success(mode="decode", segment_ids=mounted["segment_ids"]))

    def _now_mounted(self, segment_ids: list[str]) -> None:
        self.mounted_segment_ids = segment_ids
        self.current_mode = "decode" if segment_ids else "prefill"
        if not segment_ids:
            self.last_mount_info = {}

    async def _mount_file(self, file: dict[str, Any]) -> dict[str, Any]:
        order = (file[name] for name in ("path", "size", "offset", "protocol", "location"))
        return await self._call(self.store.mount_segment, *order)

    async def _unmount_each(self, segment_ids: list[str], grace: int) -> dict[str, int]:
        """One by one, since a call for many says only the first code; those that stayed, with theirs."""
        codes = {segment: await self._call(self.store.unmount_segment, [segment], grace) for segment in segment_ids}
        return {segment: code for segment, code in codes.items() if code != 0}

    def _where(self, body: dict[str, Any]) -> dict[str, Any]:
        """The optional parts of a mount, checked."""
        where = {"offset": 0, "protocol": self.config.protocol, "location": ""}
        where |= {name: body[name] for name in where if body.get(name) is not None}
        texts = (where["protocol"], where["location"])
        if not _is_count(where["offset"]) or not all(isinstance(text, str) for text in texts):
            raise HttpError(400, "offset has to be a non-negative integer, protocol and location text")
        return where

    # The service itself.

    @_answering
    async def handle_health(self, request: Any) -> Response:
        """GET /health: 200 when the master answers, else 503."""
        del request
        code = await self._call(self.store.health_check)
        return Response.json({"status": "unhealthy" if code else "healthy", "code": code}, 503 if code else 200)

    @_answering
    async def handle_openapi(self, request: Any) -> Response:
        """GET /openapi.json: the description of all this."""
        del request
        return Response(body=openapi())

    async def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        def work() -> tuple[Any, str]:
            # In the thread of the call: the store keeps for each thread why its last call failed.
            return call(*arguments), _words(self.store)

        answer, words = await asyncio.get_running_loop().run_in_executor(None, work)
        if words:
            _WHY.set(words)
        return answer

    def _refused(self, error: str, code: int, **more: Any) -> Response:
        """The store's refusal, with its code and its words."""
        payload = {"error": error, "code": code, "detail": _WHY.get(), **more}
        return Response.json(payload, STATUS.get(code, 500))


def _configuration(path: str | None) -> MooncakeConfig:
    """From the file, else from the environment; a master that nobody names is the one of this host, as for every command."""
    if path:
        return MooncakeConfig.from_file(path)
    return from_env(DICT_DEFAULTS["master_server_addr"])


def openapi() -> bytes:
    """The OpenAPI description of the service."""
    return Path(__file__).with_name("store_service_openapi.json").read_bytes()


def _words(store: Any) -> str:
    """Why this thread's last call on a store failed, in words, where it has them."""
    last = getattr(store, "last_error", None)
    words = last() if callable(last) else ""
    return words if isinstance(words, str) else ""


def _success(**more: Any) -> dict[str, Any]:
    return {"status": "success", **more}


async def _object(request: Any) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        body = await request.json()
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise HttpError(400, "the body has to be a JSON object")
    return body


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _force(request: Any) -> tuple[bool, ...]:
    """`(True,)` when the query says `force`, else nothing, which is the store's default."""
    wanted = getattr(request, "query", {}).get("force", "")
    return (True,) if wanted.lower() in ("true", "1", "yes", "on") else ()


def _unmounted(body: dict[str, Any]) -> tuple[list[str], int]:
    """Segments and seconds of grace of a request to unmount."""
    ids = body.get("segment_ids")
    ids = [ids] if isinstance(ids, str) and ids else ids
    if not isinstance(ids, list) or not ids or not all(isinstance(segment, str) for segment in ids):
        raise HttpError(400, "Missing segment_ids")
    grace = body.get("grace_period_seconds", 0)
    if not _is_count(grace):
        raise HttpError(400, "Invalid grace_period_seconds, must be a non-negative integer")
    return ids, grace


def _shm_name_to_path(name: Any) -> str | None:
    """The file of a shared memory object; None for what is no name of one."""
    if not isinstance(name, str):
        return None
    plain = name.removeprefix("/")
    if plain in ("", ".", "..") or "/" in plain or "\0" in plain:
        return None
    return f"/dev/shm/{plain}"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description="A store over HTTP.")
    parser.add_argument("--config", help="JSON file with the configuration (default: from the environment)")
    parser.add_argument(
        "-D", "--define", action="append", default=[], metavar="NAME=VALUE", help="override one setting; may be repeated"
    )
    parser.add_argument("--host", default=MooncakeStoreService.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--max-wait-time", type=float, default=60, help="seconds to try to set the store up (default: %(default)s)"
    )
    return parser.parse_args()


def _defined(definitions: list[str]) -> dict[str, str]:
    """Name to value of `-D name=value`; `SystemExit` for one without a `=`."""
    pairs = [definition.partition("=") for definition in definitions]
    wrong = next((name for name, equals, _ in pairs if not equals or not name), None)
    if wrong is not None:
        raise SystemExit(f"mc_store_rest_server: -D {wrong}: NAME=VALUE expected")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _install_shutdown_signal_handlers(loop: asyncio.AbstractEventLoop, shutdown_event: asyncio.Event) -> None:
    """SIGINT and SIGTERM set the event."""

    def ask(number: signal.Signals) -> None:
        logger.info("%s: shutting down", number.name)
        shutdown_event.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, ask, number)


def _unblock_shutdown_signals() -> None:
    """A parent may have started this process with them blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


async def main() -> bool:
    """Serves until a signal; False when the service could not start."""
    arguments = parse_arguments()
    service = MooncakeStoreService(arguments.config, _defined(arguments.define))
    service.host = getattr(arguments, "host", service.host)
    shutdown = asyncio.Event()
    _install_shutdown_signal_handlers(asyncio.get_running_loop(), shutdown)
    _unblock_shutdown_signals()
    try:
        if not await service.start_store_service(arguments.max_wait_time, shutdown):
            return shutdown.is_set()
        if not await service.start_http_service(arguments.port):
            return False
        await shutdown.wait()
        return True
    finally:
        await service.stop()


def sync_main() -> NoReturn:
    """The command `mc_store_rest_server`: exit status 0 after a signal, 1 when it could not start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    take_all_descriptors()
    try:
        served = asyncio.run(main())
    except (OSError, ValueError) as error:
        raise SystemExit(f"mc_store_rest_server: {error}") from error
    raise SystemExit(0 if served else 1)


if __name__ == "__main__":
    sync_main()
