"""The fine-tuning loop: epochs of steps, evaluations, and the best weights."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.finetuning.activations import restore_forward
from bertsmith.finetuning.session import History, Session
from bertsmith.finetuning.settings import Settings
from bertsmith.finetuning.setup import freeze
from bertsmith.finetuning.steps import EagerSteps, steps_for
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import bar_of
from bertsmith.tasks.training import Sample, Training
from bertsmith.train.guard import PATIENCE

Scores = dict[str, float]
EVALUATIONS = 10  # scores on dev data in a run of more epochs than that
AHEAD = 64  # batches that are tried for a sample, one of whose texts a batch has already
UNCHANGED = 3  # scores without a better one, after which a run that has learned its file ends
HEAD_RATE = 2e-3  # learning rate where only the head is trained


class Watcher(Protocol):
    """A callback for the progress of a run."""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done: its seed, its number, its mean loss, and the scores if there are."""


class Nobody:
    """A watcher that looks away."""

    def step(self, done: int, total: int, loss: float) -> None:
        """Look away."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Look away."""


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[Watcher]:
    """A watcher that draws a bar on standard error; by default on a terminal or in a notebook."""
    from rich.console import Console

    if wanted is None:
        wanted = sys.stderr.isatty() or Console().is_jupyter
    if not wanted:
        yield Nobody()
        return
    with bar_of("{task.description}{task.completed} of {task.total} steps") as bar:
        task = bar.add_task("", total=None)

        class Bar(Nobody):
            def step(self, done: int, total: int, loss: float) -> None:
                bar.update(task, completed=done, total=total, description=f"loss {loss:.4f}, ")

        yield Bar()


def train(
    bert: LoadedModel,
    training: Training,
    samples: Sequence[Sample],
    settings: Settings,
    look: Callable[[], Scores] | None,
    watch: Watcher | None = None,
    session: Session | None = None,
) -> History:
    """Train a model on samples; afterwards it has the weights of the best epoch.

    `look` scores the model as it is; the score called settings.metric decides. Without it the
    last epoch is kept. A session that was stored goes on where it ended.
    """
    if not samples:
        raise BertsmithError(f"{training.dataset.path}: contains no training examples")
    watch, session = watch or Nobody(), session or Session()
    each = -(-len(samples) // settings.batch_size)
    total = each * settings.epochs
    if settings.head_epochs and not session.stored:
        train_head(bert, training, samples, settings)
    steps = steps_for(bert, training, settings, total)
    session.resume(bert.model, steps.optimizer, bert.ledger)
    steps.prepare(samples)
    history = session.history
    history.planned = total

    def keep(losses: Sequence[float]) -> None:
        for loss in losses:
            history.losses.append(loss)
            if math.isnan(loss):
                bert.ledger.note("steps skipped because the loss was NaN or infinite")
            last = history.losses[-PATIENCE:]
            if len(last) == PATIENCE and all(map(math.isnan, last)):
                raise BertsmithError(
                    f"the loss was NaN or infinite {PATIENCE} times: lower the learning rate"
                )
            watch.step(len(history.losses), total, loss)

    try:
        for epoch in range(session.epoch + 1, settings.epochs + 1):
            if look is not None and has_ended(session, settings, training):
                break
            bert.model.train()
            began = time.perf_counter()
            for chosen in shuffled_batches(training, samples, settings, "epoch", epoch):
                keep(steps(chosen, history.steps))
                history.steps += 1
            keep(steps.finish())
            history.seconds += time.perf_counter() - began
            history.examples += len(samples)
            bert.model.eval()
            bert.model.use_kernel(None)
            evaluated = is_evaluated(epoch, settings)
            with training.as_used(bert.model):
                row = _epoch(epoch, history, each, look if evaluated else None)
                score = math.nan if row.get(settings.metric) is None else row[settings.metric]
                if evaluated:
                    session.consider(
                        None if look is None else score, bert.model, settings.keep == "last"
                    )
            history.epochs.append(row)
            session.store(bert.model, steps.optimizer, bert.ledger)
            watch.epoch({"seed": settings.seed, **row})
    finally:
        steps.close()
        restore_forward(bert.model)
        bert.model.use_kernel(None)
        bert.model.eval()
    session.restore(bert.model)
    return history


def has_ended(session: Session, settings: Settings, training: Training) -> bool:
    """Is there nothing more to expect from further epochs?

    By `patience`. Without it, if the training file is learned and dev scores do not rise any more;
    but never where the last epoch is to be kept, as in benchmarks: they are trained as planned.
    """
    if settings.patience or not session.epoch or settings.keep == "last":
        return 0 < settings.patience <= session.waited
    loss: float = session.history.epochs[-1]["loss"]
    return session.waited >= UNCHANGED and loss < training.learned


def is_evaluated(epoch: int, settings: Settings) -> bool:
    """Is the dev data scored after this epoch? Of many epochs, some ten are: they are short."""
    every = 1 if settings.patience else -(-settings.epochs // EVALUATIONS)
    return epoch in (1, settings.epochs) or epoch % every == 0


def train_head(
    bert: LoadedModel, training: Training, samples: Sequence[Sample], settings: Settings
) -> None:
    """Train the head alone on the frozen encoder's states: a start that spoils no weights."""
    trained = [p for p in bert.model.encoder.parameters() if p.requires_grad]
    freeze(bert.model, "encoder")
    alone = settings.changed(
        freeze="encoder",
        learning_rate=HEAD_RATE,
        epochs=settings.head_epochs,
        optimizer="adamw",
        matrix_learning_rate=0.0,
        checkpointing=False,
    )
    total = -(-len(samples) // settings.batch_size) * settings.head_epochs
    steps = EagerSteps(bert, training, alone, total)
    try:
        steps.prepare(samples)
        bert.model.train()
        done = 0
        for epoch in range(1, settings.head_epochs + 1):
            for chosen in shuffled_batches(training, samples, settings, "head epoch", epoch):
                steps(chosen, done)
                done += 1
    finally:
        steps.close()
        restore_forward(bert.model)
        for parameter in trained:
            parameter.requires_grad_(True)


def shuffled_batches(
    training: Training, samples: Sequence[Sample], settings: Settings, name: str, epoch: int
) -> Iterator[list[Sample]]:
    """The samples of one epoch in a random order, which is a function of the seed.

    Samples that share a key are put in different batches, where one of the next has room.
    """
    order = shuffled(np.arange(len(samples)), len(samples), settings.seed, name, epoch)
    size = settings.batch_size
    batches: list[list[Sample]] = [[] for _ in range(-(-len(samples) // size))]
    room = [min(size, len(samples) - size * number) for number in range(len(batches))]
    seen: list[set[int]] = [set() for _ in batches]
    first = 0  # that is not full
    for sample in (samples[place] for place in order):
        keys = training.keys(sample)
        ahead = range(first, min(first + AHEAD, len(batches)))
        chosen = next((n for n in ahead if room[n] and seen[n].isdisjoint(keys)), first)
        batches[chosen].append(sample)
        seen[chosen].update(keys)
        room[chosen] -= 1
        while first < len(batches) and not room[first]:
            first += 1
    yield from batches


def _epoch(
    epoch: int, history: History, each: int, look: Callable[[], Scores] | None
) -> dict[str, Any]:
    losses = [loss for loss in history.losses[-each:] if math.isfinite(loss)]
    row: dict[str, Any] = {"epoch": epoch, "loss": sum(losses) / max(1, len(losses))}
    return row if look is None else row | look()
