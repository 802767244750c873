"""`bertsmith.evaluate`, `pretrain`, `finetune`, `distill`, `quantize`: the verbs as functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bertsmith import distilling, finetuning
from bertsmith.bert import Bert, load
from bertsmith.errors import BertsmithError
from bertsmith.files import finite
from bertsmith.finetuning.calibrate import promise
from bertsmith.infer.loaded import LoadedModel
from bertsmith.pages.results import framed, score_table
from bertsmith.reports.quantize import quantize as quantize
from bertsmith.tasks import evaluate as evaluation
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_of
from bertsmith.train import pretrain as train

Model = str | Path | LoadedModel
Parameters = ParamSpec("Parameters")
WithModel = TypeVar("WithModel")


@dataclass(frozen=True, repr=False)
class Finetuned(finetuning.FinetuningResult):
    """The result of fine-tuning, with the model of the best run."""

    @property
    def model(self) -> Bert:
        """The model of the best run."""
        return Bert(self.bert.checkpoint, self.bert.tokenizer, sentence=self.bert.sentence)


@dataclass(frozen=True, repr=False)
class DistilledBert(distilling.DistillationResult):
    """The result of a distillation, with the student."""

    @property
    def model(self) -> Bert:
        """The student."""
        return Bert.of(self.student)


def _returning(
    result: Callable[..., WithModel], verb: Callable[Parameters, Any]
) -> Callable[Parameters, WithModel]:
    """The same function with a result whose model is a `Bert`."""

    @wraps(verb)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> WithModel:
        return result(**vars(verb(*args, **kwargs)))

    return call


finetune = _returning(Finetuned, finetuning.finetune)
distill = _returning(DistilledBert, distilling.distill)


@dataclass(frozen=True, repr=False)
class Evaluated:
    """Scores of a model on labelled data."""

    model: LoadedModel
    evaluation: evaluation.Evaluation
    metric: str  # the main score

    @property
    def scores(self) -> dict[str, float]:
        """Every score by its name."""
        return self.evaluation.scores

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % bootstrap interval of the main score."""
        drawn = evaluation.interval(self.evaluation, self.metric)
        return drawn.low, drawn.high

    def to_dict(self) -> dict[str, Any]:
        """Scores, their details by class, and notes, as plain values."""
        low, high = self.interval
        content = {
            "task": self.evaluation.task.name,
            "metric": self.metric,
            "scores": self.scores,
            "interval": {"low": low, "high": high},
            "details": self.evaluation.details(),
            "notes": self.evaluation.notes,
        }
        return finite(content)

    def _repr_html_(self) -> str:
        low, high = self.interval
        score = f"{self.metric} {self.scores[self.metric]:.4g}"
        title = f"{score}, 95% interval {low:.4g} to {high:.4g}"
        return score_table(title, ["", "score"], self.scores.items())

    def __repr__(self) -> str:
        count = len(self.evaluation.predictions)
        return f"<{self.metric} {self.scores[self.metric]:.4g} on {count:,} examples>"


def evaluate(
    model: Model,
    data: Any,
    *,
    metric: str | None = None,
    coverage: float | None = None,
    abstain: float | None = None,
    calibrate_on: Any = None,
    device: str | None = None,
    **options: Any,
) -> Evaluated:
    """Score a model on labelled data: a file, a table or a list of rows.

    `coverage` is that of sets of labels, or of intervals. `calibrate_on` is labelled data that the
    model was not trained on: what `coverage` and `abstain` need is fitted on it and stored in the
    model's directory.

    `options` are those of `bertsmith.tasks.read.open_data`, such as `columns={"text": "review"}`.
    """
    if isinstance(model, LoadedModel):
        if calibrate_on is not None:
            raise BertsmithError("calibrate_on changes a model's directory: name that")
        bert, name = model, ""
    else:
        bert, name = load(model, device=device), str(model)
    reading = {"usual": bert.columns, **options}
    promise(bert, name, coverage=coverage, abstain=abstain, calibrate_on=calibrate_on, **reading)
    dataset = read_data(data, task_of(bert).name, **reading)
    result = evaluation.evaluate(bert, dataset)
    if metric is not None:
        evaluation.check_score(result, metric)
    return Evaluated(bert, result, metric or result.task.metrics(dataset)[0])


@dataclass(repr=False)
class Pretrained:
    """The result of pre-training: the summary of the run, and its model."""

    out: Path
    summary: dict[str, Any]

    @cached_property
    def model(self) -> Bert:
        """The trained model, loaded when first used."""
        return load(self.out / "model")

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values."""
        return finite(self.summary)

    def _repr_html_(self) -> str:
        from bertsmith.pages.runs import read_run, report_page

        return framed(report_page(read_run(self.out)), "the run")

    def __repr__(self) -> str:
        state = "finished" if self.summary.get("finished") else "interrupted"
        return f"<pre-training {state}, in {self.out}>"


def pretrain(
    recipe: str | Path | None = None,
    data: str | Path | Mapping[str, float] | None = None,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    branch: str | Path | None = None,
    cool_down: int | None = None,
    changes: Mapping[str, Any] | None = None,
    show: str | None = None,
    log: Sequence[Any] = (),
) -> Pretrained:
    """Pre-train a model with a recipe, on a folder written by `prepare`.

    Several folders with their weights, `{"wiki": 0.7, "books": 0.3}`, are mixed. `changes`
    overrides keys of the recipe: `{"train.steps": 100}`. `branch` ("run@8000") starts from a
    checkpoint of another run, with its recipe if none is named; `cool_down` is then the number of
    steps until the end, over which the learning rate falls to 0. The run is written to `out`, by
    default a folder named after the recipe. `log` names loggers: tensorboard, wandb, mlflow.
    """
    from bertsmith.train.recipe import change, data_changes

    lines = [
        change(key, value) if isinstance(value, str) else f"{key}={_toml(value)}"
        for key, value in (changes or {}).items()
    ]
    if isinstance(data, Mapping):
        lines += data_changes([f"{path}={weight}" for path, weight in data.items()])
    elif data is not None:
        lines += data_changes([str(data)])
    if recipe is None and out is None:
        raise BertsmithError("name a recipe, or the branch of a run and out")
    folder = Path(Path(str(recipe)).stem if out is None else out)
    summary = train(
        recipe,
        folder,
        resume=resume,
        changes=lines,
        branch=branch,
        cool_down=cool_down,
        show=show,
        log=log,
    )
    return Pretrained(folder, summary)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
