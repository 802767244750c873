"""Predictions for the rows of any source, portion by portion, in bounded memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.data.predictions import merged, open_predictions
from bertsmith.data.tables import PORTION
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.read import Data, open_data
from bertsmith.tasks.registry import task_of
from bertsmith.tasks.task import Prediction, Task

FEW = 32  # examples of a portion when they are explained, which is slow


@dataclass(frozen=True)
class Predicted:
    """Some rows with their predictions, and the share of the source that has been read."""

    rows: list[dict[str, Any]]
    share: float


@dataclass(frozen=True)
class Embedded:
    """Some rows with their texts and vectors."""

    rows: Sequence[Mapping[str, Any]]
    texts: list[str]
    vectors: Any  # (N, D)


def predict_rows(
    bert: LoadedModel,
    data: Data,
    *,
    top: int = 1,
    explain: bool = False,
    size: int | None = None,
    task: Task | None = None,
) -> Iterator[Predicted]:
    """Every row of a source with its prediction, in order; a row without a text has none."""
    task = task or task_of(bert)
    for portion in data.portions(FEW if explain else size or bert.portion(PORTION)):
        complete = [example for example in portion.examples if example is not None]
        predictions = iter(predict(bert, complete, top, task))
        results, names = list[dict[str, Any]](), {}
        for example in portion.examples:
            results.append({})
            if example is not None:
                prediction = next(predictions)
                results[-1] = rounded(prediction.output)
                if task.confident:
                    results[-1]["confidence"] = rounded(prediction.confidence)
                if explain:
                    results[-1]["explanation"] = task.explain(bert, example, prediction)
                names.update(dict.fromkeys(results[-1]))
        pairs = zip(portion.rows, results, strict=True)
        rows = [merged(row, data.names, result or names) for row, result in pairs]
        yield Predicted(rows, portion.share)


def embed_rows(bert: Any, data: Data, **options: Any) -> Iterator[Embedded]:
    """Every row of a source with its vector, in order; `options` are those of `Bert.embed`."""
    for portion in data.portions(bert.portion(PORTION)):
        texts = ["" if one is None else one.texts[0] for one in portion.examples]
        yield Embedded(portion.rows, texts, bert.embed(texts, **options))


def rounded(value: Any) -> Any:
    """Numbers with the seven digits that float32 has; of lists and objects, those inside."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def predict_source(
    bert: LoadedModel,
    source: Any,
    out: str | Path | None = None,
    top: int = 1,
    labels: Sequence[str] | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Every row of a source, read with the options of `open_data`, with its prediction."""
    options = {"usual": bert.columns, **options}
    task = task_of(bert, labels)
    data = open_data(source, task.reading.name, ledger=bert.ledger, **options)
    with open_predictions(Path(out), None, bert.ledger, data) if out else nullcontext() as writer:
        for portion in predict_rows(bert, data, top=top, task=task):
            if writer is not None:
                writer.write(portion.rows)
            yield from portion.rows


def predict(
    bert: LoadedModel, examples: Sequence[Any], top: int = 1, task: Task | None = None
) -> list[Prediction]:
    """A prediction for every example; of answers, `output` holds the `top` best."""
    if not examples:
        return []
    task = task or task_of(bert)
    task.demand_kind(examples[0])
    return task.predict(bert, examples, top)
