"""What README and guide show is what happens: their Python and console blocks are run."""

import ast
import doctest
import importlib
import inspect
import io
import json
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console

import bertsmith
from bertsmith.cli.app import app, main
from bertsmith.demo import run as steps
from bertsmith.demo.budget import QUICK

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
WITH_PYTHON = [page for page in PAGES if ">>>" in page.read_text("utf-8")]
WITH_CONSOLE = [page for page in PAGES if CONSOLE.search(page.read_text("utf-8"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# The demo's own text and shapes, and hardly any training: pages say what is true of every run.
SMALL = ("train.batch_tokens=1024", "train.micro_tokens=1024", "evaluate.tokens=1024")
HASTE = replace(QUICK, steps=20, classifier_seconds=0.1, tagger_seconds=0.1, epochs=1)
HASTE = replace(HASTE, few=24, few_epochs=1, few_tests=8)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo leaves."""
    folder = tmp_path_factory.mktemp("docs") / "demo"
    with pytest.MonkeyPatch.context() as patch:  # no page shows the baseline of vectors from here
        patch.setattr("bertsmith.finetuning.run._vectors_baseline", lambda *_: None)
        steps.run(folder, None, HASTE, Console(quiet=True))
    return folder


@pytest.fixture
def workplace(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the demo was run, and nothing else: this is where a page is read."""
    shutil.copytree(demo, tmp_path / "demo")
    for path in (ROOT / "docs" / "examples").glob("*.*"):  # files that a page asks to save
        shutil.copy(path, tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # nanobert, which the guide reads
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python(page: Path) -> None:
    failed, run = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert (failed, run > 0) == (0, True)


SKETCHES = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    if ">>>" not in block
]


@pytest.mark.parametrize(("page", "block"), SKETCHES, ids=[page.stem for page, _ in SKETCHES])
def test_sketches_name_what_exists(page: Path, block: str) -> None:
    """Blocks that are not run (they need files of a reader's own): imports, names, keywords."""
    tree = ast.parse(block)
    names: dict[str, object] = {"bs": bertsmith, "bert": bertsmith.Bert}
    names["index"], names["tokenizer"] = bertsmith.Index, bertsmith.Tokenizer
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bertsmith"):
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(
                    importlib.import_module(str(node.module)), alias.name
                )
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in names:
            function = names[called.id]
        elif (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.value.id in names
        ):
            function = getattr(names[called.value.id], called.attr)
        else:
            continue
        known = inspect.signature(function).parameters  # type: ignore[arg-type]
        if any(one.kind is one.VAR_KEYWORD for one in known.values()):
            continue
        assert {keyword.arg for keyword in node.keywords} <= {*known, None}, ast.unparse(node)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", WITH_CONSOLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_console(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    checker = doctest.OutputChecker()
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.replace("\\\n", "").partition("\n")
            shown = run(command, monkeypatch)
            message = f"{page.name}: $ {command}\nexpected:\n{expected}\ngot:\n{shown}"
            assert checker.check_output(expected, shown, FLAGS), message
            # "..." must not hide a mistake: an error is shown as what it is.
            assert "bertsmith: " in expected or not re.search("^bertsmith: ", shown, re.M), message


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints; ours runs in this process, where everything is imported."""
    if not command.startswith("bertsmith "):
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, check=True
        ).stdout
    if command.startswith("bertsmith pretrain") and "--branch" not in command:
        # What a page shows is true of a short run with small batches too.
        command += f" --set {' --set '.join(SMALL)}"
        command += " --set train.steps=6" * ("train.steps" not in command)
    if command.endswith("--epochs 20 --out my-model"):
        command += " --epochs 1"
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown), suppress(SystemExit):
        main()
    return shown.getvalue()


def test_excerpts_of_nanobert_are_its_lines() -> None:
    """The chapter that walks through nanobert.py quotes it as it is."""
    lines = {
        line.strip() for line in (ROOT / "examples/nanobert.py").read_text("utf-8").split("\n")
    }
    page = (ROOT / "docs/understand/nanobert.md").read_text("utf-8")
    quoted = re.findall(r"```python\n((?!>>>).*?)```", page, re.DOTALL)
    assert len(quoted) >= 4
    for block in quoted:
        for line in block.splitlines():
            assert line.strip() in lines, line


def test_pictures_of_the_guide_follow_the_scheme() -> None:
    """Each is used, brings its style, and names no color elsewhere."""
    folder = ROOT / "docs" / "understand"
    pages = "".join(page.read_text("utf-8") for page in folder.glob("*.md"))
    drawn = sorted((folder / "pictures").glob("*.svg"))
    assert len(drawn) >= 20
    for path in drawn:
        text = path.read_text("utf-8")
        rest = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        assert rest != text, path.name
        assert 'class="pic"' in text, path.name
        assert re.findall(r"(?:fill|stroke)[=:]\W*(?:#|rgb)", rest) == [], path.name
        assert f"](pictures/{path.name})" in pages, path.name


LINK = re.compile(r"\]\(([\w/.-]*)(?:#([\w-]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-") for heading in plain}


def dead_links(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    found = []
    for link, anchor in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        target = page.parent / link if link else page
        wrong = not target.exists() or (anchor and anchor not in anchors(target))
        found += [f"{page.name}: {link}#{anchor}"] * bool(wrong)
    return found


def test_pages_link_to_what_is_there() -> None:
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "notebooks").glob("*.ipynb")]
    assert [link for page in pages for link in dead_links(page)] == []


def test_dead_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` & c\n[1](page.md) [2](#a-b--c) [3](no.md) [4](page.md#no)\n", "utf-8")
    assert dead_links(page) == ["page.md: no.md#", "page.md: page.md#no"]


def test_the_site_has_every_page_and_verb() -> None:
    """The navigation lists each page once; the reference has a line for each verb."""
    lines = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/.-]+\.md)$", lines, re.MULTILINE)
    made = {"changelog.md", "contributing.md"} | {n for n in listed if n.startswith("notebooks/")}
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1:]}
    assert sorted(listed) == sorted(docs | made)
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks == made - {"changelog.md", "contributing.md"}
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8").replace("`", "")
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    for name in group.list_commands(typer.Context(group)):
        verb = group.get_command(typer.Context(group), name)
        assert verb
        row = rf"^\| \[{name}\]\([\w.#-]+\) \| {re.escape(verb.get_short_help_str(200))} \|$"
        assert re.search(row, reference, re.MULTILINE), f"docs/reference.md has no line {row}"


def test_the_reference_is_current() -> None:
    """scripts/reference.py writes it from the options that are declared."""
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8")
    words = "from reference import page; import sys; sys.stdout.buffer.write(page().encode())"
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT / "scripts", capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert reference == done.stdout, "docs/reference.md is old: run scripts/reference.py"


API = [
    (page, name)
    for page in PAGES
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "name"), API, ids=[name for _, name in API])
def test_api_pages_name_what_exists(page: Path, name: str) -> None:
    assert pkgutil.resolve_name(name), page
