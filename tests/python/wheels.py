"""The program that checks wheels, as a module."""

import importlib.util
import sys

from venvs import REPO


def check_wheel():
    """`scripts/check_wheel.py`."""
    if "check_wheel" not in sys.modules:
        spec = importlib.util.spec_from_file_location("check_wheel", REPO / "scripts" / "check_wheel.py")
        # Its data classes look their module up.
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules["check_wheel"]
