"""report.html: the report of a fine-tuning run, or of an evaluation on a file."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.files import write_text
from bertsmith.metrics.curves import coverage, precision_recall
from bertsmith.metrics.labels import known
from bertsmith.metrics.numbers import ranks
from bertsmith.pages import (
    MarkedPart,
    Series,
    bar_list,
    class_bars,
    confusion_matrix,
    highlighted,
    line_chart,
    page,
    reliability,
    smoothed,
    table,
)
from bertsmith.tasks.evaluate import Evaluation, interval
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import DisplayText, Mark, Prediction, Task
from bertsmith.tasks.training import TASK_OPTIONS

WORST = 300  # errors in the page
CLASSES = 20  # bars of more classes are sorted by F1, and folded after these
CONFUSIONS = 10  # pairs of classes that are confused most often
LABELS = 40  # a larger matrix shows the labels with most errors
EACH = 25  # examples behind a cell of the matrix
ALL = 3000  # and behind all of them
CURVES_OF = 500  # labels, each of which is compared with all examples
CURVES = 6  # labels with a precision-recall curve: those with the lowest average precision
POINTS = 200  # of a curve
KINDS = {"correct": "good", "missed": "label", "wrong": "bad"}


def write_evaluation(
    path: Path, result: Evaluation, model: str, metric: str, draws: int = 1000
) -> None:
    """Write a page about one model on one file."""
    ends = asdict(interval(result, metric, draws))
    content = {
        "task": result.dataset.task,
        "model": model,
        "metric": metric,
        "files": {"test": {"file": result.dataset.path.name, "examples": len(result.dataset)}},
        "scores": {"dev": None, "test": result.scores},
        "intervals": {"dev": None, "test": ends if math.isfinite(ends["low"]) else None},
        "over_seeds": {"dev": None, "test": None},
        "seeds": [],
        "sweep": [],
        "notes": result.notes,
        "ledger": dict(result.dataset.ledger.counts),
        "settings": {},
    }
    write_text(path, report_page(content, result, None))


def report_page(
    content: Mapping[str, Any], result: Evaluation | None, losses: Sequence[float] | None
) -> str:
    """The page about a run whose scores and settings are `content`; `losses` of each step."""
    metric, training = content["metric"], ""
    sweep = [
        (f"{run['learning_rate']:g}", run["epochs"], run["dev"][metric]) for run in content["sweep"]
    ]
    if losses is not None:
        speed = f"{content['examples_per_second']:,.1f} examples per second"
        training = f"Epoch {content['kept_epoch']} was kept; {speed}."
    return page(
        "report.html",
        f"{content['task'].capitalize()}: {Path(content['model']).name}",
        scripts=("page.js", "report.js"),
        tiles=_tiles(content),
        notes=content["notes"],
        scores=_scores(content),
        baseline=_baseline(content),
        teacher=_teacher(content),
        curves=[] if losses is None else _curves(content, losses),
        training=training,
        sweep=table(("learning rate", "epochs", f"dev {readable(metric)}"), sweep) if sweep else "",
        classes=_classes(result),
        matrix=_matrix(result),
        thresholds=[] if result is None else [*_precision_recall(result), *_coverage(result)],
        calibration=_calibration(result),
        numbers=[] if result is None else _numbers(result),
        errors=None if result is None else _errors(result),
        ledger=content["ledger"],
        settings=_used(content),
    )


def _used(content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those of other tasks and of another optimizer."""
    settings = dict(content["settings"])
    unused = set(TASK_OPTIONS) - task_named(content["task"]).options
    if not settings.get("matrix_learning_rate"):
        unused.add("matrix_learning_rate")
    return {name: settings[name] for name in settings if name not in unused}


def _tiles(content: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    split = "test" if content["scores"]["test"] else "dev"
    scores, metric = content["scores"][split], content["metric"]
    tiles = []
    if scores:
        value, runs, summary = f"{scores[metric]:.4f}", "", content["over_seeds"][split]
        if summary:
            what = "folds" if content.get("folds") and split == "dev" else "seeds"
            value = f"{summary['mean']:.4f} ± {summary['deviation']:.4f}"
            runs = f"{summary['count']} {what}; "
        ends = summary or content["intervals"][split]
        interval = f"95% interval {ends['low']:.4f} to {ends['high']:.4f}" if ends else ""
        tiles.append((f"{readable(metric)} ({split})", value, "", runs + interval))
    for name, file in content["files"].items():
        tiles.append((name, f"{file['examples']:,}", "examples", file["file"]))
    return tiles


def readable(metric: str) -> str:
    """The name of a score for people: macro_f1 as "macro F1"."""
    words = metric.replace("_", " ").replace("f1", "F1")
    return {"mcc": "Matthews correlation", "count": "examples"}.get(words, words)


def _scores(content: Mapping[str, Any]) -> list[Any]:
    splits = {name: scores for name, scores in content["scores"].items() if scores}
    names = list(dict.fromkeys(name for scores in splits.values() for name in scores))
    tables = [
        table(
            ("", *splits),
            [(readable(name), *(scores.get(name) for scores in splits.values())) for name in names],
        )
    ]
    if len(content["seeds"]) > 1:
        metric = content["metric"]
        seeds = [
            (str(one["seed"]), *(one[name][metric] if one[name] else None for name in splits))
            for one in content["seeds"]
        ]
        tables.append(table(("seed", *(f"{readable(metric)} ({name})" for name in splits)), seeds))
    if average := content.get("average"):
        rows = [(str(member["number"]), member["dev"]) for member in average["members"]]
        rows += [
            (f"average of {', '.join(map(str, mean['members']))}", mean["dev"])
            for mean in average["tried"]
        ]
        tables.append(table((average["of"], f"{readable(average['metric'])} (dev)"), rows))
    return tables


def _baseline(content: Mapping[str, Any]) -> Any:
    metric = content["metric"]
    simple = [content.get(name) or {} for name in ("baseline", "vectors")]
    models = [{"name": "this model", "scores": content["scores"]}, *simple]
    for split in ("test", "dev"):
        scores = {
            model["name"]: score
            for model in models
            if (score := ((model.get("scores") or {}).get(split) or {}).get(metric)) is not None
        }
        if "this model" in scores and len(scores) > 1:
            rows = [(name, score, f"{score:.4f}") for name, score in scores.items()]
            weak = range(1, len(rows))
            return {
                "title": f"{readable(metric)} ({split})",
                "bars": bar_list(rows, most=max(1.0, *scores.values()), weak=weak),
                "note": "; ".join(filter(None, (model.get("note") for model in simple))),
            }
    return None


def _teacher(content: Mapping[str, Any]) -> Any:
    distilled = content.get("distillation")
    if not distilled:
        return None
    lines = [
        f"{split} {test['metric']}: student less teacher is {test['difference']:+.4f} (95 %:"
        f" {test['low']:+.4f} to {test['high']:+.4f}; paired bootstrap, p = {test['p_value']:.3g})"
        for split, test in distilled["comparison"].items()
    ]
    rows = table(("", "teacher", "student"), distilled["table"])
    return {"about": distilled["about"], "rows": rows, "lines": lines + distilled["notes"]}


def _curves(content: Mapping[str, Any], losses: Sequence[float]) -> list[Any]:
    points, metric = [(float(step), loss) for step, loss in enumerate(losses, 1)], content["metric"]
    charts = [line_chart("Training loss", [Series("loss", smoothed(points))], x_label="step")]
    epochs = enumerate(content["epochs"], 1)
    if scores := [(float(n), row[metric]) for n, row in epochs if metric in row]:
        series = [Series(f"dev {readable(metric)}", scores, dots=True)]
        charts.append(line_chart(f"Dev {readable(metric)}", series, x_label="epoch"))
    return charts


def _classes(result: Evaluation | None) -> Any:
    scores = {} if result is None else result.task.per_class(result.dataset, result.values)
    rows = [(name, s.precision, s.recall, s.f1, s.support) for name, s in scores.items()]
    most = max((row[-1] for row in rows), default=0)
    if len(rows) > CLASSES:
        rows.sort(key=lambda row: row[3])
    first, rest = class_bars(rows[:CLASSES], most), rows[CLASSES:]
    folded = {"rest": class_bars(rest, most) if rest else "", "count": len(rest)}
    return {"first": first, **folded} if rows else None


def _precision_recall(result: Evaluation) -> list[Any]:
    """Precision-recall curves of labels; of two labels, that of the positive one and its F1."""
    outputs = [prediction.output.get("scores") for prediction in result.predictions]
    scores = [output for output in outputs if isinstance(output, dict)]
    if not scores or len(scores) < len(outputs):
        return []
    names = list(scores[0])
    binary = result.task.positive(names)
    if binary is not None:
        names = [binary]
    if len(names) > CURVES_OF:
        return []
    labels = [result.task.label_of(example) for example in result.dataset.examples]
    curves = {}
    for name in names:
        flags = [name == label if isinstance(label, str) else name in label for label in labels]
        if any(flags):
            curves[name] = precision_recall([row[name] for row in scores], flags)
    shown = sorted(curves, key=lambda name: curves[name].average_precision)[:CURVES]
    if not shown:
        return []
    series = []
    for name in shown:
        curve = curves[name]
        points = [(0.0, 100 * float(curve.precision[0])), *_curve(curve.recall, curve.precision)]
        series.append(Series(f"{name} (AP {curve.average_precision:.3f})", points))
    rest = "" if len(shown) == len(curves) else f" of the {len(shown)} hardest classes"
    axes: Any = {"x_label": "recall (%)", "y_label": "precision", "unit": "%", "from_zero": True}
    charts = [line_chart(f"Precision and recall{rest}", series, **axes)]
    if binary is not None:
        curve = curves[shown[0]]
        lines = {"precision": curve.precision, "recall": curve.recall, "F1": curve.f1}
        title = f"Threshold of {shown[0]}"
        charts.append(_by_threshold(title, curve.thresholds, lines, "threshold"))
    return charts


def _coverage(result: Evaluation) -> list[Any]:
    correct = result.task.correct(result.dataset, result.values)
    if correct is None:
        return []
    curve = coverage([one.confidence for one in result.predictions], correct)
    lines = {"accuracy": curve.accuracy, "examples kept": curve.coverage}
    title, unit = "Accuracy above a confidence", "confidence threshold"
    return [_by_threshold(title, curve.thresholds, lines, unit)]


def _by_threshold(title: str, places: Any, lines: Mapping[str, Any], label: str) -> Any:
    series = [Series(name, _curve(places, values)) for name, values in lines.items()]
    return line_chart(title, series, x_label=f"{label} (%)", unit="%", from_zero=True)


def _curve(x: NDArray[Any], y: NDArray[Any]) -> list[tuple[float, float]]:
    picks = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(int))
    return [(100 * float(x[place]), 100 * float(y[place])) for place in picks]


def _calibration(evaluation: Evaluation | None) -> dict[str, Any] | None:
    result = None if evaluation is None else evaluation.calibration()
    if result is None:
        return None
    rows = [
        (f"{bin.low:.2f} to {bin.high:.2f}", bin.count, bin.confidence, bin.accuracy)
        for bin in result.bins
    ]
    return {
        "error": f"{result.expected:.4f}",
        "chart": reliability([row[2:] for row in rows]),
        "bins": table(("confidence", "predictions", "mean confidence", "accuracy"), rows),
    }


def _numbers(result: Evaluation) -> list[Any]:
    labels = [result.task.label_of(example) for example in result.dataset.examples]
    if not result.task.numeric or len(set(labels)) < 2:
        return []
    pairs = list(zip(map(float, labels), map(float, result.values), strict=True))
    what = result.task.measure or "prediction"
    series = [Series(what, sorted(pairs)[:: max(1, len(pairs) // POINTS)], bare=True)]
    if not result.task.measure:  # a cosine has another unit than the labels
        ends = (min(min(pair) for pair in pairs), max(max(pair) for pair in pairs))
        series.append(Series("label", [(end, end) for end in ends], quiet=True, color=7))
    return [line_chart("Predictions by label", series, x_label="label", y_label=what)]


def _matrix(result: Evaluation | None) -> dict[str, Any] | None:
    """The matrix, and a few examples of every cell, which are hidden until one is chosen."""
    sides = None if result is None else result.task.classes(result.dataset, result.values)
    if result is None or sides is None:
        return None
    everything, names = known(*sides), _most_confused(*sides)
    counts = Counter(zip(*sides, strict=True))
    labelled, guessed = (Counter(side) for side in sides)
    place = {name: number for number, name in enumerate(names)}
    cells: dict[tuple[int, int], list[int]] = {}
    for number, (label, predicted) in enumerate(zip(*sides, strict=True)):
        if label in place and predicted in place:
            cells.setdefault((place[label], place[predicted]), []).append(number)
    size = max(1, min(EACH, ALL // max(1, len(cells))))
    return {
        "table": confusion_matrix(
            [[counts[a, b] for b in names] for a in names],
            names,
            [labelled[name] for name in names],
            [guessed[name] for name in names],
        ),
        "confusions": _confusions(counts) if len(everything) > 2 else "",
        "left_out": len(everything) - len(names),
        "examples": [
            {**_example(result, number), "cell": f"{row}-{column}"}
            for (row, column), numbers in sorted(cells.items())
            for number in numbers[:size]
        ],
    }


def _confusions(counts: Counter[tuple[str, str]]) -> Any:
    pairs = [
        (f"{label} → {predicted}", float(count), f"{count:,}")
        for (label, predicted), count in sorted(counts.items())
        if label != predicted and count > 1
    ]
    pairs.sort(key=lambda pair: -pair[1])
    return bar_list(pairs[:CONFUSIONS]) if pairs else ""


def _most_confused(labels: Sequence[str], predicted: Sequence[str]) -> list[str]:
    """The labels that the matrix shows: all, or those with most errors."""
    names = known(labels, predicted)
    if len(names) <= LABELS:
        return names
    wrong = dict.fromkeys(names, 0)
    for label, prediction in zip(labels, predicted, strict=True):
        wrong[label] += label != prediction
        wrong[prediction] += label != prediction
    often = set(sorted(names, key=lambda name: -wrong[name])[:LABELS])
    return [name for name in names if name in often]


def _errors(result: Evaluation) -> dict[str, Any]:
    """The errors: the wrongest first, and of those the ones with the highest confidence."""
    correctness: Sequence[float] = result.correctness()
    labels = [result.task.label_of(example) for example in result.dataset.examples]
    if result.task.measure and len(set(labels)) > 1:
        # Predictions and labels have different units: their ranks are compared.
        correctness = (-abs(ranks(labels) - ranks(result.values))).tolist()
    rows = enumerate(zip(correctness, result.predictions, strict=True))
    wrong = [(good, -p.confidence, n) for n, (good, p) in rows if good < result.task.perfect]
    return {
        "numeric": result.task.numeric,
        "examples": [_example(result, number) for _, _, number in sorted(wrong)[:WORST]],
        "count": len(wrong),
        "total": len(result.dataset),
    }


def _example(result: Evaluation, number: int) -> dict[str, Any]:
    return display_parts(result.task, result.dataset.examples[number], result.predictions[number])


def display_parts(task: Task, example: Any, prediction: Prediction) -> dict[str, Any]:
    """An example for example.html: where it is, its texts with marks, label and prediction."""
    shown = task.display(example, prediction)
    confident = shown.confidence is not None and task.confident
    file = example.where.file.replace("\\", "/").rpartition("/")[2]
    return {
        "where": f"{file}, {example.where.unit} {example.where.number}",
        "passages": [(one.title, _parts(one)) for one in shown.passages],
        "label": shown.label,
        "prediction": shown.prediction,
        "correct": shown.label == shown.prediction,
        "confidence": f"{shown.confidence:.3f}" if confident else "",
        "kinds": sorted({_kind(mark) for one in shown.passages for mark in one.marks} - {""}),
        "cell": "",
    }


def _kind(mark: Mark) -> str:
    """The kind of an error in a text, such as "PER (missed)"; empty for a correct mark."""
    return "" if mark.kind == "correct" else f"{mark.note} ({mark.kind})".strip()


def _parts(passage: DisplayText) -> list[MarkedPart]:
    spans = [(one.start, one.end, KINDS[one.kind], _kind(one) or one.note) for one in passage.marks]
    return highlighted(passage.text, spans)
