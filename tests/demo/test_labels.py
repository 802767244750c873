"""Labels that a text carries by itself."""

from pathlib import Path

import pytest

from bertsmith.demo.labels import (
    area_items,
    capitals,
    code_names,
    name_items,
    split_items,
    write_table,
    write_tags,
)
from bertsmith.demo.text import DemoDocument, DemoPassage
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import read_data

TAGGED = [
    ("Return path or None.", {"path"}, {"path", "None"}),
    (
        "Call wait_for and os.path, or close() it, e.g. now.",
        set(),
        {"wait_for", "os.path", "close"},
    ),
    ("A ValueError is raised by HTTPServer in IDLE.", set(), {"ValueError", "HTTPServer"}),
    ("Return a copy of the name.", {"a"}, set()),
    ("It takes 3.11 or 2 of them.", set(), set()),
]


@pytest.mark.parametrize(("text", "parameters", "names"), TAGGED)
def test_code_names(text: str, parameters: set[str], names: set[str]) -> None:
    tagged = code_names(text, frozenset(parameters))
    assert {word for word, tag in tagged if tag == "B-CODE"} == names
    assert "".join(word for word, _ in tagged) == text.replace(" ", "")


def test_capitals_begin_names_but_not_sentences() -> None:
    tagged = capitals("The book by Ada Lovelace which I read in London.")
    found = [(word, tag) for word, tag in tagged if tag != "O"]
    assert found == [("Ada", "B-NAME"), ("Lovelace", "I-NAME"), ("London", "B-NAME")]


def documents(**areas: list[str]) -> list[DemoDocument]:
    return [
        DemoDocument(area, tuple(DemoPassage((text,), area) for text in texts))
        for area, texts in areas.items()
    ]


def test_a_text_of_two_areas_is_of_neither() -> None:
    first = ["one two three four five", "both have this one in them"]
    second = ["five four three two one", "Both have this one in them", "too short"]
    found = area_items(documents(a=first, b=second))
    assert found == [(first[0], "a"), (second[0], "b")]


def test_a_text_of_one_area_is_refused() -> None:
    with pytest.raises(BertsmithError, match="several files"):
        area_items(documents(a=["one two three four five"]))


def test_a_text_without_names_is_refused() -> None:
    with pytest.raises(BertsmithError, match="too few sentences"):
        name_items(documents(a=["one two three four five"]), own=True)


def test_splits_share_nothing() -> None:
    splits = split_items(range(100), 60)
    sizes = {name: len(items) for name, items in splits.items()}
    assert sizes == {"test": 9, "dev": 5, "train": 46}
    assert len({item for items in splits.values() for item in items}) == 60
    assert split_items(range(100), 60) == splits


def test_files_are_read_as_they_were_meant(tmp_path: Path) -> None:
    rows = [('He said "no, never"\nto it', "a"), ("x" * 9, "b")]
    write_table(tmp_path / "table", dict.fromkeys(("train", "dev", "test"), rows))
    table = read_data(tmp_path / "table" / "train.csv")
    assert [(one.text, one.label) for one in table.examples] == rows
    sentences = [
        code_names("Return path # or None.", frozenset()),
        code_names("x_y is it", frozenset()),
    ]
    write_tags(tmp_path / "tags", dict.fromkeys(("train", "dev", "test"), sentences))
    tags = read_data(tmp_path / "tags" / "test.conll")
    assert tags.task == "tagging"
    assert [list(zip(one.words, one.tags, strict=True)) for one in tags.examples] == sentences
