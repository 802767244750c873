"""The loop: epochs of steps over shuffled samples, a look after each, and the best kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import bits, shuffled
from bertsmith.finetune.batches import batch_of, micro_batches
from bertsmith.finetune.learner import Learner
from bertsmith.finetune.session import History, Session
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.surgery import keep_all_states, keep_few_states, optimizer_for
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.run import STEP
from bertsmith.tasks.training import Sample, Training
from bertsmith.train.distributed import Ranks
from bertsmith.train.guard import PATIENCE
from bertsmith.train.precision import Precision, supported
from bertsmith.train.schedule import Shape, rate_at
from bertsmith.train.step import MicroBatch, TrainingStep
from bertsmith.train.tables import large_tables

BUDGETS = {"cpu": 8192, "cuda": 32768}  # tokens that pass through the model at once
Scores = dict[str, float]


class Watcher(Protocol):
    """Who is told how far a run is."""

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


class Autocast(nn.Module):
    """A module whose products are computed in bfloat16 (where its weights may not be swapped)."""

    def __init__(self, inner: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.inner, self.device = inner, device

    def forward(self, *inputs: Any) -> Any:
        """What the module inside gives."""
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.inner(*inputs)


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
        raise BertsmithError(f"{training.dataset.path}: there is nothing to learn from in it")
    watch, session = watch or Nobody(), session or Session()
    each = -(-len(samples) // settings.batch_size)
    total = each * settings.epochs
    step = _training_step(bert, training, settings, total)
    session.resume(bert.model, step, bert.ledger)
    history = session.history
    history.planned = total
    try:
        for epoch in range(session.epoch + 1, settings.epochs + 1):
            if look is not None and 0 < settings.patience <= session.waited:
                break
            places = np.arange(len(samples))
            order = shuffled(places, len(samples), settings.seed, "epoch", epoch)
            bert.model.train()
            began = time.perf_counter()
            for first in range(0, len(samples), settings.batch_size):
                chosen = [samples[place] for place in order[first : first + settings.batch_size]]
                done = history.steps / total
                step.optimizer.set_rate(
                    rate_at(settings.schedule, done, Shape(settings.warmup, 0.1))
                )
                torch.manual_seed(int(bits(settings.seed, "step", history.steps) >> 1))
                loss = _step(bert, step, training, chosen, settings)
                if step.guard.skipped:
                    bert.ledger.note("steps skipped because the loss was not a number")
                if step.guard.skipped >= PATIENCE:
                    raise BertsmithError(
                        f"the loss was not a number {PATIENCE} times in a row:"
                        " lower the learning rate"
                    )
                history.losses.append(loss)
                history.steps += 1
                watch.step(history.steps, total, loss)
            history.seconds += time.perf_counter() - began
            history.examples += len(samples)
            bert.model.eval()
            bert.model.use_kernel(None)
            with training.as_used(bert.model):
                row = _epoch(epoch, history, each, look)
                score = math.nan if row.get(settings.metric) is None else row[settings.metric]
                session.consider(
                    None if look is None else score, bert.model, settings.keep == "last"
                )
            history.epochs.append(row)
            watch.epoch({"seed": settings.seed, **row})
            session.store(bert.model, step, bert.ledger)
    finally:
        step.tables.close()
        keep_all_states(bert.model)
        bert.model.use_kernel(None)
        bert.model.eval()
    session.restore(bert.model)
    return history


def _training_step(
    bert: LoadedModel, training: Training, settings: Settings, steps: int
) -> TrainingStep:
    """The step that pre-training takes, for one process and this task's loss."""
    name = supported(settings.dtype, bert.device)
    if name != settings.dtype:
        bert.ledger.note(f"trained in {name}: this CPU has no {settings.dtype} units")
    half, on_cpu = name != "float32", bert.device.type == "cpu"
    # oneDNN prepares anew for each number of rows it has not seen in half precision.
    learner = Learner(bert.model, training, STEP if half and on_cpu else 1)
    tables = large_tables(bert.model)
    module = Precision.of(name, bert.device).wrap(learner, tables)
    if settings.checkpointing:
        keep_few_states(bert.model)
        # What is computed again in the backward pass must find the same weights as before.
        module = Autocast(learner, bert.device) if half else learner
    return TrainingStep(
        module,
        optimizer_for(bert.model, settings, steps),
        Ranks.alone(bert.device),
        clip=settings.clip,
        tables=tables if on_cpu else (),  # a GPU fills a table of zeros in no time
    )


def _step(
    bert: LoadedModel,
    step: TrainingStep,
    training: Training,
    chosen: Sequence[Sample],
    settings: Settings,
) -> float:
    """One step; its mean loss."""
    weight = sum(item.weight for sample in chosen for item in sample)
    if not weight:
        return 0.0  # classes that count nothing
    budget = settings.budget or BUDGETS.get(bert.device.type, 8192)
    parts = []
    for items in micro_batches(chosen, 0 if training.together else budget):
        targets = {name: one.to(bert.device) for name, one in training.targets(items).items()}
        parts.append(MicroBatch((batch_of(items, bert.device), targets, weight)))
    result = step(parts)
    return math.nan if result.skipped else result.loss


def _epoch(
    epoch: int, history: History, each: int, look: Callable[[], Scores] | None
) -> dict[str, Any]:
    losses = [loss for loss in history.losses[-each:] if math.isfinite(loss)]
    row: dict[str, Any] = {"epoch": epoch, "loss": sum(losses) / max(1, len(losses))}
    return row if look is None else row | look()
