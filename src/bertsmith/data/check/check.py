"""`check`: look at the files of one task before anything is trained on them."""

from __future__ import annotations

from bertsmith.data.check import labels, spans, texts
from bertsmith.data.check.findings import SEVERITIES, Finding, Report, Splits
from bertsmith.data.check.lengths import Reader, measure
from bertsmith.errors import BertsmithError

LINTS = (
    labels.missing,
    labels.shares,
    labels.unseen,
    labels.spelling,
    labels.numbered_tags,
    labels.scores,
    labels.choices,
    spans.tags,
    spans.answers,
    texts.empty,
    texts.broken,
    texts.repeated,
    texts.leaked,
    texts.told,
)


def check(splits: Splits, reader: Reader | None = None) -> Report:
    """Look for what would ruin training or flatter a score. There must be a split called train.

    With a reader, lengths are counted in its tokens; `Report.refuse` turns what would ruin
    training into an exception.
    """
    tasks = {dataset.task for dataset in splits.values()}
    if "train" not in splits:
        raise BertsmithError("there is no training data to check")
    if len(tasks) > 1:
        spoken = ", ".join(f"{dataset.path} {dataset.task}" for dataset in splits.values())
        raise BertsmithError(f"the files are not of one task: {spoken}; say it with --task")
    lengths, findings = measure(splits, reader)
    found: list[Finding] = [*findings]
    for lint in LINTS:
        found.extend(lint(splits))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Report(splits, labels.count(splits), lengths, found)
