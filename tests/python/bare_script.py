"""What happens on a bare machine, told as JSON: `bare_script.py serve|refuse 4|6`. Uses nothing that needs a library or a file."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = Path(sys.executable).parent
START_SECONDS = 60
MEMORY_BYTES = 512 << 20
VALUE = bytes(range(256)) * 4


class Program:
    """A command with its output in memory: nothing can be written here."""

    def __init__(self, name, *arguments):
        self.log = os.memfd_create(name)
        self.child = subprocess.Popen([COMMANDS / name, *arguments], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def text(self):
        return os.pread(self.log, 1 << 20, 0).decode()

    def wait_for(self, host, port):
        """Until it listens there."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                if probe.connect_ex((host, port)) == 0:
                    return
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"nobody listens on {host} port {port}:\n{self.text()}")
            time.sleep(0.01)

    def wait_for_text(self, text):
        deadline = time.monotonic() + START_SECONDS
        while text not in self.text():
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{text!r} did not come:\n{self.text()}")
            time.sleep(0.01)

    def processor_seconds(self):
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        rows = dict(line.split(":", 1) for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines())
        return int(rows["VmRSS"].split()[0]) * 1024

    def end(self):
        """Asks it to leave and answers how it left."""
        self.child.terminate()
        return self.child.wait(30)


def told(name, *arguments):
    """How a command ended and what it said."""
    run = subprocess.run([COMMANDS / name, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return {"code": run.returncode, "out": run.stdout.decode(), "error": run.stderr.decode()}


def started(kind):
    """A master and a node, and what it took."""
    began = time.monotonic()
    any_host = ["--rpc_address=::", "--metrics_host=::"] if kind == "6" else []
    master = Program("mooncake_master", *any_host)
    host = "::1" if kind == "6" else "127.0.0.1"
    master.wait_for(host, 50051)
    master.wait_for(host, 9003)
    report = {"start_seconds": time.monotonic() - began, "start_processor_seconds": master.processor_seconds(),
              "idle_bytes": master.resident_bytes()}
    there = ["--master_server_address=[::1]:50051", "--host=::"] if kind == "6" else []
    node = Program("mooncake_client", "--global_segment_size=32 MB", *there)
    node.wait_for_text("ready")
    return master, node, report


def serve(kind):
    """A pool with what is set when nothing is said; one value in, and out at both faces."""
    master, node, report = started(kind)
    began = time.process_time()
    from mooncake.store import MooncakeDistributedStore

    report["import_seconds"] = time.process_time() - began
    store = MooncakeDistributedStore()
    options, where = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}, []
    if kind == "6":
        options |= {"local_hostname": "::1", "master_server_addr": "[::1]:50051"}
        where = ["--master", "[::1]:50051"]
    code = store.setup(options)
    report["setup"] = [code, store.last_error() if code else ""]
    report["put"] = store.put("key", VALUE)
    report["right"] = store.get("key") == VALUE
    report["stat"] = told("yuebing", "stat", "key", "--json", *where)
    report["ls"] = told("yuebing", "ls", *where)
    report["close"] = store.close()
    report["left"] = [node.end(), master.end()]
    report["node"], report["master"] = node.text(), master.text()
    return report


def refuse(kind):
    """RDMA by name, where there is none; the check of a machine."""
    master, node, report = started(kind)
    from mooncake.store import MooncakeDistributedStore

    report["node_with_rdma"] = told("mooncake_client", "--protocol=rdma", "--global_segment_size=32 MB", "--port=0")
    store = MooncakeDistributedStore()
    code = store.setup("localhost", "P2PHANDSHAKE", 0, 16 << 20, "rdma", "", "127.0.0.1:50051")
    report["client_with_rdma"] = [code, store.last_error()]
    report["doctor"] = told("yuebing", "doctor", "--master", "127.0.0.1:50051", "--python", sys.executable)
    report["left"] = [node.end(), master.end()]
    return report


def main():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        Path("/written").touch()
    except OSError:
        pass
    else:
        raise SystemExit("the root can be written to")
    assert os.getuid() == os.geteuid() == 65534 and "HOME" not in os.environ
    print(json.dumps({"serve": serve, "refuse": refuse}[sys.argv[1]](sys.argv[2])))


if __name__ == "__main__":
    main()
