"""Checks of labels and scores: missing, rare, misspelled, or unseen in training."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import takewhile

from bertsmith.metrics.schemes import split
from bertsmith.tasks.check.findings import Finding, Splits, found
from bertsmith.tasks.dataset import has_gold, label_names
from bertsmith.tasks.examples import Options, Scored

FEW = 5  # examples of a label below which little can be learned
LOPSIDED = 0.9  # the share of one label above which accuracy says little
SHORTEST, LONGEST = 5, 60  # letters of labels that may be misspelled
RARER = 10  # how many times the examples of a misspelled label the right one has
PLACEHOLDERS = {"na", "n.a.", "none", "nil", "-", "--", "?", ".", "missing", "todo", "tbd"}
IMBALANCE = 10  # how many times the examples of the rarest label the most frequent one may have


def count(splits: Splits) -> dict[str, dict[str, int]]:
    """How often each label stands in each split, the most frequent first."""
    counts = {}
    for name, dataset in splits.items():
        labels = Counter(label for one in dataset.examples for label in label_names(one))
        counts[name] = dict(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
    return counts


def missing(splits: Splits) -> Iterator[Finding]:
    """Examples without a label."""
    for name, dataset in splits.items():
        places = [one.where for one in dataset.examples if not has_gold(one)]
        if len(places) == len(dataset):
            severity = "note" if name == "test" else "error"
            advice = "" if name == "test" else "name the label column with --column label=NAME"
            what = f"{name} has no labels"
            yield Finding(severity, "no-labels", what, len(places), tuple(places[:1]), advice)
        else:
            what = "examples without a label"
            yield from found("warning", "missing-label", name, what, places, "they are ignored")


def placeholders(splits: Splits) -> Iterator[Finding]:
    """Labels that may stand for a missing one."""
    for name, dataset in splits.items():
        if dataset.task in ("classification", "multilabel"):
            for label in dataset.labels:
                if label.casefold() in PLACEHOLDERS:
                    places = [one.where for one in dataset.examples if label in label_names(one)]
                    what = f"examples with the label {label!r}, which is read as a class"
                    advice = "if it means that there is no label, leave the cells empty"
                    yield from found("warning", "label-missing-value", name, what, places, advice)


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
        yield Finding(
            "error", "one-class", what, total, where, "training needs at least two labels"
        )
        return
    if dataset.task == "classification" and times > LOPSIDED * total:
        what = f"train: {times / total:.1%} of the examples are {common!r}"
        advice = "look at macro F1 or MCC, not at accuracy"
        yield Finding("warning", "lopsided", what, times, (), advice)
    elif dataset.task == "classification" and times > IMBALANCE * (least := min(counts.values())):
        rarest = min(counts, key=counts.__getitem__)
        what = f"train: {common!r} has {times / least:.0f} times as many examples as {rarest!r}"
        advice = "look at macro F1, or train with --class-weights balanced"
        yield Finding("warning", "imbalance", what, times, (), advice)
    rare = {name: times for name, times in counts.items() if times < FEW}
    if rare:
        named = ", ".join(f"{name} ({times})" for name, times in list(rare.items())[-5:])
        many = "1 label has" if len(rare) == 1 else f"{len(rare):,} labels have"
        what = f"train: {many} fewer than {FEW} examples: {named}"
        places = [
            one.where for one in dataset.examples if any(name in rare for name in label_names(one))
        ]
        yield Finding("warning", "rare-label", what, len(rare), tuple(places[:5]))


def unseen(splits: Splits) -> Iterator[Finding]:
    """Labels of dev or test that are not in train, and the other way round."""
    known = set(splits["train"].labels)
    for name, dataset in splits.items():
        if name == "train" or not known or not dataset.labels:
            continue
        new = [label for label in dataset.labels if label not in known]
        for label in new[:5]:
            places = [one.where for one in dataset.examples if label in label_names(one)]
            what = f"examples with the label {label!r}, which is not in train"
            yield from found("error", "unseen-label", name, what, places, "is it misspelled?")
        absent = sorted(known - set(dataset.labels))
        if absent:
            named = ", ".join(absent[:5])
            many = "1 label" if len(absent) == 1 else f"{len(absent):,} labels"
            what = f"{name}: {many} of train without an example: {named}"
            yield Finding("note", "unasked-label", what, len(absent))


def spelling(splits: Splits) -> Iterator[Finding]:
    """Labels that differ only in case, spaces and hyphens, or by a letter."""
    groups: dict[str, set[str]] = defaultdict(set)
    for dataset in splits.values():
        for label in dataset.labels:
            groups[re.sub(r"[\s_-]+", "", label.casefold()) or label].add(label)
    for names in groups.values():
        numbers = all(name.lstrip("+-").isdecimal() for name in names)
        if len(names) > 1 and not numbers:
            what = f"possibly the same label: {', '.join(sorted(names))}"
            yield Finding("warning", "label-spelling", what, len(names))
    if splits["train"].task in ("classification", "multilabel"):
        yield from _misspelled(splits)


def _misspelled(splits: Splits) -> Iterator[Finding]:
    """Rare labels that differ by one letter from a frequent one."""
    times = Counter[str]()
    for each in count(splits).values():
        times.update(each)
    shorter: dict[str, list[str]] = defaultdict(list)  # words that are equal but for one letter
    for name in times:
        for part in _without_a_letter(name):
            shorter[part].append(name)
    for rare in times:
        near = {one for part in _without_a_letter(rare) for one in shorter[part]}
        for common in sorted(near):
            often = times[rare] * RARER <= times[common]
            if often and _is_slip(rare.casefold(), common.casefold()):
                what = f"possibly the same label: {rare} ({times[rare]}), {common}"
                every = (one for dataset in splits.values() for one in dataset.examples)
                places = [one.where for one in every if rare in label_names(one)]
                yield Finding("warning", "label-spelling", what, times[rare], tuple(places[:5]))


def _without_a_letter(name: str) -> set[str]:
    """A label, and what remains of it without one of its letters; nothing for short labels."""
    word = name.casefold()
    if not SHORTEST <= len(word) <= LONGEST:
        return set()
    return {word, *(word[:place] + word[place + 1 :] for place in range(len(word)))}


def _is_slip(one: str, other: str) -> bool:
    """Do two words differ by one letter that is missing, wrong or swapped with the next?"""
    start = _begin_alike(one, other)
    before, one, other = one[:start], one[start:], other[start:]
    end = _begin_alike(one[::-1], other[::-1])
    after = one[len(one) - end :]
    one, other = one[: len(one) - end], other[: len(other) - end]
    inside = before[-1:].isalpha() or after[:1].isalpha()  # the a of "class a" is no slip
    if not inside or not (one + other).isalpha():
        return False
    swapped = len(one) == 2 and one == other[::-1]
    return swapped or max(len(one), len(other)) == 1


def _begin_alike(one: str, other: str) -> int:
    """The number of letters with which both begin."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def numbered_tags(splits: Splits) -> Iterator[Finding]:
    """Tags that are numbers, and splits with different tagging schemes."""
    dataset = splits["train"]
    numbers = dataset.labels and all(label.isdecimal() for label in dataset.labels)
    if dataset.task == "tagging" and numbers:
        what = "train: tags are numbers, so entities cannot be scored"
        advice = "name them with --label-names O,B-PER,..."
        yield Finding("warning", "numbered-tags", what, len(dataset.labels), (), advice)
    schemes = {name: one.scheme for name, one in splits.items() if one.labels}
    if dataset.task == "tagging" and len(set(schemes.values())) > 1:
        spoken = ", ".join(f"{name} is {scheme or 'plain'}" for name, scheme in schemes.items())
        no_entities = any(
            {split(label)[0] for label in one.labels} <= {"O"} for one in splits.values()
        )  # a split without entities has no scheme of its own
        if not no_entities:
            what = f"splits use different tagging schemes: {spoken}"
            yield Finding("error", "schemes", what, len(schemes), (), "convert one of them")


def scores(splits: Splits) -> Iterator[Finding]:
    """Constant scores, and scores outside the range of train."""
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
        what = f"scores outside train's range of {low:g} to {high:g}"
        yield from found("warning", "score-range", name, what, places)


def choices(splits: Splits) -> Iterator[Finding]:
    """Correct choices that are mostly in one position, and repeated choices."""
    for name, dataset in splits.items():
        rows = [one for one in dataset.examples if isinstance(one, Options)]
        places = Counter(one.label for one in rows if one.label is not None)
        if len(rows) >= 20 and places:
            place, times = places.most_common(1)[0]
            if times > 0.8 * places.total():
                fraction = times / places.total()
                what = f"{name}: {fraction:.1%} of the correct choices are number {place + 1}"
                advice = "a model would learn the position; shuffle the choices"
                yield Finding("warning", "choice-place", what, times, (), advice)
        twice = [one.where for one in rows if len(set(one.options)) < len(one.options)]
        what = "examples with two equal choices"
        yield from found("warning", "same-choice", name, what, twice)
        widths = Counter(len(one.options) for one in rows)
        if len(widths) > 1:
            spoken = ", ".join(f"{n:,} with {width}" for width, n in sorted(widths.items()))
            yield Finding("note", "choice-count", f"{name}: {spoken} choices", len(widths))
