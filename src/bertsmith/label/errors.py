"""Labels that are probably wrong: found by a model that did not see them, for a person to judge."""

import json
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_text
from bertsmith.finetuning.frozen import CrossFit, FrozenEncoder
from bertsmith.metrics.label_errors import wrong_labels
from bertsmith.pages import page
from bertsmith.pages.results import framed
from bertsmith.reports.report import display_parts
from bertsmith.tasks.check.texts import key
from bertsmith.tasks.corrections import decision
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import labelled
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import Prediction

WRONG, CONTRADICTED = "probably wrong", "another row has the same text and another label"


@dataclass(frozen=True)
class Suspect:
    """A row whose label may be wrong: the surest have the lowest confidence."""

    example: Any
    prediction: Prediction  # of a model that did not see the row
    confidence: float  # probability of the label; of the least probable word
    why: str
    words: tuple[str, ...] = ()  # "word: label → likelier label", where words have labels


@dataclass(frozen=True, repr=False)
class WrongLabels:
    """Rows whose labels may be wrong."""

    dataset: Dataset[Any]
    model: str
    suspects: tuple[Suspect, ...]
    labels: int  # all labels that were looked at: of rows, or of words

    def rows(self, chosen: str = "leave out") -> list[dict[str, Any]]:
        """One decision about each suspect, as lines of a file of corrections."""
        rows = []
        for suspect in self.suspects:
            row = decision(suspect.example, chosen) | {"why": suspect.why}
            row |= {"suggestion": suspect.prediction.value, "confidence": suspect.confidence}
            rows.append(finite(row) | ({"words": list(suspect.words)} if suspect.words else {}))
        return rows

    def write(self, path: str | Path) -> None:
        """Write decisions to leave all of them out, for `finetune(corrections=...)`."""
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows())
        write_text(Path(path), "".join(lines))

    def page(self) -> str:
        """A page to decide on each: keep, leave out, or take the suggested label."""
        kind = task_named(self.dataset.task)
        items = [
            display_parts(kind, suspect.example, suspect.prediction)
            | {"row": row, "why": suspect.why, "words": suspect.words}
            | {"label_confidence": f"{suspect.confidence:.2f}"}
            for suspect, row in zip(self.suspects, self.rows("keep"), strict=True)
        ]
        name = self.dataset.path.name
        return page(
            "wrong_labels.html",
            f"Labels to look at: {name}",
            scripts=("page.js", "wrong_labels.js"),
            about=f"{len(items):,} of {self.labels:,} labels; {self.model}, cross-fitted",
            items=items,
            file=name,
        )

    def save(self, path: str | Path) -> None:
        """Write the page."""
        write_text(Path(path), self.page())

    def _repr_html_(self) -> str:
        return framed(self.page(), "labels to look at")

    def __repr__(self) -> str:
        return f"<{len(self.suspects):,} labels of {self.dataset.path.name} that may be wrong>"


def find_wrong_labels(
    model: str | Path,
    data: Any,
    *,
    task: str | None = None,
    folds: int = 5,
    seed: int = 0,
    device: str | None = None,
    **options: Any,
) -> WrongLabels:
    """Find labels that are probably wrong, by confident learning.

    A linear layer on the model's vectors predicts each row without having seen it. Rows that share
    a text but not the label are listed, too. `options` are those of `open_data`.
    """
    dataset = labelled(data if isinstance(data, Dataset) else read_data(data, task, **options))
    kind = task_named(dataset.task)
    if not kind.names_labels:
        raise BertsmithError(f"wrong labels are found where labels have names, not for {kind.name}")
    crossed = FrozenEncoder(model, kind.name, device=device).cross_fit(
        dataset, folds=folds, seed=seed
    )
    examples, count = crossed.dataset.examples, len(crossed.dataset)
    if kind.exclusive:
        suspects = _of_rows(crossed)
    elif kind.several:
        suspects = _of_sets(crossed)
    else:
        suspects, count = _of_words(crossed)
    known = {id(suspect.example) for suspect in suspects}
    predictions = dict(zip(map(id, examples), crossed.predictions, strict=True))
    for example in contradictions(examples):
        prediction = predictions[id(example)]
        if id(example) not in known and prediction.value != kind.label_of(example):
            suspects.append(Suspect(example, prediction, prediction.confidence, CONTRADICTED))
    return WrongLabels(crossed.dataset, str(model), tuple(suspects), count)


def contradictions(examples: Sequence[Any]) -> list[Any]:
    """Examples with the texts of another and a different label."""
    groups: dict[Hashable, list[Any]] = defaultdict(list)
    for example in examples:
        groups[key(example)].append(example)
    differing = [group for group in groups.values() if len({row.gold for row in group}) > 1]
    return [example for group in differing for example in group]


def _of_rows(crossed: CrossFit) -> list[Suspect]:
    chances, examples = crossed.probabilities, crossed.dataset.examples
    labels = [crossed.labels.index(example.label_names[0]) for example in examples]
    return [
        Suspect(examples[n], crossed.predictions[n], float(chances[n, labels[n]]), WRONG)
        for n in wrong_labels(labels, chances).tolist()
    ]


def _of_sets(crossed: CrossFit) -> list[Suspect]:
    """Rows of any number of labels: each label is a question of yes or no."""
    chances, examples = crossed.probabilities, crossed.dataset.examples
    worst: dict[int, float] = {}
    for place, name in enumerate(crossed.labels):
        labels = np.array([name in example.label_names for example in examples], dtype=np.int64)
        sides = np.stack([1 - chances[:, place], chances[:, place]], 1)
        for n in wrong_labels(labels, sides).tolist() if 0 < labels.sum() < len(labels) else ():
            worst[n] = min(worst.get(n, 1.0), float(sides[n, labels[n]]))
    order = sorted(worst, key=worst.__getitem__)
    return [Suspect(examples[n], crossed.predictions[n], worst[n], WRONG) for n in order]


def _of_words(crossed: CrossFit) -> tuple[list[Suspect], int]:
    """Rows whose words have labels, and the number of words."""
    units, examples = crossed.unit_probabilities(), crossed.dataset.examples
    chances = np.concatenate([probabilities for probabilities, _ in units])
    labels = np.array([label for _, own in units for label in own], dtype=np.int64)
    places = [(row, place) for row, (_, own) in enumerate(units) for place in range(len(own))]
    words: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for n in wrong_labels(labels, chances).tolist():
        row, place = places[n]
        spelled = getattr(examples[row], "words", ())
        # Windows of a long text share words, so that places do not count them.
        word = spelled[place] if len(spelled) == len(units[row][1]) else f"word {place + 1}"
        better = crossed.labels[int(chances[n].argmax())]
        text = f"{word}: {crossed.labels[labels[n]]} → {better}"
        words[row].append((float(chances[n, labels[n]]), text))
    suspects = []
    for row in sorted(words, key=lambda row: min(words[row])):
        confidences, texts = zip(*sorted(words[row]), strict=True)
        example, prediction = examples[row], crossed.predictions[row]
        suspects.append(Suspect(example, prediction, confidences[0], WRONG, texts))
    return suspects, len(labels)
