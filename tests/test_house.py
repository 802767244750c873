"""The rules of the house, as tests: who imports whom, what is never used, what is listed."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "src" / "bertsmith"
LOCKS = ["requirements.lock", "requirements-torch.lock", "requirements-torch-cpu.lock"]
LOCKS += ["requirements-docs.lock", "requirements-uv.lock"]

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

FAMILIES = ["bert", "roberta", "albert", "distilbert", "electra", "deberta", "modernbert"]
NEVER_IMPORTED = {"transformers", "sentence_transformers", "pickle", "cloudpickle", "dill"}
# What a model that comes with the package has at least, and how many bytes it has at most.
MODEL_FILES = {"README.md", "config.json", "model.safetensors", "special_tokens_map.json"}
MODEL_FILES |= {"tokenizer.json", "tokenizer_config.json"}
MODEL_BYTES = 40_000_000
STATEMENTS = 1000  # of model/ and families/ together: one sitting


# ------------------------------------------------------------------ the rules, as functions


def shown(path: Path) -> str:
    """Return a file's path as complaints show it."""
    return path.relative_to(HOUSE).as_posix()


def room_of(path: Path) -> str:
    """Return the room that a file of the house belongs to."""
    first = path.relative_to(HOUSE).parts[0]
    if first == "__main__.py":  # `python -m bertsmith` is the command line
        return "cli"
    return "bertsmith" if first == "__init__.py" else first.removesuffix(".py")


def imported(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported, in functions and for types too."""
    package = ["bertsmith", *path.relative_to(HOUSE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in IMPORTERS:
            found = dynamic(tree, node)
            if room_of(path) == "tasks" and "f'bertsmith.tasks.{" in ast.unparse(node):
                found = ["bertsmith.tasks"]  # the room finds its own tasks by looking
            yield from ((node.lineno, name) for name in found)


IMPORTERS = {"import_module", "__import__"}
UNSEEN = "?"  # stands for a module whose name cannot be read in the code


def dynamic(tree: ast.AST, call: ast.Call) -> list[str]:
    """Return the modules that import_module or __import__ may load.

    Their name is a string; an f-string around an entry of a table of strings in the same file
    (`_HOMES`); or a parameter that every call in the file gives as a string.
    """
    name = call.args[0] if call.args else None
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    if isinstance(name, ast.JoinedStr):
        choices = [""]
        for part in name.values:
            ends = entries(tree, part)
            choices = [start + end for start in choices for end in ends]
        return choices if choices and all(UNSEEN not in one for one in choices) else [UNSEEN]
    if isinstance(name, ast.Name):
        return given(tree, call, name.id) or [UNSEEN]
    return [UNSEEN]


def entries(tree: ast.AST, part: ast.expr) -> list[str]:
    """Return the strings that a part of an f-string may be."""
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    value = part.value if isinstance(part, ast.FormattedValue) else None
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.value.id:
                if isinstance(node.value, ast.Dict):
                    cells = node.value.values
                    return [str(c.value) if isinstance(c, ast.Constant) else UNSEEN for c in cells]
    return [UNSEEN]


def given(tree: ast.AST, call: ast.Call, parameter: str) -> list[str]:
    """Return the strings that all calls give for a parameter of the function around a call."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or call not in ast.walk(function):
            continue
        names = [one.arg for one in function.args.args]
        if parameter not in names:
            continue
        place, found = names.index(parameter), []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function.name:
                words = {word.arg: word.value for word in node.keywords}
                value = node.args[place] if place < len(node.args) else words.get(parameter)
                found.append(str(value.value) if isinstance(value, ast.Constant) else UNSEEN)
        return found
    return []


def unseen_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of imports that the rules here cannot follow."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for line, name in imported(path, tree):
        if UNSEEN in name:
            yield f"{shown(path)}:{line}: imports a module whose name is not in the code"
        if name.split(".")[0] in {"runpy", "imp"} or name.startswith("importlib.machinery"):
            yield f"{shown(path)}:{line}: loads code with {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.alias) and node.name in IMPORTERS and node.asname:
            yield f"{shown(path)}:{node.lineno}: {node.name} under another name"
        if isinstance(node, ast.Name) and node.id in IMPORTERS and id(node) not in called:
            yield f"{shown(path)}:{node.lineno}: {node.id} is handed on"
        if isinstance(node, ast.Attribute) and node.attr == "spec_from_file_location":
            yield f"{shown(path)}:{node.lineno}: loads code from a file"


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in spoken and MARKUP.search(node.value):
                yield f"{shown(path)}:{node.lineno}: {node.value[:40]!r} is HTML"


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
        tree = ast.parse(path.read_text("utf-8"))
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


def docstrings(tree: ast.AST) -> Iterator[ast.Expr]:
    """Yield the statements that are docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                yield node.body[0]


def family_names(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of a family's name in a string: the model must not know who it is."""
    name = re.compile(rf"(?<![a-z])({'|'.join(FAMILIES)})(?![a-z])", re.IGNORECASE)
    spoken = {id(statement.value) for statement in docstrings(tree)}
    for node in ast.walk(tree):
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
            yield f"{shown(path)}:{number}: {found[0]} names a task"


def back_doors(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of modules that are reached or changed through sys.modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":
            yield f"{shown(path)}:{node.lineno}: uses sys.modules"


STEPS = {"train/step.py", "train/captured.py"}  # where gradients are computed and weights changed
OPTIMIZERS = "train/optimizer.py"


def second_loops(path: Path, tree: ast.AST) -> Iterator[str]:
    """Yield what trains beside the one loop of train/: gradients, updates, optimizers, epochs.

    The backward passes of kernels are functions of their own.
    """
    place, room = shown(path), room_of(path)
    for node in ast.walk(tree):
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


def unsafe(path: Path, tree: ast.AST) -> Iterator[str]:
    """Complain of whatever could run a stranger's code, and of test-time libraries."""
    for line, name in imported(path, tree):
        if name.split(".")[0] in NEVER_IMPORTED or name == "torch.load":
            yield f"{shown(path)}:{line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in {"eval", "exec"}:
            yield f"{shown(path)}:{node.lineno}: uses {node.id}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
            yield from unsafe_load(path, tree, node)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if ast.unparse(node.value) != "False":
                yield f"{shown(path)}:{node.value.lineno}: allows pickle"
    if "trust_remote_code" in ast.unparse(tree):
        yield f"{shown(path)}: speaks of trust_remote_code"


def unsafe_load(path: Path, tree: ast.AST, load: ast.Attribute) -> Iterator[str]:
    """Complain of a torch.load that is not a call with weights_only=True."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func is load]
    words = [ast.unparse(keyword) for call in calls for keyword in call.keywords]
    if "weights_only=True" not in words:
        yield f"{shown(path)}:{load.lineno}: torch.load without weights_only=True"


def statements(source: str) -> int:
    """Count the statements that are not docstrings: what is read, however lines are broken."""
    tree = ast.parse(source)
    spoken = {id(statement) for statement in docstrings(tree)}
    return sum(isinstance(n, ast.stmt) and id(n) not in spoken for n in ast.walk(tree))


def listed(readme: str) -> list[str]:
    """Return the files that the tree in docs/architecture.md lists, a line each.

    And the folders of which it lists no file.
    """
    blocks = re.findall(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    tree = next((block for block in blocks if "src/bertsmith/" in block), "")
    paths, folders = [], []  # folders: (indent, path) of those we are inside
    for line in tree.translate(str.maketrans("│├└─", "    ")).splitlines():
        entry = re.match(r"( *)([\w./-]+/|[\w-]+\.\w+)(?: |$)", line)
        if not entry:
            continue
        indent, name = len(entry[1]), entry[2]
        while folders and folders[-1][0] >= indent:
            folders.pop()
        inside = folders[-1][1] if folders else ""
        if paths and paths[-1] == inside:
            paths.pop()
        paths.append(inside + name)
        if name.endswith("/"):
            folders.append((indent, inside + name))
    root = "src/bertsmith/"
    return [path.removeprefix(root) for path in paths if path.startswith(root)]


def line_of(path: Path) -> str:
    """Return what stands for a file in the tree in docs/architecture.md: of a model, its folder."""
    parts = path.relative_to(HOUSE).parts
    return f"models/{parts[1]}/" if parts[0] == "models" and len(parts) > 2 else shown(path)


def unfit(model: Path) -> Iterator[str]:
    """Complain of a model that must not come with the package."""
    files = {path.relative_to(model).as_posix(): path for path in model.rglob("*")}
    yield from (f"no {name}" for name in sorted(MODEL_FILES - files.keys()))
    total = sum(path.stat().st_size for path in files.values() if path.is_file())
    if total > MODEL_BYTES:
        yield f"{total:,} bytes are too many"
    for name, weights in load_file(model / "model.safetensors").items():
        if weights.dtype != np.float16:
            yield f"{name} is stored as {weights.dtype}"
        if not np.isfinite(weights).all():
            yield f"{name} is not finite"


def bad_requirements(lock: str) -> Iterator[str]:
    """Complain of every line of a lock that is not a pinned requirement with its hashes."""
    pinned = re.compile(r"[\w.-]+==[\w.+!]+(?: ; [^#\\]+?)?(?: +--hash=sha256:[0-9a-f]{64})+")
    for line in lock.replace("\\\n", " ").splitlines():
        if "://" in line or not (line.startswith("#") or pinned.fullmatch(line)):
            yield line[:80]


def addresses(content: bytes) -> list[bytes]:
    """Return the folders of one machine, and the registry's hosts, that a file speaks of."""
    needles = [rb"(?<![\w.~-])/work" + rb"/", rb"/opt" + rb"/wheels", rb"/opt" + rb"/pypi"]
    needles += [rb"pypi" + rb"\.org", rb"python" + rb"hosted"]
    return re.findall(b"|".join(needles), content)


# Phrases of an older idiom of this project, which readers had to decode: write what the
# documentation of PyTorch or scikit-learn would say.
OLD_PHRASES = [
    "always the same:",
    "anew",
    "are told",
    "as it always does",
    "begun",
    "by AdamW",
    "by Muon",
    "fell into",
    "first guess right",
    "for want of",
    "has not cannot",
    "have (?:right|wrong)",
    "hidden tokens?",
    "hidden words?",
    "is told",
    "judged right",
    "looked at by",
    "must bring",
    "no model can have",
    "not looked into",
    "nothing to learn from",
    "nothing was chosen by",
    "once more",
    "reckoned",
    "said to be",
    "similar to nothing",
    "speaks? (?:for|against)",
    "stands nowhere",
    "stand nowhere",
    "told apart",
    "tells? apart",
    "the filler",
    "the very (?:step|moment)",
    "the way back",
    "the way out",
    "there is no such",
    "whatever else is asked",
    "with goodwill",
    "what (?:it|he|she|the \\w+) (?:gave|found|told)",
]
OLD = re.compile(r"(?<![\w-])(?:" + "|".join(OLD_PHRASES) + r")(?![\w-])")


def shown_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file that people see: all of a page, the strings of a program."""
    source = path.read_text("utf-8")
    if path.suffix != ".py":
        yield source
        return
    tree = ast.parse(source)
    spoken = {id(statement.value) for statement in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in spoken or shown(path).startswith("cli/"):  # help is a docstring
                yield node.value


def old_phrases(path: Path) -> list[str]:
    """Return the old phrases that a file shows to people."""
    texts = (" ".join(text.split()) for text in shown_texts(path))
    return [found for text in texts for found in OLD.findall(text)]


# ------------------------------------------------------------------ the house keeps them

Rule = Callable[[Path, ast.AST], Iterator[str]]


def complaints(rule: Rule, folder: Path = HOUSE) -> list[str]:
    """Return what a rule says of every file of a folder."""
    files = sorted(folder.rglob("*.py"))
    assert files, f"no Python files in {folder}"
    return [text for file in files for text in rule(file, ast.parse(file.read_text("utf-8")))]


def test_imports_point_one_way() -> None:
    assert complaints(wrong_direction) == []


def test_every_import_can_be_seen() -> None:
    assert complaints(unseen_imports) == []


def test_no_file_imports_itself_through_others() -> None:
    assert circles(import_graph()) == []


def test_html_is_made_by_templates() -> None:
    assert complaints(markup) == []


def test_the_model_knows_no_family() -> None:
    assert complaints(family_names, HOUSE / "model") == []


def test_only_its_folder_knows_a_task() -> None:
    files = [path for kind in ("*.py", "*.js", "*.html") for path in HOUSE.rglob(kind)]
    outside = [path for path in files if room_of(path) != "tasks"]
    assert [text for path in sorted(outside) for text in named_tasks(path)] == []
    assert {"classification", "tagging"} <= set(task_names())


def test_no_room_has_a_back_door() -> None:
    assert complaints(back_doors) == []


def test_there_is_one_loop() -> None:
    """Everything that learns does so by train/loop.py and the steps of train/."""
    assert complaints(second_loops) == []


def test_nothing_runs_a_strangers_code() -> None:
    assert complaints(unsafe) == []


def test_the_readme_lists_every_file() -> None:
    unlisted = {"__init__.py", "py.typed"}
    files = [path for path in HOUSE.rglob("*") if path.is_file() and path.name not in unlisted]
    real = {line_of(path) for path in files if path.suffix != ".pyc"}
    in_tree = listed((ROOT / "docs" / "architecture.md").read_text("utf-8"))
    assert sorted(name for name in in_tree if Path(name).name not in unlisted) == sorted(real)


def test_models_are_small_and_whole() -> None:
    models = sorted((HOUSE / "models").iterdir())
    assert models
    assert {model.name: list(unfit(model)) for model in models} == {m.name: [] for m in models}


def test_no_phrase_of_the_old_idiom() -> None:
    """README, docs, help, errors and pages are in plain words."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [path for kind in ("py", "html", "js") for path in HOUSE.rglob(f"*.{kind}")]
    found = {str(path.relative_to(ROOT)): old_phrases(path) for path in sorted(pages)}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_a_wheel_has_every_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["bertsmith"]
    packed = {path for pattern in patterns for path in HOUSE.glob(pattern)}
    code = {".py", ".pyc"}
    files = {path for path in HOUSE.rglob("*") if path.is_file() and path.suffix not in code}
    assert sorted(map(shown, files - packed)) == []


@pytest.mark.parametrize("name", LOCKS)
def test_locks_are_pinned_and_hashed(name: str) -> None:
    lock = (ROOT / name).read_text("utf-8")
    assert list(bad_requirements(lock)) == []
    assert "==" in lock


def test_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locks = "".join((ROOT / name).read_text("utf-8") for name in LOCKS)
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", locks, re.MULTILINE))
    extras = project["optional-dependencies"]
    for text in project["dependencies"] + extras["dev"] + extras["docs"]:
        wanted = Requirement(text)
        pin = pins.get(wanted.name.replace("_", "-"), "nothing")
        assert pin in wanted.specifier, f"{text} is wanted, {pin} locked: make lock"


def test_every_extra_is_used() -> None:
    """A package that an extra installs is imported somewhere in the house."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [
        name
        for path in HOUSE.rglob("*.py")
        for _, name in imported(path, ast.parse(path.read_text("utf-8")))
    ]
    used = {name.split(".")[0] for name in names}
    used |= {".".join(name.split(".")[:3]) for name in names}
    modules = {
        "prometheus-client": "prometheus_client",
        "scikit-learn": "sklearn",
        "tensorboard": "torch.utils.tensorboard",
    }
    modules |= {"python-docx": "docx", "faiss-cpu": "faiss"}
    modules["opentelemetry-sdk"] = "opentelemetry.sdk.trace"
    modules["opentelemetry-exporter-otlp-proto-http"] = "opentelemetry.exporter.otlp"
    modules |= {"charset-normalizer": "charset_normalizer", "mlflow-skinny": "mlflow"}
    # The site's packages are no modules of the house: mkdocs.yml names them.
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = {"mkdocs-material": "name: material", "mkdocstrings-python": "- mkdocstrings:"}
    used |= {package for package, line in named.items() if line in site}
    for extra, texts in project["optional-dependencies"].items():
        for name in (Requirement(text).name for text in texts if extra != "dev"):
            assert modules.get(name, name) in used, f"{extra}: nothing imports {name}"


def test_no_file_names_one_machine() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    found = {path: addresses(path.read_bytes()) for path in files if path.is_file()}
    assert {path: texts for path, texts in found.items() if texts} == {}


@pytest.mark.parametrize("module", ["bertsmith", "bertsmith.cli", "bertsmith.tasks.read"])
def test_torch_is_imported_late(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_encoder_is_read_in_one_sitting() -> None:
    files = [file for room in ("model", "families") for file in (HOUSE / room).rglob("*.py")]
    total = sum(statements(file.read_text("utf-8")) for file in files)
    assert 0 < total < STATEMENTS, f"model/ and families/ have {total} statements"


# ------------------------------------------------------------------ and the rules can fail

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
        (markup, "x.py", "x = f'<td>{y}</td>'", True),
        (markup, "x.py", "x = '<svg viewBox=\"0\">'", True),
        (markup, "x.py", "from html import escape", True),
        (markup, "x.py", "from html.parser import HTMLParser", False),
        (markup, "x.py", "from markupsafe import Markup", True),
        (markup, "pages/x.py", "from markupsafe import Markup", False),
        (markup, "x.py", "'<p>A docstring.</p>'", False),
        (markup, "x.py", "x = f'<{name} 2x4> <s> <pad> <mask> a < b'", False),
        (wrong_direction, "serve/x.py", "import bertsmith.search", True),
        (wrong_direction, "tasks/x.py", "from bertsmith import __version__", False),
        (wrong_direction, "cli/x.py", "import bertsmith.serve", False),
        (wrong_direction, "cli/x.py", "from bertsmith import load", False),
        (wrong_direction, "batch.py", "import bertsmith.model", True),
        (wrong_direction, "__init__.py", "from .tasks import load", False),
        (wrong_direction, "attic/x.py", "", True),
        (wrong_direction, "models/x.py", "", True),
        (family_names, "model/x.py", "'''BERT'''\nx = 'bertsmith'", False),
        (family_names, "model/x.py", "kind == 'roberta'", True),
        (family_names, "model/x.py", "kind.startswith(f'DeBERTa-{version}')", True),
        (unseen_imports, "x.py", "import_module(f'bertsmith.tasks.{name}')", True),
        (unseen_imports, "tasks/x.py", "import_module(f'bertsmith.tasks.{name}')", False),
        (back_doors, "x.py", "sys.modules['bertsmith']", True),
        (back_doors, "x.py", "sys.path", False),
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


def test_old_phrases_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Accuracy 76% (always\nthe same: 22%), pre-trained by Muon.", "utf-8")
    assert old_phrases(page) == ["always the same:", "by Muon"]
    page.write_text("Pre-trained with Muon; accuracy 76%, renewed.", "utf-8")
    assert old_phrases(page) == []


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert import_graph()["bertsmith.train"] >= {"bertsmith.train.recipe"}


def test_statements_leave_out_docstrings() -> None:
    source = '"""Doc.\n\nMore."""\n\n# why\nx = [\n    1,  # one\n]\n'
    source += 'def f():\n    "Doc."\n\n    return 1\n'
    assert statements(source) == 3


def test_readme_tree_is_read() -> None:
    tree = "src/bertsmith/\n  batch.py  one\n  model/    two\n    x.py    three\n"
    tree += "                more, e.g. of three\n  z.py      four\ntests/\n  t.py      five\n"
    assert listed(f"```\nls\n```\n```\n{tree}```\n") == ["batch.py", "model/x.py", "z.py"]
    tree = "src/bertsmith/\n  models/\n    one/   some\n    two/   more\n  z.py\ntests/\n"
    assert listed(f"```\n{tree}```\n") == ["models/one/", "models/two/", "z.py"]
    assert line_of(HOUSE / "models" / "one" / "1_Pooling" / "config.json") == "models/one/"


def test_unfit_models_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = np.ones(3, np.float16)
    save_file({"a": half}, tmp_path / "model.safetensors")
    for name in MODEL_FILES - {"model.safetensors"}:
        (tmp_path / name).touch()
    assert not list(unfit(tmp_path))
    broken = {"a": half * np.inf, "b": half.astype(np.float32)}
    save_file(broken, tmp_path / "model.safetensors")
    (tmp_path / "README.md").unlink()
    monkeypatch.setattr(sys.modules[__name__], "MODEL_BYTES", 10)
    no_card, large, *weights = unfit(tmp_path)
    assert no_card == "no README.md"
    assert large.endswith("bytes are too many")
    assert sorted(weights) == ["a is not finite", "b is stored as float32"]


@pytest.mark.parametrize(
    "line", ["torch", "torch==2.0", "--index-url x", "a==1 --hash=md5:0", "a>=1 --hash=sha256:0"]
)
def test_bad_locks_are_seen(line: str) -> None:
    assert list(bad_requirements(line + "\n"))


def test_machine_paths_are_seen() -> None:
    assert addresses(b"open('/work" + b"/main')")
    assert not addresses(b"docs/work/x and the /workshop")


@pytest.mark.parametrize("room", ["bertsmith.reports.report", "bertsmith.finetuning"])
def test_rooms_that_know_each_other_can_be_entered_by_any_door(room: str) -> None:
    assert subprocess.run([sys.executable, "-c", f"import {room}"]).returncode == 0


def test_scripts_import_what_is_there() -> None:
    """Benchmarks are not run here, so that a name which has moved would go unnoticed."""
    missing = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bertsmith"):
                module = import_module(str(node.module))
                names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                folders = [name for name in names if find_spec(f"{node.module}.{name}") is None]
                missing += [f"{path.name}: {node.module}.{name}" for name in folders]
    assert missing == []
