"""Who may know what: families, tasks, HTML, gradients, unsafe calls, names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from house.source import (
    HOUSE,
    Rule,
    complaints,
    docstrings,
    imported,
    name_of,
    nodes_of,
    room_of,
    shown,
    tree_of,
)

FAMILIES = ["bert", "roberta", "albert", "distilbert", "electra", "deberta", "modernbert"]
FAMILIES += ["mpnet", "nomic"]
NEVER_IMPORTED = {"transformers", "sentence_transformers", "pickle", "cloudpickle", "dill"}
COMMAND = re.compile(r"bertsmith [a-z-]+ [^;:]*--[a-z]")
OPTION = re.compile(r"(?:^|[\s(`])--[a-z]")
# One sitting: statements of model/, and of a family's file.
MODEL_STATEMENTS, FAMILY_STATEMENTS = 700, 40
TAGS = "html head body div span p table t[rdh] thead tbody svg rect circle text path polyline line"
TAGS += " ul ol li dl dt dd section article header h[1-6] mark small b i a script style iframe img"
TAGS += " button details summary pre code title br g figure blockquote form input label meta link"
MARKUP = re.compile(
    rf"<(?:/?(?:{'|'.join(TAGS.split())})(?:\s[\w-]+=|/?>)|!doctype)", re.IGNORECASE
)


def markup(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of HTML in Python: pages are templates in pages/."""
    for line, name in imported(path, tree):
        if name.split(".")[0] == "html" and not name.startswith("html.parser"):
            yield f"{shown(path)}:{line}: imports {name}"
        if name.split(".")[0] in {"markupsafe", "jinja2"} and room_of(path) != "pages":
            yield f"{shown(path)}:{line}: imports {name}"
    spoken = {id(statement.value) for statement in docstrings(tree)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in spoken and "<" in node.value and MARKUP.search(node.value):
                yield f"{shown(path)}:{node.lineno}: {node.value[:40]!r} is HTML"


def family_names(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of a family's name in a string: the model must not know who it is."""
    name = re.compile(rf"(?<![a-z])({'|'.join(FAMILIES)})(?![a-z])", re.IGNORECASE)
    spoken = {id(statement.value) for statement in docstrings(tree)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in spoken and name.search(node.value):
                yield f"{shown(path)}:{node.lineno}: {node.value!r} names a family"


def task_names() -> list[str]:
    """Return the names of all tasks: those of the folders in tasks/ with a task.py."""
    return sorted(path.parent.name for path in (HOUSE / "tasks").glob("*/task.py"))


# A name that is also a value of recipes, where it means a format of sequences.
HOMONYMS = {"train/recipe.py": "spans"}


def named_tasks(path: Path) -> Iterator[str]:
    """Complain of a task's name as a string, in Python or JavaScript: only its folder knows it."""
    names = [one for one in task_names() if one != HOMONYMS.get(shown(path))]
    quotes = "\"'`" if path.suffix == ".js" else "\"'"
    name = re.compile(rf"([{quotes}])({'|'.join(names)})\1")
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if found := name.search(line):
            yield f"{shown(path)}:{number}: {found[0]} names a task (a new task needs another name)"


STEPS = {"train/step.py", "train/captured.py"}  # where gradients are computed and weights changed
OPTIMIZERS = "train/optimizer.py"


def second_loops(path: Path, tree: ast.AST) -> Iterator[str]:
    """Yield what trains beside the one loop of train/: gradients, updates, optimizers, epochs.

    The backward passes of kernels are functions of their own.
    """
    place, room = shown(path), room_of(path)
    for node in nodes_of(tree):
        where = f"{place}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            if name == "backward" and place not in STEPS and room != "kernels":
                yield f"{where} computes gradients by itself"
            updates = name == "step" and (not node.args or "optimi" in owner)
            if updates and place not in STEPS | {OPTIMIZERS}:
                yield f"{where} updates weights by itself"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.optim":
            if place != OPTIMIZERS:
                yield f"{where} has an optimizer of its own"
        elif isinstance(node, ast.FunctionDef) and node.name == "optimizer_for":
            if place != OPTIMIZERS:
                yield f"{where} is a second optimizer_for"
        elif isinstance(node, ast.For) and "epoch" in ast.unparse(node.target):
            if room != "train" and "range(" in ast.unparse(node.iter):
                yield f"{where} is a loop over epochs"


def is_name(node: ast.AST, name: str) -> TypeGuard[ast.Attribute]:
    """Return whether a node is a dotted name, as `torch.load`."""
    last = name.rpartition(".")[2]
    return isinstance(node, ast.Attribute) and node.attr == last and ast.unparse(node) == name


def unsafe(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of whatever could run a stranger's code, and of test-time libraries."""
    for line, name in imported(path, tree):
        if name.split(".")[0] in NEVER_IMPORTED or name == "torch.load":
            yield f"{shown(path)}:{line}: imports {name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Name) and node.id in {"eval", "exec"}:
            yield f"{shown(path)}:{node.lineno}: uses {node.id}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
            yield from unsafe_load(path, tree, node)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if ast.unparse(node.value) != "False":
                yield f"{shown(path)}:{node.value.lineno}: allows pickle"
        if "trust_remote_code" in words_of(node):
            yield f"{shown(path)}:{getattr(node, 'lineno', 0)}: speaks of trust_remote_code"


def option_names(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of a command-line option in a message of Python's: it names its own arguments.

    Whole commands (`bertsmith index FOLDER --out INDEX`), commands as lists of words, and what is
    handed to `setting_name`, which shows an option on the command line alone, are meant.
    """
    if room_of(path) in {"cli", "settings", "errors"}:
        return
    meant = {id(statement.value) for statement in docstrings(tree)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "setting_name":
            meant |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.List):
            meant |= {id(part) for element in node.elts for part in ast.walk(element)}
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values
            )
            if COMMAND.search(text):
                meant |= {id(part) for part in node.values}
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in meant:
            if OPTION.search(node.value) and not COMMAND.search(node.value):
                yield f"{shown(path)}:{node.lineno}: {node.value[:60]!r} names an option"


def repeated_classes(files: dict[str, ast.Module]) -> list[str]:
    """Return the names of classes that stand in two files or more."""
    homes: dict[str, list[str]] = {}
    for file, tree in files.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(file)
    return [f"{name}: {', '.join(places)}" for name, places in homes.items() if len(places) > 1]


def words_of(node: ast.AST) -> str:
    """Return the name or the string that a node of the code holds itself."""
    words = (getattr(node, key, None) for key in ("arg", "attr", "id", "value"))
    return next((word for word in words if isinstance(word, str)), "")


def unsafe_load(path: Path, tree: ast.AST, load: ast.Attribute) -> Iterator[str]:
    """Complain of a torch.load that is not a call with weights_only=True."""
    calls = [node for node in nodes_of(tree) if isinstance(node, ast.Call) and node.func is load]
    words = [ast.unparse(keyword) for call in calls for keyword in call.keywords]
    if "weights_only=True" not in words:
        yield f"{shown(path)}:{load.lineno}: torch.load without weights_only=True"


def statements(tree: ast.AST) -> int:
    """Count the statements that are not docstrings: what is read, however lines are broken."""
    spoken = {id(statement) for statement in docstrings(tree)}
    return sum(isinstance(n, ast.stmt) and id(n) not in spoken for n in nodes_of(tree))


def test_html_is_made_by_templates() -> None:
    assert complaints(markup) == []


def test_the_model_knows_no_family() -> None:
    assert complaints(family_names, HOUSE / "model") == []


def test_only_its_folder_knows_a_task() -> None:
    files = [path for kind in ("*.py", "*.js", "*.html") for path in HOUSE.rglob(kind)]
    outside = [path for path in files if room_of(path) != "tasks"]
    assert [text for path in sorted(outside) for text in named_tasks(path)] == []
    assert {"classification", "tagging"} <= set(task_names())


def test_there_is_one_loop() -> None:
    """Everything that learns does so by train/loop.py and the steps of train/."""
    assert complaints(second_loops) == []


def test_nothing_runs_a_strangers_code() -> None:
    assert complaints(unsafe) == []


def test_python_names_no_option_of_the_command_line() -> None:
    assert complaints(option_names) == []


def test_no_two_classes_share_a_name() -> None:
    files = {shown(path): tree_of(path) for path in sorted(HOUSE.rglob("*.py"))}
    assert repeated_classes(files) == []
    twice = {"a.py": ast.parse("class A: ..."), "b.py": ast.parse("class A: ...\nclass B: ...")}
    assert repeated_classes(twice) == ["A: a.py, b.py"]


def test_the_encoder_is_read_in_one_sitting() -> None:
    """`model/` stays small; a family is a short table, and what families share is not one."""
    files = [path for room in ("model", "families") for path in (HOUSE / room).rglob("*.py")]
    counts = {path: statements(tree_of(path)) for path in files}
    model = sum(count for path, count in counts.items() if room_of(path) == "model")
    assert 0 < model < MODEL_STATEMENTS, f"model/ has {model} statements: simplify before adding"
    shared = {"__init__.py", "family.py"}
    families = {p.name: c for p, c in counts.items() if room_of(p) == "families"}
    long = {n: c for n, c in families.items() if n not in shared and c > FAMILY_STATEMENTS}
    assert long == {}, f"a family has at most {FAMILY_STATEMENTS} statements"
    assert sum(families[name] for name in shared) < 90


@pytest.mark.parametrize(
    ("rule", "file", "source", "complains"),
    [
        (markup, "x.py", "x = f'<td>{y}</td>'", True),
        (markup, "x.py", "x = '<svg viewBox=\"0\">'", True),
        (markup, "x.py", "from html import escape", True),
        (markup, "x.py", "from html.parser import HTMLParser", False),
        (markup, "x.py", "from markupsafe import Markup", True),
        (markup, "pages/x.py", "from markupsafe import Markup", False),
        (markup, "x.py", "'<p>A docstring.</p>'", False),
        (markup, "x.py", "x = f'<{name} 2x4> <s> <pad> <mask> a < b'", False),
        (family_names, "model/x.py", "'''BERT'''\nx = 'bertsmith'", False),
        (family_names, "model/x.py", "kind == 'roberta'", True),
        (family_names, "model/x.py", "kind.startswith(f'DeBERTa-{version}')", True),
        (second_loops, "finetuning/x.py", "loss.backward()", True),
        (second_loops, "train/planning.py", "loss.backward(retain_graph=True)", True),
        (second_loops, "train/step.py", "loss.backward()", False),
        (second_loops, "kernels/x.py", "bands.backward(parts)", False),
        (second_loops, "train/x.py", "optimizer.step()", True),
        (second_loops, "train/x.py", "self.optimizer.step(closure)", True),
        (second_loops, "train/x.py", "watch.step(row, timing)", False),
        (second_loops, "train/x.py", "torch.optim.AdamW(weights)", True),
        (second_loops, "tasks/x.py", "def optimizer_for(module): ...", True),
        (second_loops, "tasks/x.py", "for epoch in range(3):\n    f(epoch)", True),
        (second_loops, "tasks/x.py", "for epoch in history:\n    print(epoch)", False),
        (option_names, "x.py", "raise Error('use --overwrite')", True),
        (option_names, "x.py", "'''The option --overwrite.'''", False),
        (option_names, "x.py", "x = 'a -- b'", False),
        (option_names, "x.py", "f'{p}: run bertsmith index {p} --out NEW'", False),
        (option_names, "x.py", "f'{p}: add --out'", True),
        (option_names, "x.py", "setting_name('out', 1, '--out')", False),
        (option_names, "x.py", "run([*torchrun, '--resume'])", False),
        (option_names, "cli/x.py", "raise Error('use --overwrite')", False),
        (unsafe, "x.py", "model.eval()", False),
        (unsafe, "x.py", "eval('1')", True),
        (unsafe, "x.py", "def f():\n    from transformers.models import bert", True),
        (unsafe, "x.py", "import pickle", True),
        (unsafe, "x.py", "torch.load(path, weights_only=True)", False),
        (unsafe, "x.py", "torch.load(path)", True),
        (unsafe, "x.py", "read = torch.load", True),
        (unsafe, "x.py", "np.load(path, allow_pickle=True)", True),
        (unsafe, "x.py", "open(path, trust_remote_code=False)", True),
    ],
)
def test_rules_can_fail(rule: Rule, file: str, source: str, complains: bool) -> None:
    assert bool(list(rule(HOUSE / file, ast.parse(source)))) == complains


def test_statements_leave_out_docstrings() -> None:
    source = '"""Doc.\n\nMore."""\n\n# why\nx = [\n    1,  # one\n]\n'
    source += 'def f():\n    "Doc."\n\n    return 1\n'
    assert statements(ast.parse(source)) == 3
