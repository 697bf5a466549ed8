"""The table of every public name of the peer's wheels, and what becomes of each here: docs/book/names.md.

`python tests/python/names.py` writes the page (make names); test_docs.py compares.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peer"))

from pool import OURS, installation  # noqa: E402
from venvs import REPO  # noqa: E402

OLD, NEW = "0.3.13.post1", "0.3.14"
PAGE = REPO / "docs" / "book" / "names.md"

#: Prints {name: state} of what a module offers: its functions, values and classes with their members.
INVENTORY = """
import importlib, json, sys
found = {}
def state(what):
    doc = (getattr(what, '__doc__', None) or '').strip()
    return 'unbuilt' if doc.startswith('Not built yet') else 'there'
def public(owner):
    return [n for n in dir(owner) if not n.startswith('__') and 'pybind' not in n]
module = importlib.import_module(sys.argv[1])
for name in public(module):
    # Constants of a module for itself.
    if name.startswith('_') and name.isupper():
        continue
    try:
        what = getattr(module, name)
    except ImportError:
        # Listed, but what it forwards to is not in the wheel.
        found[name] = 'broken'
        continue
    home = getattr(what, '__module__', '') or ''
    if type(what).__name__ == 'module' or not (home.startswith(('mooncake', 'store', 'engine')) or home == ''):
        continue
    found[name] = state(what)
    if isinstance(what, type):
        for member in public(what):
            if member not in dir(int) and not (issubclass(what, BaseException) and hasattr(Exception, member)):
                found[f'{name}.{member}'] = state(getattr(what, member))
print(json.dumps(found))
"""

#: Prints {module: path}: Python files and extensions of the package.
MODULES = """
import json, pathlib, mooncake
names = {}
for place in mooncake.__path__:
    for entry in pathlib.Path(place).iterdir():
        name = entry.name.split('.')[0]
        folder = entry.is_dir() and (entry / '__init__.py').exists()
        if (entry.suffix in ('.py', '.so') or folder) and not name.startswith(('_', 'lib')):
            names['mooncake.' + name] = str(entry)
print(json.dumps(names))
"""

#: Prints {module.name: state} of the names on standard input.
RESOLVE = """
import importlib, json, sys
def state(module, name):
    try:
        what = importlib.import_module(module)
    except ImportError:
        return 'not loaded'
    for part in name.split('.'):
        if part in getattr(what, '__dataclass_fields__', {}):
            return 'there'
        if not hasattr(what, part):
            # A class that is not built has no methods either.
            return 'unbuilt' if (getattr(what, '__doc__', None) or '').startswith('Not built yet') else None
        what = getattr(what, part)
    return 'unbuilt' if (getattr(what, '__doc__', None) or '').startswith('Not built yet') else 'there'
print(json.dumps({f'{module}:{name}': state(module, name) for module, name in json.load(sys.stdin)}))
"""

#: Prints {command: target} of the distributions that own the package.
COMMANDS = """
import importlib.metadata as m, json
owners = [d for d in m.distributions() if (d.metadata['Name'] or '').startswith(('mooncake-transfer-engine', 'yuebing'))]
print(json.dumps({e.name: e.value for d in owners for e in d.entry_points if e.group == 'console_scripts'}))
"""

#: Why a name is not here: the first text whose pattern fits.
ABSENT = {
    r"mooncake\.(ep|pg|mooncake_ep_buffer|mooncake_elastic_buffer)$": "no: collectives and expert parallelism on GPUs, no part of the pool",
    r"mooncake\.(spdk_tgt_create|mooncake_ssd_register|mooncake_ssd_unregister)$": "no: the NVMe-oF pool is not built",
    r"mooncake\.reshard$": "no: moving weights between layouts is not built",
    r"mooncake\.mooncake_connector_v1$": "no: the engines bring their own connector; this one is for a vLLM of the past",
    r"mooncake\.nvlink_allocator$": "no: a library for CUDA machines; `mooncake.allocator` takes one that is installed",
    r"(structured_object_store|dataproto_catalog)\.": "no: the module is not built",
    r"(http_metadata_server|transfer_engine_topology_dump|vllm_v1_proxy_server)\.": "no: a part of the program",
}
#: What stands beside a name whose row says more than `yes`.
EXTRA = {
    "mooncake.store:EngramStore": "yes; 0.3.14 lists it, and using it there is a `ModuleNotFoundError`",
}
#: The page with the flags or calls of a command.
COMMAND_PAGES = {
    "mooncake_master": "[every flag](../settings-master.md)",
    "mooncake_client": "[every flag](../settings-node.md); serves [dummy clients](../daemon.md)",
    "mooncake_http_metadata_server": "[flags and routes](../transfer-metadata.md)",
    "mc_store_rest_server": "[flags and routes](../store-service.md)",
    "transfer_engine_bench": "[flag for flag](../commands.md#bench)",
    "transfer_engine_topology_dump": "[the same output](../topology.md)",
}


@dataclass(frozen=True)
class Found:
    """What the three packages have of one kind: name to state."""

    old: dict[str, str]
    new: dict[str, str]
    ours: dict[str, str | None]

    def names(self) -> list[str]:
        """All names of the peer, private ones last; of a class that is not built here, the class alone."""
        names = {name for name in {*self.old, *self.new} if self.ours.get(name.rpartition(".")[0]) != "unbuilt"}
        return sorted(names, key=lambda name: (_private(name), name.lower(), name))


def _ask(kind: str, code: str, *arguments: str, told: object = None) -> dict[str, str]:
    place = installation(kind)
    command = [str(place.python), "-c", code, *arguments]
    run = subprocess.run(command, env=place.environment(), input=json.dumps(told), capture_output=True, text=True, check=False,
                         timeout=60)
    if run.returncode != 0:
        raise RuntimeError(f"{kind}: {run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def _private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("."))


def chapter(title: str, found: Found, said) -> list[str]:
    """A chapter: one row a name; `said(name, state)` is what the last column says."""
    rows, there = [], 0
    for name in found.names():
        text = said(name, found.ours.get(name))
        there += text.startswith("yes")
        rows.append(f"| `{name}` | {'yes' if name in found.old else ''} | {'yes' if name in found.new else ''} | {text} |")
    count = "All are there." if there == len(rows) else f"{there} of {len(rows)} are there."
    return [f"## {title}", "", count, "", f"| name | {OLD} | {NEW} | here |", "|---|---|---|---|", *rows, ""]


def module_chapter(module: str) -> list[str]:
    """The names of an extension."""
    differs = differences()

    def said(name: str, state: str | None) -> str:
        if extra := EXTRA.get(f"{module}:{name}"):
            return extra
        text = _here(name, state)
        where = differs.get(name.split(".")[-1])
        return f"{text}; see [differences]({where})" if text == "yes" and where else text

    return chapter(f"`{module}`", Found(*(_ask(kind, INVENTORY, module) for kind in (OLD, NEW, OURS))), said)


def _here(name: str, state: str | None) -> str:
    if state:
        return {"there": "yes", "unbuilt": "`NotImplementedError`"}[state]
    return next((text for pattern, text in ABSENT.items() if re.match(pattern, name)), "no")


def modules_chapter(found: Found) -> list[str]:
    """The modules of the package."""
    there = {name: "there" for name in found.ours}
    return chapter("Modules", Found(found.old, found.new, there), _here)


def helpers_chapter(found: Found) -> list[str]:
    """What the modules in Python offer, those that are here too."""
    old, new = (_sources(places, found.ours) for places in (found.old, found.new))
    asked = [name.split(":") for name in sorted({*old, *new})]
    source = _sources(found.ours, found.ours)
    ours = _ask(OURS, RESOLVE, told=asked)
    # What needs torch is looked up in its source.
    ours = {name: source.get(name) if state == "not loaded" else state for name, state in ours.items()}
    shown = Found(*({name.replace("mooncake.", "").replace(":", "."): state for name, state in each.items()} for each in (old, new, ours)))
    return chapter("Names of the modules in Python", shown, _here)


def _sources(places: dict[str, str], ours: dict[str, str | None]) -> dict[str, str]:
    """The public names in source files, without running them: some need packages that are not here."""
    found = {}
    for module, path in places.items():
        if module in ours and path.endswith(".py"):
            found.update({f"{module}:{name}": "there" for name in _defined(ast.parse(Path(path).read_text()).body)})
    return found


def _defined(body: list[ast.stmt]) -> list[str]:
    names = []
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            names += [statement.name, *(f"{statement.name}.{inner}" for inner in _defined(statement.body))]
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names.append(statement.target.id)
        elif isinstance(statement, ast.Assign):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_") and "._" not in name and name not in ("logger", "app")]


def commands_chapter() -> list[str]:
    """The commands that an installation brings."""
    found = Found(*(_ask(kind, COMMANDS) for kind in (OLD, NEW, OURS)))
    return chapter("Commands", found, lambda name, state: f"yes; {COMMAND_PAGES.get(name, '')}".removesuffix("; ") if state else "no")


def differences() -> dict[str, str]:
    """Calls that a table of intended differences names, with the place of the table."""
    found: dict[str, str] = {}
    for page in ("python.md", "python-engine.md"):
        chapter = (REPO / "docs" / page).read_text().split("## Intended differences", 1)[-1]
        for first in re.findall(r"^\| `([a-zA-Z_]+)[ `(]", chapter, flags=re.M):
            found.setdefault(first, f"../{page}#intended-differences")
    return found


def page() -> str:
    """The whole page."""
    modules = Found(*(_ask(kind, MODULES) for kind in (OLD, NEW, OURS)))
    lines = [
        "# Every name", "",
        f"Each public name of Mooncake's wheels {OLD} and {NEW}, and what becomes of it here. Written by `make names`; a test compares it",
        "with the three packages. `NotImplementedError`: the name is there and says so when it is used.", "",
        "Names of other kinds have pages that other tests keep true: [flags of the master](../settings-master.md) and",
        "[of a node](../settings-node.md), [environment of the client](../settings-client.md), [fields of",
        "`MooncakeConfig`](../python-modules.md#configuration), [metrics](../metrics.md), [RPCs](../wire-rpcs.md),",
        "[the store over HTTP](../store-service.md), [C functions](../c-api.md).", "",
        *module_chapter("mooncake.store"),
        *module_chapter("mooncake.engine"),
        *commands_chapter(),
        *modules_chapter(modules),
        *helpers_chapter(modules),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
