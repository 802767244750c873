"""The files of a run: what is learned from, tuned on and scored on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data import Dataset, Question, find_splits, read_data
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled


@dataclass(frozen=True)
class Splits:
    """Three data sets of one task; only the first must be there."""

    train: Dataset[Any]
    dev: Dataset[Any] | None = None
    test: Dataset[Any] | None = None
    notes: list[str] = field(default_factory=list)


def read_splits(
    train: str | Path,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
    hold_out: float = 0.1,
) -> Splits:
    """Read a run's files; a folder is looked through for train, dev and test.

    Without a dev file a share of the training examples is held out (0: none).
    """
    if not 0 <= hold_out <= 0.9:
        raise BertsmithError(f"hold_out is a share from 0 to 0.9, not {hold_out:g}")
    if Path(train).is_dir():
        found = find_splits(train)
        train, dev, test = found["train"], dev or found.get("dev"), test or found.get("test")

    def read(path: str | Path, task: str | None) -> Dataset[Any]:
        return read_data(path, task, columns=columns, label_names=label_names)

    learned = read(train, task)
    if not learned.gold():
        raise BertsmithError(f"{learned.path} does not say what is right: nothing to learn")
    others = [None if path is None else read(path, learned.task) for path in (dev, test)]
    notes = []
    for number, name in enumerate(("dev", "test")):
        one = others[number]
        if one is not None and not one.gold():
            notes.append(f"the {name} file does not say what is right: it is not used")
            others[number] = None
    if others[0] is None and hold_out:
        learned, others[0], how = split_off(learned, hold_out)
        notes.append(how)
    return Splits(learned, others[0], others[1], notes)


def split_off(
    dataset: Dataset[Any], share: float, seed: int = 0
) -> tuple[Dataset[Any], Dataset[Any], str]:
    """Part a data set in two, so that no text (of questions: no article) is in both."""
    examples = dataset.gold()
    key: Callable[[Any], Any] = lambda example: example.texts  # noqa: E731
    unit = "texts"
    if isinstance(examples[0], Question):
        titles = {example.title for example in examples}
        unit = "articles" if len(titles) > 4 else "passages"
        key = (lambda one: one.title) if unit == "articles" else (lambda one: one.passage)
    names = list(dict.fromkeys(key(example) for example in examples))
    if len(names) < 2:
        raise BertsmithError(f"{dataset.path}: too few {unit} to hold some out; give a dev file")
    order = shuffled(np.arange(len(names)), len(names), seed, "hold out")
    count = min(len(names) - 1, max(1, round(share * len(names))))
    held = {names[place] for place in order[:count]}
    sides = [[e for e in examples if (key(e) in held) == side] for side in (False, True)]
    how = (
        f"no dev file: {len(sides[1]):,} examples ({share:.0%} of the {unit}) of the training "
        "file were held out"
    )
    rest, dev = (replace(dataset, examples=side) for side in sides)
    return rest, dev, how
