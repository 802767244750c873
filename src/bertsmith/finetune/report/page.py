"""The file: its sections in their order, its style and its one small script."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.files import write_text
from bertsmith.finetune.report.curves import curve
from bertsmith.finetune.report.examples import article, worst
from bertsmith.finetune.report.matrix import matrix, names_of
from bertsmith.finetune.report.tables import calibrated, per_class, table
from bertsmith.tasks.evaluate import Evaluation

if TYPE_CHECKING:  # what writes reports imports this room
    from bertsmith.finetune.session import History

WORST = 50  # errors that are shown


def write_report(
    path: Path, content: Mapping[str, Any], found: Evaluation | None, history: History
) -> None:
    """Write the report of a run whose scores and settings are `content`."""
    write_text(path, page(content, found, history))


def write_evaluation(path: Path, found: Evaluation, model: str, metric: str) -> None:
    """Write a page about one model on one file."""
    content = {
        "task": found.dataset.task,
        "model": model,
        "metric": metric,
        "files": {"test": {"file": found.dataset.path.name, "examples": len(found.dataset)}},
        "scores": {"dev": None, "test": found.scores},
        "intervals": {"dev": None, "test": None},
        "over_seeds": {"dev": None, "test": None},
        "seeds": [],
        "sweep": [],
        "notes": found.notes,
        "ledger": dict(found.dataset.ledger.counts),
        "settings": {},
    }
    write_text(path, page(content, found, None))


def page(content: Mapping[str, Any], found: Evaluation | None, history: History | None) -> str:
    """The whole file. Nothing but its own style and script may act in it."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = html.escape(f"{content['task']}: {Path(content['model']).name}")
    body = "\n".join(_sections(content, found, history, title))
    filled = {"policy": policy, "title": title, "style": style, "script": script, "body": body}
    parts = _asset("report.html").split("{{")
    ends = [part.split("}}", 1) for part in parts[1:]]
    return parts[0] + "".join(filled[name] + rest for name, rest in ends)


def _sections(
    content: Mapping[str, Any], found: Evaluation | None, history: History | None, title: str
) -> list[str]:
    made = [_head(content, title)]
    made.append(_section("Scores", _scores(content)))
    if history is not None:
        made.append(_section("Curves", _curves(content, history)))
    if content["sweep"]:
        rows = [
            (f"{one['learning_rate']:g}", one["epochs"], one["dev"][content["metric"]])
            for one in content["sweep"]
        ]
        heads = ("learning rate", "epochs", f"dev {content['metric']}")
        made.append(_section("Sweep", table(heads, rows)))
    if found is not None:
        made += _looked_at(found)
    ledger = content["ledger"]
    lost = table(("what", "how often"), list(ledger.items())) if ledger else ""
    none = '<p class="soft">Nothing was cut, skipped or unknown.</p>'
    made.append(_section("Ledger", lost or none))
    if content["settings"]:
        made.append(_section("Settings", table(("", ""), list(content["settings"].items()))))
    return made


def _looked_at(found: Evaluation) -> list[str]:
    """What the predictions themselves show."""
    made = []
    if classes := per_class(found):
        made.append(_section("Classes", classes))
    if names := names_of(found):
        told = '<p class="soft" id="cell-told">Rows are gold, columns what the model said. '
        told += "Choose a cell to see its examples.</p>"
        made.append(_section("Confusion matrix", matrix(found, names).replace("{told}", told)))
    if bins := calibrated(found):
        made.append(_section("Calibration", bins))
    errors = worst(found, WORST)
    shown = "\n".join(article(found, number) for number in errors)
    none = '<p class="soft">There are none.</p>'
    made.append(_section("Worst errors", shown or none))
    return made


def _head(content: Mapping[str, Any], title: str) -> str:
    split = "test" if content["scores"]["test"] else "dev"
    scores, metric = content["scores"][split], content["metric"]
    lines = [f"<header><h1>{title}</h1>"]
    if scores:
        summary = content["over_seeds"][split]
        value = f"{metric} {scores[metric]:.4f}"
        if between := content["intervals"][split]:
            value += f" (95 %: {between['low']:.4f} to {between['high']:.4f})"
        if summary:
            value = (
                f"{metric} {summary['mean']:.4f} ± {summary['deviation']:.4f} "
                f"({summary['count']} seeds; 95 %: {summary['low']:.4f} to {summary['high']:.4f})"
            )
        lines.append(f'<p class="big">{html.escape(value)}</p>')
    counts = "; ".join(
        f"{name}: {one['examples']:,} examples of {html.escape(one['file'])}"
        for name, one in content["files"].items()
    )
    lines.append(f'<p class="soft">{counts}</p>')
    lines += [f"<p>{html.escape(note)}</p>" for note in content["notes"]]
    return "\n".join([*lines, "</header>"])


def _scores(content: Mapping[str, Any]) -> str:
    splits = {name: scores for name, scores in content["scores"].items() if scores}
    names = list(dict.fromkeys(name for scores in splits.values() for name in scores))
    rows = [(name, *(scores.get(name, "") for scores in splits.values())) for name in names]
    made = table(("", *splits), rows)
    if len(content["seeds"]) > 1:
        metric = content["metric"]
        seeds = [
            (one["seed"], *(one[name][metric] if one[name] else "" for name in splits))
            for one in content["seeds"]
        ]
        made += f"<h3>{html.escape(metric)} of each seed</h3>" + table(("seed", *splits), seeds)
    return made


def _curves(content: Mapping[str, Any], history: History) -> str:
    drawn = curve("training loss", _smoothed(history.losses), "step")
    metric = content["metric"]
    scores = [row[metric] for row in history.epochs if metric in row]
    if scores:
        drawn += curve(f"dev {metric}", list(enumerate(scores, 1)), "epoch")
    speed = f"{content['examples_per_second']:,.1f} examples a second"
    return drawn + f'<p class="soft">Epoch {content["kept_epoch"]} was kept; {speed}.</p>'


def _smoothed(losses: Sequence[float], points: int = 200) -> list[tuple[float, float]]:
    """At most so many points, each the mean of its neighbours."""
    size = max(1, len(losses) // points)
    groups = [losses[start : start + size] for start in range(0, len(losses), size)]
    return [(size * (n + 1), sum(group) / len(group)) for n, group in enumerate(groups)]


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>\n{body}</section>"


@cache
def _asset(name: str) -> str:
    return (files("bertsmith.finetune.report") / "assets" / name).read_text("utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
