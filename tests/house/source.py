"""What the rules of the house read: files, rooms, imports, docstrings."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOUSE = ROOT / "src" / "bertsmith"


def shown(path: Path) -> str:
    """Return a file's path as complaints show it."""
    return path.relative_to(HOUSE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed code of a file, which many rules read."""
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a file's code, through which many rules go."""
    return list(ast.walk(tree))


def name_of(expression: ast.expr) -> str:
    """Return the last name of `a.b.name`."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def room_of(path: Path) -> str:
    """Return the room that a file of the house belongs to."""
    first = path.relative_to(HOUSE).parts[0]
    if first == "__main__.py":  # `python -m bertsmith` is the command line
        return "cli"
    return "bertsmith" if first == "__init__.py" else first.removesuffix(".py")


@cache
def imported(path: Path, tree: ast.AST) -> list[tuple[int, str]]:
    """Return (line, dotted name) of everything imported, in functions and for types too."""
    return list(_imported(path, tree))


def _imported(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    package = ["bertsmith", *path.relative_to(HOUSE).parts[:-1]]
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and name_of(node.func) in IMPORTERS:
            found = dynamic(tree, node)
            own = f"bertsmith.{room_of(path)}"
            if f"f'{own}.{{" in ast.unparse(node):
                found = []  # a room finds its own tasks, or verbs, by looking
            yield from ((node.lineno, name) for name in found)


IMPORTERS = {"import_module", "import_package", "__import__"}
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
        for node in nodes_of(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.value.id:
                if isinstance(node.value, ast.Dict):
                    cells = node.value.values
                    return [str(c.value) if isinstance(c, ast.Constant) else UNSEEN for c in cells]
    return [UNSEEN]


def given(tree: ast.AST, call: ast.Call, parameter: str) -> list[str]:
    """Return the strings that all calls give for a parameter of the function around a call."""
    for function in nodes_of(tree):
        if not isinstance(function, ast.FunctionDef) or call not in ast.walk(function):
            continue
        names = [one.arg for one in function.args.args]
        if parameter not in names:
            continue
        place, found = names.index(parameter), []
        for node in nodes_of(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function.name:
                words = {word.arg: word.value for word in node.keywords}
                value = node.args[place] if place < len(node.args) else words.get(parameter)
                found.append(str(value.value) if isinstance(value, ast.Constant) else UNSEEN)
        return found
    return []


def docstrings(tree: ast.AST) -> Iterator[ast.Expr]:
    """Yield the statements that are docstrings."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                yield node.body[0]


Rule = Callable[[Path, ast.AST], Iterator[str]]


def complaints(rule: Rule, folder: Path = HOUSE) -> list[str]:
    """Return what a rule says of every file of a folder."""
    files = sorted(folder.rglob("*.py"))
    assert files, f"no Python files in {folder}"
    return [text for file in files for text in rule(file, tree_of(file))]
