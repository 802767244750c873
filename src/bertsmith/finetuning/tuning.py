"""One fine-tuning run: what the loop of `train` needs to know of it, and its history."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from torch import nn

from bertsmith.checkpoint.assemble import emptied, substitute
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples.draw import bits
from bertsmith.finetuning.batches import Epochs, PaddedInputs, TaskLoss, batch_of, micro_batches
from bertsmith.finetuning.settings import RunSettings, matrix_rate_for
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import STEP, bar_of
from bertsmith.ledger import Ledger
from bertsmith.tasks.training import LEARNED, Sample, Training
from bertsmith.train.activations import CachedEncoder, blocks_of, freeze, restore_forward
from bertsmith.train.distributed import Ranks
from bertsmith.train.loggers import Loggers
from bertsmith.train.loop import Keeping, Replay, Scoring, Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision, supported
from bertsmith.train.recipe import TrainPart
from bertsmith.train.state import Checkpoints, RunProgress
from bertsmith.train.step import allow_signals, large_tables
from bertsmith.train.weights import Best


class TrainingCallback(Protocol):
    """A callback for the progress of a run."""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done: its seed, its number, its mean loss, and the scores if there are."""


class SilentCallback:
    """A callback that does nothing."""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[TrainingCallback]:
    """A callback that draws a bar on standard error; by default on a terminal or in a notebook."""
    from rich.console import Console

    if wanted is None:
        wanted = sys.stderr.isatty() or Console().is_jupyter
    if not wanted:
        yield SilentCallback()
        return
    with bar_of("{task.description}{task.completed} of {task.total} steps") as bar:
        task = bar.add_task("", total=None)

        class Bar(SilentCallback):
            def step(self, done: int, total: int, loss: float) -> None:
                bar.update(task, completed=done, total=total, description=f"loss {loss:.4f}, ")

        yield Bar()


@dataclass
class History:
    """The losses and scores of a run, which the training loop records."""

    losses: list[float] = field(default_factory=list)  # of each step; NaN if it was skipped
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: int = 0  # the epoch that was kept, from 1
    planned: int = 0  # steps, if it does not stop early
    examples: int = 0
    seconds: float = 0.0  # of training, without evaluation

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.losses)

    @property
    def done(self) -> int:
        """The number of the last epoch that is finished."""
        return int(self.epochs[-1]["epoch"]) if self.epochs else 0

    @property
    def speed(self) -> float:
        """Examples per second."""
        return self.examples / self.seconds if self.seconds else 0.0

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """A step or an epoch is done."""
        self.seconds = timing["elapsed"]
        if "evaluated" in timing:
            self.epochs.append({name: value for name, value in row.items() if name != "step"})
        else:
            self.losses.append(math.nan if "skipped" in row else row["loss"])

    def kept(self) -> dict[str, Any]:
        """The history as plain values, for a checkpoint."""
        return asdict(self)

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from the history in a checkpoint."""
        self.__dict__.update(kept)
        self.losses = [math.nan if loss is None else loss for loss in self.losses]

    def cut(self, progress: RunProgress) -> tuple[dict[str, int], list[str]]:
        """Do nothing: `restore` did it."""
        return {}, []

    def keep_ledger(self, ledger: Ledger) -> None:
        """Do nothing: the model has the ledger."""


Scores = dict[str, float]
BUDGETS = {"cpu": 8192, "cuda": 32768}  # tokens that pass through the model at once
EVALUATIONS = 10  # scores on dev data in a run of more epochs than that
FALLING = 0.9  # a loss below this share of all earlier ones still falls
UNCHANGED = 3  # scores without a better one, after which a run that has learned its file ends
HEAD_RATE = 2e-3  # learning rate where only the head is trained
SPARE = 10  # a checkpoint is written when ten times as long as it takes has passed
# Settings that a run and the loop have in common.
SHARED = {"seed", "optimizer", "learning_rate", "layer_decay", "weight_decay", "schedule"}
SHARED |= {"warmup", "clip", "spike", "ema"}
REPLAY = Replay(
    lambda example, counts: example.inputs,
    read=32,
    advice=f"train with {setting_name('graphs', False)}",
)


class Tuning:
    """A model that learns a task from samples, by the one loop.

    `look` scores the model as it is; the score called settings.metric decides which epoch is kept.
    Without it the last is. With `checkpoints`, an interrupted run goes on where it ended.
    """

    name = "epoch"  # of which random orders are a function

    def __init__(
        self,
        bert: LoadedModel,
        training: Training,
        samples: Sequence[Sample],
        settings: RunSettings,
        look: Callable[[], Scores] | None = None,
        watch: TrainingCallback | None = None,
        checkpoints: Checkpoints | None = None,
        ranks: Ranks | None = None,
        loggers: Loggers | None = None,
    ) -> None:
        if not samples:
            raise BertsmithError(f"{training.dataset.path}: contains no training examples")
        self.bert, self.training, self.samples = bert, training, samples
        self.settings, self.look, self.watch = settings, look, watch or SilentCallback()
        self.checkpoints, self.ranks = checkpoints, ranks or Ranks.alone(bert.device)
        self.history, self.best, self.loggers = History(), Best(), loggers
        self.sharded = False  # are the weights divided over the ranks?
        self.each = -(-len(samples) // settings.batch_size)  # steps of an epoch
        self.total = self.each * settings.epochs
        self.precision = supported(settings.dtype, bert.device)

    @property
    def budget(self) -> int:
        """The number of tokens that pass through the model at once."""
        return self.settings.budget or BUDGETS.get(self.bert.device.type, 8192)

    @property
    def epoch(self) -> int:
        """The number of epochs whose steps are done."""
        return self.history.steps // self.each

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights are kept, from 1; 0 before there is one."""
        return self.best.step // self.each

    def run(self) -> None:
        """Train, up to the weights of the best epoch; a signal raises KeyboardInterrupt."""
        if self.checkpoints is not None:  # a writer may have been killed
            self.ranks.run_on_first(self.checkpoints.sweep)
        begun = self.checkpoints is not None and bool(self.checkpoints.steps())
        if self.settings.head_epochs and not begun:
            self._train_head()
        self.train()
        self.finish()

    def finish(self) -> None:
        """Give the model the weights of the best epoch so far."""
        named = {f"model.{name}": weights for name, weights in self.bert.model.named_parameters()}
        self.best.restore(named)
        self.history.best = self.best_epoch

    def _train_head(self) -> None:
        """Train the head alone on the frozen encoder's states: a start that spoils no weights."""
        encoder = self.bert.model.encoder
        trained = [p for p in encoder.parameters() if p.requires_grad]
        freeze(self.bert.model, "encoder")
        settings = self.settings.changed(
            freeze="encoder",
            trained="all",  # of the head; `freeze` is not for LoRA and biases
            learning_rate=HEAD_RATE,
            epochs=self.settings.head_epochs,
            optimizer="adamw",
            matrix_learning_rate=0.0,
            checkpointing=False,
        )
        try:
            HeadTuning(self.bert, self.training, self.samples, settings, ranks=self.ranks).train()
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)

    def train(self) -> None:
        """Run the loop over all epochs, and leave the model as it was but for its weights."""
        bert, model, settings = self.bert, self.bert.model, self.settings
        cache = CachedEncoder(model) if settings.freeze == "encoder" else None
        signals = allow_signals(blocks_of(model)) if bert.device.type == "cpu" else []
        # Where only the head is trained, there is little to divide.
        divided = settings.parallel == "fsdp" and settings.freeze != "encoder"
        self.sharded = divided and self.ranks.count > 1
        trainer = self._trainer()
        try:
            if self.checkpoints is not None and self.checkpoints.steps():
                trainer.resume()
            model.train()
            if cache is not None:  # in an order that a resumed run repeats
                cache.fill(batch_of(one) for one in micro_batches(self.samples, self.budget))
            finished = trainer.run()
        finally:
            for hook in signals:
                hook.remove()
            trainer.step.tables.close()
            restore_forward(model)
            bert.model.use_kernel(None)
            bert.model.eval()
        if self.sharded:
            self._unshard(trainer.named)
            bert.model.eval()
        if not finished or any(self.ranks.sum([trainer.stopped.number])):  # also at the very end
            raise KeyboardInterrupt

    def step(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Pass what the loop reports of a step or an epoch to the callback of the run."""
        history = self.history
        if self.ranks.first and timing:
            self.watch.step(history.steps, self.total, history.losses[-1])
        elif self.ranks.first:
            self.watch.epoch({"seed": self.settings.seed, **history.epochs[-1]})

    def say(self, message: str) -> None:
        """Do nothing: the ledger has the message, too."""

    def _trainer(self) -> Trainer:
        bert, training, ranks, settings = self.bert, self.training, self.ranks, self.settings
        on_cpu, half = bert.device.type == "cpu", self.precision != "float32"
        # oneDNN prepares again for each new number of rows in half precision.
        cached = settings.budget if training.together else 0
        learner = TaskLoss(bert.model, training, STEP if half and on_cpu else 1, cached)
        tables = large_tables(bert.model) if ranks.count == 1 else []
        graphs = can_replay(settings, ranks) and not cached
        padded = PaddedInputs(bert, training, half) if graphs else None
        epochs = Epochs(
            training, self.samples, settings, self.budget, name=self.name, captured=padded
        )
        train = self._train_part(settings, self.total)
        self.plain = deepcopy(bert.model, emptied(bert.model)) if self.sharded else bert.model
        module = ranks.wrap(
            learner,
            "fsdp" if self.sharded else "ddp",
            Precision.of(self.precision, bert.device),
            checkpointing=settings.checkpointing,
            tables=tables,
        )
        self.history.planned = self.total
        other = () if ranks.first else (ranks.rank,)  # ranks have draws of their own
        trainer = Trainer(
            learner,
            module,
            optimizer_for(learner, train, half=True),
            train=train,
            ranks=ranks,
            request=lambda step: epochs,
            record=self.history,
            watch=self,
            place=str(training.dataset.path),
            checkpoints=self.checkpoints,
            keeping=Keeping(every=self.each, at_start=False, spare=SPARE),
            scoring=self._scoring(),
            replay=REPLAY if graphs else None,
            workers=0,  # they would compete for the lock of Python: batches are quickly made
            ledger=bert.ledger,
            draw=lambda step: int(bits(settings.seed, "step", step, *other) >> 1),
            tables=tables if on_cpu else (),  # a GPU fills a table of zeros in no time
            loggers=self.loggers,
        )
        self.best = trainer.best
        return trainer

    def _train_part(self, settings: RunSettings, total: int) -> TrainPart:
        return TrainPart(
            **settings.model_dump(include=SHARED),
            steps=total,
            matrix_learning_rate=settings.matrix_learning_rate or matrix_rate_for(total),
            epsilon=1e-8,
            decay=0.1,
            precision=self.precision,
        )

    def _scoring(self) -> Scoring | None:
        """After every epoch its mean loss; after some of them also the scores on dev data."""
        settings = self.settings

        def score(stopped: Callable[[], bool]) -> dict[str, Any] | None:
            if stopped() and self.ranks.count == 1:
                return None
            losses = [loss for loss in self.history.losses[-self.each :] if math.isfinite(loss)]
            epoch = self.epoch
            row: dict[str, Any] = {"epoch": epoch, "loss": sum(losses) / max(1, len(losses))}
            self.history.examples = epoch * len(self.samples)
            if self.look is None or not is_evaluated(epoch, settings, row["loss"]):
                return row
            model = self.bert.model.eval()
            model.use_kernel(None)
            try:
                return row | self.look()
            finally:
                model.train()

        def value(row: Mapping[str, Any]) -> float | None:
            if not is_evaluated(row["epoch"], settings, row["loss"]):
                return None
            score = row.get(settings.metric)
            return math.inf if self.look is None else math.nan if score is None else score

        def ended(best: Best, row: Mapping[str, Any]) -> bool:
            rows = [*self.history.epochs, row]
            return self.look is not None and has_ended(best, settings, self.training, rows)

        return Scoring(
            score,
            every=self.each,
            value=value,
            take="last" if settings.keep == "last" or self.look is None else "best",
            ended=ended,
            shown=self._shown,
        )

    @contextmanager
    def _shown(self) -> Iterator[Mapping[str, nn.Parameter]]:
        """The model as it will be used: whole, where it is sharded."""
        own = self.bert.model
        if self.sharded:
            self._unshard(dict(own.named_parameters()), "")
        try:
            with self.training.as_used(self.bert.model):
                named = self.bert.model.named_parameters()
                yield {f"model.{name}": weights for name, weights in named}
        finally:
            self.bert.checkpoint = replace(self.bert.checkpoint, model=own)

    def _unshard(self, named: Mapping[str, nn.Parameter], prefix: str = "model.") -> None:
        whole = deepcopy(self.plain)
        values = {}
        for name, empty in whole.named_parameters():
            shard: Any = named[prefix + name]
            full = shard.full_tensor() if hasattr(shard, "full_tensor") else shard
            values[empty] = nn.Parameter(full.detach().clone(), empty.requires_grad)
        substitute(whole, values)
        self.bert.checkpoint = replace(self.bert.checkpoint, model=whole)


class HeadTuning(Tuning):
    """The epochs before all others, in which the head learns alone: nothing is scored or kept."""

    name = "head epoch"

    def _scoring(self) -> None:
        return None


def can_replay(settings: RunSettings, ranks: Ranks) -> bool:
    """Whether a GPU can replay the steps: not if states are recomputed or cached, or in float16."""
    plain = not settings.checkpointing and settings.freeze != "encoder" and not settings.ema
    plain = plain and supported(settings.dtype, ranks.device) != "float16"
    return ranks.device.type == "cuda" and ranks.count == 1 and settings.graphs and plain


def has_ended(
    best: Best, settings: RunSettings, training: Training, rows: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether training ends early after the epochs of `rows`.

    By `patience`. Without it, if dev scores have not risen since the training file was learned, or
    for a third of many epochs; never where the last epoch is kept, as in benchmarks.
    """
    if settings.patience or settings.keep == "last":
        return 0 < settings.patience <= best.waited
    if best.waited < UNCHANGED or not training.learned:
        return False
    if rows[-1]["loss"] < training.learned:
        return True
    many = settings.epochs > EVALUATIONS
    third = best.waited * interval(settings) >= settings.epochs / 3
    return many and third and not may_begin(rows, settings)


def may_begin(rows: Sequence[Mapping[str, Any]], settings: RunSettings) -> bool:
    """Whether the dev score may yet rise for the first time.

    A model that predicts the same everywhere has one score in all epochs (an F1 of 0) or none (a
    correlation). With one score it goes on as long as its loss falls, from third to third.
    """
    values = (row.get(settings.metric) for row in rows)
    scores = {score for score in values if score is not None and not math.isnan(score)}
    losses = [row["loss"] for row in rows]
    before = losses[: -math.ceil(settings.epochs / 3)]
    falls = not before or losses[-1] < FALLING * min(before)
    return not scores or (len(scores) == 1 and falls)


def interval(settings: RunSettings) -> int:
    """The epochs between scores on dev data. Of many epochs, some ten are scored."""
    return 1 if settings.patience else -(-settings.epochs // EVALUATIONS)


def is_evaluated(epoch: int, settings: RunSettings, loss: float = math.inf) -> bool:
    """Is the dev data scored after this epoch? After each, once the training file is learned."""
    regular = epoch in (1, settings.epochs) or epoch % interval(settings) == 0
    return regular or (loss < LEARNED and settings.keep == "best")
