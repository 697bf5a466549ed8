"""What our engine's Python module promises beyond the peer, and that every name of the peer is there with its arguments."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest
from pool import OURS, installation

SCRIPTS = sorted((Path(__file__).parent / "engine_scripts").glob("*.py"))
ROOT = Path(__file__).parents[2]
WHEELS = ("0.3.13.post1", "0.3.14")

#: Names of ours that neither wheel has.
OURS_ALONE = {"TransferEngine.close", "TransferEngine.last_error", "RpcInterface.get_port"}

INTROSPECT = """
import json, mooncake.engine as m
def public(of):
    return [n for n in vars(of) if not n.startswith("_")]
found = {n: (getattr(m, n).__doc__ or "") if callable(getattr(m, n)) else "" for n in dir(m) if not n.startswith("_")}
for name in list(found):
    if isinstance(getattr(m, name), type):
        for member in public(getattr(m, name)):
            value = getattr(getattr(m, name), member)
            found[f"{name}.{member}"] = getattr(value, "__doc__", None) or ""
            if getattr(value, "__text_signature__", None):
                found[f"{name}.{member}"] = "#" + value.__text_signature__
print(json.dumps(found))
"""


def run(kind, *command, timeout=90):
    place = installation(kind)
    return subprocess.run(
        [str(place.python), *command], env=place.environment(), capture_output=True, text=True, timeout=timeout, check=False,
    )


def described(kind):
    """Public names of the module, each with the documentation that says its arguments."""
    answer = run(kind, "-c", INTROSPECT)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(need, script):
    need(OURS)
    answer = run(OURS, str(script))
    assert answer.returncode == 0, answer.stderr[-3000:]


@pytest.mark.parametrize("wheel", WHEELS)
def test_every_name_of_the_peer_is_there(need, wheel):
    need(wheel, OURS)
    theirs, ours = described(wheel), described(OURS)
    assert sorted(set(theirs) - set(ours)) == []
    if wheel == WHEELS[-1]:
        extra = {name for name in set(ours) - set(theirs) if not name.startswith("CoroRPCInterface.")}
        assert extra == OURS_ALONE


class Parameters:
    """Names of a function's parameters, the ones with a default marked, and how many are positional only."""

    def __init__(self, names, optional, positional):
        self.names, self.optional, self.positional = names, optional, positional

    def __repr__(self):
        return f"{self.names} optional {sorted(self.optional)} positional {self.positional}"


def of_peer(documentation):
    """From the first line of the peer's documentation, `name(self: T, a: int, b: str = '') -> int`; `argN` is a parameter
    without a name."""
    match = re.match(r"\w+\((.*)\) -> ", documentation)
    if not match:
        return None
    parts = [part.strip() for part in re.split(r", (?=\w+: )", match[1]) if part and not part.startswith("self: ")]
    names = [part.split(":")[0] for part in parts]
    optional = {name for name, part in zip(names, parts) if " = " in part}
    return Parameters(names, optional, sum(bool(re.fullmatch(r"arg\d+", name)) for name in names))


def of_stub():
    """Every function of our stub."""
    found = {}
    tree = ast.parse((ROOT / "python" / "mooncake" / "engine.pyi").read_text())

    def visit(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                positional = [a.arg for a in node.args.posonlyargs if a.arg != "self"]
                plain = [a.arg for a in node.args.args if a.arg != "self"]
                names = positional + plain
                found[prefix + node.name] = Parameters(names, set(names[len(names) - len(node.args.defaults):]), len(positional))
            elif isinstance(node, (ast.AnnAssign, ast.Assign)):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                found[prefix + target.id] = None

    visit(tree.body, "")
    return found


@pytest.mark.parametrize("wheel", WHEELS)
def test_parameters_have_the_peers_names_order_and_defaults(need, wheel):
    need(wheel)
    stub, compared = of_stub(), 0
    for name, documentation in described(wheel).items():
        theirs = of_peer(documentation)
        if theirs is None or name.startswith("CoroRPCInterface.") or name not in stub:
            continue
        ours = stub[name]
        compared += 1
        assert ours.positional >= theirs.positional, (name, ours, theirs)
        named = [(index, parameter) for index, parameter in enumerate(theirs.names) if not re.fullmatch(r"arg\d+", parameter)]
        assert [ours.names[index] for index, _ in named] == [parameter for _, parameter in named], (name, ours, theirs)
        assert len(ours.names) - len(theirs.names) in ((0,) if wheel == WHEELS[-1] else (0, 1)), (name, ours, theirs)
        assert theirs.optional <= ours.optional and set(ours.names[: len(theirs.names)]) & ours.optional <= theirs.optional, name
    assert compared > 40


def test_the_stub_says_what_is_there(need):
    need(OURS)
    stub, found = of_stub(), described(OURS)
    # What a dict of the class shows, less what the stub has beside it.
    missing = [name for name in found if name not in stub and not found[name] == "" and "." in name and "Coro" not in name]
    missing = [name for name in missing if name.split(".")[1] not in ("name", "value", "TransferOpcode")]
    assert missing == []
    for name, text in found.items():
        if not text.startswith("#") or name.startswith("CoroRPCInterface.") or stub[name] is None:
            continue
        parts = re.sub(r"^#\(\$?self,? ?|\)$|^#\(", "", text)
        names = [part.split("=")[0].strip() for part in re.split(r", ", parts) if part and part not in ("/", "*")]
        assert stub[name].names == names, name
        assert stub[name].positional == (names.index(names[-1]) + 1 if parts.endswith("/") else 0), name


def test_the_import_is_quick_and_brings_no_libraries(need):
    need(OURS)
    code = (
        "import sys, time; start = time.process_time(); import mooncake.engine; took = time.process_time() - start;"
        "print(took, *[n for n in ('torch', 'numpy', 'asyncio', 'typing_extensions', 'mooncake.store') if n in sys.modules])"
    )
    runs = [run(OURS, "-c", code).stdout.split() for _ in range(3)]
    assert all(len(answer) == 1 for answer in runs), runs
    assert min(float(answer[0]) for answer in runs) < 0.1


def test_the_examples_of_the_documentation_run(need):
    need(OURS)
    page = (ROOT / "docs" / "python-engine.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(examples) >= 3
    for example in examples:
        answer = run(OURS, "-c", example)
        assert answer.returncode == 0, (example, answer.stderr[-2000:])


def test_the_documentation_names_everything(need):
    need(OURS)
    page = (ROOT / "docs" / "python-engine.md").read_text()
    names = [name.split(".")[-1] for name in described(OURS) if not name.startswith("CoroRPCInterface.")]
    assert [name for name in names if f"`{name}" not in page and f".{name}" not in page] == []
