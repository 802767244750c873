"""The training loop: step after step, guarded, logged, saved, and able to stop at any of them."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example, Loader
from bertsmith.examples.draw import bits
from bertsmith.examples.loader import Loaded, Wanted
from bertsmith.ledger import Ledger
from bertsmith.train import guard
from bertsmith.train.distributed import Ranks, fill, gather_anew, whole
from bertsmith.train.folder import RunFolder
from bertsmith.train.optimizer import Several
from bertsmith.train.recipe import CheckpointPart, TrainPart
from bertsmith.train.schedule import Shape, rate_at
from bertsmith.train.state import Checkpoints, Saved

TURN = 5e-4  # seconds that a thread may keep Python, a tenth of what is usual


class Learner(Protocol):
    """What the loop asks of the module it trains."""

    objectives: Any
    weights: dict[str, float]  # of loss terms, by name; 1 for others

    def counts(self, example: Example) -> Counter[str]:
        """How many guesses each loss term makes on an example."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that learns."""


class Watcher(Protocol):
    """Who is told what happens."""

    def step(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """A step is done."""

    def say(self, message: str) -> None:
        """Something a person should know."""


@dataclass
class Progress:
    """Where a run is: all that a checkpoint holds beside tensors."""

    step: int = 0
    position: int = 0  # the next sample
    tokens: int = 0
    elapsed: float = 0.0  # seconds
    skipped: int = 0  # bad steps in a row
    corpus: str = ""  # the fingerprint of what is read
    closed: bool = False  # the budget is spent and the last evaluation done
    recent: list[float] = field(default_factory=list)  # norms of the last good steps
    counts: dict[str, int] = field(default_factory=dict)  # the ledger


@contextmanager
def quick_turns() -> Iterator[None]:
    """Let threads take short turns, or a GPU waits while one that makes batches holds Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Trainer:
    """Everything a run needs, and the loop over its steps."""

    def __init__(
        self,
        learner: Learner,
        module: nn.Module,
        optimizer: Several,
        *,
        train: TrainPart,
        keeping: CheckpointPart,
        ranks: Ranks,
        folder: RunFolder,
        wanted: Callable[[int], Wanted],
        watch: Watcher,
        workers: int = 2,
        evaluate: Callable[[Callable[[], bool]], dict[str, float] | None] | None = None,
        evaluate_every: int = 0,
    ) -> None:
        self.learner, self.module, self.optimizer = learner, module, optimizer
        self.train, self.keeping, self.ranks, self.folder = train, keeping, ranks, folder
        self.wanted, self.watch, self.workers = wanted, watch, workers
        self.evaluate, self.evaluate_every = evaluate, evaluate_every
        self.checkpoints = Checkpoints(folder.path / "checkpoints", keeping.keep)
        self.progress, self.ledger = Progress(), Ledger()
        self.names = {p: n for n, p in learner.named_parameters()}
        # Averages start as the weights and follow them.
        self.averages = {name: p.detach().clone() for p, name in self.names.items() if train.ema}
        self.last: dict[str, float] = {}  # the losses that were seen last
        self.stopped = 0  # the signal that asked us to stop
        self.rollbacks: Counter[int] = Counter()
        self.saved_at = 0.0

    # ------------------------------------------------------------------ the loop

    def run(self) -> bool:
        """Train to the end of the budget; False if a signal stopped it before."""
        if self.progress.closed and self._over():
            return True
        self.saved_at = time.monotonic()
        # The first rank decides: the others may look when it has written already.
        if self.ranks.share(not self.checkpoints.steps()):
            self.save()
        with self._signals(), quick_turns():
            while not self._over():
                if not self._steps():
                    break
            self.progress.closed = self._over() and self._evaluate()
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
        """Steps until the end, or until the run was rolled back; False to stop now."""
        progress = self.progress
        loader = Loader(
            lambda step: (
                None if self.train.steps and step >= self.train.steps else self.wanted(step)
            ),
            step=progress.step,
            position=progress.position,
            rank=self.ranks.rank,
            ranks=self.ranks.count,
            workers=self.workers,
            pin=self.ranks.device.type == "cuda",
        )
        began = time.monotonic()
        for loaded in loader:
            counts = self._agree(loaded, time.monotonic() - began)
            began = time.monotonic()
            if counts is None:
                loader.close()
                return False
            if not self._step(loaded, counts, began):
                loader.close()
                return True
            began = time.monotonic()  # the step has counted its own time
            if self._over():
                loader.close()
                break
            self._sometimes()
        return True

    def _agree(self, loaded: Loaded, waited: float) -> dict[str, float] | None:
        """What all ranks say before a step: how much there is to guess, whether to stop."""
        own: Counter[str] = Counter()
        for example, idle in zip(loaded.parts, loaded.idle, strict=True):
            counted = self.learner.counts(example)
            own.update({name: 0 if idle else count for name, count in counted.items()})
        clock = self.progress.elapsed + waited if self.ranks.first else 0.0
        *counts, stop, clock = self.ranks.sum([*own.values(), float(self.stopped), clock])
        self.progress.elapsed = clock
        return None if stop else dict(zip(own, counts, strict=True))

    def _step(self, loaded: Loaded, counts: dict[str, float], began: float) -> bool:
        """One step; False where the run was rolled back."""
        progress, train, ranks = self.progress, self.train, self.ranks
        share = rate_at(train.schedule, self.done(), self._shape())
        self.optimizer.set_rate(share)
        torch.manual_seed(int(bits(train.seed, "step", progress.step, ranks.rank) >> 1))
        found = self._gradients(loaded, counts)
        length = whole(nn.utils.clip_grad_norm_(self.module.parameters(), train.clip))
        names = list(found)
        # All in one: each number that is fetched alone would wait for the device again.
        own = torch.cat([length.double().reshape(1), *(found[name] for name in names)]).tolist()
        norm, sums = own[0], ranks.sum(own[1:])
        tokens = sum(
            e.tokens for e, idle in zip(loaded.parts, loaded.idle, strict=True) if not idle
        )
        total = int(ranks.sum([tokens])[0])
        row: dict[str, Any] = {"step": progress.step + 1}
        loss = 0.0
        for place, name in enumerate(names):
            total_loss, right = sums[2 * place : 2 * place + 2]
            if name not in counts:  # a ratio: the whole and the part
                row[name] = right / max(total_loss, 1)
                continue
            row[name] = total_loss / max(counts[name], 1)
            row[f"{name}_accuracy"] = right / max(counts[name], 1)
            loss += self.learner.weights.get(name, 1.0) * row[name]
        row |= {"loss": loss, "gradient_norm": norm}
        row |= {"learning_rate": train.learning_rate * share, "samples": loaded.plan.end}
        row["tokens"] = progress.tokens + total
        wrong = guard.fault(norm, loss, progress.recent, train.spike)
        if wrong:
            self.optimizer.clear()
            row["skipped"] = wrong
            progress.skipped += 1
            self._note(f"steps skipped because {wrong}")
        else:
            self._update()
            progress.skipped = 0
            progress.recent = [*progress.recent, norm][-guard.REMEMBERED :]
        progress.step, progress.position = progress.step + 1, loaded.plan.end
        progress.tokens += total
        progress.elapsed += ranks.share(time.monotonic() - began)
        seconds = time.monotonic() - began
        timing = {"step": progress.step, "seconds": round(seconds, 4), "tokens": total}
        timing |= {"elapsed": round(progress.elapsed, 3)}
        self.last |= {key: row[key] for key in (*names, "loss")}
        self.folder.log(row, timing)
        self.watch.step(row, timing)
        if progress.skipped >= guard.PATIENCE:
            self._roll_back()
            return False
        return True

    def _gradients(self, loaded: Loaded, counts: dict[str, float]) -> dict[str, Tensor]:
        """Backward through this rank's parts; each loss term's sum and number right."""
        device = self.ranks.device
        found: dict[str, Tensor] = {}
        for number, (example, idle) in enumerate(zip(loaded.parts, loaded.idle, strict=True)):
            last = number == len(loaded.parts) - 1
            with self.ranks.quiet(self.module, last):
                if self.train.compile:
                    torch.compiler.cudagraph_mark_step_begin()
                loss, sums = self.module(example.to(device), counts)
                # Ranks' gradients are averaged; the loss is a sum over all of them.
                (loss * (0.0 if idle else float(self.ranks.count))).backward()
            for name, pair in sums.items():
                found[name] = found.get(name, 0.0) + pair * (0.0 if idle else 1.0)
        return found

    def _update(self) -> None:
        for objective in self.learner.objectives:
            objective.before_step()
        self.optimizer.step()
        for objective in self.learner.objectives:
            objective.after_step()
        self.optimizer.clear()
        if self.averages:
            averages = [self.averages[name] for name in self.names.values()]
            weights = [parameter.detach() for parameter in self.names]
            torch._foreach_lerp_(averages, weights, 1 - self.train.ema)

    def _shape(self) -> Shape:
        warmup = self.train.warmup
        if warmup >= 1:  # steps; by the clock, steps are guessed from those done
            total = self.train.steps or max(self.progress.step, 1) / max(self.done(), 1e-9)
            warmup = min(warmup / max(total, 1), 0.5)
        return Shape(warmup, self.train.decay)

    def _sometimes(self) -> None:
        """What is done between steps, when it is time; in a row of bad ones it never is."""
        step, keeping = self.progress.step, self.keeping
        if self.progress.skipped:
            return
        if self.evaluate_every and step % self.evaluate_every == 0:
            self._evaluate()
        late = keeping.minutes and time.monotonic() - self.saved_at > 60 * keeping.minutes
        if (keeping.every and step % keeping.every == 0) or self.ranks.share(bool(late)):
            self.save()

    def _evaluate(self) -> bool:
        """Evaluate on held-out text; False if a signal came."""
        if self.evaluate is None:
            return True
        with self._averaged():
            found = self.evaluate(lambda: bool(self.stopped))
        if found is None:
            return False
        row = {"step": self.progress.step, **{f"held_out_{k}": v for k, v in found.items()}}
        self.folder.log(row, {"step": self.progress.step, "evaluated": True})
        self.last |= {key: value for key, value in row.items() if key != "step"}
        self.watch.step(row, {})
        return True

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The averaged weights in the place of the last ones, where there are any."""
        before = {}
        for parameter, name in self.names.items():
            if name in self.averages:
                before[parameter] = parameter.detach().clone()
                parameter.data.copy_(self.averages[name])
        gather_anew(self.module)
        try:
            yield
        finally:
            for parameter, value in before.items():
                parameter.data.copy_(value)
            gather_anew(self.module)

    def finish(self) -> None:
        """Leave the averaged weights in the model, for good."""
        for parameter, name in self.names.items():
            if name in self.averages:
                parameter.data.copy_(self.averages[name])

    # ------------------------------------------------------------------ saving and going back

    def save(self) -> None:
        """Write a checkpoint; one of this step is replaced."""
        progress = self.progress
        own = {name: whole(parameter.detach()) for parameter, name in self.names.items()}
        kept = {
            f"{self.names[parameter]}:{key}": whole(torch.as_tensor(value))
            for parameter, state in self.optimizer.states()
            for key, value in state.items()
        }
        averages = {name: whole(value) for name, value in self.averages.items()}
        tensors = {"model": own, "optimizer": kept} | ({"average": averages} if averages else {})
        progress.counts = dict(self.ledger.counts)

        def write() -> None:
            on_disk = {
                file: {name: value.cpu().contiguous() for name, value in content.items()}
                for file, content in tensors.items()
            }
            self.checkpoints.save(progress.step, on_disk, asdict(progress))
            self.folder.keep_ledger(self.ledger)

        self.ranks.ask_first(write)
        self.saved_at = time.monotonic()

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint; False where there is none yet."""
        saved, faults = self.checkpoints.newest()
        if saved is None and faults:
            raise BertsmithError(
                f"{self.folder.path}: no whole checkpoint to go on from ({faults[0]})"
            )
        if saved is None:
            self.folder.cut(0)
            self.ranks.wait()
            return False
        for line in faults:
            self.watch.say(f"{line}; going back to step {saved.numbers['step']}")
        self.load(saved)
        self.ranks.wait()  # nothing is swept away while others read
        if self.ranks.first:
            self.checkpoints.sweep()
            self.checkpoints.forget_after(self.progress.step)
        self.folder.cut(self.progress.step)
        self.ranks.wait()
        return True

    def load(self, saved: Saved) -> None:
        """Take everything from a checkpoint."""
        try:
            self.progress = Progress(**saved.numbers)
            for parameter, name in self.names.items():
                fill(parameter, saved.tensors["model"][name])
            for name, value in self.averages.items():
                fill(value, saved.tensors["average"][name])
            self._load_optimizer(saved.tensors.get("optimizer", {}))
        except (LookupError, RuntimeError, TypeError) as error:
            raise BertsmithError(
                f"{self.folder.path}: its checkpoint does not fit this recipe ({error})"
            ) from error
        self.ledger.counts = Counter(self.progress.counts)

    def _load_optimizer(self, stored: Mapping[str, Tensor]) -> None:
        by_name: dict[str, dict[str, Tensor]] = {}
        for place, value in stored.items():
            name, _, key = place.rpartition(":")
            by_name.setdefault(name, {})[key] = value
        for parameter, state in self.optimizer.states():
            state.clear()
            for key, value in by_name.get(self.names[parameter], {}).items():
                if value.ndim == 0:
                    # Fused optimizers count steps on the device, others on the CPU.
                    state[key] = value.to(parameter.device) if parameter.is_cuda else value
                else:
                    state[key] = torch.zeros_like(parameter)
                    fill(state[key], value)

    def _roll_back(self) -> None:
        """Back to the last checkpoint, and past the samples that did the harm."""
        beyond, counts = self.progress.position, Counter(self.ledger.counts)
        saved, _ = self.checkpoints.newest()
        if saved is None:
            raise BertsmithError(f"{self.folder.path}: no whole checkpoint to roll back to")
        step = saved.numbers["step"]
        self.rollbacks[step] += 1
        if self.rollbacks[step] > guard.ROLLBACKS:
            raise BertsmithError(
                f"training diverges after step {step}, also after {guard.ROLLBACKS} rollbacks:"
                " lower train.learning_rate"
            )
        self.load(saved)
        self.ledger.counts = counts
        self._note("rollbacks after three bad steps in a row")
        passed = beyond - self.progress.position
        self.progress.position = beyond
        self.folder.cut(step)
        self.watch.say(f"rolled back to step {step}; {passed:,} samples are passed over")

    def _note(self, what: str) -> None:
        self.ledger.note(what)

    # ------------------------------------------------------------------ signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C stop the run after the step it is in; a second Ctrl-C at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            if self.stopped and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stopped = number

        before = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, stop)
        except ValueError:  # not the main thread: signals go elsewhere
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
