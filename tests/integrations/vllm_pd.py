#!/usr/bin/env python3
"""vLLM's MooncakeConnector on CPU: two real servers, one that prefills and one that decodes, with a tiny random model.

The driver does what a proxy does: it sends a request to the producer, then to the consumer with the parameters that
name the transfer. The tokens have to be those that the producer gives alone, and the consumer has to have taken every prompt
token from outside. The producer is killed at the end.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
import uuid

from common import HOST, Checks, free_port, wait_until, which_mooncake

BLOCK, TOKENS = 32, 16

#: vLLM's plug-in that answers the one question about an accelerator that the connector asks. It also has a worker's main
#: thread sleep between two looks for a message of its engine, where it would spin for a second after each: while a request
#: waits for its KV the engine sends such messages all the time, the spinning thread is always first to get the interpreter
#: back, and the connector's own thread, which fetches the KV, waits for tens of seconds on a machine with two busy cores.
PLUGIN = """
def answer_zero():
    import time, torch
    torch.accelerator.current_device_index = lambda: 0
    from vllm.platforms import current_platform
    type(current_platform).set_device = classmethod(lambda cls, device: None)
    from vllm.distributed.device_communicators import shm_broadcast
    shm_broadcast.sched_yield = lambda: time.sleep(0.0005)
"""
#: Seconds that one request may take.
PATIENCE = 170


def plugin_folder(folder):
    path = pathlib.Path(folder) / "plugin"
    info = path / "one_device-1.0.dist-info"
    info.mkdir(parents=True)
    (path / "one_device.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: one-device\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\none_device = one_device:answer_zero\n")
    return str(path)


class Server:
    """One vLLM server with one role."""

    def __init__(self, role, model, plugin):
        self.role, self.port, self.bootstrap = role, free_port(), free_port()
        self.log = os.path.abspath(f"vllm_pd.{role}.log")
        transfer = {"kv_connector": "MooncakeConnector", "kv_role": role,
                    "kv_connector_extra_config": {"mooncake_protocol": "tcp", "num_workers": 4}}
        env = {**os.environ, "VLLM_HOST_IP": HOST, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
               "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(self.bootstrap), "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0",
               "VLLM_MOONCAKE_CONNECTOR_TIMEOUT": "60", "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "170",
               "PYTHONPATH": plugin + os.pathsep + os.environ.get("PYTHONPATH", "")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", HOST, "--port",
             str(self.port), "--dtype", "float32", "--enforce-eager", "--block-size", str(BLOCK), "--max-model-len",
             "1024", "--max-num-seqs", "8", "--served-model-name", "tiny", "--no-enable-prefix-caching", "--kv-transfer-config",
             json.dumps(transfer)],
            env=env, stdout=open(self.log, "w"), stderr=subprocess.STDOUT, start_new_session=True)

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://{HOST}:{port or self.port}{path}", timeout=10) as r:
            return r.read().decode()

    def up(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.role} ended: {pathlib.Path(self.log).read_text()[-4000:]}")
        try:
            self.get("/health")
            return True
        except OSError:
            return False

    def complete(self, prompt, tokens, timeout=PATIENCE, **params):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, **params}
        request = urllib.request.Request(f"http://{HOST}:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return json.loads(r.read())["choices"][0]["token_ids"]

    def external(self):
        """Prompt tokens that came from outside, by the server's own metrics."""
        found = re.findall(r"^vllm:external_prefix_cache_hits_total\S* ([\d.e+]+)$", self.get("/metrics"), re.M)
        return sum(float(x) for x in found)

    def stop(self, how=signal.SIGKILL):
        try:
            os.killpg(self.process.pid, how)
        except ProcessLookupError:
            pass
        self.process.wait(30)


class Proxy:
    """What stands between clients and the two servers."""

    def __init__(self, producer, consumer):
        self.producer, self.consumer = producer, consumer
        self.address = f"http://{HOST}:{producer.bootstrap}"
        self.engine_id = json.loads(producer.get("/query", producer.bootstrap))["0"]["engine_id"]

    def complete(self, prompt, tokens, timeout=PATIENCE):
        transfer = f"xfer-{uuid.uuid4().hex}"
        self.producer.complete(prompt, 1, kv_transfer_params={
            "do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer})
        return self.decode(prompt, tokens, transfer, timeout)

    def decode(self, prompt, tokens, transfer, timeout=PATIENCE):
        return self.consumer.complete(prompt, tokens, timeout, kv_transfer_params={
            "do_remote_decode": False, "do_remote_prefill": True, "transfer_id": transfer,
            "remote_bootstrap_addr": self.address, "remote_engine_id": self.engine_id})


def main():
    import tiny_model
    check = Checks()
    print("mooncake:", which_mooncake())
    with tempfile.TemporaryDirectory(prefix="vllm-pd-") as folder:
        plugin = plugin_folder(folder)
        model = str(tiny_model.make(os.path.join(folder, "model")))
        servers = [Server(role, model, plugin) for role in ("kv_producer", "kv_consumer")]
        try:
            check("both servers are up", all(wait_until(s.up, 400) for s in servers))
            run(check, *servers, tiny_model.prompts(12, 5 * BLOCK + 9))
        except Exception:
            traceback.print_exc()
            for s in servers:
                print(s.role, *pathlib.Path(s.log).read_text().splitlines()[-15:], sep="\n      | ")
            check("driver ran", False)
        finally:
            for s in servers:
                s.stop()
    return check.finish()


def run(check, producer, consumer, prompts):
    proxy = Proxy(producer, consumer)
    check("the producer registers with its bootstrap server", bool(proxy.engine_id), proxy.engine_id)
    truth = [producer.complete(p, TOKENS) for p in prompts]
    begun = time.monotonic()
    tokens = proxy.complete(prompts[0], TOKENS)
    check("tokens are those without transfer", tokens == truth[0] and len(tokens) == TOKENS,
          f"{tokens} in {time.monotonic() - begun:.1f} s")
    length = len(prompts[0])
    check("all prompt tokens came from the producer", consumer.external() == length, consumer.external())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        several = list(pool.map(lambda p: proxy.complete(p, TOKENS), prompts[1:]))
    check("several requests at once: tokens", several == truth[1:])
    check("several requests at once: all prompt tokens from outside", consumer.external() == len(prompts) * length,
          consumer.external())
    check("the consumer computes by itself what is not transferred", consumer.complete(prompts[2], TOKENS) == truth[2]
          and consumer.external() == len(prompts) * length)
    producer.stop()
    check("without its producer the consumer serves on", consumer.complete(prompts[4], TOKENS) == truth[4])


if __name__ == "__main__":
    code = main()
    os._exit(code)
