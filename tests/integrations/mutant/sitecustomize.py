"""Lays one fault over the `mooncake` package of this interpreter: the one that MUTANT names.

Python imports this file at its start when its folder is on the path. The package is used as it is; after the import of
`mooncake.store` or `mooncake.engine` one class of it is replaced by a subclass, or one method by another.
"""
import importlib.abc
import importlib.machinery
import os
import sys

STORE, ENGINE = "mooncake.store", "mooncake.engine"


def wrapped(name, change):
    """A fault that changes what a method of the store answers: `change(answer, arguments)`."""
    def lay(module):
        cls = module.MooncakeDistributedStore
        real = getattr(cls, name)

        def method(self, *args, **kw):
            return change(real(self, *args, **kw), args)
        method.__doc__, method.__name__ = real.__doc__, name
        setattr(cls, name, method)
    return lay


def replaced(name, method):
    """A fault that replaces a method of the store; the real one comes first."""
    def lay(module):
        cls = module.MooncakeDistributedStore
        real = getattr(cls, name)

        def instead(self, *args, **kw):
            return method(real, self, *args, **kw)
        instead.__doc__ = real.__doc__
        setattr(cls, name, instead)
    return lay


def engine(name, method):
    """A fault that replaces a method of the transfer engine."""
    def lay(module):
        real = getattr(module.TransferEngine, name)

        def instead(self, *args, **kw):
            return method(real, self, *args, **kw)
        setattr(module.TransferEngine, name, instead)
    return lay


def first_only(real, self, keys, ptrs, sizes, *more):
    res = real(self, keys, [p[:1] for p in ptrs], [s[:1] for s in sizes], *more)
    return [sum(s) if r >= 0 else r for r, s in zip(res, sizes)]


def refuses_keywords(real, self, *args, **kw):
    if kw:
        raise TypeError("setup() takes no keyword arguments")
    return real(self, *args)


def not_forced(real, self, keys, force=False):
    return real(self, keys)


def without_doc(module):
    cls = module.MooncakeDistributedStore
    real = cls.batch_remove
    cls.batch_remove = lambda self, *args, **kw: real(self, *args, **kw)


FAULTS = {
    "reads_give_zero": (STORE, wrapped("batch_get_into", lambda res, args: [0 if r > 0 else r for r in res])),
    "writes_give_counts": (STORE, wrapped("batch_put_from", lambda res, args: [s if r == 0 else r for r, s in
                                                                              zip(res, args[2])])),
    "upserts_give_counts": (STORE, wrapped("batch_upsert_from", lambda res, args: [s if r == 0 else r for r, s in
                                                                                  zip(res, args[2])])),
    "all_keys_exist": (STORE, wrapped("batch_is_exist", lambda res, args: [1] * len(args[0]))),
    "no_key_exists": (STORE, wrapped("is_exist", lambda res, args: 0)),
    "first_buffer_only": (STORE, replaced("batch_get_into_multi_buffers", first_only)),
    "unregister_fails": (STORE, wrapped("unregister_buffer", lambda res, args: -600)),
    "one_miss_fails_all": (STORE, wrapped("batch_get_into", lambda res, args: [-704] * len(res) if -704 in res
                                         else res)),
    "host_without_port": (STORE, wrapped("get_hostname", lambda res, args: res.rpartition(":")[0])),
    "no_keywords": (STORE, replaced("setup", refuses_keywords)),
    "no_force": (STORE, replaced("batch_remove", not_forced)),
    "no_docstring": (STORE, without_doc),
    "buffers_are_none": (STORE, wrapped("batch_get_buffer", lambda res, args: [None] * len(res))),
    "writes_move_nothing": (ENGINE, engine("batch_transfer_sync_write", lambda real, self, *args, **kw: 0)),
    "reads_move_nothing": (ENGINE, engine("batch_transfer_sync_read", lambda real, self, *args, **kw: 0)),
    "notices_are_lost": (ENGINE, engine("get_notifies", lambda real, self: [])),
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the others would and lays the fault over it after it has run."""

    def __init__(self, name, lay):
        self.name, self.lay = name, lay

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        real, lay = spec.loader.exec_module, self.lay

        class Loader(importlib.abc.Loader):
            create_module = staticmethod(spec.loader.create_module)

            @staticmethod
            def exec_module(module):
                real(module)
                lay(module)
        spec.loader = Loader()
        return spec


if os.environ.get("MUTANT"):
    sys.meta_path.insert(0, Finder(*FAULTS[os.environ["MUTANT"]]))
