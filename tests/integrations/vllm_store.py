#!/usr/bin/env python3
"""vLLM's MooncakeStoreConnector on CPU: real engines with a tiny random model, one process each.

What one engine saved another loads, and the tokens are those of an engine without a store; objects that are overwritten
in the store change them, so the loaded KV is what the model reads. Also the embedding store client and the transfer of
encoder outputs, both vLLM's own classes.
"""
import json
import os
import subprocess
import sys
import tempfile
import traceback

from common import HOST, Checks, Master, wait_until, which_mooncake

BLOCK, TOKENS = 32, 16
RESULT = "RESULT "


def serve(model, extra):
    """An engine process: reads commands as JSON lines and answers each with one line."""
    import logging
    import warnings
    warnings.filterwarnings("ignore")
    from vllm import LLM, SamplingParams
    config = {}
    if extra is not None:
        config["kv_transfer_config"] = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both",
                                        "kv_connector_extra_config": extra}
    llm = LLM(model, dtype="float32", enforce_eager=True, block_size=BLOCK, max_model_len=1024, max_num_seqs=8,
              enable_prefix_caching=True, seed=0, **config)
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    print(RESULT + '"ready"', flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "generate":
            out = llm.generate([{"prompt_token_ids": p} for p in command["prompts"]], greedy, use_tqdm=False)
            answer = [[list(o.outputs[0].token_ids), o.num_cached_tokens] for o in out]
        elif command["do"] == "forget":
            answer = llm.reset_prefix_cache(reset_connector=command.get("store", False))
        else:
            llm.llm_engine.engine_core.shutdown()
            answer = "ended"
        print(RESULT + json.dumps(answer), flush=True)
        if command["do"] == "end":
            break
    logging.shutdown()
    os._exit(0)


class Engine:
    """One engine process of the driver; it starts while others do."""

    def __init__(self, name, model, config_file=None, extra=None, **env):
        self.name = name
        self.log = tempfile.NamedTemporaryFile("w", prefix=f"vllm-{name}-", suffix=".log", delete=False)
        env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": HOST,
               "PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
               "MOONCAKE_REQUESTER_LOCAL_HOSTNAME": HOST, **env}
        if config_file:
            env["MOONCAKE_CONFIG_PATH"] = config_file
        command = [sys.executable, os.path.abspath(__file__), "engine", model, json.dumps(extra)]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        self.ready = False

    def __call__(self, do, **more):
        if not self.ready:
            self.answer()
            self.ready = True
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith(RESULT):
                return json.loads(line[len(RESULT):])
            self.log.write(line)
        with open(self.log.name) as f:
            raise RuntimeError(f"engine {self.name} ended: {f.read()[-3000:]}")

    def generate(self, prompts):
        out = self("generate", prompts=prompts)
        return [t for t, _ in out], [c for _, c in out]

    def logged(self):
        self.log.flush()
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def kill(self):
        self.process.kill()
        self.process.wait()


def store_config(folder, name, master, **more):
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w") as f:
        json.dump({"metadata_server": "P2PHANDSHAKE", "master_server_address": master.addr, "protocol": "tcp",
                   "device_name": "", "global_segment_size": "128MB", "local_buffer_size": 64 << 20, **more}, f)
    return path


def overwrite(master, keys):
    """Puts other bytes of the same size under every key; True when the store then holds them."""
    from mooncake.store import MooncakeDistributedStore
    store = MooncakeDistributedStore()
    assert store.setup(HOST, "P2PHANDSHAKE", 128 << 20, 64 << 20, "tcp", "", master.addr) == 0
    sizes = [store.get_size(k) for k in keys]
    removed = store.batch_remove(keys, force=True)
    import numpy as np
    noise = [np.random.default_rng(i).standard_normal(n // 4).astype("f4").tobytes() for i, n in enumerate(sizes)]
    put = [store.put(k, v) for k, v in zip(keys, noise)]
    return store, sizes, list(removed) == [0] * len(keys) and put == [0] * len(keys)


def engines(check, folder, master):
    import tiny_model
    model = str(tiny_model.make(os.path.join(folder, "model")))
    prompts = tiny_model.prompts(4, 5 * BLOCK + 7)
    shared = store_config(folder, "embedded", master)
    lender = store_config(folder, "standalone", master, mode="standalone-store", global_segment_size=0)
    writer = Engine("writer", model, shared, {"cache_prefix": "pool"})
    plain = Engine("plain", model)
    reader = None
    try:
        truth, _ = plain.generate(prompts)
        plain.kill()
        tokens, cached = writer.generate(prompts)
        check("store: saving does not change the tokens", tokens == truth and cached == [0] * 4, cached)
        check("store: all full blocks are saved", wait_until(lambda: len(master.keys()) >= 20, 20),
              len(master.keys()))
        keys = master.keys()
        check("store: keys", all(k.startswith("pool@") and "@tp_rank:0@" in k and "@group:0@" in k for k in keys),
              keys[:1])
        reader = Engine("reader", model, lender, {"cache_prefix": "pool", "enable_group_semantics": True},
                        VLLM_MOONCAKE_LOAD_RECV_THREADS="4", VLLM_MOONCAKE_STORE_TIER_LOG="1")
        tokens, cached = reader.generate(prompts)
        check("store: another engine loads what the first saved", cached == [5 * BLOCK] * 4, cached)
        check("store: tokens with loaded KV are those without a store", tokens == truth)
        check("store: replica descriptors say memory", "memory_keys=5" in reader.logged())
        more = tiny_model.prompts(6, 5 * BLOCK + 7)[4:]
        grouped, cached = reader.generate(more)
        check("store: saved with group ids", wait_until(lambda: len(master.keys()) >= 30, 20) and cached == [0, 0],
              len(master.keys()))
        check("store: forgetting the local cache", writer("forget") is True and reader("forget") is True)
        tokens, cached = writer.generate(more)
        check("store: the first engine loads what the other saved", tokens == grouped and cached == [5 * BLOCK] * 2,
              cached)
        keys = [k for k in master.keys() if k.startswith("pool@")]
        store, sizes, done = overwrite(master, keys)
        check("store: an object is one block of all layers", set(sizes) == {2 * 2 * BLOCK * 2 * 32 * 4}, set(sizes))
        check("store: objects overwritten", done)
        tokens, cached = reader.generate(prompts)
        check("store: overwritten objects change the tokens", cached == [5 * BLOCK] * 4 and
              all(a != b for a, b in zip(tokens, truth)), cached)
        check("store: reset clears the store", writer("forget", store=True) is True and
              wait_until(lambda: not master.keys(), 10), len(master.keys()))
        check("store: and the tokens are right again", reader("forget") is True and
              reader.generate(prompts)[0] == truth)
        store.close()
        check("store: engines end", [e("end") for e in (writer, reader)] == ["ended"] * 2 and
              [e.process.wait(20) for e in (writer, reader)] == [0, 0])
    finally:
        for e in (writer, plain, reader):
            if e is not None:
                e.kill()


def embeddings(check, folder, master):
    import torch
    from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding import store_client
    from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding.data import TensorSpec
    os.environ["MOONCAKE_CONFIG_PATH"] = store_config(folder, "embedding", master)
    os.environ["MOONCAKE_REQUESTER_LOCAL_HOSTNAME"] = HOST
    client = store_client.create_mooncake_embedding_store_client(1 << 20)
    tensors = {f"emb{i}": torch.randn(10 + i, 64).to(dtype) for i, dtype in
               enumerate((torch.float32, torch.float16, torch.bfloat16))}
    for key, tensor in tensors.items():
        client.put_tensor(key, tensor)
    check("embedding: exists", client.batch_exists([*tensors, "none"]) == [True] * 3 + [False])
    spec = {k: TensorSpec(tuple(t.shape), str(t.dtype), t.nbytes) for k, t in tensors.items()}
    spec["none"] = spec["emb0"]
    loaded = client.load_tensors(spec, "cpu")
    check("embedding: loaded, and the missing one left out", sorted(loaded) == sorted(tensors) and
          all(torch.equal(loaded[k], t) for k, t in tensors.items()), sorted(loaded))
    wrong = TensorSpec((9, 64), "torch.float32", 9 * 64 * 4)
    check("embedding: another shape is no hit", client.load_tensors({"emb0": wrong}, "cpu") == {})
    client.put_tensor("emb0", tensors["emb0"])
    client._check_healthy()
    check("embedding: a second put of the same tensor keeps the client usable", client.exists("emb0"))
    client.close()
    check("embedding: unregister and close answer 0", True)


def encoder(check):
    import torch
    from vllm.distributed.ec_transfer.ec_connector.mooncake.transfer import MooncakeTransfer
    producer, consumer = MooncakeTransfer(HOST, "tcp"), MooncakeTransfer(HOST, "tcp")
    slab = torch.zeros(1 << 20, dtype=torch.uint8)
    check("encoder: slab registered", consumer.register_memory(slab) == 0)
    whole = torch.randn(64, 256)
    views = list(whole.split([10, 20, 34]))  # adjacent ranges of one storage
    for round_ in range(3):
        held = producer.acquire_sources(views)
        again = producer.acquire_sources(views[:1])
        offsets = [0, views[0].nbytes, views[0].nbytes + views[1].nbytes]
        producer.write(consumer.local_session(), [v.data_ptr() for v in views], [slab.data_ptr() + o for o in offsets],
                       [v.nbytes for v in views])
        same = torch.equal(slab[:whole.nbytes].view(torch.float32).view(64, 256), whole)
        check(f"encoder: adjacent views, round {round_}", same and producer.release_sources(held) and
              producer.release_sources(again))
        whole.normal_()
    check("encoder: unregister the slab", consumer.unregister_memory(slab))
    try:
        producer.write(consumer.local_session(), [whole.data_ptr()], [8], [whole.nbytes])
        check("encoder: a write to nowhere is an error", False)
    except RuntimeError:
        check("encoder: a write to nowhere is an error", True)
    producer.close(), consumer.close()


def main():
    check = Checks()
    print("mooncake:", which_mooncake())
    with tempfile.TemporaryDirectory(prefix="vllm-store-") as folder, \
            Master("--default_kv_lease_ttl=1000", log=os.path.join(folder, "master.log")) as master:
        for part in (lambda: engines(check, folder, master), lambda: embeddings(check, folder, master),
                     lambda: encoder(check)):
            try:
                part()
            except Exception:
                traceback.print_exc()
                check("part ran", False)
    return check.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        serve(sys.argv[2], json.loads(sys.argv[3]))
    code = main()
    os._exit(code)
