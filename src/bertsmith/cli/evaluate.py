"""`bertsmith evaluate`: score a model on a file, or compare two models on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, flag, option
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.bert import Bert
    from bertsmith.tasks.evaluate import Evaluation


def evaluate(
    model: shared.Model,
    files: list[str] = argument(..., "A data file, or several plain-text files.", metavar="FILE"),
    against: str | None = option(None, "Another model, to compare with on the same data."),
    limit: int = option(0, "Score a random sample of this many examples; 0: all.", min=0),
    coverage: float | None = option(
        None, "Coverage of the sets of labels, or intervals: how often they hold the true one."
    ),
    abstain: float | None = option(
        None, "With --calibrate-on: accuracy that predictions without abstention must have."
    ),
    calibrate_on: Path | None = option(
        None,
        "Rows that the model was not trained on: store in its directory what --coverage and "
        "--abstain need, then score FILE.",
    ),
    metric: str | None = option(None, "Metric by which the models are compared."),
    draws: int = option(1000, "Bootstrap samples for intervals and comparisons.", min=1),
    report: Path | None = option(None, "Write a report page: report.html."),
    masked_lm: bool = flag(
        "--masked-lm",
        "Score masked LM on the texts of the file: the default for a text file and a "
        "model without a task head.",
    ),
    pseudo_perplexity: bool = flag(
        "--pseudo-perplexity",
        "With masked LM, also mask every token alone; one pass for each token.",
    ),
    label_names: tasks.LabelNames = None,
    device: shared.Device = None,
    dtype: shared.Dtype = None,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Score a model on a file, or compare it with another.

    All labelled examples are scored. Two models are compared with a paired bootstrap. On plain
    text (one text a line, or documents between blank lines) a masked-LM model is scored by its
    loss, accuracy and perplexity.
    """
    from bertsmith.files import finite
    from bertsmith.finetuning.calibrate import promise
    from bertsmith.tasks.evaluate import compare, interval, sample_of
    from bertsmith.tasks.evaluate import evaluate as score
    from bertsmith.tasks.read import read_data
    from bertsmith.tasks.registry import task_of
    from bertsmith.tasks.similarity.task import no_task_head

    names = [model, against] if against else [model]
    first = shared.open_model(model, device, dtype)
    models = chain([first], (shared.open_model(name, device, dtype) for name in names[1:]))
    if masked_lm or pseudo_perplexity or _is_for_masked_lm(first, files[0], columns):
        if metric or report is not None:
            raise BertsmithError("--metric and --report are for labelled data, not for masked LM")
        _masked_lm(names, files, models, pseudo_perplexity, as_json)
        return
    if len(files) > 1:
        raise BertsmithError("give one file of labelled data")
    file, task = files[0], task_of(first)
    reading = {"usual": first.columns, **tasks.reading(columns)}
    if task.head is None and not task.scores(read_data(file, **reading)):
        raise no_task_head(first)
    fitted = promise(
        first, model, coverage=coverage, abstain=abstain, calibrate_on=calibrate_on, **reading
    )
    if fitted is not None:
        rows_used = f"{fitted['kept_apart']:,} rows of {calibrate_on}"
        shared.note(f"calibrated on {rows_used}; stored in {fitted['stored_in']}")
    examples = read_data(file, task.name, label_names=tasks.names_of(label_names), **reading)
    dataset, evaluations = sample_of(examples, limit), []
    for name, bert in zip(names, models, strict=True):
        try:
            evaluations.append(score(bert, dataset))
        except BertsmithError as error:
            raise BertsmithError(f"{name}: {error.message}") from None
        shared.notes(bert.ledger.lines())
    metric = metric or evaluations[0].task.metrics(dataset)[0]
    result: dict[str, Any] = {
        "file": file,
        "task": dataset.task,
        "metric": metric,
        "models": [
            {"model": name, "scores": finite(run.scores), "details": finite(run.details())}
            for name, run in zip(names, evaluations, strict=True)
        ],
    }
    if against:
        result["comparison"] = asdict(compare(evaluations[0], evaluations[1], metric, draws))
    else:
        result["interval"] = asdict(interval(evaluations[0], metric, draws))
    if report is not None:
        from bertsmith.reports.report import write_evaluation

        write_evaluation(report, evaluations[-1], names[-1], metric, draws)
    shared.output(as_json, [result], lambda: _show(result, names, evaluations, report))


def _is_for_masked_lm(bert: Bert, file: str, columns: Any) -> bool:
    """Return whether masked LM is the only head, and the file holds texts without labels."""
    from bertsmith.tasks.masked_lm import is_plain_text
    from bertsmith.tasks.read import read_data
    from bertsmith.tasks.registry import task_of

    task = task_of(bert)
    if task.head is not None or "masked_lm" not in bert.model.heads:
        return False
    if is_plain_text(file):
        return True
    dataset = read_data(file, **tasks.reading(columns))
    return not task.scores(dataset) and not dataset.gold()


def _masked_lm(
    names: Sequence[str], files: list[str], models: Iterable[Bert], pseudo: bool, as_json: bool
) -> None:
    from bertsmith.tasks.masked_lm import read_texts, score_masked_lm

    scores, vocabularies = [], []
    for bert in models:
        texts = chain.from_iterable(read_texts(file) for file in files)
        scores.append(score_masked_lm(bert, texts, pseudo=pseudo))
        vocabularies.append(bert.tokenizer.vocabulary())
        shared.notes(bert.ledger.lines())
    rows = [{"model": name, "scores": row} for name, row in zip(names, scores, strict=True)]
    result = {"file": ", ".join(files), "task": "masked_lm", "models": rows}
    table = dict(zip(_headings(names), scores, strict=True))
    shared.output(as_json, [result], lambda: tasks.show_scores(table))
    if vocabularies[0] != vocabularies[-1]:
        shared.note("the vocabularies differ: scores are per token, and not comparable")


def _show(
    result: dict[str, Any],
    names: Sequence[str],
    evaluations: Sequence[Evaluation],
    report: Path | None,
) -> None:
    headings = _headings(names)
    scores = [evaluation.scores for evaluation in evaluations]
    tasks.show_scores(dict(zip(headings, scores, strict=True)))
    if comparison := result.get("comparison"):
        line = _verdict(headings, **comparison)
    else:
        low, high = result["interval"]["low"], result["interval"]["high"]
        line = f"95 % interval {low:.4f} to {high:.4f}"
        if not (isfinite(low) and isfinite(high)):
            line = "too few examples for a value and an interval"
    typer.echo(f"{result['metric']}: {line}")
    shared.notes(dict.fromkeys(note for run in evaluations for note in run.notes))
    inspection.written(report)
    shared.notes(tasks.read_from(evaluations[0].dataset))


def _verdict(
    names: Sequence[str], difference: float, low: float, high: float, p_value: float, **_: Any
) -> str:
    if not isfinite(difference):
        return "too few examples to compare the two models"
    verdict = f"{names[difference > 0]} is better" if p_value < 0.05 else "not significant"
    return (
        f"{names[1]} - {names[0]} = {difference:+.4f} "
        f"(95 % interval {low:+.4f} to {high:+.4f}, p = {p_value:.3g}): {verdict}"
    )


def _headings(names: Sequence[str]) -> Sequence[str]:
    """The last parts of the models' paths, where they differ; a run's is run/model."""
    paths = [Path(name) for name in names]
    short = [f"{p.parent.name}/{p.name}" if p.name == "model" else p.name or str(p) for p in paths]
    return short if len(set(short)) == len(short) else names
