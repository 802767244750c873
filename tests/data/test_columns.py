"""Columns and tasks are found by their names, and told where names say nothing."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.folders import find_splits
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.similarity.reading import Related


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(
    ("row", "task", "columns"),
    [
        ({"text": "a", "label": 1}, "classification", {"text": "text", "label": "label"}),
        ({"Sentence": "a", "Category": "x"}, "classification", {"text": "Sentence"}),
        ({"id": 1, "tweet": "a", "sentiment": "x"}, "classification", {"text": "tweet"}),
        (
            {"premise": "a", "hypothesis": "b", "gold_label": "x"},
            "classification",
            {"text": "premise", "pair": "hypothesis", "label": "gold_label"},
        ),
        (
            {"question1": "a", "question2": "b", "is_duplicate": 1},
            "classification",
            {"pair": "question2", "label": "is_duplicate"},
        ),
        (
            {"question": "a", "sentence": "b", "label": "x"},
            "classification",
            {"text": "question", "pair": "sentence"},
        ),
        ({"sentence1": "a", "sentence2": "b", "score": 4.2}, "regression", {"score": "score"}),
        ({"sentence1": "a", "sentence2": "b", "label": 4.2}, "regression", {"score": "label"}),
        ({"text": "a", "labels": ["x", "y"]}, "multilabel", {"label": "labels"}),
        (
            {"tokens": ["a"], "pos_tags": [1], "ner_tags": ["O"]},
            "tagging",
            {"tokens": "tokens", "tags": "ner_tags"},
        ),
        ({"words": ["a"], "tags": ["O"]}, "tagging", {"tokens": "words"}),
        (
            {"question": "q?", "context": "an a", "answers": {"text": ["a"], "answer_start": [3]}},
            "answering",
            {"question": "question", "passage": "context", "answers": "answers"},
        ),
        (
            {"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": 1},
            "choice",
            {"prompt": "sent1", "options": "ending0 to ending1"},
        ),
        ({"ctx": "a", "endings": ["b", "c"], "label": "1"}, "choice", {"options": "endings"}),
        ({"prompt": "a", "options": ["b", "c"], "label": 0}, "choice", {"options": "options"}),
        ({"anchor": "a", "positive": "b", "negative": "c"}, "similarity", {"negative": "negative"}),
    ],
)
def test_known_names(
    row: dict[str, Any], task: str, columns: dict[str, str], tmp_path: Path
) -> None:
    found = read_data(write(tmp_path / "a.jsonl", row))
    assert found.task == task
    assert found.guessed
    assert columns.items() <= found.columns.items()
    assert read_data(tmp_path / "a.jsonl", task).guessed == ""


def test_columns_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "a", "label": 1, "Words": "b", "kind": "x"})
    columns = {"text": "words", "label": "kind"}
    found = read_data(path, columns=columns)
    assert (found.examples[0].text, found.examples[0].label) == ("b", "x")
    assert found.columns == {"text": "Words", "label": "kind"}
    both = read_data(path, columns={"text": "text", "pair": "Words"})
    assert (both.examples[0].text, both.examples[0].pair) == ("a", "b")


def test_a_header_of_told_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("inhalt,art\nHallo,gut\nTag,schlecht\n")
    found = read_data(tmp_path / "a.csv", columns={"text": "inhalt", "label": "art"})
    assert [one.label for one in found.examples] == ["gut", "schlecht"]


def test_files_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("good film\t1\nbad film\t0\nfine film\t1\n")
    found = read_data(tmp_path / "two.tsv")
    assert found.columns == {"label": "2", "text": "1"}
    assert [one.label for one in found.examples] == ["1", "0", "1"]
    assert found.examples[0].where.number == 1
    (tmp_path / "cola.tsv").write_text("gj04\t1\t\tIt is.\ngj04\t0\t*\tIs it is.\n")
    found = read_data(tmp_path / "cola.tsv")
    assert [(one.text, one.label) for one in found.examples] == [
        ("It is.", "1"),
        ("Is it is.", "0"),
    ]
    (tmp_path / "three.csv").write_text('"3","First","Long text"\n"4","Another","More text"\n')
    with pytest.raises(BertsmithError, match=r"no header that is known, so they are 1 to 3; name"):
        read_data(tmp_path / "three.csv")
    found = read_data(tmp_path / "three.csv", columns={"text": "3", "label": "1"})
    assert (found.examples[0].text, found.examples[0].label) == ("Long text", "3")


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}], [("x", "y"), ()]),
        ([{"text": "a", "labels": "x|y"}, {"text": "b", "labels": ""}], [("x", "y"), ()]),
        ([{"text": "a", "labels": "x; y;x"}, {"text": "b", "labels": "y"}], [("x", "y"), ("y",)]),
        ([{"text": "a", "labels": "['x', 'y']"}, {"text": "b", "labels": "[]"}], [("x", "y"), ()]),
        (
            [{"text": "a", "rude": 1, "mad": 0}, {"text": "b", "rude": 1, "mad": 1}],
            [("rude",), ("rude", "mad")],
        ),
    ],
)
def test_several_labels(
    rows: list[dict[str, Any]], labels: list[tuple[str, ...]], tmp_path: Path
) -> None:
    found = read_data(write(tmp_path / "a.jsonl", *rows), "multilabel")
    assert [one.labels for one in found.examples] == labels


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["x;y", "x", "y"], "multilabel"),
        (["x | y", "y | z", "z", "x | z"], "multilabel"),
        (["x, y", "x", "y"], "multilabel"),
        (["Paris, France", "Nice, France", "Rome, Italy"], "classification"),
        (["1,0", "1,5", "2,0", "2,5", "5,0"], "classification"),
        (["x", "y", "z"], "classification"),
    ],
)
def test_marks_between_labels(cells: list[str], task: str, tmp_path: Path) -> None:
    rows = [{"text": f"a {number}", "labels": cell} for number, cell in enumerate(cells * 4)]
    found = read_data(write(tmp_path / "a.jsonl", *rows))
    assert found.task == task
    names = ("x", "y", "z") if "z" in "".join(cells) else ("x", "y")
    assert task != "multilabel" or found.labels == names


def test_columns_of_pairs_have_one_role_each(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("anchor,positive\n" + "\n".join(f"a {n},b {n}" for n in range(5)) + "\n")
    data = open_data(path, "similarity")
    examples = [one for portion in data.portions(2) for one in portion.examples]
    assert [one.texts for one in examples] == [(f"a {n}", f"b {n}") for n in range(5)]
    assert data.columns == {"anchor": "anchor", "positive": "positive"}


FLAGS = {"toxic": 1, "insult": 0, "threat": 0}


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"text": "a", **FLAGS}, "multilabel"),
        ({"comment_text": "a", **dict.fromkeys(FLAGS, True)}, "multilabel"),
        ({"text": "a", "toxic": "TRUE", "insult": "FALSE"}, "multilabel"),
        ({"premise": "a", "hypothesis": "b", "about_it": 1, "denies_it": 0}, "multilabel"),
        ({"text": "a", "toxic": 1}, "classification"),
        ({"text": "a", "toxic": 1, "length": 12}, "classification"),
        ({"text": "a", "label": "x", **FLAGS}, "classification"),
        ({"sentence1": "a", "sentence2": "b", "label": 1, "seen": 0}, "classification"),
        ({"sentence1": "a", "sentence2": "b", "score": 0, **FLAGS}, "regression"),
        ({"question": "a", "context": "b", **FLAGS}, "answering"),
        ({"prompt": "a", "choice1": "b", "choice2": "c", **FLAGS}, "choice"),
    ],
)
def test_columns_of_0_and_1(row: dict[str, Any], task: str, tmp_path: Path) -> None:
    found = read_data(write(tmp_path / "a.jsonl", row, row))
    assert found.task == task
    if task == "multilabel":
        names = [name for name, value in row.items() if value not in ("a", "b")]
        assert f"{len(names)} columns of 0 and 1" in found.guessed
        assert found.columns["label"].endswith(": " + ", ".join(names))
        applying = tuple(name for name in names if row[name] not in (0, "FALSE"))
        assert [one.labels for one in found.examples] == [applying] * 2


@pytest.mark.parametrize(
    ("tokens", "tags"),
    [
        ('["New York", "is"]', '["B-LOC", "O"]'),
        ("['New York', 'is']", "['B-LOC', 'O']"),
        ("['New York' 'is']", "['B-LOC' 'O']"),
        ("['New York' 'is']", "B-LOC O"),
    ],
)
def test_lists_in_cells(tokens: str, tags: str, tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["tokens", "ner_tags"], [tokens, tags]])
    one = read_data(tmp_path / "a.csv").examples[0]
    assert (one.words, one.tags) == (("New York", "is"), ("B-LOC", "O"))
    named = read_data(tmp_path / "a.csv", label_names=["x"])  # names of numbers, of which none is
    assert named.examples == [one]


def test_numbers_in_cells(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tokens,ner_tags\n['a' 'b'],[0 1]\n")
    found = read_data(tmp_path / "a.csv", label_names=["O", "B-X"])
    assert found.examples[0].tags == ("O", "B-X")


def test_hidden_and_disputed_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "a", "label": -1}, {"text": "b", "label": -1})
    assert [one.label for one in read_data(path).examples] == [None, None]
    path = write(tmp_path / "b.jsonl", {"text": "a", "label": -1}, {"text": "b", "label": 1})
    assert [one.label for one in read_data(path).examples] == ["-1", "1"]
    rows = [{"premise": "a", "hypothesis": "b", "gold_label": label} for label in ("-", "neutral")]
    found = read_data(write(tmp_path / "c.jsonl", *rows))
    assert [one.label for one in found.examples] == ["neutral"]
    assert found.ledger.counts.total() == 1


def test_similarity_is_scored_or_related(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"sentence1": "a", "sentence2": "b", "score": "0.5"})
    assert read_data(path, "similarity").examples[0].score == 0.5
    path = write(tmp_path / "b.jsonl", {"query": "a", "pos": ["b"], "neg": ["c"]})
    found = read_data(path, "similarity").examples[0]
    assert isinstance(found, Related)
    assert found.texts == ("a", "b", "c")


def test_all_positives_and_negatives_of_a_row_are_read(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "positive": ["a", "b"], "negatives": ["c", "d", "e"]},
        {"query": "r", "positive": ["f"], "negatives": []},
        {"query": "s", "positive": [], "negatives": ["g"]},
        {"query": "t", "positive": "h", "negatives": None},
    ]
    found = read_data(write(tmp_path / "a.jsonl", *rows), "similarity")
    assert [one.texts for one in found.examples] == [
        ("q", "a", "b", "c", "d", "e"),
        ("r", "f"),
        ("t", "h"),
    ]
    assert found.examples[0].positives == ("a", "b")
    assert found.ledger.counts == {"rows without a text, left out": 1}
    columns = {"anchor": "q", "positive": "a", "negative_1": "b", "negative_2": None}
    found = read_data(write(tmp_path / "b.jsonl", columns, {**columns, "negative_2": "c"}))
    assert [one.texts for one in found.examples] == [("q", "a", "b"), ("q", "a", "b", "c")]
    assert found.columns["negative"] == "negative_1, negative_2"
    assert found.unused == ()
    path = tmp_path / "c.csv"
    path.write_text('anchor,positive\nq,"[""a"", ""b""]"\nr,[c]\n')
    assert [one.positives for one in read_data(path).examples] == [("a", "b"), ("[c]",)]


def test_splits_of_a_folder(tmp_path: Path) -> None:
    for name in ("train.tsv.xz", "valid.tsv", "test.tsv", "readme.txt"):
        (tmp_path / name).write_text("")
    found = {name: path.name for name, path in find_splits(tmp_path).items()}
    assert found == {"train": "train.tsv.xz", "dev": "valid.tsv", "test": "test.tsv"}
    (tmp_path / "train_rebuilt.tsv").write_text("")
    assert find_splits(tmp_path)["train"].name == "train_rebuilt.tsv"
    (tmp_path / "ud").mkdir()
    (tmp_path / "ud" / "fr_sequoia-ud-train.conllu").write_text("")
    assert set(find_splits(tmp_path / "ud")) == {"train"}
    (tmp_path / "none").mkdir()
    with pytest.raises(BertsmithError, match="contains no file called train"):
        find_splits(tmp_path / "none")
