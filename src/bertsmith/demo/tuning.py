"""The demo's classifier and tagger, fine-tuned and scored on held-out items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.demo.labels import Sentence, majority, parted, write_table, write_tags
from bertsmith.demo.pace import Pace
from bertsmith.finetuning import Result, finetune
from bertsmith.finetuning.history import Watcher
from bertsmith.tasks.evaluate import Evaluation
from bertsmith.tokenizer import Tokenizer

FEWEST = 200  # items, however slow the machine
MOST_EPOCHS = 15  # however few the items
SHOWN = 4  # held-out items that are shown
RATE = 1e-3  # a model of a minute knows little that a high rate could spoil


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned model with its scores."""

    folder: str  # of the model, in the demo's
    learned_from: int  # items
    held_out: int
    accuracy: float  # of held-out items; of a tagger, of their words
    baseline: float  # accuracy of always predicting the most frequent label
    baseline_label: str
    tfidf: float | None  # accuracy of TF-IDF + logistic regression; None of a tagger
    f1: float | None  # of the names that a tagger finds
    scores: dict[str, float]
    epochs: int
    seconds: float

    @property
    def bars(self) -> list[tuple[str, float]]:
        """The score that decides, of the baselines and, at the end, of the model."""
        always, own = (self.baseline, self.accuracy) if self.f1 is None else (0.0, self.f1)
        words = [] if self.tfidf is None else [("baseline: TF-IDF", self.tfidf)]
        return [(f"baseline: always “{self.baseline_label}”", always), *words, ("fine-tuned", own)]


@dataclass(frozen=True)
class Shown:
    """A held-out text with its label and the prediction."""

    text: str
    gold: str
    said: str
    sure: float


@dataclass(frozen=True)
class Words:
    """A held-out sentence: each word, whether it is a name, and whether it is predicted as one."""

    words: list[tuple[str, bool, bool]]


def affordable(
    texts: Sequence[str], tokenizer: Tokenizer, tokens: float, pace: Pace
) -> tuple[int, int]:
    """Return the number of texts and epochs that a budget of tokens allows."""
    some = texts[:FEWEST]
    each = sum(map(len, tokenizer.encode_ids(some, special=True))) / len(some)
    count = min(len(texts), pace.most_items, max(FEWEST, int(tokens / (pace.epochs * each))))
    return count, max(pace.epochs, min(MOST_EPOCHS, int(tokens / (each * count))))


def tune_classifier(
    out: Path,
    items: Sequence[tuple[str, str]],
    tokenizer: Tokenizer,
    speed: float,
    pace: Pace,
    watch: Watcher,
) -> tuple[Tuned, list[Shown]]:
    """Fine-tune on `out`/areas and write `out`/classifier."""
    texts = [text for text, _ in items]
    count, epochs = affordable(texts, tokenizer, pace.classifier_seconds * speed, pace)
    parts = parted(items, count)
    write_table(out / "areas", parts)
    result, test = _tuned(out, "areas", "classifier", epochs, pace, watch)
    label = majority(label for _, label in parts["train"])
    gold = [label for _, label in parts["test"]]
    tuned = _summary("classifier", parts, result, test, label, gold.count(label) / len(gold))
    shown = [
        Shown(one.texts[0], one.label, said.value, said.confidence)
        for one, said in zip(test.dataset.examples, test.predictions, strict=True)
        if 6 <= len(one.texts[0].split()) <= 16
    ]
    return tuned, shown[:SHOWN]


def tune_tagger(
    out: Path,
    items: Sequence[Sentence],
    tokenizer: Tokenizer,
    speed: float,
    pace: Pace,
    watch: Watcher,
) -> tuple[Tuned, list[Words]]:
    """Fine-tune on `out`/names and write `out`/tagger."""
    texts = [" ".join(word for word, _ in one) for one in items]
    count, epochs = affordable(texts, tokenizer, pace.tagger_seconds * speed, pace)
    parts = parted(items, count)
    write_tags(out / "names", parts)
    result, test = _tuned(out, "names", "tagger", epochs, pace, watch)
    label = majority(tag for one in parts["train"] for _, tag in one)
    gold = [tag for one in parts["test"] for _, tag in one]
    tuned = _summary("tagger", parts, result, test, label, gold.count(label) / len(gold))
    shown = [
        Words(
            [
                (word, tag != "O", other != "O")
                for word, tag, other in zip(one.words, one.tags, said.value, strict=True)
            ]
        )
        for one, said in zip(test.dataset.examples, test.predictions, strict=True)
        if 8 <= len(one.words) <= 18
    ]
    return tuned, shown[:SHOWN]


def _tuned(
    out: Path, data: str, model: str, epochs: int, pace: Pace, watch: Watcher
) -> tuple[Result, Evaluation]:
    result = finetune(
        out / "model",
        out / data,
        out / model,
        device="cpu",
        watch=watch,
        epochs=epochs,
        learning_rate=RATE,
        layer_decay=1.0,
        batch_size=16,
        max_length=pace.length,
    )
    assert result.kept.test is not None  # there is a test file
    return result, result.kept.test


def _summary(
    folder: str,
    parts: dict[str, list[Any]],
    result: Result,
    test: Evaluation,
    label: str,
    baseline: float,
) -> Tuned:
    scores = {name: float(value) for name, value in test.scores.items()}
    simple = (result.extras.get("baseline") or {}).get("scores") or {}
    return Tuned(
        folder=folder,
        learned_from=len(parts["train"]),
        held_out=len(parts["test"]),
        accuracy=scores["accuracy"],
        baseline=baseline,
        baseline_label=label,
        tfidf=simple["test"]["accuracy"] if simple else None,
        f1=scores["f1"] if folder == "tagger" else None,
        scores=scores,
        epochs=len(result.kept.history.epochs),
        seconds=result.kept.history.seconds,
    )
