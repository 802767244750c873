"""Step 4 of the demo: a classifier and a tagger, and the tagger again from three models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.demo.budget import Budget
from bertsmith.demo.introduction import MODEL
from bertsmith.demo.labels import Sentence, majority, parted, write_table, write_tags
from bertsmith.finetuning import Result, Splits, finetune
from bertsmith.finetuning.history import Watcher
from bertsmith.tasks.evaluate import Evaluation
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.task import TASK as TAGGING
from bertsmith.tasks.task import Display
from bertsmith.tokenizer import Tokenizer

FEWEST = 200  # items, however slow the machine
MOST_EPOCHS = 15  # however few the items
SHOWN = 4  # held-out items that are shown
LENGTHS = range(7, 18)  # and how many words they have
RATE = 1e-3  # a model of a minute knows little that a high rate could spoil

Row = tuple[str, list[str]]  # a text, with its label or the tags of its words


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned model: its scores, those of its baselines, and some of its predictions."""

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
    shown: list[Display]  # held-out examples

    def described(self) -> dict[str, Any]:
        """All numbers."""
        return {name: value for name, value in vars(self).items() if name != "shown"}

    @property
    def bars(self) -> list[tuple[str, float]]:
        """The score that decides, of the baselines and, at the end, of the model."""
        always, own = (self.baseline, self.accuracy) if self.f1 is None else (0.0, self.f1)
        words = [] if self.tfidf is None else [("baseline: TF-IDF", self.tfidf)]
        return [(f"baseline: always “{self.baseline_label}”", always), *words, ("fine-tuned", own)]


@dataclass(frozen=True)
class Start:
    """A model to start from, and the F1 of the tagger that was trained from it."""

    name: str
    f1: float


@dataclass(frozen=True)
class Starts:
    """Three taggers that were trained on the same few sentences."""

    learned_from: int
    held_out: int
    starts: list[Start]


def affordable(
    texts: Sequence[str], tokenizer: Tokenizer, tokens: float, budget: Budget
) -> tuple[int, int]:
    """Return the number of texts and epochs that a budget of tokens allows."""
    some = texts[:FEWEST]
    each = sum(map(len, tokenizer.encode_ids(some, special=True))) / len(some)
    count = min(len(texts), budget.most_items, max(FEWEST, int(tokens / (budget.epochs * each))))
    return count, max(budget.epochs, min(MOST_EPOCHS, int(tokens / (each * count))))


@dataclass(frozen=True)
class Tuning:
    """Fine-tunes models in the folder of a demo."""

    out: Path
    tokenizer: Tokenizer
    speed: float  # tokens a second of pre-training, from which time is estimated
    budget: Budget

    def classifier(self, items: Sequence[tuple[str, str]], watch: Watcher) -> Tuned:
        """Fine-tune on `out`/areas and write `out`/classifier."""
        rows = [(text, [label]) for text, label in items]
        count, epochs = self._affordable(rows, self.budget.classifier_seconds)
        write_table(self.out / "areas", parted(items, count))
        return self._tuned("areas", "classifier", parted(rows, count), epochs, watch)

    def tagger(self, items: Sequence[Sentence], watch: Watcher) -> Tuned:
        """Fine-tune on `out`/names and write `out`/tagger."""
        rows = [(" ".join(word for word, _ in one), [tag for _, tag in one]) for one in items]
        count, epochs = self._affordable(rows, self.budget.tagger_seconds)
        write_tags(self.out / "names", parted(items, count))
        return self._tuned("names", "tagger", parted(rows, count), epochs, watch)

    def starts(self, watch: Callable[[], Watcher]) -> Starts:
        """Train the tagger on few sentences of `out`/names from three models, all alike.

        The settings were chosen on the dev sentences of another run.
        """
        budget, few = self.budget, {}
        for name, count in (("train", budget.few), ("test", budget.few_tests)):
            dataset = read_data(self.out / "names" / f"{name}.conll", TAGGING.name)
            few[name] = replace(dataset, examples=dataset.examples[:count])
        splits = Splits(few["train"], None, few["test"])
        time = f"{budget.steps} steps" if budget.steps else f"{60 * budget.minutes:.0f} seconds"
        models: dict[str, str | Path] = {
            "this BERT before pre-training": self.out / "beginning",
            f"this BERT, {time}": self.out / "model",
            f"{MODEL}, pre-trained on a GPU": MODEL,
        }
        starts = []
        for name, model in models.items():
            how = {"epochs": budget.few_epochs, "batch_size": 8, "optimizer": "adamw"}
            _, test = self._finetuned(model, splits, None, watch(), **how)
            starts.append(Start(name, test.scores["f1"]))
        return Starts(len(splits.train), len(few["test"]), starts)

    def _affordable(self, rows: Sequence[Row], seconds: float) -> tuple[int, int]:
        texts = [text for text, _ in rows]
        return affordable(texts, self.tokenizer, seconds * self.speed, self.budget)

    def _finetuned(
        self, model: str | Path, data: Path | Splits, out: Path | None, watch: Watcher, **more: Any
    ) -> tuple[Result, Evaluation]:
        more |= {"learning_rate": RATE, "layer_decay": 1.0, "max_length": self.budget.length}
        result = finetune(model, data, out, device="cpu", watch=watch, **more)
        assert result.kept.test is not None  # there is test data
        return result, result.kept.test

    def _tuned(
        self, data: str, folder: str, rows: dict[str, list[Row]], epochs: int, watch: Watcher
    ) -> Tuned:
        out, labels = self.out, {}
        for name in ("train", "test"):
            labels[name] = [label for _, own in rows[name] for label in own]
        frequent = majority(labels["train"])
        result, test = self._finetuned(
            out / "model", out / data, out / folder, watch, epochs=epochs, batch_size=16
        )
        scores = {name: float(value) for name, value in test.scores.items()}
        simple = (result.extras.get("baseline") or {}).get("scores") or {}
        shown = [
            test.task.display(one, said)
            for one, said in zip(test.dataset.examples, test.predictions, strict=True)
            if len(one.texts[0].split()) in LENGTHS
        ]
        return Tuned(
            folder=folder,
            learned_from=len(rows["train"]),
            held_out=len(rows["test"]),
            accuracy=scores["accuracy"],
            baseline=labels["test"].count(frequent) / len(labels["test"]),
            baseline_label=frequent,
            tfidf=simple["test"]["accuracy"] if simple else None,
            f1=scores["f1"] if folder == "tagger" else None,
            scores=scores,
            epochs=len(result.kept.history.epochs),
            seconds=result.kept.history.seconds,
            shown=shown[:SHOWN],
        )
