"""report.html: the page of a comparison, with examples on which variants disagree."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import pages
from bertsmith.compare.parts import PRETRAIN, RATE, SCORE, parts_of
from bertsmith.compare.results import plain, results_at, runs_of
from bertsmith.compare.spec import Spec
from bertsmith.compare.summary import budget_name, loss_terms
from bertsmith.compare.work import PartRunner
from bertsmith.tasks.registry import task_named

TERMS = {
    "masked_lm": "masked LM",
    "following_lm": "next token",
    "next_sentence": "next sentence",
    "sentence_order": "sentence order",
    "replaced": "replaced tokens",
    "generator": "the generator's masked LM",
}


def report_page(
    worker: PartRunner, results: dict[str, Any], timings: dict[str, Any], texts: bool
) -> str:
    """The whole page; without `texts` it holds no example of the data."""
    spec = worker.spec
    color = {name: number for number, name in enumerate(spec.variants)}
    budgets = list(results["scores"])
    return pages.page(
        "compare.html",
        spec.about or "Comparison",
        subtitle=_subtitle(spec, timings),
        results=results,
        budgets=[
            {
                "name": budget_name(spec, budget),
                "scores": _scores(results, budget, color),
                "pareto": _pareto(results, timings, budget, color),
                "curves": _curves(spec, results, budget, color),
                "tests": _tests(results, budget),
                "rates": _rates(results, budget),
                "tasks": _disagreements(worker, budget, texts),
            }
            for budget in budgets
        ],
        costs=_costs(results, timings),
        effort=_effort(spec, timings),
        texts=texts,
        spec=spec.toml(),
    )


def _subtitle(spec: Spec, timings: dict[str, Any]) -> str:
    budgets = " or ".join(budget_name(spec, kind) for kind in spec.budget.kinds())
    counts = f"{len(spec.variants)} variants"
    if budgets:
        counts += f", {budgets}, {spec.seeds} pre-training seed{'s' * (spec.seeds > 1)}"
        seeds = spec.finetune.seeds
        counts += f" × {seeds} fine-tuning seed{'s' * (seeds > 1)}" if spec.tasks else ""
    return f"{counts}; run on {timings['device']}"


def _scores(results: dict[str, Any], budget: str, color: dict[str, int]) -> list[Any]:
    def chart(title: str, rows: dict[str, Any]) -> Any:
        points = [
            pages.ChartPoint(name, 0.0, one["mean"], one["low"], one["high"], color[name])
            for name, one in sorted(rows.items(), key=lambda item: -item[1]["mean"])
        ]
        return pages.interval_chart(title, points)

    charts = [
        chart(f"{task} ({results['tasks'][task]['metric']})", rows)
        for task, rows in results["scores"][budget].items()
    ]
    means = results["mean"][budget]
    return [chart("Mean over tasks", means), *charts] if len(charts) > 1 and means else charts


def _pareto(
    results: dict[str, Any], timings: dict[str, Any], budget: str, color: dict[str, int]
) -> list[Any]:
    means, variants, charts = results["mean"][budget], results["variants"], []
    training = {name: one.get("budgets", {}).get(budget) or {} for name, one in variants.items()}
    for title, label, values, key in (
        ("Training cost", "FLOPs of pre-training", training, "flops"),
        ("CPU latency", "ms for one sequence", timings["variants"], "latency_ms"),
        ("Size", "parameters of the encoder", variants, "parameters"),
    ):
        points = [
            pages.ChartPoint(name, x, one["mean"], one["low"], one["high"], color[name])
            for name, one in means.items()
            if (x := values[name].get(key)) is not None
        ]
        if points:
            charts.append(
                pages.point_chart(title, points, x_label=label, y_label="mean score", log_x=True)
            )
    return charts


def _curves(spec: Spec, results: dict[str, Any], budget: str, color: dict[str, int]) -> list[Any]:
    """Held-out losses at each quarter of the budget; task scores where they were asked for."""
    terms: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, runs in results["pretraining"][budget].items():
        curves = [run["held_out"] for run in runs if run.get("held_out")]
        for term in loss_terms(curves[0][0]) if curves else ():
            terms.setdefault(term, {})[name] = [
                (100 * row["at"], sum(curve[place][term] for curve in curves) / len(curves))
                for place, row in enumerate(curves[0])
                if all(len(curve) > place and term in curve[place] for curve in curves)
            ]

    def chart(title: str, unit: str, lines: dict[str, list[tuple[float, float]]]) -> Any:
        series = [
            pages.Series(name, one, dots=True, color=color[name]) for name, one in lines.items()
        ]
        return pages.line_chart(title, series, x_label="% of the budget", y_label=unit)

    charts = [
        chart(f"Held-out loss, {TERMS.get(term, term)}", "nats", lines)
        for term, lines in terms.items()
    ]
    if len(spec.finetune.at) > 1:
        for task, scores in results["scores"][budget].items():
            metric = results["tasks"][task]["metric"]
            lines = {
                name: [(100 * float(at), value) for at, value in one["at"].items()]
                for name, one in scores.items()
            }
            charts.append(chart(f"{task}, {metric}", metric, lines))
    return charts


def _tests(results: dict[str, Any], budget: str) -> list[tuple[str, Any]]:
    headings = ("pair", "difference", "95% interval", "p", "p (Holm)", "result")
    tables = []
    for task, rows in results["comparisons"][budget].items():
        cells = [
            (
                f"{row['second']} – {row['first']}",
                f"{row['difference']:+.4f}",
                f"{row['low']:+.4f} to {row['high']:+.4f}",
                f"{row['p']:.4f}",
                f"{row['p_corrected']:.4f}",
                _verdict(row),
            )
            for row in sorted(rows, key=lambda row: -abs(row["difference"]))
        ]
        if cells:
            tables.append((task, pages.table(headings, cells)))
    return tables


def _verdict(row: dict[str, Any]) -> str:
    if row["different"]:
        return f"{row['second'] if row['difference'] > 0 else row['first']} is better"
    if not row["difference"]:
        return "no difference observed"
    if row["seeds_needed"] is not None:
        return f"not detectable; about {row['seeds_needed']:,} seeds each would be needed"
    if row["test_set_too_small"]:
        return "not detectable; the test set is too small"
    return "not detectable"


def _rates(results: dict[str, Any], budget: str) -> list[tuple[str, Any]]:
    """The dev scores of each learning rate; the chosen one is marked."""
    tables = []
    for task, rows in results["learning_rates"][budget].items():
        rates = list(dict.fromkeys(rate for trials in rows.values() for rate in trials["dev"]))
        if len(rates) > 1:
            cells = []
            for name, trials in rows.items():
                forms = ["{:.4f}" + " ✓" * (float(rate) == trials["chosen"]) for rate in rates]
                scores = (trials["dev"].get(rate) for rate in rates)
                cells.append((name, *map(_cell, scores, forms)))
            tables.append((task, pages.table(("variant", *rates), cells)))
    return tables


def _disagreements(worker: PartRunner, budget: str, texts: bool) -> list[dict[str, Any]]:
    tasks = []
    for task in worker.spec.tasks:
        rows = _correctness(worker, budget, task)
        if len(rows) < 2:
            continue
        flips = pages.heat_map(
            _flips(rows, task_named(worker.test(task).task).perfect),
            rows=list(rows),
            columns=list(rows),
            corner="right \\ wrong",
            label=f"{task}: % of examples that the row's variant alone has right",
        )
        examples = _most_different(worker, task, rows) if texts else []
        tasks.append({"name": task, "flips": flips, "examples": examples})
    return tasks


def _costs(results: dict[str, Any], timings: dict[str, Any]) -> Any:
    rows: list[Sequence[Any]] = []
    for name, variant in results["variants"].items():
        speed, budgets = timings["variants"][name], variant.get("budgets") or {"": {}}
        for budget, cost in budgets.items():
            flops = variant.get("flops_per_token")
            cells = {
                "variant": f"{name}, equal {budget}" if len(budgets) > 1 else name,
                "parameters": _cell(variant.get("parameters"), "{:,}"),
                "FLOPs/token": "–" if flops is None else pages.short(flops),
                "steps": _cell(cost.get("steps"), "{:,}"),
                "tokens": _cell(cost.get("tokens"), "{:,}"),
                "training FLOPs": _cell(cost.get("flops"), "{:.3g}"),
                "training memory": _bytes(variant.get("training_memory_bytes")),
                "training tokens/s": _training_speed(results, timings, name, budget),
                "inference memory": _bytes(variant.get("inference_memory_bytes")),
                "CPU tokens/s": _cell(speed.get("tokens_per_second"), "{:,.0f}"),
                "CPU latency": _cell(speed.get("latency_ms"), "{:.1f} ms"),
            }
            rows.append(tuple(cells.values()))
    return pages.table(tuple(cells), rows)


def _training_speed(
    results: dict[str, Any], timings: dict[str, Any], name: str, budget: str
) -> str:
    tokens = seconds = 0.0
    for run in results["pretraining"].get(budget, {}).get(name, ()):
        measured = timings["parts"].get(f"{name}/{budget}/seed-{run['seed']}", {})
        if measured.get("training_seconds"):
            tokens += run["tokens"]
            seconds += measured["training_seconds"]
    return _cell(tokens / seconds if seconds else None, "{:,.0f}")


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else form.format(value)


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e9:.2f} GB" if value >= 1e8 else f"{value / 1e6:.1f} MB"


def _effort(spec: Spec, timings: dict[str, Any]) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {PRETRAIN: [], RATE: [], SCORE: []}
    for part in parts_of(spec):
        if part.key in timings["parts"]:
            times[part.kind].append(timings["parts"][part.key].get("seconds") or 0.0)
    total = max(sum(map(sum, times.values())), 1e-9)
    return {
        kind: {"runs": len(runs), "minutes": sum(runs) / 60, "share": sum(runs) / total}
        for kind, runs in times.items()
    }


# ------------------------------------------------------------------ where variants disagree


SHOWN = 12  # examples of a task
LONGEST = 400  # characters of an example


def _correctness(worker: PartRunner, budget: str, task: str) -> dict[str, NDArray[np.float64]]:
    """The mean correctness of each variant's runs on every test example (N,)."""
    test = worker.test(task)
    kind, rows = task_named(test.task), {}
    for name in worker.spec.variants:
        runs = [
            [kind.correctness(*pair) for pair in zip(test.examples, plain(values), strict=True)]
            for values in results_at(runs_of(worker, budget, task, name), "values")
        ]
        if runs:
            rows[name] = np.mean(runs, axis=0)
    return rows


def _flips(rows: dict[str, Any], perfect: float) -> list[list[float]]:
    """Share of examples (%) that most runs of the row's variant, not of the column's, predict."""
    correct = [row > perfect - 0.5 for row in rows.values()]
    return [
        [float("nan") if a is b else 100 * float((a & ~b).mean()) for b in correct] for a in correct
    ]


def _most_different(worker: PartRunner, task: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The examples on which variants differ most, with the share of each one's correct runs."""
    test = worker.test(task)
    kind = task_named(test.task)
    spread = np.ptp(list(rows.values()), axis=0)
    order = np.argsort(-spread, kind="stable")[:SHOWN]
    return [
        {
            "text": _cut(" | ".join(test.examples[place].texts)),
            "label": _cut(kind.spoken(kind.label_of(test.examples[place]))),
            "correctness": {name: float(row[place]) for name, row in rows.items()},
        }
        for place in order.tolist()
        if spread[place] > 0
    ]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
