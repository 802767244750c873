"""Step 3 of the demo: pre-training, with predictions during the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.bert import Bert, load
from bertsmith.corpus import prepare
from bertsmith.demo.budget import Budget
from bertsmith.demo.initialization import write_initial_model
from bertsmith.demo.introduction import MODEL, Guesses, guesses_of, size_of
from bertsmith.tokenizer import Tokenizer
from bertsmith.train import pretrain
from bertsmith.train.building import Built
from bertsmith.train.folder import RunFolder
from bertsmith.train.recipe import Recipe, change, load_recipe
from bertsmith.train.watch import Watch

SHOWN = 2.0  # seconds between guesses
RECENT = 30  # steps


@dataclass(frozen=True)
class Round:
    """What the model guessed at one moment."""

    seconds: float
    guesses: Guesses


@dataclass
class Pretraining:
    """A run: its curves and guesses so far, and at the end the model and its summary."""

    sentences: Sequence[str]
    seconds: float = 0.0
    step: int = 0
    tokens: int = 0
    done: float = 0.0  # share of the budget
    curve: list[tuple[float, float]] = field(default_factory=list)  # (share, loss of masked LM)
    accuracy: list[tuple[float, float, float]] = field(default_factory=list)  # share, words, pairs
    rounds: list[Round] = field(default_factory=list)
    left: float = 0.0
    parameters: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    longer: Guesses = field(default_factory=list)  # of a model that was trained for longer

    @property
    def recent(self) -> tuple[float, float]:
        """Shares of masked tokens and of sentence pairs that were right, over the last steps."""
        last = self.accuracy[-RECENT:]
        count = max(1, len(last))
        return sum(words for _, words, _ in last) / count, sum(pairs for *_, pairs in last) / count

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / max(self.seconds, 1e-9)


def recipe_for(start: Path, corpus: Path, budget: Budget) -> Recipe:
    """The recipe of the demo, recipe.toml, for a start, a corpus and a budget."""
    minutes = 0.0 if budget.steps else budget.minutes
    changes = [
        change("model.start", str(start)),
        change("data.corpus", str(corpus)),
        f"data.length={budget.length}",
        f"train.steps={budget.steps}",
        f"train.minutes={minutes}",
        f"train.batch_tokens={budget.batch_tokens}",
        f"train.micro_tokens={budget.batch_tokens}",
    ]
    return load_recipe(Path(__file__).with_name("recipe.toml"), changes)


class Guessing(Watch):
    """Watches a run, and asks the model now and then to fill the same masks."""

    def __init__(
        self, *parts: Any, bert: Bert, run: Pretraining, tell: Callable[[Pretraining], None]
    ) -> None:
        super().__init__(*parts)
        self.bert, self.run, self.tell = bert, run, tell

    def __enter__(self) -> Guessing:
        self.guess()
        return self

    def __exit__(self, *error: Any) -> None:
        self.guess()
        self.tell(self.run)
        super().__exit__(*error)

    def show(self, row: Mapping[str, Any]) -> None:
        """Take in a step, and tell."""
        if "loss" not in row:
            return
        run, train = self.run, self.recipe.train
        run.seconds, run.step, run.tokens = self.elapsed, row["step"], row["tokens"]
        run.left = self.left()
        spent = self.elapsed / (60 * train.minutes) if train.minutes else row["step"] / train.steps
        run.done = min(1.0, spent)
        run.curve.append((run.done, row["masked_lm"]))
        run.accuracy.append((run.done, row["masked_lm_accuracy"], row["next_sentence_accuracy"]))
        if self.elapsed - run.rounds[-1].seconds >= SHOWN:
            self.guess()
        self.tell(run)

    def guess(self) -> None:
        """Fill the masks with the model as it is."""
        self.bert.model.eval()
        guesses = guesses_of(self.bert, self.run.sentences)
        self.bert.model.train()
        self.run.rounds.append(Round(self.run.seconds, guesses))


def pretrain_model(
    out: Path,
    tokenizer: Tokenizer,
    budget: Budget,
    sentences: Sequence[str],
    tell: Callable[[Pretraining], None],
) -> tuple[Pretraining, Bert]:
    """Prepare `out`/text.txt and pre-train on it; `out`/model is the model. Ctrl-C stops it."""
    corpus, folder, run = out / "corpus", out / "pretraining", Pretraining(sentences)
    prepare([out / "text.txt"], tokenizer, corpus, held_out=0.03, workers=0)

    def watch(place: RunFolder, recipe: Recipe, built: Built, tensorboard: bool) -> Watch:
        bert = Bert(built.checkpoint, tokenizer, progress=False)
        return Guessing(place, recipe, built, tensorboard, bert=bert, run=run, tell=tell)

    write_initial_model(tokenizer, corpus, out / "beginning", budget)
    summary = pretrain(recipe_for(out / "beginning", corpus, budget), folder, show=watch)
    if not summary["finished"]:
        raise KeyboardInterrupt
    (folder / "model").replace(out / "model")
    shutil.rmtree(folder / "checkpoints")  # the run is over: nothing resumes from them
    bert = load(out / "model", device="cpu", progress=False)
    run.summary, run.parameters = summary | {"model": str(out / "model")}, size_of(bert)
    run.longer = guesses_of(load(MODEL, device="cpu", progress=False), sentences)
    return run, bert
