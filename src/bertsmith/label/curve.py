"""How many more labels? Scores at growing numbers of labels, and a forecast.

Every size is scored on all labelled rows: each fold by models of that many rows of the other folds.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_text
from bertsmith.finetuning.frozen import FrozenEncoder
from bertsmith.finetuning.run import finetune
from bertsmith.metrics.forecast import Array, Between, Forecast, forecast
from bertsmith.metrics.intervals import drawn_weights
from bertsmith.metrics.labels import Scorer, Weights
from bertsmith.pages import Reference, Series, line_chart, page, table
from bertsmith.pages.results import framed
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import labelled
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, fold_numbers, folds_of, split_off
from bertsmith.tasks.task import Prediction

SIZES, LEAST = 6, 40  # points of the curve, and labelled rows that it needs
DRAWS = 100  # bootstrap samples of rows
CONFIDENCE = 0.9
MOST = 10**7  # labels; where a score takes more, it is never reached
FEW = 10  # rows of a class below which it lacks rows, whatever its score
Learn = Callable[[Dataset[Any]], Callable[[Sequence[Any]], list[Prediction]]]
Progress = Callable[[int, int], None]  # models that are fitted, of all


@dataclass(frozen=True)
class CurvePoint:
    """The score of models of so many labels."""

    labels: int
    score: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassRow:
    """A class: its rows, its F1 with half of the labels and with all, and whether it lacks rows."""

    name: str
    rows: int
    half: float
    all: float
    lacking: bool


@dataclass(frozen=True, repr=False)
class LearningCurve:
    """Scores at growing numbers of labels, with a forecast."""

    task: str
    metric: str
    model: str
    file: str
    labels: int  # all that there are
    points: tuple[CurvePoint, ...]
    fit: Forecast
    more: tuple[int, ...]  # additional labels that are asked about
    target: float | None
    classes: tuple[ClassRow, ...]

    def gain(self, more: int) -> Between:
        """What more labels add to the score."""
        return self.fit.gain(self.labels, more)

    def score(self, labels: float) -> Between:
        """The score of a model of so many labels."""
        return self.fit.score(labels)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        target = None
        if self.target is not None:
            needed = asdict(self.fit.labels_for(self.target))
            target = {"score": self.target, "labels": needed}
        more = []
        for count in self.more:
            gain, score = asdict(self.gain(count)), asdict(self.score(self.labels + count))
            more.append({"labels": count, "gain": gain, "score": score})
        content = {
            **{name: getattr(self, name) for name in ("task", "metric", "model", "file", "labels")},
            "confidence": self.fit.confidence,
            "points": list(map(asdict, self.points)),
            "now": asdict(self.score(self.labels)),
            "more": more,
            "exponent": self.fit.exponent,
            "limit": asdict(self.fit.limit),
            "target": target,
            "classes": list(map(asdict, self.classes)),
            "summary": self.lines(),
        }
        return dict(finite(content))

    def lines(self) -> list[str]:
        """The answer in sentences."""

        def interval(between: Between) -> str:
            return f"({100 * between.low:.1f} to {100 * between.high:.1f})"

        now, metric = self.score(self.labels), self.metric.replace("_", " ")
        lines = [f"{self.labels:,} labels: {metric} {100 * now.value:.1f} {interval(now)}"]
        for count in self.more:
            gain = self.gain(count)
            points = f"{100 * gain.value:+.1f} points {interval(gain)}"
            lines.append(f"{count:,} more labels: {points}")
        if self.target is not None:
            needed = self.fit.labels_for(self.target)
            counts = (needed.value, needed.low, needed.high)
            middle, low, high = (f"{n:,.0f}" if n < MOST else "never" for n in counts)
            lines.append(f"labels for {metric} {100 * self.target:.1f}: {middle} ({low} to {high})")
        if lacking := [row for row in self.classes if row.lacking]:
            names = (f"{row.name} ({row.rows} rows, F1 {row.all:.2f})" for row in lacking[:5])
            more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
            lines.append(f"classes that lack rows: {', '.join(names)}{more}")
        return lines

    def page(self) -> str:
        """The curve as a page."""
        sizes = np.geomspace(self.points[0].labels, self.labels + max(self.more), 40).tolist()
        between = [self.score(size) for size in sizes]
        series = [Series("measured", [(p.labels, 100 * p.score) for p in self.points], bare=True)]
        for name, title in (("low", "90% interval: low"), ("value", "fitted"), ("high", "high")):
            line = [(x, 100 * getattr(y, name)) for x, y in zip(sizes, between, strict=True)]
            outer = name != "value"
            series.append(Series(title, line, outer, color=7 if outer else 1))
        target = [Reference(100 * self.target, "wanted")] if self.target is not None else []
        chart = line_chart(
            f"{self.metric.replace('_', ' ')} by number of labels",
            series,
            x_label="labels",
            unit="%",
            references=target,
            log_x=True,
        )
        points = [
            (f"{p.labels:,}", f"{100 * p.score:.1f}", f"{100 * p.low:.1f}", f"{100 * p.high:.1f}")
            for p in self.points
        ]
        heads = ("class", "rows", "F1 with half", "F1 with all", "")
        classes = [
            (row.name, row.rows, f"{row.half:.2f}", f"{row.all:.2f}", "lacks rows" * row.lacking)
            for row in self.classes
        ]
        return page(
            "learning_curve.html",
            f"Learning curve: {self.file}",
            lines=self.lines(),
            about=f"{self.model}; {self.task}; intervals of {100 * self.fit.confidence:.0f}%",
            chart=chart,
            points=table(("labels", self.metric, "low", "high"), points),
            classes=table(heads, classes) if classes else "",
        )

    def save(self, path: str | Path) -> None:
        """Write the page."""
        write_text(Path(path), self.page())

    def _repr_html_(self) -> str:
        return framed(self.page(), "the learning curve")

    def __repr__(self) -> str:
        return f"<learning curve: {'; '.join(self.lines())}>"


def learning_curve(
    model: str | Path,
    data: Any,
    *,
    task: str | None = None,
    metric: str | None = None,
    more: Sequence[int] = (),
    target: float | None = None,
    full: bool = False,
    learn: Learn | None = None,
    folds: int = 5,
    repeats: int | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> LearningCurve:
    """Score a model at growing numbers of labels, and forecast what more labels will add.

    By default a linear layer on the frozen model's vectors learns; `full` fine-tunes the model at
    every size, which takes as long as 12 runs. `more` are numbers of additional labels, `target` is
    a score whose number of labels is wanted. `learn` is another learner: from a data set to a
    function from examples to predictions. `options` are those of `open_data`.
    """
    dataset = labelled(data if isinstance(data, Dataset) else read_data(data, task, **options))
    dataset = replace(dataset, known_labels=dataset.labels)
    kind, count = task_named(dataset.task), len(dataset)
    metric = metric or kind.metrics(dataset)[0]
    if count < LEAST:
        raise BertsmithError(f"{dataset.path}: a learning curve needs {LEAST} labelled rows")
    if target is not None and not 0 < target < 1:
        raise BertsmithError(f"target must be a score between 0 and 1, not {target}")
    if any(isinstance(labels, bool) or labels < 1 for labels in more):
        raise BertsmithError("more must be numbers of labels from 1")
    if learn is None and full:
        learn = _fine_tuning(model, device)
    elif learn is None:
        learn = _linear_layer(FrozenEncoder(model, dataset.task, device=device))
    repeats = repeats or (1 if full or count > 1000 else 2)
    sizes = _sizes(count * (folds - 1) // folds, len(dataset.labels))
    measured = _measured(
        dataset, learn, sizes, folds, repeats, seed, 2 if full else folds, progress
    )
    numbers = sorted(measured[0][0])
    scored = replace(dataset, examples=[dataset.examples[number] for number in numbers])
    values = [
        [[predictions[number].value for number in numbers] for predictions in repeated]
        for repeated in measured
    ]
    scorers = [[kind.score(scored, row, None) for row in repeated] for repeated in values]
    scores, covariance, noise = _statistics(scorers, metric, len(numbers), seed)
    fit = forecast(
        sizes, scores.tolist(), covariance, noise=noise, confidence=CONFIDENCE, seed=seed
    )
    margins = 1.645 * np.sqrt(np.diag(covariance))
    points = [
        CurvePoint(size, score, score - margin, min(1.0, score + margin))
        for size, score, margin in zip(sizes, scores.tolist(), margins.tolist(), strict=True)
    ]
    return LearningCurve(
        dataset.task,
        metric,
        str(model),
        dataset.path.name,
        count,
        tuple(points),
        fit,
        tuple(more) or tuple(dict.fromkeys(_round(count * part) for part in (0.25, 1, 4))),
        target,
        _classes(scored, sizes, values),
    )


def _statistics(
    scorers: Sequence[Sequence[Scorer]], metric: str, rows: int, seed: int
) -> tuple[Array, Array, float]:
    """The mean score of each size, their covariance, and the deviation of one model's score.

    The covariance is that of bootstrap samples of rows, and of models of the same size.
    """
    if metric not in (known := scorers[0][0](None)):
        raise BertsmithError(f"unknown score {metric!r}; available: {', '.join(known)}")

    def each(weights: Weights | None) -> Array:
        """The scores of all sizes and repeats (sizes, repeats)."""
        return np.array([[score(weights)[metric] for score in repeated] for repeated in scorers])

    sizes, repeats = len(scorers), len(scorers[0])
    drawn = np.array([each(weights).mean(1) for weights in drawn_weights(rows, DRAWS, seed)])
    spread = np.cov(drawn[np.isfinite(drawn).all(1)].T)
    # How much models of the same number of labels differ; of one repeat, as a part of the spread.
    variance = float(np.trace(spread)) / sizes / 4
    if repeats > 1:
        variance = float(each(None).var(1, ddof=1).mean())
    return each(None).mean(1), spread + np.eye(sizes) * variance / repeats, variance**0.5


def _linear_layer(encoder: FrozenEncoder) -> Learn:
    """A linear layer on frozen vectors, whose regularisation is chosen once for each size."""
    strengths: dict[int, float] = {}

    def learn(dataset: Dataset[Any]) -> Callable[[Sequence[Any]], list[Prediction]]:
        size = len(dataset)
        chosen: Any = {"strengths": [strengths[size]]} if size in strengths else {}
        learner = encoder.fit(dataset, **chosen)
        strengths[size] = learner.strength
        return learner.predictions

    return learn


def _fine_tuning(model: str | Path, device: str | None) -> Learn:
    """Fine-tuning of the whole model; a tenth of the rows chooses the epoch."""

    def learn(dataset: Dataset[Any]) -> Callable[[Sequence[Any]], list[Prediction]]:
        train, dev, _ = split_off(dataset, 0.1)
        bert = finetune(model, Splits(train, dev), device=device, progress=False).bert
        kind = task_named(dataset.task)
        return lambda examples: kind.predict(bert, examples)

    return learn


def _sizes(most: int, labels: int) -> list[int]:
    """Numbers of labels from few to most, in equal ratios."""
    least = max(most / 16, min(2 * labels, most / 4), 8)
    return sorted({int(size) for size in np.geomspace(least, most, SIZES).round()})


def _measured(
    dataset: Dataset[Any],
    learn: Learn,
    sizes: Sequence[int],
    folds: int,
    repeats: int,
    seed: int,
    scored: int,
    progress: Progress | None,
) -> list[list[dict[int, Prediction]]]:
    """For each size and repeat the predictions by the example's number, of the `scored` folds."""
    measured: list[list[dict[int, Prediction]]] = [[{} for _ in range(repeats)] for _ in sizes]
    done = 0
    for repeat in range(repeats):
        divided = list(folds_of(dataset, fold_numbers(dataset, folds, seed + repeat)))[:scored]
        for fold, (rest, held) in enumerate(divided):
            order = np.random.default_rng((seed, repeat, fold)).permutation(len(rest.examples))
            for place, size in enumerate(sizes):
                some = replace(rest, examples=[rest.examples[number] for number in order[:size]])
                predictions = learn(some)([dataset.examples[number] for number in held])
                measured[place][repeat] |= zip(held, predictions, strict=True)
                done += 1
                if progress is not None:
                    progress(done, len(sizes) * repeats * len(divided))
    return measured


def _round(count: float) -> int:
    """A number of labels as people ask for: 1, 2 or 5 with zeros."""
    power = 10 ** int(np.floor(np.log10(max(count, 1))))
    return int(min((1, 2, 5, 10), key=lambda step: abs(step - count / power)) * power)


def _classes(
    dataset: Dataset[Any], sizes: Sequence[int], values: list[list[list[Any]]]
) -> tuple[ClassRow, ...]:
    """F1 of every class with about half of the labels and with all; those that lack rows first."""
    kind = task_named(dataset.task)
    half = min(range(len(sizes) - 1), key=lambda place: abs(sizes[place] - sizes[-1] / 2))
    before, after = ([kind.per_class(dataset, v) for v in values[place]] for place in (half, -1))

    def f1_of(name: str, repeats: Sequence[Any]) -> float:
        return fmean(scores[name].f1 if name in scores else 0.0 for scores in repeats)

    supports = {name: int(row.support) for name, row in after[0].items() if row.support}
    rows = [
        ClassRow(name, count, f1_of(name, before), f1_of(name, after), False)
        for name, count in supports.items()
    ]
    if not rows:
        return ()
    mean, common = fmean(row.all for row in rows), median(supports.values())

    def lacks(row: ClassRow) -> bool:
        return row.rows < FEW or (
            row.rows <= common and row.all < mean and row.all - row.half > 0.03
        )

    rows = [replace(row, lacking=lacks(row)) for row in rows]
    return tuple(sorted(rows, key=lambda row: (not row.lacking, row.all)))
