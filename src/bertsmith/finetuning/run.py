"""`finetune`: labelled data → a model directory with a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import built_in
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.baseline import baseline, verdict
from bertsmith.finetuning.calibrate import calibrate as fit
from bertsmith.finetuning.calibrate import check_calibration
from bertsmith.finetuning.defaults import SWEPT, chosen_settings, learned_from
from bertsmith.finetuning.loop import UNCHANGED, Scores, Watcher, progress_bar, train
from bertsmith.finetuning.result import Result, Run, described, write_result
from bertsmith.finetuning.session import Session
from bertsmith.finetuning.settings import Settings, check_seeds
from bertsmith.finetuning.setup import forget_fitted, limit_length, open_fresh
from bertsmith.finetuning.trials import model_sum
from bertsmith.finetuning.work import (
    Interrupted,
    Work,
    check_out,
    data_sum,
    is_interrupted,
    terminable,
)
from bertsmith.folders import reserved
from bertsmith.infer.loaded import LoadedModel
from bertsmith.ledger import Ledger
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, evaluate, keep_settings, labelled, tuned
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, read_splits
from bertsmith.tasks.training import LEARNED, Training
from bertsmith.train.distributed import Ranks


def finetune(
    model: str | Path,
    data: str | Path | Splits,
    out: str | Path | None = None,
    *,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    format: str | None = None,
    hold_out: float = 0.1,
    seeds: int = 1,
    sweep: bool = False,
    sweep_rates: Sequence[float] = (),
    sweep_epochs: Sequence[int] = (),
    device: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    calibrate: bool = False,
    abstain: float | None = None,
    own_settings: bool = True,
    watch: Watcher | None = None,
    progress: bool | None = None,
    **given: Any,
) -> Result:
    """Fine-tune a model on a file (or a folder with train, dev and test files).

    The task is guessed unless given; `header`, `encoding` and `format` say how files are read, as
    in `open_data`; further arguments are those of `Settings`. With `out`, the best model of all
    runs is written there with its report. An interrupted command keeps its state in the folder
    `out`.partial, from which `resume` continues to the same result. `calibrate` fits temperature
    and thresholds on the dev data; `abstain` (0.95) a confidence below which the model abstains, so
    that the accuracy of the rest is at least this. `own_settings=False` ignores the settings in the
    model's bertsmith.json. `progress` shows a bar, by default on a terminal or in a notebook.
    """
    if out is not None:
        check_out(out, overwrite, resume)
    check_seeds(seeds)
    demand_data(data)
    splits = data
    if not isinstance(splits, Splits):
        splits = read_splits(
            data,
            dev,
            test,
            task=task,
            columns=columns,
            label_names=label_names,
            header=header,
            encoding=encoding,
            format=format,
            hold_out=hold_out,
        )
    splits = _one_scheme(splits)
    settings, reasons = chosen_settings(
        model, splits, given, swept=SWEPT if sweep else (), own=own_settings
    )
    grid = _grid(splits, settings, sweep_rates, sweep_epochs) if sweep else []
    command = Command(model, splits, settings, seeds, grid, device, watch)
    command.progress = progress
    if calibrate or abstain is not None:
        check_calibration(splits.train.task, splits.dev, abstain)
        command.calibration = calibrate, abstain
    command.notes += reasons
    if out is None:
        return command.result(command.calibrated(command.train()))
    with reserved(out), terminable():
        return command.write(Path(out), overwrite, resume)


def demand_data(data: Any) -> None:
    """Refuse the name of a built-in model where data is expected."""
    if isinstance(data, str | Path) and str(data) in built_in() and not Path(data).exists():
        raise BertsmithError(f"{data} is a model: name the model first, then the data")


class Command:
    """All runs of one command; only the best keeps its model."""

    def __init__(
        self,
        model: str | Path,
        splits: Splits,
        settings: Settings,
        seeds: int,
        grid: Sequence[Settings],
        device: str | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.model, self.splits, self.settings = model, splits, settings
        self.count, self.grid, self.device, self.watch = seeds, grid, device, watch
        self.progress: bool | None = None  # a bar, where there is no `watch`; None: on a terminal
        self.work: Work | None = None
        self.sweep: list[Run] = []
        self.seeds: list[Run] = []
        self.best: Run | None = None
        self.current: tuple[Settings, Session, LoadedModel, dict[int, Evaluation]] | None = None
        self.calibration: tuple[bool, float | None] | None = None  # temperature, abstention
        self.notes: list[str] = []
        self.extras: dict[str, Any] = {}  # parts of the report

    def train(self) -> Run:
        """Train everything that is planned; the best run."""
        settings = self.settings
        for one in self.grid:
            self.sweep.append(self._run(one))
        if self.sweep:
            settings = max(self.sweep, key=lambda run: run.value).settings
        for seed in range(settings.seed, settings.seed + self.count):
            one = settings.changed(seed=seed)
            again = next((run for run in self.sweep if run.settings == one), None)
            if again is not None and self.splits.test is not None:
                self._test(self._with_model(again))
            self.seeds.append(again or self._run(one, test=True))
        assert self.best is not None
        return self._with_model(self.best)

    def write(self, out: Path, overwrite: bool, resume: bool) -> Result:
        """Train, and write the best model; after Ctrl-C, the best epoch so far."""
        replaceable = overwrite or (resume and is_interrupted(out))
        plan: dict[str, Any] = {
            "model": model_sum(self.model),
            "data": data_sum(self.splits),
            "settings": self.settings.model_dump(),
            "command": {
                "seeds": self.count,
                "sweep": [[one.learning_rate, one.epochs] for one in self.grid],
                "calibration": list(self.calibration or ()),
            },
        }
        plan["command"] |= self.described()
        self.work = Work.start(out, plan, resume, overwrite)
        try:
            result = self.result(self.calibrated(self.train()), with_baseline=True)
            write_result(result, out, replaceable)
        except KeyboardInterrupt:
            kept = self._keep(out, replaceable if is_interrupted(out) else False)
            raise Interrupted(kept) from None
        finally:
            if not self.work.holds_something:
                self.work.remove()
        self.work.remove()
        return result

    def result(self, kept: Run, interrupted: bool = False, with_baseline: bool = False) -> Result:
        """The result of the runs so far."""
        notes = [*self.splits.notes, *self._notes(kept), *self.notes]
        metric, task = self.settings.metric, self.splits.train.task
        result = Result(task, metric, kept, self.seeds, self.sweep, notes, extras=self.extras)
        done, planned = len(kept.history.epochs), kept.settings.epochs
        if interrupted:
            result.notes.append(f"interrupted after {done} of {planned} epochs")
        elif done < planned:
            result.notes.append(f"stopped after {done} of {planned} epochs: {_why(kept.settings)}")
        weights = self.settings.class_weights
        simple = baseline(self.splits, weights, self.device) if with_baseline else None
        if simple is not None:
            result.extras["baseline"] = simple
            warning = verdict(simple, kept.scores, metric)
            result.notes += filter(None, (simple["note"], warning))
        result.content = described(result, self.splits, self.model, interrupted)
        return result

    def calibrated(self, kept: Run) -> Run:
        """The best run with its model calibrated, if that is asked for."""
        if self.calibration is None or kept.dev is None:
            return kept
        scale, abstain = self.calibration
        dev, content = fit(kept.bert, kept.dev, self.settings.metric, scale=scale, abstain=abstain)
        kept.dev, kept.scores = dev, {**kept.scores, "dev": dev.scores}
        if self.splits.test is not None and kept.test is not None:
            content["test_error_before"] = kept.test.scores.get("calibration_error")
            kept.test = evaluate(kept.bert, self.splits.test)
            kept.scores["test"] = kept.test.scores
            content["test_error_after"] = kept.test.scores.get("calibration_error")
        self.extras["calibration"] = content
        self.notes.append(f"calibration: {content['note']}")
        return kept

    # ------------------------------------------------------------------ what may be done otherwise

    def training(self, settings: Settings) -> Training:
        """How the task is learned."""
        return task_named(self.splits.train.task).training(self.splits.train, settings)

    def opened(self, training: Training, settings: Settings) -> LoadedModel:
        """The model before its first step."""
        return open_fresh(self.model, training, settings, self.device)

    def described(self) -> dict[str, Any]:
        """What else must be the same when an interrupted command is resumed."""
        return {}

    # ------------------------------------------------------------------ runs

    def _run(self, settings: Settings, test: bool = False) -> Run:
        """One run, unless it is finished already; a better one replaces the best."""
        stored = None if self.work is None else self.work.finished(settings)
        run = self._train(settings) if stored is None else Run(settings, *stored)
        if test and stored is None:
            self._test(run)
        better = self.best is None or run.value > self.best.value
        if stored is None and self.work is not None and self.count + len(self.grid) > 1:
            if better:
                self.work.keep_best(settings, run.bert.model, Ranks.alone(run.bert.device))
            self.work.finish(settings, run.history, run.scores)
            self.work.session(settings).discard()
        if not better:
            run.release()
        else:
            if self.best is not None:
                self.best.release()
            self.best = run
        return run

    def _start(self, settings: Settings) -> tuple[Training, LoadedModel]:
        """How the task is learned, and the model before its first step."""
        training = self.training(settings)
        bert = self.opened(training, settings)
        forget_fitted(bert)
        limit_length(bert, settings.max_length)
        return training, bert

    def _train(self, settings: Settings) -> Run:
        training, bert = self._start(settings)
        samples = training.samples(bert, learned_from(self.splits.train, settings))
        evaluations: dict[int, Evaluation] = {}  # by epoch; those of the best
        session = Session() if self.work is None else self.work.session(settings)
        self.current = settings, session, bert, evaluations

        def look() -> Scores:
            for epoch in evaluations.keys() - {session.history.best}:
                del evaluations[epoch]
            evaluations[session.epoch + 1] = self._on_dev(bert)
            return evaluations[session.epoch + 1].scores

        scored = None if self.splits.dev is None else look
        graphics = [bert.device] if bert.device.type == "cuda" else []
        watch = progress_bar(self.progress) if self.watch is None else nullcontext(self.watch)
        with torch.random.fork_rng(graphics), watch as watcher:  # the caller's draws stay the same
            train(bert, training, samples, settings, scored, watcher, session)
        run = self._finished(settings, session, bert, evaluations)
        self.current = None
        return run

    def _finished(
        self,
        settings: Settings,
        session: Session,
        bert: LoadedModel,
        evaluations: Mapping[int, Evaluation],
    ) -> Run:
        """A run whose model has the weights of the best epoch."""
        run = Run(settings, session.history, {"dev": None, "test": None}, bert)
        if self.splits.dev is not None:
            # Of an epoch before the run was resumed, there is only the model.
            run.dev = evaluations.get(session.history.best) or self._on_dev(bert)
            keep_settings(bert, run.dev.tuned)
            run.scores["dev"] = run.dev.scores
            _count_long(bert, labelled(self.splits.dev))
        return run

    def _on_dev(self, bert: LoadedModel) -> Evaluation:
        assert self.splits.dev is not None
        bert.ledger, ledger = Ledger(), bert.ledger  # the ledger is about the training file
        try:
            return tuned(bert, labelled(self.splits.dev), self.splits.train)
        finally:
            bert.ledger = ledger

    def _test(self, run: Run) -> None:
        """Score a run on the test file, if that was not done."""
        if self.splits.test is not None and run.scores.get("test") is None:
            run.test = evaluate(run.bert, self.splits.test)
            run.scores["test"] = run.test.scores

    def _with_model(self, run: Run) -> Run:
        """The same run with its model, read from the disk if it was trained before a resume."""
        if run.model is not None or self.work is None:
            return run
        training, bert = self._start(run.settings)
        training.samples(bert, learned_from(self.splits.train, run.settings))  # for its ledger
        if not self.work.load_best(run.settings, bert.model):
            raise BertsmithError(
                f"{self.work.folder}: the best weights are missing; remove it to start again"
            )
        bert.model.eval()
        run.model = bert
        if self.splits.dev is not None:
            run.dev = self._on_dev(bert)
            keep_settings(bert, run.dev.tuned)
            _count_long(bert, labelled(self.splits.dev))
        if self.splits.test is not None and run.scores.get("test") is not None:
            run.test = evaluate(bert, self.splits.test)
        return run

    # ------------------------------------------------------------------ interruption

    def _keep(self, out: Path, replaceable: bool) -> str:
        """Write the best epoch so far, and say how to go on."""
        assert self.work is not None
        best = self.best
        if self.current is not None:
            settings, session, bert, evaluations = self.current
            if session.best:
                session.restore(bert.model)
                run = self._finished(settings, session, bert, evaluations)
                best = run if best is None or run.value > best.value else best
        if best is None:
            return "interrupted before the first epoch ended: nothing was written"
        epoch = f"epoch {best.history.best} of {best.settings.epochs}"
        if out.exists() and any(out.iterdir()) and not replaceable:
            kept = f"{out} is as it was before"
        else:
            result = self.result(self._with_model(best), interrupted=True)
            write_result(result, out, replaceable)
            kept = f"the best model so far ({epoch}) is in {out}"
        again = "and the same command with --resume continues"
        if not self.work.holds_something:
            again = "but it cannot be continued: nothing else was stored yet"
        return f"interrupted: {kept}, {again}"

    def _notes(self, kept: Run) -> list[str]:
        """Notes on how to read the scores."""
        notes = [] if kept.dev is None else list(kept.dev.notes)
        if self.splits.dev is None:
            return [*notes, "no dev data: the last epoch was kept and not scored"]
        chosen = [
            *(["the epoch"] if kept.settings.keep == "best" and kept.settings.epochs > 1 else []),
            *(["the seed"] if self.count > 1 else []),
            *(["the learning rate", "the number of epochs"] if self.grid else []),
            *(name.replace("_", " ") for name in (kept.dev.tuned if kept.dev else {})),
        ]
        if chosen and self.splits.test is None:
            what = " and ".join([", ".join(chosen[:-1]), chosen[-1]] if chosen[1:] else chosen)
            notes.append(
                f"the dev score is optimistic, because it was also used to choose {what}; "
                "use --test FILE for an unbiased score"
            )
        return notes


def _why(settings: Settings) -> str:
    """Why a run ended before its last epoch."""
    if settings.patience:
        return f"no better dev score in {settings.patience} epochs"
    return (
        f"the training loss was below {LEARNED} and the last {UNCHANGED} dev scores were no better"
        " (--keep last trains on)"
    )


def _count_long(bert: LoadedModel, dev: Dataset[Any]) -> None:
    """Note how many dev examples were read in windows."""
    longest = bert.max_length
    long = sum(
        sum(map(len, bert.tokenizer.encode_ids(list(example.texts)))) > longest
        for example in dev.examples
        if sum(map(len, example.texts)) > longest
    )
    bert.ledger.note("dev examples longer than the model reads at once, read in windows", long)


def _one_scheme(splits: Splits) -> Splits:
    """Tags of all files are read as in the training file: one with only O tags has no scheme."""
    scheme = splits.train.scheme
    others = (
        replace(one, scheme=scheme) if one is not None and one.scheme is None else one
        for one in (splits.dev, splits.test)
    )
    dev, test = others
    return replace(splits, dev=dev, test=test) if scheme else splits


def _grid(
    splits: Splits, settings: Settings, rates: Sequence[float], epochs: Sequence[int]
) -> list[Settings]:
    """The settings of a sweep: learning rates × epochs."""
    if splits.dev is None:
        raise BertsmithError("a sweep needs a dev file or held-out examples")
    rate, count = settings.learning_rate, settings.epochs
    pairs = product(
        rates or (rate / 2, rate, rate * 2), epochs or sorted({max(1, count - 1), count, count + 1})
    )
    return [settings.changed(learning_rate=one, epochs=number) for one, number in pairs]
