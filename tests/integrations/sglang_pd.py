#!/usr/bin/env python3
"""SGLang's prefill/decode transfer over mooncake.engine, driven on CPU.

Unmodified classes of the installed sglang: MooncakeTransferEngine (the shared wrapper), MooncakeKVManager in both
roles with its bootstrap server, sender and receiver, the failed-session probe, the role switch, and the weights of
another instance. This process is the prefill instance; two forked ones are decode instances, of which the first is
killed. Only the scheduler around them is missing: the driver names the pages that it would name.
"""
import hashlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings

os.environ.update(MOONCAKE_PROTOCOL="tcp", SGLANG_HOST_IP="127.0.0.1", MC_FORCE_TCP="1",
                  SGLANG_ENABLE_FAILED_SESSION_PROBE="1", SGLANG_FAILED_SESSION_PROBE_INTERVAL_S="600",
                  SGLANG_FAILED_SESSION_PROBE_MAX_INTERVAL_S="600",
                  SGLANG_MOONCAKE_SEND_AUX_TCP="0")
warnings.filterwarnings("ignore")

import cpu_stubs
import numpy as np
import zmq
import torch  # before the stubs, so that torch sees that triton is absent

cpu_stubs.install("triton", "IPython", "gguf", "torchao", "sgl_kernel", "flashinfer", "deep_gemm", "tvm_ffi", "cuda",
                  "timm", "decord", "interegular", "outlines", "modelscope", "datasets")
from common import HOST, SUPERSET, Checks, free_port, wait_until, which_mooncake
from sglang.srt import runtime_context
from sglang.srt.disaggregation.base.conn import KVArgs, KVPoll, StateType
from sglang.srt.disaggregation.common.conn import CommonKVReceiver
from sglang.srt.disaggregation.mooncake.conn import (MooncakeKVBootstrapServer, MooncakeKVManager, MooncakeKVReceiver,
                                                     MooncakeKVSender)
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.distributed.device_communicators import mooncake_transfer_engine as wrapper
from sglang.srt.model_loader.remote_instance_weight_loader_utils import register_memory_region_v1
from sglang.srt.server_args import ServerArgs

LAYERS, PAGES, ITEM = 4, 1024, 2048  # each page of a layer's keys or values is ITEM bytes
AUX, AUX_ITEM = 3, 256
STATE_PAGES, STATE_ITEM = 64, 1536
NAMES = {getattr(KVPoll, n): n for n in ("Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success")}


class Pool:
    """The memory that a scheduler would own: KV of each layer (keys, then values), auxiliary rows, one state pool."""

    def __init__(self, seed):
        random = torch.Generator().manual_seed(seed)

        def region(rows, item):
            if seed:
                return torch.randint(0, 256, (rows, item), dtype=torch.uint8, generator=random)
            return torch.zeros((rows, item), dtype=torch.uint8)
        self.kv = [region(PAGES, ITEM) for _ in range(2 * LAYERS)]
        self.aux = [region(16, AUX_ITEM) for _ in range(AUX)]
        self.state = [region(STATE_PAGES, STATE_ITEM) for _ in range(LAYERS)]

    def kv_args(self):
        a = KVArgs()
        a.engine_rank = a.gpu_id = a.pp_rank = a.system_dp_rank = a.prefill_start_layer = 0
        a.prefill_end_layer = None
        a.kv_data_ptrs, a.kv_data_lens, a.kv_item_lens = addresses(self.kv)
        a.aux_data_ptrs, a.aux_data_lens, a.aux_item_lens = addresses(self.aux)
        ptrs, lens, items = addresses(self.state)
        a.state_types = [StateType.SWA]
        a.state_data_ptrs, a.state_data_lens, a.state_item_lens = [ptrs], [lens], [items]
        a.state_layer_ids, a.state_dim_per_tensor, a.state_slice_outer_counts = [[]], [[]], [[]]
        a.state_conv_shard_groups, a.swa_kv_cache_layout = [[]], None
        a.kv_layer_ids, a.kv_cache_dtype_str, a.is_hybrid_mla_backend = [], "float16", False
        a.ib_device, a.page_size, a.kv_head_num, a.total_kv_head_num = "", 1, 2, 2
        a.rust_http_port = a.mla_compression_ratios = None
        a.kv_buf_groups = a.hidden_kv_layers = a.draft_kv_layers = 0
        return a

    def digest(self, pages, aux_row, state_pages):
        """What is in the given rows, to be compared across processes."""
        parts = [t[pages] for t in self.kv] + [t[aux_row] for t in self.aux] + [t[state_pages] for t in self.state]
        return [digest(p) for p in parts]


def addresses(tensors):
    return [t.data_ptr() for t in tensors], [t.nbytes for t in tensors], [t[0].nbytes for t in tensors]


def digest(tensor):
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).hexdigest()


def publish(mode, bootstrap_port):
    """What the launcher of a server does for the process: its configuration and its place among ranks."""
    args = ServerArgs(model_path="dummy", host=HOST, disaggregation_bootstrap_port=bootstrap_port,
                      disaggregation_mode=mode, enable_pd_role_switch=True)
    runtime_context.publish(args, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=0, gpu_id=0))
    runtime_context.get_parallel().override_permanently(pp_group=None)
    return args


class Weights(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64 + 8 * i, 32, dtype=torch.float32) for i in range(12))


class Decode:
    """A decode instance: answers the driver's commands in a process of its own."""

    def __init__(self, bootstrap_port):
        self.addr = f"{HOST}:{bootstrap_port}"
        self.args = publish("decode", bootstrap_port)
        self.pool = Pool(seed=0)
        self.engine = wrapper.init_mooncake_transfer_engine(HOST, 0, None)
        self.manager = None
        self.rooms = {}

    def start(self):
        self.manager = MooncakeKVManager(self.pool.kv_args(), DisaggregationMode.DECODE, self.args)
        return self.manager.get_session_id(), self.manager.try_ensure_parallel_info(self.addr)

    def ask(self, room, pages, aux_row, state_pages):
        """Asks prefill for a request's pages, to be written to these rows here."""
        r = self.rooms[room] = MooncakeKVReceiver(self.manager, self.addr, room)
        r.init(0)
        r.send_metadata(np.array(pages, np.int32), aux_row, [list(state_pages)])
        return NAMES[r.poll()]

    def end(self, room, secs):
        """How the request ended here."""
        r = self.rooms[room]
        wait_until(lambda: r.poll() in (KVPoll.Success, KVPoll.Failed), secs)
        return NAMES[r.poll()]

    def digest(self, *rows):
        return self.pool.digest(*rows)

    def used(self):
        """How many pages hold anything."""
        return int((self.pool.kv[0] != 0).any(dim=1).sum())

    def switch(self):
        """The role switch: the manager goes, a new one registers the same memory on the same engine."""
        self.manager.teardown()
        for t in self.pool.kv + self.pool.aux + self.pool.state:
            t.zero_()
        return self.start()

    def registered_twice(self):
        ptrs, lens, _ = addresses(self.pool.kv)
        return self.engine.batch_register(ptrs, lens), self.engine.batch_deregister([12345 * 4096])

    def landing(self):
        """A buffer as the encoder's receiver makes one: registered for one transfer."""
        self.buffer = torch.zeros(1 << 20, dtype=torch.uint8)
        self.engine.register(self.buffer.data_ptr(), self.buffer.nbytes)
        return self.engine.session_id, self.buffer.data_ptr()

    def landed(self):
        out = digest(self.buffer)
        self.engine.deregister(self.buffer.data_ptr())
        return out

    def seed_weights(self):
        """The instance that others read weights from."""
        self.model = Weights(seed=5)
        engine = self.engine.engine
        return self.engine.session_id, register_memory_region_v1(self.model, engine)


def serve(pipe, bootstrap_port):
    """The loop of a decode process; the engine is made by its first command."""
    CommonKVReceiver._ctx = zmq.Context()  # the one made at import belongs to the process that forked
    instance = None
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            instance = instance or Decode(bootstrap_port)
            pipe.send((True, getattr(instance, name)(*args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))


class Child:
    def __init__(self, bootstrap_port):
        fork = multiprocessing.get_context("fork")
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(target=serve, args=(theirs, bootstrap_port), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, name, *args, secs=60):
        self.pipe.send((name, args))
        if not self.pipe.poll(secs):
            raise TimeoutError(f"decode did not answer {name} in {secs} s")
        ok, value = self.pipe.recv()
        if not ok:
            raise RuntimeError(value)
        return value


class Prefill:
    """The prefill instance, in this process."""

    def __init__(self, bootstrap_port):
        self.addr = f"{HOST}:{bootstrap_port}"
        self.args = publish("prefill", bootstrap_port)
        self.pool = Pool(seed=1)
        self.engine = wrapper.init_mooncake_transfer_engine(HOST, 0, None)
        self.start()

    def start(self):
        self.manager = MooncakeKVManager(self.pool.kv_args(), DisaggregationMode.PREFILL, self.args)

    def send(self, room, chunks, aux_row, state_pages):
        """Sends a request's pages in chunks, as chunked prefill does; the last one carries the rest."""
        s = MooncakeKVSender(self.manager, self.addr, room)
        s.init(sum(map(len, chunks)), aux_row)
        if not wait_until(lambda: s.poll() != KVPoll.Bootstrapping, 30):
            return s
        for i, chunk in enumerate(chunks):
            last = i == len(chunks) - 1
            s.send(np.array(chunk, np.int32), [np.array(state_pages, np.int32)] if last else None)
        return s

    def end(self, sender, secs=60):
        wait_until(lambda: sender.poll() in (KVPoll.Success, KVPoll.Failed), secs)
        return NAMES[sender.poll()]


def main():
    check = Checks()
    port = free_port()
    first, second = Child(port), Child(port)  # forked while this process has no threads of an engine
    print("mooncake:", which_mooncake())
    import sglang
    print("sglang:", sglang.__version__, "torch:", torch.__version__)
    server = MooncakeKVBootstrapServer(HOST, port)
    prefill = Prefill(port)
    try:
        rooms(check, prefill, first)
        role_switches(check, prefill, first)
        wrapper_calls(check, prefill, first)
        weights(check, prefill, first)
        dead_peer(check, prefill, first, second)
    finally:
        for child in (first, second):
            if child.process.is_alive():
                child.process.kill()
            child.process.join(10)
        server.close()
    return check.finish()


def one_room(check, name, prefill, decode, room, chunks, dst_pages, rows=(1, 2), states=((0, 1), (3, 4))):
    """One request from asking to bytes; `rows` and `states` are (here, there)."""
    src_pages = [p for c in chunks for p in c]
    decode("ask", room, dst_pages, rows[1], states[1])
    sender = prefill.send(room, chunks, rows[0], states[0])
    ends = prefill.end(sender), decode("end", room, 60)
    check(f"{name}: both ends see success", ends == ("Success", "Success"), ends)
    check(f"{name}: bytes of KV, aux and state", decode("digest", dst_pages, rows[1], list(states[1]))
          == prefill.pool.digest(src_pages, rows[0], list(states[0])))
    return sender


def rooms(check, prefill, decode):
    engine = prefill.engine
    check("wrapper: one engine for the process", wrapper.init_mooncake_transfer_engine(HOST, 0, None) is engine
          and prefill.manager.engine is engine)
    host, _, port = engine.session_id.rpartition(":")
    check("wrapper: session id is host:port", host == HOST and int(port) > 0, engine.session_id)
    session, found = decode("start")
    check("decode finds prefill by its bootstrap server", found and session != engine.session_id, session)
    one_room(check, "a request", prefill, decode, 1, [list(range(12))], list(range(100, 112)))
    check("a request: no page outside it is written", decode("used") == 12, decode("used"))
    one_room(check, "chunked prefill", prefill, decode, 2, [list(range(20, 36)), list(range(36, 50)), [77]],
             list(range(200, 231)))
    # the peer refuses thousands of blocks at once over TCP ("lane queue-full"), and SGLang then drops the session
    n = 400 if SUPERSET else 40
    scattered = np.random.default_rng(3).permutation(PAGES)[:n].tolist()
    sender = one_room(check, "scattered pages", prefill, decode, 3, [scattered], scattered[::-1])
    moved = sender.get_transfer_metric().transfer_total_bytes
    check("scattered pages: bytes counted", moved == n * ITEM * 2 * LAYERS + 2 * STATE_ITEM * LAYERS, moved)
    many = range(10, 22)
    for room in many:
        decode("ask", room, list(range(room * 40, room * 40 + 30)), room - 10, [room])
    senders = [prefill.send(room, [list(range(room * 30, room * 30 + 30))], room - 10, [room]) for room in many]
    ends = [prefill.end(s) for s in senders] + [decode("end", room, 60) for room in many]
    check("12 requests at once succeed", ends == ["Success"] * 24, ends)
    check("12 requests at once: bytes", all(
        decode("digest", list(range(r * 40, r * 40 + 30)), r - 10, [r])
        == prefill.pool.digest(list(range(r * 30, r * 30 + 30)), r - 10, [r]) for r in many))


def role_switches(check, prefill, decode):
    _, found = decode("switch")
    check("role switch: decode is there again", found)
    one_room(check, "after the switch of decode", prefill, decode, 30, [list(range(50, 70))], list(range(20)))
    prefill.manager.teardown()
    prefill.start()
    decode("switch")
    one_room(check, "after the switch of prefill", prefill, decode, 31, [list(range(70, 90))], list(range(20)))
    twice, unknown = decode("registered_twice")
    check("registering a range twice is refused", twice != 0, twice)
    check("an unknown address cannot be deregistered", unknown != 0, unknown)


def wrapper_calls(check, prefill, decode):
    session, address = decode("landing")
    data = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8)
    prefill.engine.register(data.data_ptr(), data.nbytes)
    check("encoder: transfer_sync", prefill.engine.transfer_sync(session, data.data_ptr(), address, data.nbytes) == 0)
    check("encoder: bytes", decode("landed") == digest(data))
    prefill.engine.deregister(data.data_ptr())
    try:
        prefill.engine.deregister(data.data_ptr())
        check("deregistering twice raises", False)
    except RuntimeError:
        check("deregistering twice raises", True)
    check("a probe of a living session is 0", prefill.manager._send_probe(session) == 0)
    check("the engine behind the wrapper is an object", prefill.engine.get_engine() is not None)


def weights(check, prefill, decode):
    session, info = decode("seed_weights")
    ours = Weights(seed=6)
    local, remote, lens = [], [], []
    for name, tensor in ours.named_parameters():
        ptr, numel, size = info[name]
        assert (numel, size) == (tensor.numel(), tensor.element_size())
        prefill.engine.register(tensor.data_ptr(), tensor.nbytes)
        local.append(tensor.data_ptr()), remote.append(ptr), lens.append(numel * size)
    ret = prefill.engine.engine.batch_transfer_sync_read(session, local, remote, lens)
    theirs = Weights(seed=5)
    check("weights of another instance are read", ret == 0 and len(lens) == 24, ret)
    check("weights: every parameter is equal", all(torch.equal(a, b) for a, b in
                                                  zip(ours.parameters(), theirs.parameters())))


def dead_peer(check, prefill, decode, second):
    manager = prefill.manager
    session, _ = decode("switch")
    decode("ask", 40, list(range(8)), 0, [0])
    sender = MooncakeKVSender(manager, prefill.addr, 40)
    sender.init(8, 0)
    wait_until(lambda: sender.poll() != KVPoll.Bootstrapping, 30)
    os.kill(decode.process.pid, signal.SIGKILL)
    decode.process.join(10)
    begun = time.monotonic()
    sender.send(np.arange(8, dtype=np.int32), [np.array([0], np.int32)])
    end = prefill.end(sender, 90)
    check("a dead decode fails the request and does not hang", end == "Failed", f"{time.monotonic() - begun:.1f} s")
    check("its session is set aside", session in manager.failed_sessions)
    manager._run_one_probe_pass()
    check("a probe of the dead session does not bring it back", session in manager.failed_sessions)
    other, found = second("start")
    check("another decode starts beside it", found and other not in manager.failed_sessions)
    one_room(check, "with another decode", prefill, second, 41, [list(range(90, 110))], list(range(500, 520)))
    with manager.session_lock:  # a session that failed once for a reason that is over
        manager.failed_sessions.add(other)
    manager._run_one_probe_pass()
    check("a probe brings a living session back", other not in manager.failed_sessions)


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
