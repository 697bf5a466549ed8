"""Compares type stubs with what they describe: prints, as JSON, where names, arguments or defaults differ.

Arguments: module, path of its stub. What a stub says of a class is looked up in the class itself, a function in the module.
"""

import ast
import importlib
import inspect
import json
import sys

KINDS = {
    "posonlyargs": inspect.Parameter.POSITIONAL_ONLY,
    "args": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "kwonlyargs": inspect.Parameter.KEYWORD_ONLY,
}
#: Written like this where a default is an object, not a number or a text.
SOME_OBJECT = "..."
#: Methods with two forms, and what `help()` shows of them; the stub has both forms.
TWO_FORMS = {"MooncakeDistributedStore.setup": {"config"}}


def stubbed(function, method):
    """`[name, kind, default]` of each argument; the default as text, None without one."""
    given, found = function.args, []
    defaults = [None] * (len(given.posonlyargs) + len(given.args) - len(given.defaults)) + given.defaults
    for argument in given.posonlyargs:
        found.append([argument.arg, KINDS["posonlyargs"], defaults.pop(0)])
    for argument in given.args:
        found.append([argument.arg, KINDS["args"], defaults.pop(0)])
    if given.vararg:
        found.append([given.vararg.arg, inspect.Parameter.VAR_POSITIONAL, None])
    for argument, default in zip(given.kwonlyargs, given.kw_defaults):
        found.append([argument.arg, KINDS["kwonlyargs"], default])
    if given.kwarg:
        found.append([given.kwarg.arg, inspect.Parameter.VAR_KEYWORD, None])
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    if method and not static:
        found = found[1:]
    return [[name, kind.name, None if default is None else ast.unparse(default)] for name, kind, default in found]


def real(what, method):
    """The same of what is there; None where it does not say."""
    try:
        parameters = list(inspect.signature(what).parameters.values())
    except (ValueError, TypeError):
        return None
    if method and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    return [[p.name, p.kind.name, default(p.default)] for p in parameters]


def default(value):
    if value is inspect.Parameter.empty or repr(value) == "<required>":
        return None
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if plain else SOME_OBJECT


def said(default):
    """A default as `repr` writes it."""
    return default if default in (None, SOME_OBJECT) else repr(ast.literal_eval(default))


def compare(name, function, what, method):
    ours = [[n, kind, said(d)] for n, kind, d in stubbed(function, method)]
    theirs = real(what, method)
    if theirs is None:
        return [f"{name}: help() shows no signature"]
    extra = TWO_FORMS.get(name, set())
    theirs = [entry for entry in theirs if entry[0] not in extra]
    ours = [entry for entry in ours if entry[0] not in extra]
    return [] if ours == theirs else [f"{name}: the stub says {ours}, help() {theirs}"]


def is_overload(function):
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in function.decorator_list)


def walk(body, owner, prefix, wrong):
    seen = set()
    for entry in body:
        if isinstance(entry, ast.ClassDef) and not entry.name.startswith("_"):
            if not hasattr(owner, entry.name):
                wrong.append(f"{prefix}{entry.name} is not there")
            else:
                walk(entry.body, getattr(owner, entry.name), f"{prefix}{entry.name}.", wrong)
        if not isinstance(entry, ast.FunctionDef) or entry.name in seen:
            continue
        name = prefix + entry.name
        if entry.name.startswith("__"):
            if entry.name == "__init__" and len(entry.args.args) > 1 and not is_overload(entry):
                wrong += compare(name, entry, owner, True)
            continue
        if not hasattr(owner, entry.name):
            wrong.append(f"{name} is not there")
            continue
        what = inspect.getattr_static(owner, entry.name)
        if any(isinstance(d, (ast.Name, ast.Attribute)) and "property" in ast.unparse(d) or "setter" in ast.unparse(d)
               for d in entry.decorator_list):
            continue
        # Of two forms the first is the one that help() shows, but for those that take anything.
        if is_overload(entry):
            seen.add(entry.name)
            if name not in TWO_FORMS:
                continue
        wrong += compare(name, entry, getattr(owner, entry.name), bool(prefix) and not isinstance(what, staticmethod))


def unsaid(tree, module):
    """Public members of classes that the stub leaves out, but for those of bases that have their types in their source."""
    for entry in tree.body:
        if isinstance(entry, ast.ClassDef) and not entry.name.startswith("_"):
            what, bases = getattr(module, entry.name), {ast.unparse(base) for base in entry.bases}
            names = {n for n in dir(what) if not n.startswith("_")}
            for base in what.__mro__:
                if base.__name__ in bases or base in (object, int):
                    names -= set(dir(base))
            known = {getattr(e, "name", None) or ast.unparse(getattr(e, "target", None) or e.targets[0])
                     for e in entry.body if isinstance(e, (ast.FunctionDef, ast.AnnAssign, ast.Assign))}
            yield from (f"{entry.name}.{name} has no type" for name in sorted(names - known - {"name", "value"}))


def main():
    module, path = importlib.import_module(sys.argv[1]), sys.argv[2]
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    wrong = []
    walk(tree.body, module, "", wrong)
    wrong += unsaid(tree, module)
    print(json.dumps(wrong, indent=1))


main()
