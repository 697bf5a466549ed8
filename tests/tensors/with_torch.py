"""Either package under a Python that has torch, numpy and safetensors: `YB_TORCH_PYTHON`.

The package comes from its own environment by `PYTHONPATH`; that Python must not have one itself.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path

import pytest
from pool import installation


def torch_python() -> Path:
    """The Python with torch; without one the test is skipped with a line."""
    named = os.environ.get("YB_TORCH_PYTHON")
    if not named:
        pytest.skip("tensor tests not run: YB_TORCH_PYTHON names no Python with torch (make test-integrations sets it)")
    return Path(named)


@functools.cache
def packages_of(kind: str) -> str:
    """The folder of the environment's packages."""
    command = [str(installation(kind).python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def environment(kind: str) -> dict[str, str]:
    """The environment of a process that has torch and one package."""
    return installation(kind).environment() | {"PYTHONPATH": packages_of(kind), "OMP_NUM_THREADS": "1"}


def run(kind: str, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end."""
    command = [str(torch_python()), str(script), *arguments]
    return subprocess.run(command, env=environment(kind), capture_output=True, text=True, timeout=180, check=False)


def steps(kind: str, port: int) -> dict[str, object]:
    """What `script.py` answers under a package: name of the step to answer, in order."""
    done = run(kind, Path(__file__).with_name("script.py"), f"127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr[-3000:]
    listed = json.loads(done.stdout.split("\n=====\n")[1])
    names = [name for name, _ in listed]
    assert len(set(names)) == len(names), "two steps have one name"
    return dict(listed)
