"""Names of the peer's API that are not built yet: they exist, and say so when they are used."""

from __future__ import annotations

from typing import Any, NoReturn

#: Methods of `MooncakeDistributedStore`.
METHODS = """
begin_weight_snapshot
""".split()

#: Classes of the module.
CLASSES = """
MooncakeDistributedNoFRegister
""".split()

#: Functions of the module.
FUNCTIONS = """
""".split()


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not built yet")


def method(owner: str, name: str) -> Any:
    """A method that raises `NotImplementedError` with its own name."""

    def unbuilt(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{owner}.{name}")

    return _named(unbuilt, name, f"{owner}.{name}")


def function(name: str, module: str = "mooncake.store") -> Any:
    """A function of a module that raises `NotImplementedError` with its own name."""

    def unbuilt(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{module}.{name}")

    return _named(unbuilt, name, name, module)


def class_named(name: str, module: str = "mooncake.store") -> type:
    """A class that cannot be made yet."""
    constructor = _named(lambda self, *args, **kwargs: _refuse(f"{module}.{name}"), "__init__", f"{name}.__init__", module)
    return type(name, (), {"__init__": constructor, "__doc__": "Not built yet.", "__module__": module})


def fill(namespace: dict[str, Any], classes: list[str], functions: list[str]) -> None:
    """Puts classes and functions that are not built yet into the namespace of a module."""
    module = namespace["__name__"]
    namespace.update({name: class_named(name, module) for name in classes})
    namespace.update({name: function(name, module) for name in functions})


def _named(what: Any, name: str, qualified: str, module: str = "mooncake.store") -> Any:
    what.__name__, what.__qualname__, what.__module__ = name, qualified, module
    what.__doc__ = "Not built yet: raises NotImplementedError."
    return what
