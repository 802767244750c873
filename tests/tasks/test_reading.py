"""Reading: every task says what its tables look like, and a new one is found in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bertsmith.tasks
from bertsmith.data.columns import Finder
from bertsmith.data.sources import Options, source_tables
from bertsmith.data.tables import Table
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks import read
from bertsmith.tasks import reading as reading_module
from bertsmith.tasks.cells import TextReading
from bertsmith.tasks.read import guess, known_roles, read_data
from bertsmith.tasks.reading import Reading, TaskGuess, reading_named, readings, task_folders

TABLES: dict[str, list[dict[str, Any]]] = {
    "classification": [{"text": "a", "label": "x"}],
    "multilabel": [{"text": "a", "labels": ["x", "y"]}],
    "regression": [{"sentence1": "a", "sentence2": "b", "score": 1.5}],
    "tagging": [{"tokens": ["a", "b"], "tags": ["O", "O"]}],
    "answering": [{"question": "a", "context": "b", "answers": ["b"]}],
    "choice": [{"prompt": "a", "choices": ["b", "c"], "answer": 0}],
    "similarity": [{"anchor": "a", "positive": "b"}],
    "reranking": [{"query": "a", "positives": ["b"], "negatives": ["c"]}],
    "spans": [{"text": "a b", "entities": [[0, 3, "X"], [2, 3, "Y"]]}],
}


def table(rows: list[dict[str, Any]]) -> Table:
    return next(iter(source_tables(rows, Options(), Ledger())))


@pytest.mark.parametrize("task", TABLES)
def test_every_task_is_asked(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(TABLES[task])
    finder = Finder(rows, {}, known_roles())
    guesses = {one.name: one.suits(finder.fresh()) for one in readings().values()}
    likely = {name: one.likely for name, one in guesses.items() if one is not None}
    assert max(likely, key=likely.__getitem__) == task
    reading, why = guess(rows, {})
    assert (reading.name, TaskGuess(likely[task], why)) == (task, guesses[task])
    # Without the likeliest task, the next one has the table, or nobody can read it.
    others = {name: one for name, one in readings().items() if name != task}
    monkeypatch.setattr("bertsmith.tasks.read.readings", lambda: others)
    del likely[task]
    if likely:
        assert guess(rows, {})[0].name == max(likely, key=likely.__getitem__)
    else:
        with pytest.raises(BertsmithError, match="cannot tell"):
            guess(rows, {})


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(BertsmithError, match="no column 'y' for the label; it has text, label"):
        guess(table(TABLES["classification"]), {"label": "y"})


def test_a_reading_is_found_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parity"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "reading.py").write_text(
        """
from bertsmith.tasks.reading import TaskGuess, Reading


class Parity(Reading):
    name, order, about = "parity", 5, "is a number even?"
    roles = {"number": ("number", "integer")}

    def suits(self, finder):
        return TaskGuess(0.99, "it has integers") if finder.peek("number") else None

    def examples(self, rows):
        column = rows.finder.needed("number")
        return [row.cells[column] % 2 for row in rows.table.rows]


READING = Parity()
""",
        "utf-8",
    )
    with monkeypatch.context() as patch:
        patch.setattr(reading_module, "HERE", tmp_path)
        patch.setattr(bertsmith.tasks, "__path__", [*bertsmith.tasks.__path__, str(tmp_path)])
        readings.cache_clear()
        assert task_folders() == list(readings()) == ["parity"]
        reading, why = guess(table([{"Integer": 3}]), {})
        assert (reading.name, why) == ("parity", "it has integers")
        assert known_roles() == {"number": ("number", "integer")}
        with pytest.raises(BertsmithError, match="unknown task 'tagging'; known: parity"):
            reading_named("tagging")
    readings.cache_clear()
    assert list(readings()) == sorted(task_folders(), key=lambda name: reading_named(name).order)
    assert all(isinstance(one, Reading) for one in readings().values())


def test_only_a_task_knows_its_layouts(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ada B-PER\nsleeps O\n\n", "utf-8")
    assert read_data(path).task == "tagging"
    with pytest.raises(BertsmithError, match="unknown file type; known: csv"):
        list(source_tables(path, Options(), Ledger()))
    with pytest.raises(BertsmithError, match="holds words with tags, which is for tagging"):
        read_data(path, "choice")


def test_roles_of_one_task_do_not_change_how_others_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may know its columns by other names, wherever it stands in the order."""

    class Odd(TextReading):
        name, order, about = "odd", 1, "nothing"
        roles = {"text": ("headline",), "score": ("grades",)}  # noqa: RUF012

    before = {**readings()}
    monkeypatch.setattr(reading_module, "readings", lambda: {"odd": Odd(), **before})
    monkeypatch.setattr(read, "readings", reading_module.readings)
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2,similarity_score\na,b,0.5\nc,d,1.5\n")
    assert read_data(path).task == "regression"
    path.write_text("text,label\na b,x\nc d,y\ne f,x\n")
    assert read_data(path).task == "classification"
