"""The demo's text: docstrings and help topics of the standard library, or a folder."""

import ast
import re
import sysconfig
import tomllib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import reading

LEFT_OUT = {"__pycache__", "dist-packages", "encodings", "idle_test", "pydoc_data"}
LEFT_OUT |= {"site-packages", "test", "tests"}
SHORT = 40  # characters of a paragraph below which it is a heading or a remnant
LETTERS = 0.75  # share of letters and spaces below which a paragraph is code, or a table
OWN = (".txt", ".md", ".rst")  # files that are read of a person's folder
LEAST = 50_000  # characters of a person's text: with less there is nothing to see
CHAPTER = 40  # paragraphs of a file that make one document: sentence pairs need several
MARKS = re.compile(r"``?|\*\*|^#+ |^[-*] |:(?:class|func|meth|mod|exc|attr|data|const):(?=`)")
CODE = re.compile(r">>>|::=|```")


@dataclass(frozen=True)
class DemoPassage:
    """A docstring, or a paragraph of a person's own text."""

    paragraphs: tuple[str, ...]
    area: str = ""  # what it belongs to; "" where nobody can say
    names: frozenset[str] = frozenset()  # of the parameters it speaks of


@dataclass(frozen=True)
class DemoDocument:
    """Passages that belong together: a module, a help topic, a file."""

    name: str
    passages: tuple[DemoPassage, ...]

    def lines(self) -> list[str]:
        """All paragraphs."""
        return [line for passage in self.passages for line in passage.paragraphs]


def standard_library() -> list[DemoDocument]:
    """The docstrings of every module, and the help topics of `pydoc`."""
    root = library_root()
    documents = [_module(path, root) for path in sorted(_sources(root))]
    documents += [
        DemoDocument(name, tuple(DemoPassage((paragraph,)) for paragraph in paragraphs(text)))
        for name, text in sorted(help_topics().items())
    ]
    with_text = [document for document in documents if document.passages]
    if not with_text:
        raise BertsmithError(
            f"{root}: no docstrings in it; give a folder of text with {setting_name('text')}"
        )
    return with_text


@cache
def _areas() -> dict[str, str]:
    """The area of each module and package that has one, from areas.toml."""
    areas = tomllib.loads(Path(__file__).with_name("areas.toml").read_text("utf-8"))["areas"]
    return {module: area for area, modules in areas.items() for module in modules.split()}


def area_of(module: str) -> str:
    """The area of a module, by the package it is in; "" where it has none."""
    return _areas().get(module.partition(".")[0], "")


def library_root() -> Path:
    """Where this Python keeps its own modules."""
    return Path(sysconfig.get_paths()["stdlib"])


def own_text(folder: Path) -> list[DemoDocument]:
    """The text files of a person's folder; each sub-folder, or else each file, is an area."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in OWN]
    prose = {}
    for path in filter(Path.is_file, files):
        with reading(path):
            prose[path] = paragraphs(path.read_text("utf-8", errors="replace"))
    count = sum(len(line) for lines in prose.values() for line in lines)
    if count < LEAST:
        raise BertsmithError(
            f"{folder}: {count:,} characters of prose in files that end in {', '.join(OWN)}; "
            f"a demo needs {LEAST:,}"
        )
    areas = _own_areas(folder, prose)
    documents: list[DemoDocument] = []
    for path, lines in prose.items():
        pairs = zip(lines, areas[path], strict=True)
        passages = tuple(DemoPassage((line,), area) for line, area in pairs)
        starts = range(0, len(passages), CHAPTER)
        documents += [DemoDocument(path.name, passages[n : n + CHAPTER]) for n in starts]
    return documents


def _own_areas(folder: Path, prose: dict[Path, list[str]]) -> dict[Path, list[str]]:
    """An area for each paragraph: the sub-folder or the file it is in, or the half of one file."""
    names = {path: path.relative_to(folder).parts for path in prose}
    sub_folders = {entries[0] for entries in names.values() if len(entries) > 1}
    if len(sub_folders) > 1:
        return {path: [names[path][0]] * len(lines) for path, lines in prose.items()}
    if len(prose) > 1:
        return {path: [path.stem] * len(lines) for path, lines in prose.items()}
    ((path, lines),) = prose.items()
    half = len(lines) // 2
    return {path: ["first half"] * half + ["second half"] * (len(lines) - half)}


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text that are prose, each on one line, without marks of markup."""
    lines = []
    for block in re.split(r"\n\s*\n", text):
        line = " ".join(MARKS.sub("", block).split())
        plain = sum(letter.isalpha() or letter == " " for letter in line)
        if len(line) >= SHORT and plain >= LETTERS * len(line) and not CODE.search(block):
            lines.append(line)
    return lines


def _sources(root: Path) -> Iterator[Path]:
    for path in root.iterdir():
        if path.name in LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _module(path: Path, root: Path) -> DemoDocument:
    relative = path.relative_to(root).with_suffix("")
    name = ".".join(part for part in relative.parts if part != "__init__")
    try:
        with warnings.catch_warnings(action="ignore"):  # of its author's, not of ours
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return DemoDocument(name, ())
    return DemoDocument(name, tuple(_docstrings(tree, area_of(name))))


def _docstrings(tree: ast.Module, area: str) -> Iterator[DemoPassage]:
    """What a module, its classes and its functions say, in their order."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            prose = paragraphs(ast.get_docstring(node) or "")
            if prose:
                yield DemoPassage(tuple(prose), area, frozenset(_parameters(node)))
            todo += reversed(node.body)
        elif isinstance(node, ast.If | ast.Try):
            todo += reversed([*node.body, *node.orelse])


def _parameters(node: ast.AST) -> Iterable[str]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    spec = node.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    return {parameter.arg for parameter in every if parameter is not None} - {"self", "cls"}


def help_topics() -> dict[str, str]:
    """What `help("class")` and the like say."""
    from pydoc_data.topics import topics

    return topics
