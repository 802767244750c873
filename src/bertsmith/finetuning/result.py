"""The result of a fine-tuning command, and the model directory with its report."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import save, save_adapter
from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_json, write_text
from bertsmith.finetuning.settings import RunSettings, matrix_rate_for
from bertsmith.finetuning.setup import lora_of
from bertsmith.finetuning.tuning import History
from bertsmith.folders import replace_directory
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics import Summary, bounds, over_seeds
from bertsmith.model import Model
from bertsmith.pages.results import score_table
from bertsmith.reports.card import write_result_card
from bertsmith.reports.report import report_page
from bertsmith.tasks.evaluate import Evaluation, interval
from bertsmith.tasks.splits import Splits
from bertsmith.train.precision import supported


@dataclass(frozen=True)
class TrainingRun:
    """A training run: settings, history and scores; for the best run also the model."""

    settings: RunSettings
    history: History
    scores: dict[str, dict[str, float] | None]  # of "dev" and "test"
    model: LoadedModel | None = None
    dev: Evaluation | None = None
    test: Evaluation | None = None

    @property
    def bert(self) -> LoadedModel:
        """The trained model, which only the best run keeps."""
        if self.model is None:
            raise BertsmithError("only the best run keeps its model")
        return self.model

    @property
    def precision(self) -> str:
        """The data type that it computed in: the device may not have that of the settings."""
        return supported(self.settings.dtype, self.bert.device)

    @property
    def value(self) -> float:
        """The score that selects the best run; minus infinity if it is not a number."""
        score = (self.scores.get("dev") or {}).get(self.settings.metric, 0.0)
        return -math.inf if score is None or math.isnan(score) else score

    def light(self) -> TrainingRun:
        """The same run without its model and predictions."""
        return replace(self, model=None, dev=None, test=None)


@dataclass(frozen=True)
class FinetuningResult:
    """All runs of one command; the best one is kept."""

    task: str
    metric: str
    kept: TrainingRun
    seeds: list[TrainingRun] = field(default_factory=list)
    sweep: list[TrainingRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    out: Path | None = None
    content: dict[str, Any] = field(default_factory=dict)  # report.json
    extras: dict[str, Any] = field(default_factory=dict)  # parts of the report made elsewhere
    folds: list[TrainingRun] = field(default_factory=list)  # each scored on its fold

    @property
    def bert(self) -> LoadedModel:
        """The model of the best run."""
        return self.kept.bert

    def summary(self, split: str = "dev") -> Summary | None:
        """Median, mean, standard deviation and interval of the main score over seeds, or folds."""
        runs = self.folds if self.folds and split == "dev" else self.seeds
        scores = [(run.scores.get(split) or {}).get(self.metric) for run in runs]
        numbers = [score for score in scores if score is not None and not math.isnan(score)]
        return over_seeds(numbers, bounds=bounds(self.metric)) if numbers else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, as in report.json."""
        return finite(self.content)

    def _repr_html_(self) -> str:
        splits = {split: scores for split, scores in self.kept.scores.items() if scores}
        names = dict.fromkeys(name for scores in splits.values() for name in scores)
        rows = [[name, *(scores.get(name) for scores in splits.values())] for name in names]
        return score_table(f"{self.task} model", ["", *splits], rows)

    def __repr__(self) -> str:
        splits = self.kept.scores.items()
        shown = ", ".join(
            f"{split} {scores.get(self.metric)}" for split, scores in splits if scores
        )
        runs = f", best of {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        place = f", in {self.out}" if self.out else ""
        return f"<{self.task}: {self.metric} {shown or 'not scored'}{runs}{place}>"


def write_result(
    result: FinetuningResult, out: Path, overwrite: bool, base: str | Path | None = None
) -> None:
    """Write the model directory, or an adapter of `base`, with its reports, all at once."""
    run, content = result.kept, result.content
    notes = {**run.bert.checkpoint.notes, "columns": content.get("columns", {})}
    evaluated = run.test or run.dev
    if evaluated is not None and (figures := evaluated.figures(run.bert)) is not None:
        notes["figures"] = figures.to_dict()  # a server compares with them: see docs/serve.md
    checkpoint = replace(run.bert.checkpoint, notes=notes)

    def write(folder: Path) -> None:
        model = (checkpoint, run.bert.tokenizer, run.bert.sentence)
        if base is None:
            save(folder, *model)
        else:
            save_adapter(folder, *model, base, lora_of(run.settings))
        write_result_card(folder, run.bert.checkpoint, content, RunSettings().model_dump(), base)
        write_json(folder / "report.json", finite(content))
        write_json(folder / "ledger.json", dict(run.bert.ledger.counts))
        if distilled := content.get("distillation"):
            write_json(folder / "distill.json", finite(distilled))
        page = report_page(content, run.test or run.dev, run.history.losses or None)
        write_text(folder / "report.html", page)

    replace_directory(out, write, overwrite)


def trained_parameters(model: Model) -> dict[str, int]:
    """The number of parameters that were trained, and of all."""
    parameters = list(model.parameters())
    trained = sum(weight.numel() for weight in parameters if weight.requires_grad)
    return {"trained": trained, "all": sum(weight.numel() for weight in parameters)}


def described(
    result: FinetuningResult, splits: Splits, model: str | Path, interrupted: bool = False
) -> dict[str, Any]:
    """The content of report.json."""
    run = result.kept
    files = {"train": splits.train, "dev": splits.dev, "test": splits.test}

    def ends(evaluation: Evaluation | None) -> dict[str, float] | None:
        if evaluation is not None:
            with suppress(BertsmithError):  # too few examples for any draw to have a score
                drawn = interval(evaluation, result.metric, draws=200)
                return {"low": drawn.low, "high": drawn.high}
        return None

    def summary(split: str) -> dict[str, Any] | None:
        over = result.summary(split)
        return None if over is None or over.count < 2 else asdict(over)

    settings = run.settings.model_dump()
    if run.settings.optimizer == "muon" and not run.settings.matrix_learning_rate:
        settings["matrix_learning_rate"] = round(matrix_rate_for(run.history.planned), 5)
    so_far = {"epochs": run.history.done, "of": run.settings.epochs}
    return {
        "task": result.task,
        "model": str(model),
        "metric": result.metric,
        "interrupted": so_far if interrupted else None,
        "settings": settings,
        "precision": run.precision,
        "files": {
            name: {"file": data.path.name, "examples": len(data), "with_gold": len(data.gold())}
            for name, data in files.items()
            if data is not None
        },
        "columns": dict(splits.train.columns),
        "labels": list(splits.train.labels),
        "scores": run.scores,
        "intervals": {"dev": ends(None if run.test else run.dev), "test": ends(run.test)},
        "details": {"dev": run.dev and run.dev.details(), "test": run.test and run.test.details()},
        **result.extras,
        "over_seeds": {"dev": summary("dev"), "test": summary("test")},
        "epochs": run.history.epochs,
        "kept_epoch": run.history.best,
        "steps": run.history.steps,
        "trained_parameters": trained_parameters(run.bert.model),
        "examples_per_second": round(run.history.speed, 2),
        "seeds": [{"seed": seed.settings.seed, **seed.scores} for seed in result.seeds],
        "folds": [fold.scores["dev"] for fold in result.folds],
        "sweep": [
            trial.settings.model_dump(include={"learning_rate", "epochs"})
            | {"dev": trial.scores["dev"]}
            for trial in result.sweep
        ],
        "ledger": {
            **{f"train file: {k}": v for k, v in splits.train.ledger.counts.items()},
            **run.bert.ledger.counts,
        },
        "notes": result.notes,
    }
