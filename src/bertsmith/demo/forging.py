"""Vocabulary training and pre-training in the demo, with predictions during the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.bert import Bert
from bertsmith.corpus import prepare
from bertsmith.demo.beginning import begin_model
from bertsmith.demo.pace import Pace
from bertsmith.demo.text import Document
from bertsmith.files import write_text
from bertsmith.tokenizer import Tokenizer, train
from bertsmith.train import pretrain
from bertsmith.train.building import Built
from bertsmith.train.folder import RunFolder
from bertsmith.train.recipe import Recipe, checked
from bertsmith.train.watch import Watch

SHOWN = 2.0  # seconds between guesses
TOP = 3  # guesses for each mask
RECENT = 30  # steps


@dataclass(frozen=True)
class Piece:
    """A token as the encoder meets it: the sum of three vectors has these numbers."""

    token: str
    id: int
    segment: int
    position: int


@dataclass(frozen=True)
class Round:
    """What the model guessed at one moment: for each sentence the best tokens."""

    seconds: float
    guesses: list[list[tuple[str, float]]]


@dataclass
class Lesson:
    """Pre-training as it goes on."""

    sentences: Sequence[str]
    seconds: float = 0.0
    step: int = 0
    tokens: int = 0
    done: float = 0.0  # share of the budget
    curve: list[tuple[float, float]] = field(default_factory=list)  # (share, loss of masked LM)
    accuracy: list[tuple[float, float, float]] = field(default_factory=list)  # share, words, pairs
    rounds: list[Round] = field(default_factory=list)
    left: float = 0.0
    speed: float = 0.0  # tokens a second

    @property
    def recent(self) -> tuple[float, float]:
        """Shares of hidden words and of sentence pairs that were right, over the last steps."""
        last = self.accuracy[-RECENT:]
        count = max(1, len(last))
        return sum(words for _, words, _ in last) / count, sum(pairs for *_, pairs in last) / count


def write_documents(documents: Sequence[Document], path: Path) -> int:
    """Documents with a blank line between them, a paragraph a line; how many characters."""
    parts = (
        "\n".join(line for passage in document.passages for line in passage.paragraphs)
        for document in documents
    )
    text = "\n\n".join(parts) + "\n"
    write_text(path, text)
    return len(text)


def learn_vocabulary(text: Path, out: Path, pace: Pace) -> Tokenizer:
    """A lower-case WordPiece vocabulary."""
    tokenizer = train([text], "wordpiece", size=pace.vocabulary, max_length=2 * pace.length)
    tokenizer.save(out)
    return tokenizer


def pieces(tokenizer: Tokenizer, first: str, second: str) -> list[Piece]:
    """Two sentences as the encoder meets them."""
    encoding = tokenizer.encode(first, second)
    pairs = zip(encoding.ids, encoding.segments, strict=True)
    return [
        Piece(tokenizer.token(id_), id_, segment, position)
        for position, (id_, segment) in enumerate(pairs)
    ]


def recipe_for(start: Path, corpus: Path, pace: Pace) -> Recipe:
    """How a model that has a minute is trained."""
    return checked(
        {
            "about": "A BERT of a minute: masked LM and next sentences",
            "model": {"start": str(start)},
            "data": {"corpus": str(corpus), "format": "next", "length": pace.length, "workers": 1},
            "masking": {"rate": 0.3},
            "objectives": {"masked_lm": 1.0, "next_sentence": 1.0},
            "train": {
                "steps": pace.steps,
                "minutes": 0.0 if pace.steps else pace.minutes,
                "batch_tokens": pace.batch_tokens,
                "micro_tokens": pace.batch_tokens,
                "optimizer": "muon",  # learns most from few steps
                "learning_rate": 2e-3,
                "matrix_learning_rate": 0.015,
                "warmup": 0.1,
                "betas": [0.9, 0.98],
                "device": "cpu",  # so that everyone sees the same
            },
            "evaluate": {"tokens": 16384, "pseudo": 0},
            "checkpoint": {"every": 0},
        },
        "the demo's recipe",
    )


class Guessing(Watch):
    """Watches a run, and asks the model now and then to fill the same masks."""

    def __init__(
        self,
        folder: RunFolder,
        recipe: Recipe,
        made: Built,
        tensorboard: bool,
        *,
        tokenizer: Tokenizer,
        lesson: Lesson,
        tell: Callable[[Lesson], None],
    ) -> None:
        super().__init__(folder, recipe, made, tensorboard)
        self.lesson, self.tell = lesson, tell
        self.bert = Bert(made.checkpoint, tokenizer, progress=False)

    def __enter__(self) -> Guessing:
        self.guess()
        return self

    def __exit__(self, *error: Any) -> None:
        self.guess()
        self.tell(self.lesson)
        super().__exit__(*error)

    def show(self, row: Mapping[str, Any]) -> None:
        """Take in a step, and tell."""
        if "loss" not in row:
            return
        lesson, train = self.lesson, self.recipe.train
        lesson.seconds, lesson.step, lesson.tokens = self.elapsed, row["step"], row["tokens"]
        lesson.left, lesson.speed = self.left(), lesson.tokens / max(self.elapsed, 1e-9)
        spent = self.elapsed / (60 * train.minutes) if train.minutes else row["step"] / train.steps
        lesson.done = min(1.0, spent)
        lesson.curve.append((lesson.done, row["masked_lm"]))
        right = row["masked_lm_accuracy"], row["next_sentence_accuracy"]
        lesson.accuracy.append((lesson.done, *right))
        if self.elapsed - lesson.rounds[-1].seconds >= SHOWN:
            self.guess()
        self.tell(lesson)

    def guess(self) -> None:
        """Fill the masks with the model as it is."""
        model = self.bert.model.eval()
        found = self.bert.fill_mask(list(self.lesson.sentences), top=TOP)
        model.train()
        guesses = [[(one.token, one.score) for one in row] for row in found]
        self.lesson.rounds.append(Round(self.lesson.seconds, guesses))


def forge(
    text: Path,
    tokenizer: Tokenizer,
    out: Path,
    pace: Pace,
    sentences: Sequence[str],
    tell: Callable[[Lesson], None],
) -> tuple[Lesson, dict[str, Any]]:
    """Prepare the text and pre-train on it; `out`/model is the model. Ctrl-C is not swallowed."""
    corpus, run = out / "corpus", out / "pretraining"
    prepare([text], tokenizer, corpus, held_out=0.03, workers=0)
    lesson = Lesson(sentences)

    def watch(folder: RunFolder, recipe: Recipe, made: Built, tensorboard: bool) -> Watch:
        return Guessing(
            folder, recipe, made, tensorboard, tokenizer=tokenizer, lesson=lesson, tell=tell
        )

    begin_model(tokenizer, corpus, out / "beginning", pace)
    summary = pretrain(recipe_for(out / "beginning", corpus, pace), run, show=watch)
    if not summary["finished"]:
        raise KeyboardInterrupt
    (run / "model").replace(out / "model")
    shutil.rmtree(run / "checkpoints")  # the run is over: nothing goes on from them
    return lesson, summary | {"model": str(out / "model")}
