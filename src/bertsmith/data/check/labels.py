"""Labels and numbers: missing, alone, rare, misspelled, or unseen in training."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from bertsmith.data import Options, Scored, has_gold, label_names
from bertsmith.data.check.findings import Finding, Splits, found
from bertsmith.data.schemes import split

FEW = 5  # examples of a label below which little can be learned
LOPSIDED = 0.9  # the share of one label above which accuracy says little
IMBALANCE = 10  # how many times the examples of the rarest label the most frequent one may have


def count(splits: Splits) -> dict[str, dict[str, int]]:
    """How often each label stands in each split, the most frequent first."""
    counts = {}
    for name, dataset in splits.items():
        labels = Counter(label for one in dataset.examples for label in label_names(one))
        counts[name] = dict(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
    return counts


def missing(splits: Splits) -> Iterator[Finding]:
    """Examples of which the file does not say what is right."""
    for name, dataset in splits.items():
        places = [one.where for one in dataset.examples if not has_gold(one)]
        if len(places) == len(dataset):
            severity = "note" if name == "test" else "error"
            advice = "" if name == "test" else "name the column of labels, or add them"
            what = f"{name} has no labels"
            yield Finding(severity, "no-labels", what, len(places), tuple(places[:1]), advice)
        else:
            what = f"{name}: examples without a label"
            yield from found("warning", "missing-label", what, places, "they are left out")


def shares(splits: Splits) -> Iterator[Finding]:
    """One class only, a class that is nearly all, and classes with a handful of examples."""
    dataset, counts = splits["train"], count(splits)["train"]
    if dataset.task not in ("classification", "multilabel", "tagging") or not counts:
        return
    where = (dataset.examples[0].where,)
    common, times = next(iter(counts.items()))
    total = sum(counts.values())
    if len(counts) == 1 and dataset.task != "multilabel":
        what = f"train: every example is {common!r}"
        yield Finding("error", "one-class", what, total, where, "there is nothing to learn")
        return
    if dataset.task == "classification" and times > LOPSIDED * total:
        what = f"train: {times / total:.1%} are {common!r}"
        advice = "judge by macro F1 or MCC, not by accuracy"
        yield Finding("warning", "lopsided", what, times, (), advice)
    elif dataset.task == "classification" and times > IMBALANCE * (least := min(counts.values())):
        rarest = min(counts, key=counts.__getitem__)
        what = f"train: {common!r} has {times / least:.0f} times as many examples as {rarest!r}"
        advice = "judge by macro F1, or train with --class-weights balanced"
        yield Finding("warning", "imbalance", what, times, (), advice)
    rare = {name: times for name, times in counts.items() if times < FEW}
    if rare:
        named = ", ".join(f"{name} ({times})" for name, times in list(rare.items())[-5:])
        what = f"train: labels with fewer than {FEW} examples ({len(rare)}): {named}"
        places = [
            one.where for one in dataset.examples if any(name in rare for name in label_names(one))
        ]
        yield Finding("warning", "rare-label", what, len(rare), tuple(places[:5]))


def unseen(splits: Splits) -> Iterator[Finding]:
    """Labels of dev or test that training never shows, and labels that they never ask for."""
    known = set(splits["train"].labels)
    for name, dataset in splits.items():
        if name == "train" or not known or not dataset.labels:
            continue
        new = [label for label in dataset.labels if label not in known]
        for label in new[:5]:
            places = [one.where for one in dataset.examples if label in label_names(one)]
            what = f"{name}: examples of {label!r}, a label that is not in train"
            advice = "no model can learn it; is it misspelled?"
            yield from found("error", "unseen-label", what, places, advice)
        absent = sorted(known - set(dataset.labels))
        if absent:
            named = ", ".join(absent[:5])
            what = f"{name}: labels of train without an example ({len(absent)}): {named}"
            yield Finding("note", "unasked-label", what, len(absent))


def spelling(splits: Splits) -> Iterator[Finding]:
    """Labels that differ only in case, spaces and hyphens."""
    groups: dict[str, set[str]] = defaultdict(set)
    for dataset in splits.values():
        for label in dataset.labels:
            groups[re.sub(r"[\s_-]+", "", label.casefold()) or label].add(label)
    for names in groups.values():
        numbers = all(name.lstrip("+-").isdecimal() for name in names)
        if len(names) > 1 and not numbers:
            what = f"labels that may be one: {', '.join(sorted(names))}"
            yield Finding("warning", "label-spelling", what, len(names))


def numbered_tags(splits: Splits) -> Iterator[Finding]:
    """Tags that are numbers, of which nobody can say what entities they spell."""
    dataset = splits["train"]
    numbers = dataset.labels and all(label.isdecimal() for label in dataset.labels)
    if dataset.task == "tagging" and numbers:
        what = "train: tags are numbers, so that entities cannot be scored"
        advice = "say what they mean with --label-names O,B-PER,..."
        yield Finding("warning", "numbered-tags", what, len(dataset.labels), (), advice)
    schemes = {name: one.scheme for name, one in splits.items() if one.labels}
    if dataset.task == "tagging" and len(set(schemes.values())) > 1:
        spoken = ", ".join(f"{name} is {scheme or 'plain'}" for name, scheme in schemes.items())
        bare = any(
            {split(label)[0] for label in one.labels} <= {"O"} for one in splits.values()
        )  # a split without entities has no scheme of its own
        if not bare:
            what = f"splits spell entities in different schemes: {spoken}"
            yield Finding("error", "schemes", what, len(schemes), (), "convert one of them")


def scores(splits: Splits) -> Iterator[Finding]:
    """Numbers that never change, or that leave the range of training."""
    ranges: dict[str, tuple[float, float]] = {}
    for name, dataset in splits.items():
        values = [
            o.score for o in dataset.examples if isinstance(o, Scored) and o.score is not None
        ]
        if not values:
            continue
        ranges[name] = min(values), max(values)
        if min(values) == max(values) and len(values) > 1:
            severity = "error" if name == "train" else "warning"
            what = f"{name}: every score is {values[0]:g}"
            where = (dataset.examples[0].where,)
            yield Finding(severity, "one-score", what, len(values), where)
    if "train" not in ranges:
        return
    low, high = ranges["train"]
    for name in ranges.keys() - {"train"}:
        places = [
            one.where
            for one in splits[name].examples
            if one.score is not None and not low <= one.score <= high
        ]
        what = f"{name}: scores outside of train's {low:g} to {high:g}"
        yield from found("warning", "score-range", what, places)


def choices(splits: Splits) -> Iterator[Finding]:
    """Right answers that stand mostly in one place, and choices that are there twice."""
    for name, dataset in splits.items():
        rows = [one for one in dataset.examples if isinstance(one, Options)]
        places = Counter(one.label for one in rows if one.label is not None)
        if len(rows) >= 20 and places:
            place, times = places.most_common(1)[0]
            if times > 0.8 * places.total():
                what = (
                    f"{name}: {times / places.total():.1%} of right choices are number {place + 1}"
                )
                advice = "a model will learn the place; shuffle the choices"
                yield Finding("warning", "choice-place", what, times, (), advice)
        twice = [one.where for one in rows if len(set(one.options)) < len(one.options)]
        what = f"{name}: examples with the same choice twice"
        yield from found("warning", "same-choice", what, twice)
        widths = Counter(len(one.options) for one in rows)
        if len(widths) > 1:
            spoken = ", ".join(f"{n:,} with {width}" for width, n in sorted(widths.items()))
            yield Finding("note", "choice-count", f"{name}: {spoken} choices", len(widths))
