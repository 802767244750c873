"""Text that is already there: what is read of it, and what is left out."""

from pathlib import Path

import pytest

from bertsmith.demo import text
from bertsmith.demo.text import (
    area_of,
    help_topics,
    library_root,
    own_text,
    paragraphs,
    standard_library,
)
from bertsmith.errors import BertsmithError

PROSE = "Return the number of items that were found in the list."

MODULE = f'''
"""{PROSE}"""

class Queue:
    """{PROSE} It is a queue."""

    def get(self, block, *rest, timeout=None, **more):
        """{PROSE} It waits for `timeout` seconds."""

        def inner(x):
            """{PROSE} It is hidden in there."""

if True:
    async def wait():
        """{PROSE} It waits for ever."""
'''


def put(root: Path, name: str, source: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(source, "utf-8")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that is empty as yet."""
    monkeypatch.setattr(text, "library_root", lambda: tmp_path)
    monkeypatch.setattr(text, "help_topics", dict)
    return tmp_path


def test_docstrings_come_in_order_with_area_and_parameters(root: Path) -> None:
    put(root, "queue.py", MODULE)
    (document,) = standard_library()
    assert document.name == "queue"
    ends = [passage.paragraphs[0].removeprefix(PROSE).strip() for passage in document.passages]
    hidden = "It is hidden in there."
    assert ends == [
        "",
        "It is a queue.",
        "It waits for timeout seconds.",
        hidden,
        "It waits for ever.",
    ]
    assert {passage.area for passage in document.passages} == {"tasks"}
    assert document.passages[2].names == {"block", "rest", "timeout", "more"}


def test_no_module_is_run_and_bad_ones_are_passed_over(root: Path) -> None:
    put(root, "good.py", f'"""{PROSE}"""\nraise SystemExit("it was run")\n')
    put(root, "bad.py", f'"""{PROSE}"""\nprint "old"\n')
    put(root, "site-packages/other.py", f'"""{PROSE}"""\n')
    put(root, "http/test/test_it.py", f'"""{PROSE}"""\n')
    assert [document.name for document in standard_library()] == ["good"]


def test_a_library_without_sources_is_one_line(root: Path) -> None:
    with pytest.raises(BertsmithError, match="give a folder of text with text"):
        standard_library()


def test_topics_are_documents(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "help_topics", lambda: {"lists": f"Lists\n*****\n\n{PROSE}\n"})
    (document,) = standard_library()
    assert (document.name, document.passages[0].paragraphs) == ("lists", (PROSE,))


def test_this_python_has_what_the_demo_needs() -> None:
    assert (library_root() / "json" / "decoder.py").is_file()
    assert len(help_topics()["class"]) > 1000


@pytest.mark.parametrize(
    "block",
    [
        ">>> spam('the number of items that were found')\n3",
        "x = {1: [2, 3], 4: [5, 6], 7: [8, 9]}; y[0] = 10 + 11",
        'classdef ::= [decorators] "class" classname and so on and so on',
        "```python\nthe number of items that were found in the list\n```",
        "Too short.",
    ],
)
def test_what_is_no_prose_is_left_out(block: str) -> None:
    assert paragraphs(f"{PROSE}\n\n{block}\n\n{PROSE}") == [PROSE, PROSE]


def test_lines_are_joined_and_marks_are_gone() -> None:
    block = "- Return a :class:`Queue` of\n   ``items`` that **were** `found` in the list."
    assert paragraphs(block) == ["Return a Queue of items that were found in the list."]


def test_areas_go_by_the_package() -> None:
    assert area_of("tkinter.ttk") == "windows"
    assert area_of("no.such.module") == ""


LONG = "\n\n".join(f"{PROSE} This is paragraph {'x' * (n % 7)}." for n in range(900))


def areas(folder: Path) -> set[str]:
    return {passage.area for one in own_text(folder) for passage in one.passages}


def test_areas_of_own_text(tmp_path: Path) -> None:
    put(tmp_path, "one/a.txt", LONG)
    assert areas(tmp_path) == {"first half", "second half"}
    put(tmp_path, "one/b.md", LONG)
    assert areas(tmp_path) == {"a", "b"}
    put(tmp_path, "two/c.rst", LONG)
    put(tmp_path, "two/picture.png", LONG)
    assert areas(tmp_path) == {"one", "two"}


def test_own_files_become_several_documents(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", LONG)
    assert len(own_text(tmp_path)) == 23  # 900 paragraphs, 40 a document


def test_own_text_that_will_not_do(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", PROSE)
    with pytest.raises(BertsmithError, match=r"55 characters of prose .* needs 50,000"):
        own_text(tmp_path)
