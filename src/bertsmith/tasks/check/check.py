"""`check` and `quick`: look at the data of one task before anything is trained on it."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.tasks.check import labels, texts
from bertsmith.tasks.check.findings import SEVERITIES, CheckReport, Splits
from bertsmith.tasks.check.lengths import Reader, measure
from bertsmith.tasks.dataset import Dataset

LABELS = (labels.missing, labels.placeholders, labels.spelling, labels.shares, labels.unseen)
TEXTS = (texts.empty, texts.broken, texts.repeated, texts.leaked, texts.nearly_leaked)
SAMPLE = 20_000  # examples of a split that `quick` looks at


def check(splits: Splits, reader: Reader | None = None) -> CheckReport:
    """Look for what would ruin training or flatter a score; a reader counts lengths in tokens."""
    tasks = {dataset.task for dataset in splits.values()}
    if "train" not in splits:
        raise BertsmithError("no training data to check")
    if len(tasks) > 1:
        files = ", ".join(f"{dataset.path} {dataset.task}" for dataset in splits.values())
        choose = f"choose one with {setting_name('task')}"
        raise BertsmithError(f"the files are for different tasks: {files}; {choose}")
    lengths, findings = measure(splits, reader)
    for lint in (*LABELS, splits["train"].reading.lint, *TEXTS, texts.label_in_text):
        findings.extend(lint(splits))
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return CheckReport(splits, labels.count(splits), lengths, findings)


def quick(splits: Any, reader: Reader | None = None) -> list[str]:
    """The warnings of a check of at most 20,000 examples of each split, a line each.

    `splits` is a `bertsmith.tasks.splits.Splits` or a dictionary of data sets. What would ruin
    training is among the lines, too: fine-tuning itself refuses what it cannot learn from.
    """
    by_name = splits if isinstance(splits, Mapping) else vars(splits)
    datasets = {name: one for name, one in by_name.items() if isinstance(one, Dataset) and len(one)}
    if "train" not in datasets:
        return []
    sampled = {name: _sampled(dataset) for name, dataset in datasets.items()}
    report = check(sampled, reader)
    part = " (in a sample)" if any(sampled[n] is not one for n, one in datasets.items()) else ""
    return [
        f"{'error: ' if one.severity == 'error' else ''}{one.line()}{part}"
        for one in report.findings
        if one.severity != "note"
    ]


def _sampled(dataset: Dataset[Any]) -> Dataset[Any]:
    if len(dataset) <= SAMPLE:
        return dataset
    chosen = sorted(Random(0).sample(range(len(dataset)), SAMPLE))
    return replace(dataset, examples=[dataset.examples[number] for number in chosen])
