"""The results of a comparison as sentences."""

from typing import Any

from bertsmith.compare.spec import Spec
from bertsmith.finetuning.settings import listed
from bertsmith.pages import pareto_front

FEW = 30  # test examples
WORDS = {
    "tokens": "{:,} tokens of pre-training",
    "flops": "{:.3g} floating-point operations of pre-training",
    "minutes": "{:g} minutes of pre-training",
}


def budget_name(spec: Spec, budget: str) -> str:
    """A budget in words."""
    if budget not in WORDS:
        return "no pre-training"
    return WORDS[budget].format(getattr(spec.budget, budget))


def summarised(spec: Spec, results: dict[str, Any]) -> list[str]:
    """The sentences that a reader should know first."""
    lines: list[str] = []
    winners = {}
    for budget, tasks in results["scores"].items():
        means = results["mean"][budget]
        if len(tasks) > 1 and means:
            best = _best(means)
            winners[budget] = best
            lines.append(
                f"With {budget_name(spec, budget)}, {best} has the highest mean score over"
                f" {len(tasks)} tasks: {_interval(means[best])}."
            )
        for task in tasks:
            lines += _task(spec, results, budget, task)
        if tasks:
            where = f" with {budget_name(spec, budget)}" if len(results["scores"]) > 1 else ""
            lines += _cheapest(results, budget, where) + _front(results, budget, where)
    if len(set(winners.values())) > 1:
        best_of = "; ".join(
            f"{best} with {budget_name(spec, budget)}" for budget, best in winners.items()
        )
        lines.append(f"The best variant depends on the budget: {best_of}.")
    if not results["scores"] or not any(results["scores"].values()):
        lines += _losses(spec, results)
    few = {name: one["test"] for name, one in results["tasks"].items() if one["test"] < FEW}
    if few:
        small_tasks = listed([f"{name} ({count:,})" for name, count in few.items()])
        lines.append(
            f"Few test examples: {small_tasks}. With fewer than {FEW}, intervals are too narrow and"
            " p-values too small."
        )
    trained = [name for name, part in spec.variants.items() if not part.model]
    if spec.tasks and trained and spec.seeds == 1:
        lines.append(
            "Each variant was pre-trained once, so intervals and tests cover the choice of test"
            " examples only, not what another pre-training run would have scored."
        )
    elif spec.tasks and trained and spec.seeds < 5:
        lines.append(
            f"With {spec.seeds} pre-training seeds, intervals are wide: it takes more seeds to"
            " detect small differences."
        )
    if results["missing"]:
        lines.append(
            f"{len(results['missing'])} parts are missing; these results are of the finished ones."
        )
    return lines


def _task(spec: Spec, results: dict[str, Any], budget: str, task: str) -> list[str]:
    scores = results["scores"][budget][task]
    metric = results["tasks"][task]["metric"]
    best = _best(scores)
    if len(scores) == 1:
        return [f"On {task} ({metric}), {best} scores {_interval(scores[best])}."]
    rows = [
        row for row in results["comparisons"][budget][task] if best in (row["first"], row["second"])
    ]
    several = len(results["scores"]) > 1
    place = f"{metric}, {budget_name(spec, budget)}" if several else metric
    if not any(row["difference"] for row in rows):
        return [f"On {task} ({place}), all variants score the same: {_interval(scores[best])}."]
    worse = [_other(row, best) for row in rows if row["different"]]
    alike = [row for row in rows if not row["different"]]
    line = f"On {task} ({place}), {best} scores highest: {_interval(scores[best])}."
    if worse:
        line += f" It is better than {listed(worse)} (p < 0.05 after Holm's correction)."
    if alike:
        names = listed([_other(row, best) for row in alike])
        line += f" No difference from {names} can be detected."
    lines = [line]
    widest = max(alike, key=lambda row: abs(row["difference"]), default=None)
    if widest is not None:
        lines += _needed(spec, results, task, best, widest)
    return lines


def _cheapest(results: dict[str, Any], budget: str, where: str) -> list[str]:
    """The fastest of the variants that no test can tell from the best one on any task."""
    tasks, variants = results["scores"][budget], results["variants"]
    alike = [name for name in variants if all(name in scores for scores in tasks.values())]
    for task, scores in tasks.items():
        best, rows = _best(scores), results["comparisons"][budget][task]
        worse = {_other(row, best) for row in rows if row["different"] and best in row.values()}
        alike = [name for name in alike if name not in worse]
    costs = {name: variants[name].get("flops_per_token") for name in alike}
    known = {name: cost for name, cost in costs.items() if cost is not None}
    if len(set(known.values())) < 2:
        return []
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return [
        f"Of the {len(known)} variants that do not differ significantly from the best on any"
        f" task{where}, {least} needs the fewest operations for each token that it reads:"
        f" {known[least] / known[most]:.0%} of those of {most}."
    ]


def _front(results: dict[str, Any], budget: str, where: str) -> list[str]:
    """The variants that no other beats in both score and operations."""
    means, variants = results["mean"][budget], results["variants"]
    known = [name for name in means if variants[name].get("flops_per_token") is not None]
    points = [(variants[name]["flops_per_token"], means[name]["mean"]) for name in known]
    front = [known[place] for place in pareto_front(points)]
    if len(known) < 3 or len(front) < 2:
        return []
    names = listed([f"{name} ({means[name]['mean']:.4f})" for name in front])
    return [
        f"Mean score against operations for each token{where}: no variant is both cheaper and"
        f" better than {names}."
    ]


def _needed(
    spec: Spec, results: dict[str, Any], task: str, best: str, row: dict[str, Any]
) -> list[str]:
    """What it would take to detect the largest difference that was not detected."""
    if row["seeds_needed"] is not None:
        more = max(1, row["seeds_needed"] - spec.seeds)
        need = (
            f"about {more:,} more pre-training seed{'s' if more > 1 else ''} of each would be"
            " needed (80% power, p < 0.05 after correction)."
        )
    elif row["test_set_too_small"]:
        count = results["tasks"][task]["test"]
        need = f"the test set of {count:,} examples is too small, whatever the number of seeds."
    else:
        return []
    return [
        f"To detect the observed difference between {best} and {_other(row, best)} on {task}"
        f" ({abs(row['difference']):.4f}), {need}"
    ]


def _losses(spec: Spec, results: dict[str, Any]) -> list[str]:
    """Without tasks: the held-out losses of variants that share an objective."""
    lines = []
    for budget, variants in results["pretraining"].items():
        losses: dict[str, dict[str, float]] = {}
        for name, runs in variants.items():
            ends = [run["held_out"][-1] for run in runs if run.get("held_out")]
            for term in loss_terms(ends[0]) if ends else ():
                losses.setdefault(term, {})[name] = sum(end[term] for end in ends) / len(ends)
        for term, by_variant in losses.items():
            best = min(by_variant, key=by_variant.__getitem__)
            lines.append(
                f"With {budget_name(spec, budget)}, {best} has the lowest held-out loss of {term}:"
                f" {by_variant[best]:.3f}."
            )
    return lines


def loss_terms(losses: dict[str, Any]) -> list[str]:
    """The loss terms among the numbers of an evaluation."""
    return [name for name in losses if f"{name}_accuracy" in losses]


def _other(row: dict[str, Any], name: str) -> str:
    return str(row["second"] if row["first"] == name else row["first"])


def _best(rows: dict[str, Any]) -> str:
    return max(rows, key=lambda name: rows[name]["mean"])


def _interval(row: dict[str, Any]) -> str:
    return f"{row['mean']:.4f} (95% interval {row['low']:.4f} to {row['high']:.4f})"
