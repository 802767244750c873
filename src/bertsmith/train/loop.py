"""The training loop: steps, logs, evaluations, checkpoints, interruption."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example, Loader
from bertsmith.examples.draw import bits
from bertsmith.examples.loader import LoadedStep, StepRequest, quick_switches
from bertsmith.files import finite
from bertsmith.ledger import Ledger
from bertsmith.train.averages import Averages
from bertsmith.train.captured import StepRow
from bertsmith.train.distributed import Ranks
from bertsmith.train.folder import RunFolder
from bertsmith.train.guard import PATIENCE, ROLLBACKS, Guard
from bertsmith.train.optimizer import CompositeOptimizer
from bertsmith.train.recipe import CheckpointPart, TrainPart
from bertsmith.train.replayed import ReplayedSteps
from bertsmith.train.schedule import Shape, rate_at
from bertsmith.train.state import Checkpoints, Progress, Saved, TensorState
from bertsmith.train.step import MicroBatch, StepNote, StepResult, Stop, TrainingStep

GRACE = 10  # seconds that several ranks have to end a step together after a signal
Scores = dict[str, Any]


class Learner(Protocol):
    """The interface of a module that the loop can train."""

    objectives: Any

    def counts(self, example: Example) -> Counter[str]:
        """How many predictions each loss term makes on an example."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters."""


class Watcher(Protocol):
    """The interface of a progress view."""

    def step(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """A step or an evaluation is done."""

    def say(self, message: str) -> None:
        """Show a message."""


class Trainer:
    """Everything a run needs, and the loop over its steps."""

    def __init__(
        self,
        learner: Learner,
        module: nn.Module,
        optimizer: CompositeOptimizer,
        *,
        train: TrainPart,
        keeping: CheckpointPart,
        ranks: Ranks,
        folder: RunFolder,
        request: Callable[[int], StepRequest],
        watch: Watcher,
        workers: int = 2,
        evaluate: Callable[[Callable[[], bool]], Scores | None] | None = None,
        evaluate_every: int = 0,
        evaluate_first: bool = False,
        replay: bool = False,
    ) -> None:
        self.learner, self.module, self.optimizer = learner, module, optimizer
        self.train, self.keeping, self.ranks, self.folder = train, keeping, ranks, folder
        self.request, self.watch, self.workers = request, watch, workers
        self.evaluate, self.evaluate_every = evaluate, evaluate_every
        self.evaluate_first = evaluate_first
        self.checkpoints = Checkpoints(folder.path / "checkpoints", keeping.keep)
        self.progress, self.ledger = Progress(), Ledger()
        named = dict(learner.named_parameters())
        self.averages = Averages(named, train.ema)
        self.state = TensorState(named, optimizer, self.averages)
        self.guard = Guard(train.spike)
        self.step = TrainingStep(
            module,
            optimizer,
            ranks,
            clip=train.clip,
            guard=self.guard,
            objectives=learner.objectives,
            compiled=train.compile,
        )
        self.replayed = ReplayedSteps(module, optimizer, train, ranks.device) if replay else None
        self.evaluating = False
        self.stopped = 0  # the signal that requested a stop
        self.rollbacks: Counter[int] = Counter()
        self.saved_at = self.clock = 0.0
        self.saved_step, self.save_now = 0, False

    # ------------------------------------------------------------------ the loop

    def run(self) -> bool:
        """Train to the end of the budget; False if a signal stopped it before."""
        if self.progress.closed and self._over():
            return True
        self.saved_at = time.monotonic()
        # The first rank decides: other ranks could already see its new checkpoint.
        if self.ranks.broadcast(not self.checkpoints.steps()):
            self.save()
        with self._signals(), quick_switches():
            try:
                while self._between_steps() and not self._over():
                    if not self._steps():
                        break
            except Stop:  # inside a step, which is lost; other ranks may be at any point
                self.ranks.abandoned = True
                self._save_alone()
                return False
        self.progress.closed = self._over() and not self._evaluation_due()
        self.save()
        return self.progress.closed

    def _over(self) -> bool:
        train, progress = self.train, self.progress
        if train.steps:
            return progress.step >= train.steps
        return progress.elapsed >= 60 * train.minutes

    def done(self) -> float:
        """The share of the budget that is spent."""
        if self.train.steps:
            return self.progress.step / self.train.steps
        return self.progress.elapsed / (60 * self.train.minutes)

    def _steps(self) -> bool:
        """Run steps until the end or a rollback; False to stop now."""
        train, progress = self.train, self.progress
        loader = Loader(
            lambda step: None if train.steps and step >= train.steps else self.request(step),
            step=progress.step,
            position=progress.position,
            rank=self.ranks.rank,
            ranks=self.ranks.count,
            workers=self.workers,
            pin=self.ranks.device.type == "cuda" and self.replayed is None,
        )
        try:
            self.clock = time.monotonic()
            loaded = loader.next()
            own = self._counts(loaded)
            counts = dict(zip(own, self.ranks.sum(list(own.values())), strict=True))
            while loaded is not None:
                following, counts, stop = self._step(loader, loaded, counts)
                if self.guard.skipped >= PATIENCE:
                    self._roll_back()
                    return True
                if self._over():
                    return True
                if stop or not self._between_steps():
                    return False
                loaded = following
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
        progress, train, ranks = self.progress, self.train, self.ranks
        fraction = rate_at(train.schedule, self.done(), self._shape())
        seed = int(bits(train.seed, "step", progress.step, ranks.rank) >> 1)
        following: LoadedStep | None = None

        def extras() -> list[float]:
            # The step's single collective carries everything that ranks must agree on: this step's
            # tokens, the stop flag, the first rank's clock, and the next step's counts.
            nonlocal following
            following = loader.next()
            own = self._counts(following)
            now = time.monotonic()
            late = 60 * self.keeping.minutes < now - self.saved_at if self.keeping.minutes else 0
            clock = [progress.elapsed + now - self.clock, float(late)]
            self.clock = now
            return [
                float(loaded.tokens),
                float(self.stopped),
                *(clock if ranks.first else [0.0, 0.0]),
                *(float(own[name]) for name in counts),
            ]

        if self.replayed is not None:
            rows = self.replayed(loaded, counts, fraction, seed)
            tokens, stop, elapsed, late, *next_counts = extras()
            self.replayed.notes.append(self._advance(loaded, counts, fraction, tokens, elapsed))
            self._log_late(rows)
        else:
            self.optimizer.set_rate(fraction)
            torch.manual_seed(seed)
            pairs = zip(loaded.examples, loaded.active, strict=True)
            result = self.step(
                [MicroBatch((e.to(ranks.device), counts), active) for e, active in pairs], extras
            )
            tokens, stop, elapsed, late, *next_counts = result.extras
            self._log(self._advance(loaded, counts, fraction, tokens, elapsed), result)
            if not result.skipped:
                self.averages.update()
        self.save_now = bool(late)
        return following, dict(zip(counts, next_counts, strict=True)), bool(stop)

    def _advance(
        self,
        loaded: LoadedStep,
        counts: Mapping[str, float],
        fraction: float,
        tokens: float,
        elapsed: float,
    ) -> StepNote:
        """Move on to the next step; returns what to log of this one."""
        progress, plan, seconds = self.progress, loaded.plan, elapsed - self.progress.elapsed
        progress.step, progress.position = progress.step + 1, plan.end
        progress.tokens, progress.elapsed = progress.tokens + int(tokens), elapsed
        progress.useful += plan.useful
        sizes = (progress.step, plan.end, int(tokens), progress.tokens)
        rate = self.train.learning_rate * fraction
        return StepNote(counts, rate, *sizes, elapsed, seconds, plan.useful)

    def _log(self, note: StepNote, result: StepResult) -> None:
        """Log a step."""
        row, timing = note.rows(result)
        if result.skipped:
            self.ledger.note(f"steps skipped because {result.skipped}")
        self.progress.scores |= {key: row[key] for key in (*result.sums, "loss")}
        self.folder.log(row, timing)
        self.watch.step(row, timing | {"useful": note.useful, "ranks": self.ranks.count})

    def _log_late(self, rows: list[StepRow] | None = None) -> None:
        """Log replayed steps whose results are known now; without any, wait for all."""
        if self.replayed is not None:
            rows = self.replayed.captured.finish() if rows is None else rows
            for note, result in self.replayed.known(rows):
                self.guard.take(result.gradient_norm, result.skipped)
                self._log(note, result)

    def _shape(self) -> Shape:
        warmup = self.train.warmup
        if warmup >= 1:  # steps; by the clock, their share of the run follows from those done:
            # above 1 if the first ones took long, so that the rate is still step / warmup
            total = self.train.steps or max(self.progress.step, 1) / max(self.done(), 1e-9)
            warmup /= total
        return Shape(warmup, self.train.decay)

    # ------------------------------------------------------------------ between steps

    def _between_steps(self) -> bool:
        """Evaluate and save when due, but never between bad steps; False to stop."""
        step, every, began = self.progress.step, self.keeping.every, time.monotonic()
        save = step > self.saved_step and (self.save_now or bool(every and step % every == 0))
        if save or self._evaluation_due():
            self._log_late()  # results are still pending: these may be bad steps
        if self._evaluation_due() and not self._evaluate():
            return False
        if save and not self.guard.skipped:
            self.save()
        self.clock += time.monotonic() - began  # the time budget excludes evaluation
        return True

    def _evaluation_due(self) -> bool:
        """Return whether an evaluation is due at this step."""
        step, every = self.progress.step, self.evaluate_every
        if self.evaluate is None or self.progress.evaluated >= step:
            return False
        if step == 0:
            return self.evaluate_first
        return self._over() or bool(every and step % every == 0 and not self.guard.skipped)

    def _evaluate(self) -> bool:
        """Evaluate on held-out text; False if a signal interrupted it (it is then still due)."""
        assert self.evaluate is not None
        try:
            self.evaluating = True
            with self.averages.swapped_in(self.module):
                scores = self.evaluate(lambda: bool(self.stopped))
        except Stop:
            scores = None
        finally:
            self.evaluating = False
        if scores is None:
            return False
        self.progress.evaluated = self.progress.step
        row = {"step": self.progress.step, **scores}
        self.folder.log(row, {"step": self.progress.step, "evaluated": True})
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        if self.progress.step == 0:
            self.progress.scores |= {f"{key}_at_start": value for key, value in numbers.items()}
        self.progress.scores |= numbers
        self.watch.step(row, {})
        return True

    # ------------------------------------------------------------------ saving and resuming

    def save(self) -> None:
        """Write a checkpoint, replacing an existing one of the same step."""
        self._log_late()
        tensors = self.state.gather(self.ranks)
        self.ranks.run_on_first(lambda: self._write(tensors))
        self.saved_at, self.saved_step = time.monotonic(), self.progress.step

    def _save_alone(self) -> None:
        """Write a checkpoint on the first rank only, since others may wait for a lost step."""
        if self.ranks.first:
            self._write(self.state.gather(self.ranks))

    def _write(self, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        progress = self.progress
        progress.counts, progress.averaged = dict(self.ledger.counts), self.averages.updates
        progress.recent, progress.skipped = self.guard.recent, self.guard.skipped
        progress.sums = self.folder.sums
        self.checkpoints.save(progress.step, tensors, finite(asdict(progress)))
        self.folder.keep_ledger(self.ledger)

    def resume(self) -> bool:
        """Load the newest intact checkpoint; False if there is none yet."""
        saved = self._newest()
        if saved is None:
            self.watch.say(f"{self.folder.path}: no checkpoint yet, so it starts at step 0")
        else:
            self.load(saved)
        self.ranks.barrier()  # nothing is removed while other ranks read
        self.ranks.run_on_first(self._tidy)
        return saved is not None

    def _tidy(self) -> None:
        """Remove logs and checkpoints that are newer than the loaded checkpoint."""
        self.checkpoints.sweep()
        self.checkpoints.forget_after(self.progress.step)
        damaged = self.folder.cut(self.progress.step, self.progress.evaluated)
        self.ledger.note("damaged lines of the logs that were dropped", damaged)
        for name, known in self.progress.sums.items():
            if self.folder.sums[name] != known:
                self.watch.say(
                    f"{self.folder.path / name}: lines up to step {self.progress.step} are damaged"
                    " or missing; the run continues without them"
                )
                self.ledger.note(f"logs that were damaged or cut when the run resumed: {name}")

    def _newest(self) -> Saved | None:
        """Return the newest intact checkpoint, chosen by the first rank for all."""

        def find() -> tuple[int | None, list[str]]:
            found, faults = self.checkpoints.newest()
            if found is None and faults:
                raise BertsmithError(
                    f"{self.folder.path}: no intact checkpoint to continue from ({faults[0]})"
                )
            return (None if found is None else found.numbers["step"]), faults

        step, faults = self.ranks.run_on_first(find)
        for line in faults:
            self.watch.say(f"{line}; going back to step {step}")
        return None if step is None else self.checkpoints.read(step)

    def load(self, saved: Saved) -> None:
        """Restore the state of the run from a checkpoint."""
        try:
            self.progress = Progress(**saved.numbers)
            self.state.load(saved)
        except (LookupError, RuntimeError, TypeError) as error:
            raise BertsmithError(
                f"{self.folder.path}: its checkpoint does not fit this recipe ({error})"
            ) from error
        self.ledger.counts = Counter(self.progress.counts)
        self.guard.recent, self.guard.skipped = list(self.progress.recent), self.progress.skipped
        self.saved_step = self.progress.step
        if self.replayed is not None:
            self.replayed.resume(self.guard.recent)

    def _roll_back(self) -> None:
        """Roll back to the last checkpoint, and skip the samples that caused the fault."""
        self._log_late()
        before, counts = self.progress, Counter(self.ledger.counts)
        saved = self._newest()
        if saved is None:
            raise BertsmithError(f"{self.folder.path}: no intact checkpoint to roll back to")
        step = saved.numbers["step"]
        self.rollbacks[step] += 1
        if self.rollbacks[step] > ROLLBACKS:
            raise BertsmithError(
                f"training diverges after step {step}, also after {ROLLBACKS} rollbacks:"
                " lower train.learning_rate"
            )
        self.load(saved)
        self.ledger.counts = counts
        self.ledger.note("rollbacks after three bad steps in a row")
        passed = before.position - self.progress.position
        # The samples are not read again, and the time is spent.
        self.progress.position, self.progress.elapsed = before.position, before.elapsed
        self.folder.cut(step, self.progress.evaluated)
        self.watch.say(f"rolled back to step {step}; {passed:,} samples are skipped")

    # ------------------------------------------------------------------ signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop within seconds on SIGTERM or Ctrl-C; a second Ctrl-C stops at once.

        On a CPU, where a step may take minutes, the current step is aborted: at once by a single
        process, by several after a grace period in which they can finish it. Shards of a model
        (FSDP) cannot be saved by one rank, so there the step is completed.
        """
        may_give_up = self.ranks.device.type == "cpu" and not self.step.sharded

        def give_up(number: int, frame: FrameType | None) -> None:
            if self.step.computing or (self.evaluating and self.ranks.count == 1):
                raise Stop

        def stop(number: int, frame: FrameType | None) -> None:
            if self.stopped and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stopped = number
            if may_give_up and self.ranks.count == 1:
                give_up(number, frame)
            elif may_give_up and alarm is not None:
                signal.alarm(GRACE)

        alarm = getattr(signal, "SIGALRM", None)  # which Windows has not
        handlers: dict[int, Any] = {signal.SIGTERM: stop, signal.SIGINT: stop}
        handlers |= {} if alarm is None else {alarm: give_up}
        before: dict[int, Any] = {}
        try:
            for number, handler in handlers.items():
                before[number] = signal.signal(number, handler)
        except ValueError:  # signal handlers can only be set in the main thread
            pass
        try:
            yield
        finally:
            if alarm in before:
                signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
