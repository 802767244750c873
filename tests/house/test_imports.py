"""Imports point one way, can all be seen, and never form a circle."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from house.source import (
    HOUSE,
    IMPORTERS,
    ROOT,
    UNSEEN,
    Rule,
    complaints,
    imported,
    nodes_of,
    room_of,
    shown,
    tree_of,
)

# Imports point one way: a room may import the rooms to its left, here spelled out. Neighbours
# that stand side by side (examples and model; checkpoint and objectives; label, analysis, explorer,
# search, compare and serve) do not know each other. Every room may import `errors`, `files`,
# `folders`, `foreign`, `ledger`, `numbers`, `settings` and `store`; `files` itself imports `errors`
# alone.
# There is no room `models`: what is in that folder is data, without a line of Python.
DATA = {"batch", "tokenizer", "corpus", "examples"}
MODEL = {"batch", "kernels", "model", "families", "cpu"}
TRAIN = DATA | MODEL | {"checkpoint", "objectives", "pages", "train"}
INFER = TRAIN | {"data", "metrics", "infer"}
TASKS = INFER | {"tasks", "reports"}
LEARN = {"finetuning", "distilling", "label", "analysis", "explorer"}
USES = {"search", "compare", "serve"}
WORK = TASKS | LEARN | USES
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "folders": {"files", "foreign"},
    "foreign": {"files"},
    "store": {"files", "foreign"},
    "ledger": set(),
    "numbers": set(),
    "settings": set(),
    "batch": set(),
    "tokenizer": {"pages"},  # tokens that a notebook shows
    "corpus": {"batch", "tokenizer"},
    "examples": {"batch", "tokenizer", "corpus"},
    "kernels": set(),
    "model": {"batch", "kernels"},
    "families": {"batch", "tokenizer", "model"},
    "cpu": {"batch", "kernels", "model"},
    "checkpoint": {"tokenizer"} | MODEL,
    "objectives": DATA | MODEL,
    "pages": {"files"},
    "train": DATA | MODEL | {"checkpoint", "objectives", "pages"},
    "data": set(),
    "metrics": set(),
    "infer": TRAIN | {"data", "metrics"},
    "tasks": INFER,
    "reports": TASKS,
    "finetuning": TASKS,
    "distilling": TASKS | {"finetuning"},  # task distillation trains with the same loop
    "label": TASKS | {"finetuning"},  # which trains between two batches
    "analysis": TASKS,
    "explorer": TASKS,
    "search": TASKS | LEARN,
    "compare": TASKS | LEARN,
    "serve": TASKS | LEARN,
    "bert": WORK,
    "bulk": TASKS | {"bert"},  # verbs over folders of files
    "demo": WORK | {"bert"},
    "recipes": set(),
    "verbs": WORK | {"bert"},
    "bertsmith": WORK | {"bert", "verbs"},  # the front door, `import bertsmith`
    "cli": WORK | {"bert", "bulk", "demo", "recipes", "bertsmith"},
}


def unseen_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of imports that the rules here cannot follow."""
    called = {id(node.func) for node in nodes_of(tree) if isinstance(node, ast.Call)}
    for line, name in imported(path, tree):
        if UNSEEN in name:
            yield f"{shown(path)}:{line}: imports a module whose name is not in the code"
        if name.split(".")[0] in {"runpy", "imp"} or name.startswith("importlib.machinery"):
            yield f"{shown(path)}:{line}: loads code with {name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.alias) and node.name in IMPORTERS and node.asname:
            yield f"{shown(path)}:{node.lineno}: {node.name} under another name"
        if isinstance(node, ast.Name) and node.id in IMPORTERS and id(node) not in called:
            yield f"{shown(path)}:{node.lineno}: {node.id} is handed on"
        if isinstance(node, ast.Attribute) and node.attr == "spec_from_file_location":
            yield f"{shown(path)}:{node.lineno}: loads code from a file"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the house."""
    parts = ("bertsmith", *path.relative_to(HOUSE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that import themselves through others."""
    left = {name: set(others) for name, others in graph.items()}
    done = False
    while not done:
        wanted = {other for others in left.values() for other in others}
        ends = [n for n, others in left.items() if not others & left.keys() or n not in wanted]
        for name in ends:  # what imports none of the others, or is imported by none of them
            del left[name]
        done = not ends
    return sorted(left)


def import_graph() -> dict[str, set[str]]:
    """Return which file imports which: in functions, for types and dynamically too.

    The front door, `bertsmith`, is left out: Python opens it before any other file.
    """
    files = {module_of(path): path for path in HOUSE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        tree = tree_of(path)
        wanted = {other for _, other in imported(path, tree)}
        homes = {other if other in files else other.rpartition(".")[0] for other in wanted}
        graph[name] = {other for other in homes if other in files} - {name, "bertsmith"}
    return graph


def wrong_direction(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of imports that the table does not allow."""
    room = room_of(path)
    if room not in MAY_IMPORT:
        yield f"{shown(path)}: {room} is not a room of the house"
        return
    for line, name in imported(path, tree):
        parts = name.split(".")
        if parts[0] != "bertsmith" or parts[1:] == ["__version__"]:
            continue
        other = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "bertsmith"
        if other not in MAY_IMPORT[room] | {room} | open_to(room):
            yield f"{shown(path)}:{line}: {room} imports {other} ({name})"


def open_to(room: str) -> set[str]:
    """Return the rooms at the bottom that a room may import without being in the table."""
    if room in {"files", "folders", "foreign", "store"}:
        return {"errors"}
    return {"errors", "files", "folders", "foreign", "ledger", "numbers", "settings", "store"}


def back_doors(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of modules that are reached or changed through sys.modules."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":
            yield f"{shown(path)}:{node.lineno}: uses sys.modules"


def test_imports_point_one_way() -> None:
    assert complaints(wrong_direction) == []


def test_every_import_can_be_seen() -> None:
    assert complaints(unseen_imports) == []


def test_no_file_imports_itself_through_others() -> None:
    assert circles(import_graph()) == []


def test_no_room_has_a_back_door() -> None:
    assert complaints(back_doors) == []


@pytest.mark.parametrize("module", ["bertsmith", "bertsmith.cli", "bertsmith.tasks.read"])
def test_torch_is_imported_late(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


LOADS = "def f(p):\n    import_module(p)\n"


@pytest.mark.parametrize(
    ("rule", "file", "source", "complains"),
    [
        (wrong_direction, "model/x.py", "from bertsmith.batch import Batch", False),
        (wrong_direction, "model/x.py", "from ..errors import BertsmithError", False),
        (wrong_direction, "model/x.py", "from ..files import write_json", False),
        (wrong_direction, "files.py", "from bertsmith.errors import BertsmithError", False),
        (wrong_direction, "files.py", "from bertsmith.ledger import Ledger", True),
        (wrong_direction, "model/x.py", "from .attend import attend", False),
        (wrong_direction, "model/x.py", "from ..families import bert", True),
        (wrong_direction, "model/x.py", "from bertsmith import tokenizer", True),
        (wrong_direction, "model/x.py", "from bertsmith import load", True),
        (wrong_direction, "model/x.py", "import bertsmith", True),
        (wrong_direction, "model/x.py", "def f():\n    import bertsmith.tasks.load", True),
        (wrong_direction, "model/x.py", "if TYPE_CHECKING:\n    from .. import cli", True),
        (wrong_direction, "model/x.py", "import_module('bertsmith.tasks')", True),
        (wrong_direction, "model/x.py", "__import__('bertsmith.tasks')", True),
        (wrong_direction, "model/x.py", "H = {1: 'cli'}\nimport_module(f'bertsmith.{H[n]}')", True),
        (wrong_direction, "cli/x.py", "H = {1: 'data'}\nimport_module(f'bertsmith.{H[n]}')", False),
        (wrong_direction, "model/x.py", f"{LOADS}f('json')\nf(p='bertsmith.cli')", True),
        (unseen_imports, "x.py", "import_module('json')", False),
        (unseen_imports, "x.py", "H = {'a': 'b'}\nimport_module(f'json.{H[n]}')", False),
        (unseen_imports, "x.py", f"{LOADS}f('json')", False),
        (unseen_imports, "x.py", f"{LOADS}f(name)", True),
        (unseen_imports, "x.py", LOADS, True),
        (unseen_imports, "x.py", "importlib.import_module(name)", True),
        (unseen_imports, "x.py", "import_module('a' + b)", True),
        (unseen_imports, "x.py", "import_module(f'bertsmith.{name}')", True),
        (unseen_imports, "x.py", "H = {'a': f()}\nimport_module(f'json.{H[n]}')", True),
        (unseen_imports, "x.py", "__import__(name)", True),
        (unseen_imports, "x.py", "load = __import__", True),
        (unseen_imports, "x.py", "from importlib import import_module as load", True),
        (unseen_imports, "x.py", "import runpy", True),
        (wrong_direction, "serve/x.py", "import bertsmith.search", True),
        (wrong_direction, "tasks/x.py", "from bertsmith import __version__", False),
        (wrong_direction, "cli/x.py", "import bertsmith.serve", False),
        (wrong_direction, "cli/x.py", "from bertsmith import load", False),
        (wrong_direction, "batch.py", "import bertsmith.model", True),
        (wrong_direction, "__init__.py", "from .tasks import load", False),
        (wrong_direction, "attic/x.py", "", True),
        (wrong_direction, "models/x.py", "", True),
        (unseen_imports, "x.py", "import_module(f'bertsmith.tasks.{name}')", True),
        (unseen_imports, "tasks/x.py", "import_module(f'bertsmith.tasks.{name}')", False),
        (back_doors, "x.py", "sys.modules['bertsmith']", True),
        (back_doors, "x.py", "sys.path", False),
    ],
)
def test_rules_can_fail(rule: Rule, file: str, source: str, complains: bool) -> None:
    assert bool(list(rule(HOUSE / file, ast.parse(source)))) == complains


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert import_graph()["bertsmith.train"] >= {"bertsmith.train.recipe"}


@pytest.mark.parametrize("room", ["bertsmith.reports.report", "bertsmith.finetuning"])
def test_rooms_that_know_each_other_can_be_entered_by_any_door(room: str) -> None:
    assert subprocess.run([sys.executable, "-c", f"import {room}"]).returncode == 0


def test_scripts_import_what_is_there() -> None:
    """Benchmarks are not run here, so that a name which has moved would go unnoticed."""
    missing = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bertsmith"):
                module = import_module(str(node.module))
                names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                folders = [name for name in names if find_spec(f"{node.module}.{name}") is None]
                missing += [f"{path.name}: {node.module}.{name}" for name in folders]
    assert missing == []
