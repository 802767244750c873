"""`finetune`: files in, a model directory with an honest report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import save
from bertsmith.data import Dataset, Splits, read_splits
from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_json
from bertsmith.finetune.card import write_result_card
from bertsmith.finetune.loop import Scores, Watcher, train
from bertsmith.finetune.opening import check_out, open_fresh
from bertsmith.finetune.report import write_report
from bertsmith.finetune.session import History
from bertsmith.finetune.settings import (
    Settings,
    check_seeds,
    matrix_rate_for,
    settings_for,
    spoken,
)
from bertsmith.finetune.usual import named_by, usual_for
from bertsmith.folders import write_directory
from bertsmith.ledger import Ledger
from bertsmith.metrics import Summary, over_seeds
from bertsmith.tasks.evaluate import Evaluation, evaluate, interval, keep_settings, labelled, tuned
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.registry import task_named


@dataclass
class Run:
    """One training: its settings, what happened, the model and what it scores."""

    settings: Settings
    history: History
    bert: LoadedModel
    dev: Evaluation | None
    test: Evaluation | None = None

    @property
    def value(self) -> float:
        """The score that decides."""
        return 0.0 if self.dev is None else self.dev.scores[self.settings.metric]


@dataclass
class Result:
    """All runs of one command, and the one that was kept."""

    task: str
    metric: str
    kept: Run
    seeds: list[Run] = field(default_factory=list)
    sweep: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    out: Path | None = None

    def summary(self, split: str = "dev") -> Summary | None:
        """Median, mean, deviation and interval of the deciding score over seeds."""
        found = [run.dev if split == "dev" else run.test for run in self.seeds]
        scores = [one.scores[self.metric] for one in found if one is not None]
        return over_seeds(scores) if scores else None


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
    hold_out: float = 0.1,
    seeds: int = 1,
    sweep: bool = False,
    sweep_rates: Sequence[float] = (),
    sweep_epochs: Sequence[int] = (),
    device: str | None = None,
    overwrite: bool = False,
    watch: Watcher | None = None,
    **given: Any,
) -> Result:
    """Fine-tune a model on a file (or a folder with train, dev and test files).

    The task is guessed where none is given; every other word is one of Settings. With `out`,
    the best model of all runs is written there, with its report; nothing else is.
    """
    if out is not None:
        check_out(Path(out), overwrite)
    check_seeds(seeds)
    splits = data
    if not isinstance(splits, Splits):
        splits = read_splits(
            data,
            dev,
            test,
            task=task,
            columns=columns,
            label_names=label_names,
            hold_out=hold_out,
        )
    settings = _decided(splits, settings_for(splits.train.task, usual_for(model, given), **given))
    tried: list[Run] = []
    if sweep:
        tried = _sweep(model, splits, settings, sweep_rates, sweep_epochs, device, watch)
        settings = max(tried, key=lambda run: run.value).settings
    runs: list[Run] = []
    for seed in range(settings.seed, settings.seed + seeds):
        one = settings.changed(seed=seed)
        again = next((run for run in tried if run.settings == one), None)
        runs.append(again or train_once(model, splits, one, device, watch))
    kept = max(runs, key=lambda run: run.value)
    for run in runs:
        if splits.test is not None:
            run.test = evaluate(run.bert, splits.test)
        if run is not kept:
            run.bert.model.to("meta")  # only the best is needed further
    notes = [*splits.notes, *_notes(splits, kept, seeds, sweep)]
    if named := named_by(model, given):
        notes.append(f"settings that the model names: {spoken(named)}")
    result = Result(splits.train.task, settings.metric, kept, runs, tried, notes)
    if out is not None:
        write_result(result, splits, model, Path(out))
    return result


def train_once(
    model: str | Path,
    splits: Splits,
    settings: Settings,
    device: str | None = None,
    watch: Watcher | None = None,
) -> Run:
    """One model, trained and looked at."""
    training = task_named(splits.train.task).training(splits.train, settings)
    bert = open_fresh(model, training, settings, device)
    samples = training.samples(bert, splits.train.gold())
    looks: list[Evaluation] = []
    dev = None if splits.dev is None else labelled(splits.dev)

    def look() -> Scores:
        assert dev is not None
        bert.ledger, ledger = Ledger(), bert.ledger  # what training met is counted once
        found = tuned(bert, dev, splits.train)
        bert.ledger = ledger
        looks.append(found)
        return found.scores

    history = train(bert, training, samples, settings, None if dev is None else look, watch)
    best = looks[history.best - 1] if looks else None
    if best is not None:
        keep_settings(bert, best.tuned)
    if dev is not None:
        _count(bert, dev)
    return Run(settings, history, bert, best)


def _count(bert: LoadedModel, dev: Dataset[Any]) -> None:
    """Note what of the dev file was read in windows."""
    longest = bert.max_length
    long = sum(
        sum(map(len, bert.tokenizer.encode_ids(list(example.texts)))) > longest
        for example in dev.examples
        if sum(map(len, example.texts)) > longest
    )
    bert.ledger.note("dev examples longer than the model reads at once, read in windows", long)


def _decided(splits: Splits, settings: Settings) -> Settings:
    """The settings with the metric that decides, which must be one that there will be."""
    known = task_named(splits.train.task).metrics(splits.train)
    metric = settings.metric or known[0]
    if metric not in known:
        raise BertsmithError(f"no score {metric!r} can decide; known: {', '.join(known)}")
    return settings.changed(metric=metric)


def _sweep(
    model: str | Path,
    splits: Splits,
    settings: Settings,
    rates: Sequence[float],
    epochs: Sequence[int],
    device: str | None,
    watch: Watcher | None,
) -> list[Run]:
    """Learning rates × epochs, each a run of its own; the models of all but the best are left."""
    if splits.dev is None:
        raise BertsmithError("a sweep needs a dev file, or some examples held out, to choose by")
    rate, count = settings.learning_rate, settings.epochs
    grid = product(
        rates or (rate / 2, rate, rate * 2), epochs or sorted({max(1, count - 1), count, count + 1})
    )
    tried: list[Run] = []
    best: Run | None = None
    for one, number in grid:
        chosen = settings.changed(learning_rate=one, epochs=number)
        run = train_once(model, splits, chosen, device, watch)
        tried.append(run)
        worse = run if best is not None and run.value <= best.value else best
        best = best if worse is run else run
        if worse is not None:
            worse.bert.model.to("meta")
    return tried


def _notes(splits: Splits, kept: Run, seeds: int, sweep: bool) -> list[str]:
    """What a reader of the scores should know."""
    notes = [] if kept.dev is None else list(kept.dev.notes)
    if splits.dev is None:
        return [*notes, "there was nothing to tune or score on: the last epoch was kept"]
    chosen = [
        *(["the epoch"] if kept.settings.keep == "best" and kept.settings.epochs > 1 else []),
        *(["the seed"] if seeds > 1 else []),
        *(["learning rate and epochs"] if sweep else []),
        *(name.replace("_", " ") for name in (kept.dev.tuned if kept.dev else {})),
    ]
    if chosen and splits.test is None:
        notes.append(
            f"{', '.join(chosen)} of the saved model: chosen by the dev score, which is therefore "
            "a little too good; a test file that nothing was chosen by says more"
        )
    return notes


def write_result(result: Result, splits: Splits, model: str | Path, out: Path) -> None:
    """The model directory with report.html, report.json and ledger.json, all at once."""
    run = result.kept
    content = described(result, splits, model)

    def write(folder: Path) -> None:
        save(folder, run.bert.checkpoint, run.bert.tokenizer, run.bert.sentence)
        write_result_card(folder, run.bert.checkpoint, content)
        write_json(folder / "report.json", finite(content))
        write_json(folder / "ledger.json", dict(run.bert.ledger.counts))
        write_report(folder / "report.html", content, run.test or run.dev, run.history)

    write_directory(out, write)
    result.out = out


def _settings(run: Run) -> dict[str, Any]:
    """What a run was made with; Muon's rate too, where it was by the number of steps."""
    found = run.settings.model_dump()
    if run.settings.optimizer == "muon" and not run.settings.matrix_learning_rate:
        found["matrix_learning_rate"] = round(matrix_rate_for(run.history.planned), 5)
    return found


def described(result: Result, splits: Splits, model: str | Path) -> dict[str, Any]:
    """A result for machines."""
    run = result.kept
    files = {"train": splits.train, "dev": splits.dev, "test": splits.test}

    def scores(found: Evaluation | None) -> dict[str, float] | None:
        return None if found is None else found.scores

    def between(found: Evaluation | None) -> dict[str, float] | None:
        if found is None:
            return None
        drawn = interval(found, result.metric, draws=200)
        return {"low": drawn.low, "high": drawn.high}

    def summary(split: str) -> dict[str, Any] | None:
        found = result.summary(split)
        return None if found is None or len(result.seeds) < 2 else asdict(found)

    return {
        "task": result.task,
        "model": str(model),
        "metric": result.metric,
        "settings": _settings(run),
        "files": {
            name: {"file": one.path.name, "examples": len(one), "with_gold": len(one.gold())}
            for name, one in files.items()
            if one is not None
        },
        "labels": list(splits.train.labels),
        "scores": {"dev": scores(run.dev), "test": scores(run.test)},
        "intervals": {
            "dev": between(run.dev) if run.test is None else None,
            "test": between(run.test),
        },
        "over_seeds": {"dev": summary("dev"), "test": summary("test")},
        "epochs": run.history.epochs,
        "kept_epoch": run.history.best,
        "steps": run.history.steps,
        "examples_per_second": round(run.history.speed, 2),
        "seeds": [
            {"seed": one.settings.seed, "dev": scores(one.dev), "test": scores(one.test)}
            for one in result.seeds
        ],
        "sweep": [
            {
                "learning_rate": one.settings.learning_rate,
                "epochs": one.settings.epochs,
                "dev": scores(one.dev),
            }
            for one in result.sweep
        ],
        "ledger": {
            **{f"train file: {k}": v for k, v in splits.train.ledger.counts.items()},
            **run.bert.ledger.counts,
        },
        "notes": result.notes,
    }
