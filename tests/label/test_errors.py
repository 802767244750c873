"""Wrong labels: found, judged on a page, and left out or corrected before training."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.tasks.check.texts import near_pairs
from bertsmith.tasks.corrections import corrected, read_decisions
from bertsmith.tasks.read import read_data
from bertsmith.tasks.splits import read_splits

CITIES = ["Paris", "London", "Berlin", "Rome", "Madrid", "Vienna", "Oslo", "Prague"]
FOODS = ["bread", "cheese", "soup", "rice", "pasta", "apples", "butter", "honey"]


def rows(count: int = 120) -> list[dict[str, str]]:
    """Sentences about cities and food, four of them with the label of the other."""
    random, made = Random(0), []
    for number in range(count):
        label, names = (("city", CITIES), ("food", FOODS))[number % 2]
        verb = random.choice(["is nice", "was good", "I like", "we wanted", "never again"])
        made.append({"text": f"{random.choice(names)} {verb} {number}", "label": label})
    for number in WRONG if count > max(WRONG) else ():
        made[number]["label"] = "food" if made[number]["label"] == "city" else "city"
    return made


WRONG = [10, 31, 50, 77]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


def test_planted_errors_are_found_judged_and_left_out(file: Path, tmp_path: Path) -> None:
    found = bs.find_wrong_labels("bertsmith-embed", file, device="cpu")
    numbers = [one.example.where.number for one in found.suspects]
    assert {number + 1 for number in WRONG} <= set(numbers)
    assert len(numbers) <= 8
    assert "may be wrong" in repr(found)
    page = found.page()
    assert "Take the suggestion" in page
    found.write(out := tmp_path / "c.jsonl")
    splits = read_splits(file, corrections=out, hold_out=0)
    assert len(splits.train) == 120 - len(numbers)
    assert splits.train.ledger.counts["rows with a label that is probably wrong, left out"] == len(
        numbers
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    chosen = [{**row, "decision": "relabel", "to": row["suggestion"]} for row in lines[:1]]
    chosen += [{**row, "decision": "keep"} for row in lines[1:]]
    data = read_data(file)
    after = corrected(data, chosen)
    changed = [
        (old.label, new.label)
        for old, new in zip(data.examples, after.examples, strict=True)
        if old.label != new.label
    ]
    assert changed == [(lines[0]["label"], lines[0]["suggestion"])]
    assert after.ledger.counts["rows with a corrected label"] == 1


def test_bad_corrections(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "c.jsonl"
    bad.write_text('{"sum": "x", "number": 1, "decision": "perhaps"}\n')
    with pytest.raises(BertsmithError, match="line 1: not a decision of `bertsmith check"):
        read_decisions(bad)
    with pytest.raises(BertsmithError, match="cannot be read"):
        read_splits(file, corrections=tmp_path / "none.jsonl")
    other = [{"sum": "0123", "number": 1, "decision": "leave out"}]
    with pytest.raises(BertsmithError, match="no row is one that the corrections are about"):
        corrected(read_data(file), other)


def test_rows_of_one_text_and_two_labels(tmp_path: Path) -> None:
    made = rows()
    made[100] = {"text": made[0]["text"].upper(), "label": "food"}
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    found = bs.find_wrong_labels("bertsmith-embed", path, device="cpu")
    assert 101 in [one.example.where.number for one in found.suspects]


def test_words_and_sets_of_labels(tmp_path: Path) -> None:
    sentences = []
    for number in range(60):
        city = CITIES[number % 8]
        tag = "O" if number in (7, 30) else "B-LOC"
        sentences.append({"tokens": ["We", "saw", city, "again"], "tags": ["O", "O", tag, "O"]})
    path = tmp_path / "tags.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sentences))
    found = bs.find_wrong_labels("bertsmith-embed", path, device="cpu")
    assert {8, 31} <= {one.example.where.number for one in found.suspects}
    assert any("O → B-LOC" in word for one in found.suspects for word in one.words)
    several = [{"text": row["text"], "labels": [row["label"]]} for row in rows()]
    path.write_text("".join(json.dumps(row) + "\n" for row in several))
    found = bs.find_wrong_labels("bertsmith-embed", path, task="multilabel", device="cpu")
    assert (
        len({number + 1 for number in WRONG} & {o.example.where.number for o in found.suspects})
        >= 3
    )
    numbers = [{"text": f"a {n}", "score": n / 7} for n in range(9)]
    with pytest.raises(BertsmithError, match="where labels have names, not for regression"):
        bs.find_wrong_labels("bertsmith-embed", numbers, task="regression")


def test_near_duplicates_share_most_words() -> None:
    def of(*texts: str) -> list:
        return read_data([{"text": text, "label": "a"} for text in texts]).examples

    long = "the quick brown fox jumps over a lazy dog and runs away from here"
    train = of(long, "something else entirely that nobody else has said so far today")
    test = of(long.replace("runs", "walks"), long.upper(), "a dog")
    assert near_pairs(train, test) == [(0, 0)]  # equal texts are leaks of another kind
