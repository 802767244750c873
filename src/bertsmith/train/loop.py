"""The one training loop: of pre-training, fine-tuning and distillation.

A `Trainer` gets a source of batches, a module with a loss, and what to evaluate and save when. It
runs steps on any number of ranks; logs, evaluates and saves; rolls back when training diverges; and
resumes an interrupted run with the same results.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, asdict, astuple, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.examples import Loader
from bertsmith.examples.draw import bits
from bertsmith.examples.loader import BatchRequest, LoadedStep, quick_switches
from bertsmith.files import finite
from bertsmith.ledger import Ledger
from bertsmith.train.captured import CapturedStep, Inputs
from bertsmith.train.distributed import Ranks
from bertsmith.train.guard import FAULTS, PATIENCE, ROLLBACKS, Guard, LossScale
from bertsmith.train.loggers import Loggers
from bertsmith.train.optimizer import CompositeOptimizer, rate_at
from bertsmith.train.precision import supported
from bertsmith.train.recipe import TrainPart
from bertsmith.train.state import BackgroundWriter, Checkpoints, RunProgress, Saved, TensorState
from bertsmith.train.step import MicroBatch, StepResult, TrainingStep, seed_step
from bertsmith.train.stopping import Stop, StopSignal
from bertsmith.train.weights import Averages, Best, Take

QUICK = 0.05  # seconds: a checkpoint that is written faster is always written when it is due
Scores = dict[str, Any]
Counts = Mapping[str, float]  # predictions of each loss term


class Learner(Protocol):
    """The interface of a module that the loop can train: it is called with a batch and counts."""

    objectives: Any

    def counts(self, example: Any) -> Counter[str]:
        """How many predictions each loss term makes on a batch."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters."""


class Record(Protocol):
    """The interface of the log of a run: files of a folder, or memory."""

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Log a step or an evaluation."""

    def kept(self) -> dict[str, Any]:
        """The state of the log, for a checkpoint."""

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""

    def cut(self, progress: RunProgress) -> tuple[dict[str, int], list[str]]:
        """Remove what is newer than a checkpoint; returns notes for the ledger, and messages."""

    def keep_ledger(self, ledger: Ledger) -> None:
        """Store the ledger."""


class Watcher(Protocol):
    """The interface of a progress view."""

    def step(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """A step or an evaluation is done."""

    def say(self, message: str) -> None:
        """Show a message."""


@dataclass(frozen=True)
class Scoring:
    """How and when the model is evaluated, which weights are kept, and when training ends early."""

    # Gets a function that says whether a signal asks to stop; it may then return None.
    score: Callable[[Callable[[], bool]], Scores | None]
    every: int = 0  # steps between evaluations; the last step is always evaluated
    first: bool = False  # also before the first step
    # The score that is highest at the best evaluation; None: this evaluation does not count.
    value: Callable[[Scores], float | None] = lambda scores: None
    take: Take = "none"  # the evaluation whose weights are kept
    ended: Callable[[Best, Scores], bool] = lambda best, scores: False
    # Context manager: the model as it will be used, and its parameters, which are kept.
    shown: Callable[[], AbstractContextManager[Mapping[str, nn.Parameter] | None]] = nullcontext


class Keeping(NamedTuple):
    """When checkpoints are written."""

    every: int = 0  # steps
    minutes: float = 0.0  # since the last one
    at_start: bool = True
    spare: float = 0.0  # least time since the last one, in multiples of the time it took to write


class Replay(NamedTuple):
    """How steps are captured as CUDA graphs and replayed."""

    inputs: Callable[[Any, Counts], Inputs]  # (batch, counts) → tensors
    read: int = 8  # steps between two reads of results
    advice: str = ""  # what to do if a step cannot be captured


class StepNote(NamedTuple):
    """What is logged of a step that does not depend on its result."""

    counts: Counts
    row: dict[str, Any]
    timing: dict[str, Any]
    useful: float

    def with_result(self, result: StepResult) -> dict[str, Any]:
        """The values of the step, for the log."""
        row: dict[str, Any] = {"step": self.timing["step"]}
        for name, (first, second) in result.sums.items():
            if name in self.counts:  # a loss and its correct predictions
                row[name] = first / max(self.counts[name], 1)
                row[f"{name}_accuracy"] = second / max(self.counts[name], 1)
            else:  # a ratio: the denominator and the numerator
                row[name] = second / max(first, 1)
        row |= {"loss": result.loss, "gradient_norm": result.gradient_norm, **self.row}
        row |= {"skipped": result.skipped} if result.skipped else {}
        return row | ({"loss_scale": result.scale} if result.scale else {})


@dataclass(eq=False)
class Trainer:
    """Everything a run needs, and the loop over its steps."""

    learner: Learner
    module: nn.Module  # the learner as it computes: wrapped for precision and ranks
    optimizer: CompositeOptimizer
    _: KW_ONLY
    train: TrainPart
    ranks: Ranks
    request: Callable[[int], BatchRequest]
    record: Record
    watch: Watcher
    place: str  # in messages
    checkpoints: Checkpoints | None = None
    film: Checkpoints | None = None  # weights alone, at steps 0, 1, 2, 4, 8, ... and at the end
    keeping: Keeping = field(default_factory=Keeping)
    scoring: Scoring | None = None
    replay: Replay | None = None
    workers: int = 2
    ledger: Ledger = field(default_factory=Ledger)
    draw: Callable[[int], int] | None = None  # the seed of a step's random numbers
    tables: Sequence[nn.Embedding] = ()
    rate: str = "the learning rate"  # in messages
    loggers: Loggers | None = None

    def __post_init__(self) -> None:
        learner, optimizer, train, ranks = self.learner, self.optimizer, self.train, self.ranks
        self.progress, self.logs = RunProgress(), self.loggers or Loggers()
        self.named = dict(learner.named_parameters())
        self.averages = Averages(self.named, train.ema)
        self.best = Best(self.scoring.take if self.scoring else "none")
        self.state = TensorState(self.named, optimizer, self.averages, self.best)
        self.writer = BackgroundWriter(self.checkpoints or Checkpoints(Path()), self.state, ranks)
        self.guard = Guard(train.spike or math.inf)
        half = supported(train.precision, ranks.device) == "float16"
        self.scale = LossScale() if half else None
        self.step = TrainingStep(
            self.module,
            optimizer,
            ranks,
            clip=train.clip,
            guard=self.guard,
            scale=self.scale,
            objectives=learner.objectives,
            tables=self.tables,
            compiled=train.compile,
        )
        self.captured: CapturedStep | None = None
        if self.replay is not None:
            self.captured = CapturedStep(
                self.module,
                optimizer,
                ranks.device,
                clip=train.clip,
                spike=self.guard.spike,
                read=self.replay.read,
                advice=self.replay.advice,
            )
        self.pending: deque[StepNote] = deque()  # of replayed steps whose results are not known
        self.evaluating = False
        self.stopped = StopSignal(
            ranks, self.step.sharded, lambda: self.step.computing, lambda: self.evaluating
        )
        self.rollbacks: Counter[int] = Counter()
        self.saved_at = self.clock = self.took = 0.0
        self.saved_step, self.save_now = 0, False

    def run(self) -> bool:
        """Train to the end of the budget; False if a signal stopped it before."""
        if self.progress.closed and self.over():
            return True
        with self.writer:
            return self._run()

    def _run(self) -> bool:
        self.ranks.run_on_first(lambda: self.logs.start(self.progress.step))
        self.saved_at = self.clock = time.monotonic()
        if self.checkpoints is not None and self.keeping.at_start:
            # The first rank decides: other ranks could already see its new checkpoint.
            if self.ranks.broadcast(not self.checkpoints.steps()):
                self.save()
        with self.stopped.listening(), quick_switches():
            try:
                while self._between_steps() and not self.over():
                    if not self._steps():
                        break
            except Stop:  # inside a step, which is lost; other ranks may be at any point
                self.ranks.abandoned = True
                if self.ranks.first and self.checkpoints is not None:
                    self.writer.save_alone(self.progress.step, self._numbers())
                return False
        self.progress.closed = self.over() and not self._evaluation_due()
        self.logs.finished = self.progress.closed
        if not self.progress.closed or self._may_save():
            self.save()
        self.writer.settle()
        return self.progress.closed

    def over(self) -> bool:
        """Whether the budget is spent, or evaluations say that the run should end."""
        return self.progress.ended or self.done() >= 1

    def done(self) -> float:
        """The share of the budget that is spent."""
        if self.train.steps:
            return self.progress.step / self.train.steps
        return self.progress.elapsed / (60 * self.train.minutes)

    def _steps(self) -> bool:
        """Run steps until the end or a rollback; False to stop now."""
        steps, progress, ranks = self.train.steps, self.progress, self.ranks
        loader = Loader(
            lambda step: None if steps and step >= steps else self.request(step),
            step=progress.step,
            position=progress.position,
            rank=ranks.rank,
            ranks=ranks.count,
            workers=self.workers,
            pin=ranks.device.type == "cuda" and self.captured is None,
        )
        try:
            self.clock = time.monotonic()
            loaded = loader.next()
            own = self._counts(loaded)
            counts = dict(zip(own, ranks.sum(list(own.values())), strict=True))
            while loaded is not None:
                following, counts, stop = self._step(loader, loaded, counts)
                if self.guard.skipped >= PATIENCE:
                    self._roll_back()
                    return True
                if self.over():
                    return True
                if stop or not self._between_steps():
                    return False
                loaded = None if self.progress.ended else following
            return True
        finally:
            loader.close()

    def _counts(self, loaded: LoadedStep | None) -> Counter[str]:
        """How many predictions each loss term makes in this rank's micro-batches."""
        own: Counter[str] = Counter()
        if loaded is not None:
            for example, active in zip(loaded.examples, loaded.active, strict=True):
                counts = self.learner.counts(example)
                own.update({name: count if active else 0 for name, count in counts.items()})
        return own

    def _step(
        self, loader: Loader, loaded: LoadedStep, counts: dict[str, float]
    ) -> tuple[LoadedStep | None, dict[str, float], bool]:
        """Run a step; returns the next one with its counts, and whether any rank should stop."""
        progress, ranks = self.progress, self.ranks
        fraction, seed = self._fraction(), self._seed(progress.step)
        following: LoadedStep | None = None

        def extras() -> list[float]:
            # The step's single collective carries everything that ranks must agree on: this step's
            # tokens, the stop flag, the first rank's clock, and the next step's counts.
            nonlocal following
            following = loader.next()
            own = self._counts(following)
            now = time.monotonic()
            late = 60 * self.keeping.minutes < now - self.saved_at if self.keeping.minutes else 0
            late = (late and ranks.first) or self.writer.fault is not None
            elapsed, self.clock = progress.elapsed + now - self.clock, now
            numbers = [loaded.tokens, self.stopped.number, elapsed if ranks.first else 0.0, late]
            return [float(number) for number in (*numbers, *(own[name] for name in counts))]

        if self.captured is not None and self.replay is not None and loaded.examples:
            passes = [self.replay.inputs(example, counts) for example in loaded.examples]
            results = self.captured(passes, fraction, seed)
            tokens, stop, elapsed, late, *next_counts = extras()
            self.pending.append(self._advance(loaded, counts, fraction, tokens, elapsed))
            self._log_late(results)
        else:
            self._log_late()
            if loaded.examples:
                self.optimizer.set_rate(fraction)
                seed_step(seed, ranks.device)
                pairs = zip(loaded.examples, loaded.active, strict=True)
                batches = [MicroBatch((e.to(ranks.device), counts), active) for e, active in pairs]
                result = self.step(batches, extras)
            else:  # a step of no weight
                result = StepResult(0.0, 0.0, {}, "", ranks.sum(extras()))
            tokens, stop, elapsed, late, *next_counts = result.extras
            self._log(self._advance(loaded, counts, fraction, tokens, elapsed), result)
            if loaded.examples and not result.skipped:
                self.averages.update()
        self.save_now = bool(late)
        return following, dict(zip(counts, next_counts, strict=True)), bool(stop)

    def _advance(
        self, loaded: LoadedStep, counts: Counts, fraction: float, tokens: float, elapsed: float
    ) -> StepNote:
        """Move on to the next step; returns what to log of this one."""
        progress, plan, seconds = self.progress, loaded.plan, elapsed - self.progress.elapsed
        progress.step, progress.position = progress.step + 1, plan.end
        progress.tokens, progress.elapsed = progress.tokens + int(tokens), elapsed
        progress.useful += plan.useful
        if plan.corpora:
            pairs = zip_longest(progress.corpora, plan.corpora, fillvalue=0)
            progress.corpora = [before + new for before, new in pairs]
        rate = self.train.learning_rate * fraction
        row = {"learning_rate": rate, "samples": plan.end, "tokens": progress.tokens}
        timing = {"step": progress.step, "seconds": round(seconds, 4), "tokens": int(tokens)}
        return StepNote(counts, row, timing | {"elapsed": round(elapsed, 3)}, plan.useful)

    def _log(self, note: StepNote, result: StepResult) -> None:
        row, timing = note.with_result(result), note.timing
        if result.skipped:
            self.ledger.note(f"steps skipped because {result.skipped}")
        self.progress.scores |= {key: row[key] for key in (*result.sums, "loss")}
        self.record.log(row, timing)
        self.logs.log(row, timing)
        self.watch.step(row, timing | {"useful": note.useful, "ranks": self.ranks.count})

    def _log_late(self, results: list[StepResult] | None = None) -> None:
        """Log replayed steps whose results are known now; without any, wait for all."""
        if self.captured is not None:
            for result in self.captured.finish() if results is None else results:
                self.guard.take(result.gradient_norm, result.skipped)
                self._log(self.pending.popleft(), result)

    def _seed(self, step: int) -> int:
        if self.draw is not None:
            return self.draw(step)
        return int(bits(self.train.seed, "step", step, self.ranks.rank) >> 1)

    def _fraction(self) -> float:
        """The learning rate of this step, as a fraction of its peak."""
        train, step, done = self.train, self.progress.step, self.done()
        # The steps of the whole run; by the clock they follow from those done.
        total = train.steps or max(step, 1) / max(done, 1e-9)
        warmup = train.warmup if train.warmup >= 1 else train.warmup * train.steps
        if step < warmup:  # the same rates in runs of other lengths
            return step / warmup
        warmup = train.warmup / total if train.warmup >= 1 else train.warmup
        decay = train.decay / total if train.decay > 1 else train.decay
        return rate_at(train.schedule, done, warmup, decay)

    def _between_steps(self) -> bool:
        """Evaluate and save when due, but never between bad steps; False to stop."""
        step, every = self.progress.step, self.keeping.every
        save = step > self.saved_step and (self.save_now or bool(every and step % every == 0))
        if save or self._evaluation_due():
            self._log_late()  # results are still pending: these may be bad steps
            if self.captured is not None and step:
                now = time.monotonic()
                self.progress.elapsed, self.clock = self.progress.elapsed + now - self.clock, now
        began, row = time.monotonic(), None
        if self._evaluation_due():
            row = self._evaluate()
            if row is None:
                return False
        if save and not self.guard.skipped and self._may_save():
            self.save()
        if self.film is not None and (step & (step - 1) == 0 or self.over()):
            self._add_to_film(self.film)
        if row is not None:
            self.watch.step(row, {})
        self.clock += time.monotonic() - began  # the time budget excludes evaluation
        return True

    def _evaluation_due(self) -> bool:
        """Return whether an evaluation is due at this step."""
        step, scoring = self.progress.step, self.scoring
        if scoring is None or self.progress.evaluated >= step:
            return False
        if step == 0:
            return scoring.first
        every, evaluated = scoring.every, max(self.progress.evaluated, 0)
        passed = bool(every) and step // every * every > evaluated
        return self.over() or (passed and not self.guard.skipped)

    def _evaluate(self) -> Scores | None:
        """Score the model; None if a signal interrupted it (it is then still due)."""
        assert self.scoring is not None
        step = self.progress.step
        with self.averages.swapped_in(self.module), self.scoring.shown() as shown:
            scores = self._scores(self.scoring)
            if scores is None:
                return None
            if (value := self.scoring.value(scores)) is not None:
                self.best.consider(value, step, shown or self.named)
        self.progress.evaluated = step
        self.progress.ended = self.scoring.ended(self.best, scores)
        row = {"step": step, **scores}
        timing = {"step": step, "evaluated": True, "elapsed": round(self.progress.elapsed, 3)}
        self.record.log(row, timing)
        self.logs.log(row, timing)
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        if step == 0:
            self.progress.scores |= {f"{key}_at_start": value for key, value in numbers.items()}
        self.progress.scores |= numbers
        return row

    def _scores(self, scoring: Scoring) -> Scores | None:
        """The scores. A signal may interrupt them, but not the exchange of weights around them."""
        try:
            self.evaluating = True
            return scoring.score(lambda: bool(self.stopped))
        except Stop:
            return None
        finally:
            self.evaluating = False

    def _may_save(self) -> bool:
        """Return whether enough time has passed since the last checkpoint, on the first rank."""
        waited = time.monotonic() - self.saved_at
        took = max(self.took, self.writer.took)
        late = took <= QUICK or waited >= self.keeping.spare * took or bool(self.stopped)
        return bool(self.ranks.broadcast(late)) if self.keeping.spare else True

    def save(self) -> None:
        """Begin to write a checkpoint, replacing an existing one of the same step."""
        self._log_late()
        if self.checkpoints is None:
            return
        began = time.monotonic()
        self.writer.start(self.progress.step, self._numbers())
        self.saved_at, self.saved_step = time.monotonic(), self.progress.step
        self.took = self.saved_at - began

    def _add_to_film(self, film: Checkpoints) -> None:
        """Keep the weights as they are now, in half precision."""
        self._log_late()
        with self.averages.swapped_in(self.module):
            tensors = self.ranks.gather({n: p.detach().half() for n, p in self.named.items()})
        progress = self.progress
        numbers = {"step": progress.step, "tokens": progress.tokens}
        self.ranks.run_on_first(lambda: film.save(progress.step, {"model": tensors}, numbers))

    def _numbers(self) -> dict[str, Any]:
        """All of a checkpoint but its tensors, as JSON; the ledger is stored beside it, too."""
        progress = self.progress
        progress.counts, progress.averaged = dict(self.ledger.counts), self.averages.updates
        progress.recent, progress.skipped = self.guard.recent, self.guard.skipped
        progress.loss_scale = list(astuple(self.scale)) if self.scale else []
        progress.record, progress.best = self.record.kept(), self.best.numbers()
        self.record.keep_ledger(self.ledger)
        return finite(asdict(progress))

    def resume(self) -> bool:
        """Load the newest intact checkpoint; False if there is none yet."""
        saved = self._newest()
        if saved is None:
            self.watch.say(f"{self.place}: no checkpoint yet, so it starts at step 0")
        else:
            self.load(saved)
        self.ranks.barrier()  # nothing is removed while other ranks read
        self.ranks.run_on_first(self._tidy)
        return saved is not None

    def _tidy(self) -> None:
        """Remove logs and checkpoints that are newer than the loaded checkpoint."""
        for kept in filter(None, (self.checkpoints, self.film)):
            kept.sweep()
            kept.forget_after(self.progress.step)
        notes, messages = self.record.cut(self.progress)
        for line, count in notes.items():
            self.ledger.note(line, count)
        for line in messages:
            self.watch.say(line)

    def _newest(self) -> Saved | None:
        """Return the newest intact checkpoint, chosen by the first rank for all."""
        if (checkpoints := self.checkpoints) is None:
            return None

        def find() -> tuple[int | None, list[str]]:
            saved, faults = checkpoints.newest()
            if saved is None and faults:
                why = f"no intact checkpoint to continue from ({faults[0]})"
                raise BertsmithError(f"{self.place}: {why}")
            return saved and saved.numbers["step"], faults

        step, faults = self.ranks.run_on_first(find)
        for line in faults:
            self.watch.say(f"{line}; going back to step {step}")
        return None if step is None else checkpoints.read(step)

    def load(self, saved: Saved) -> None:
        """Restore the state of the run from a checkpoint."""
        try:
            self.progress = RunProgress.of(saved.numbers)
            self.state.load(saved)
            self.record.restore(self.progress.record)
        except (LookupError, RuntimeError, TypeError) as error:
            why = f"its checkpoint does not fit this run ({error})"
            raise BertsmithError(f"{self.place}: {why}") from error
        self.ledger.counts |= Counter(self.progress.counts)  # the larger of both
        self.guard.recent, self.guard.skipped = list(self.progress.recent), self.progress.skipped
        if self.scale is not None and self.progress.loss_scale:
            self.scale.value, good = self.progress.loss_scale
            self.scale.good = int(good)
        self.saved_step = self.progress.step
        if self.captured is not None:  # its graphs read tensors that were replaced
            self.captured.reset()
            self.captured.guard.load(self.guard.recent)

    def _roll_back(self) -> None:
        """Roll back to the last checkpoint, and skip the samples that caused the fault."""
        self._log_late()
        before, counts = self.progress, Counter(self.ledger.counts)
        self.writer.settle()
        saved = self._newest()
        if saved is None:
            why = self.guard.fault
            why = "the loss was NaN or infinite" if why in FAULTS[1:3] else why
            raise BertsmithError(f"{self.place}: {why} {PATIENCE} times: lower the learning rate")
        step = saved.numbers["step"]
        self.rollbacks[step] += 1
        if self.rollbacks[step] > ROLLBACKS:
            when = f"after step {step}, also after {ROLLBACKS} rollbacks"
            raise BertsmithError(f"training diverges {when}: lower {self.rate}")
        self.load(saved)
        self.ledger.counts = counts
        self.ledger.note("rollbacks after three bad steps in a row")
        passed = before.position - self.progress.position
        # The samples are not read again, and the time is spent.
        self.progress.position, self.progress.elapsed = before.position, before.elapsed
        self.record.cut(self.progress)
        self.watch.say(f"rolled back to step {step}; {passed:,} samples are skipped")
