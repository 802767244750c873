"""The hold-out: no text on both sides, labels in proportion, and nothing lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.splits import grouped, read_splits, split_off

pairs = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 200), st.sampled_from("abc")), max_size=60
)


def dataset(rows: list[tuple[str, str | None, str]]) -> Dataset[Labelled]:
    where = Where("x", 1)
    examples = [Labelled(text, pair, label, where) for text, pair, label in rows]
    return Dataset("x", "classification", examples)  # type: ignore[arg-type]


@given(pairs, st.floats(0.05, 0.6))
def test_no_text_is_on_both_sides(rows: list[tuple[int, int, str]], share: float) -> None:
    data = dataset([(f"premise {a}", f"hypothesis {b}", label) for a, b, label in rows])
    if len({one.texts for one in data.examples}) < 2:
        with pytest.raises(BertsmithError, match="too few different texts"):
            split_off(data, share)
        return
    train, dev, how = split_off(data, share)
    sides = [side.examples for side in (train, dev)]
    texts = [{text for one in side for text in one.texts} for side in sides]
    if "no text is in both" in how:
        assert not texts[0] & texts[1]
    else:
        assert "most examples share a text" in how
        assert not {one.texts for one in sides[0]} & {one.texts for one in sides[1]}
    assert len(train)
    assert len(dev)
    together = Counter(one.texts for side in (train, dev) for one in side.examples)
    assert together == Counter(one.texts for one in data.examples)
    assert f"{len(dev):,} of {len(data):,} examples" in how


@given(st.lists(st.lists(st.text("abcdef", max_size=2), max_size=3), max_size=30))
def test_groups_are_the_connected_parts(keys: list[list[str]]) -> None:
    groups = grouped(keys)
    assert sorted(number for group in groups for number in group) == list(range(len(keys)))
    owners: dict[str, int] = {}
    for place, group in enumerate(groups):
        for number in group:
            for key in keys[number]:
                assert owners.setdefault(key, place) == place
    for group in groups:  # and none could be divided further
        reached, rest = {group[0]}, set(group[1:])
        while more := {n for n in rest if any(set(keys[n]) & set(keys[r]) for r in reached)}:
            reached |= more
            rest -= more
        assert not rest


def test_labels_in_proportion() -> None:
    rows = [(f"text {n}", None, "rare" if n % 10 == 0 else "common") for n in range(2000)]
    _, dev, how = split_off(dataset(rows), 0.1)
    assert Counter(one.label for one in dev.examples) == {"common": 180, "rare": 20}
    assert how == (
        "no dev file: 200 of 2,000 examples are held out as dev data in proportion to their "
        "labels; no text is in both"
    )


def test_no_label_loses_its_only_example() -> None:
    labels = [f"c{n % 30}" for n in range(420)] + [f"rare{n}" for n in range(60)]
    data = dataset([(f"text {n}", None, label) for n, label in enumerate(labels)])
    train, dev, _ = split_off(data, 0.1)
    assert len(dev) == 48
    assert {one.label for one in train.examples} == set(labels)
    few = dataset([(f"text {n}", None, "maybe" if n == 40 else "yn"[n % 2]) for n in range(41)])
    for seed in range(20):
        assert "maybe" in {one.label for one in split_off(few, 0.1, seed)[0].examples}
    alone = dataset([("a", None, "x"), ("b", None, "y"), ("c", None, "z")])
    assert len(split_off(alone, 0.1)[1]) == 1  # there is nothing else


def test_several_labels_keep_an_example_each() -> None:
    rows = [{"text": f"text {n}", "labels": ["a", f"only{n}"]} for n in range(5)]
    rows += [{"text": f"text {n}", "labels": ["a"]} for n in range(5, 40)]
    for share in (0.1, 0.5):
        train = read_splits(rows, task="multilabel", hold_out=share).train
        assert {f"only{n}" for n in range(5)} <= set(train.labels)


def test_all_files_are_split_as_the_training_file(tmp_path: Path) -> None:
    """A dev file in which no row has two labels, and a name with another mark."""
    files = {"train": ["x;y", "x", "y, not z", "x;y, not z"] * 4, "dev": ["x|y", "y, not z"]}
    files["test"] = ["x", "y, not z;x"]
    for name, cells in files.items():
        lines = [f'text {name} {n},"{cell}"' for n, cell in enumerate(cells)]
        (tmp_path / f"{name}.csv").write_text("text,labels\n" + "\n".join(lines) + "\n")
    found = read_splits(*(tmp_path / f"{name}.csv" for name in files))
    assert found.train.task == "multilabel"
    assert found.dev is not None
    assert found.test is not None
    assert [one.labels for one in found.dev.examples] == [("x|y",), ("y, not z",)]
    assert [one.labels for one in found.test.examples] == [("x",), ("y, not z", "x")]


def test_a_text_that_all_examples_share() -> None:
    """A prompt before every text does not prevent a hold-out."""
    rows = [("Is it good?", f"text {n}", "ab"[n % 2]) for n in range(40)]
    _, dev, how = split_off(dataset([(a, b, c) for a, b, c in rows]), 0.1)
    assert len(dev) == 4
    assert "most examples share a text, so only whole examples are kept apart" in how


def test_premises_stay_together() -> None:
    rows = [
        {"premise": f"p{n // 3}", "hypothesis": f"h{n}", "label": "abc"[n % 3]} for n in range(90)
    ]
    splits = read_splits(rows, hold_out=0.1)
    assert splits.dev is not None
    assert len(splits.dev) == 9
    premises = [{one.text for one in side.examples} for side in (splits.train, splits.dev)]
    assert not premises[0] & premises[1]
