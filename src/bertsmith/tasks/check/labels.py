"""Checks of labels and scores: missing, rare, misspelled, or unseen in training."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from os.path import commonprefix
from typing import Any

from bertsmith.data.tables import Where
from bertsmith.numbers import counted
from bertsmith.tasks.check.findings import Finding, Splits, finding
from bertsmith.tasks.dataset import Dataset

FEW = 5  # examples of a label below which little can be learned
LOPSIDED = 0.9  # the fraction of one label above which accuracy is misleading
SHORTEST, LONGEST = 5, 60  # letters of labels that may be misspelled
RARER = 10  # how many times the examples of a misspelled label the right one has
PLACEHOLDERS = {"na", "n.a.", "none", "nil", "-", "--", "?", ".", "missing", "todo", "tbd"}
IMBALANCE = 10  # how many times the examples of the rarest label the most frequent one may have


def count(splits: Splits) -> dict[str, dict[str, int]]:
    """How often each label stands in each split, the most frequent first."""
    counts = {}
    for name, dataset in splits.items():
        labels = Counter(label for one in dataset.examples for label in one.label_names)
        counts[name] = dict(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
    return counts


def places_of(dataset: Dataset[Any], labels: Collection[str]) -> list[Where]:
    """The places of the examples that have one of these labels."""
    examples = dataset.examples
    return [one.where for one in examples if any(name in labels for name in one.label_names)]


def missing(splits: Splits) -> Iterator[Finding]:
    """Examples without a label."""
    for name, dataset in splits.items():
        places = [one.where for one in dataset.examples if not one.labelled]
        if len(places) == len(dataset):
            severity = "note" if name == "test" else "error"
            advice = "" if name == "test" else "name the column of the labels (role: label)"
            what = f"{name} has no labels"
            yield Finding(severity, "no-labels", what, len(places), tuple(places[:1]), advice)
        else:
            what = "examples without a label"
            yield from finding("warning", "missing-label", name, what, places, "they are ignored")


def placeholders(splits: Splits) -> Iterator[Finding]:
    """Labels that may be spellings of a missing value."""
    advice = "if it means that there is no label, leave the cells empty"
    for name, dataset in splits.items():
        labels = dataset.labels if dataset.reading.classes else ()
        for label in (label for label in labels if label.casefold() in PLACEHOLDERS):
            places = places_of(dataset, {label})
            what = f"examples with the label {label!r}, which is read as a class"
            yield from finding("warning", "label-missing-value", name, what, places, advice)


def shares(splits: Splits) -> Iterator[Finding]:
    """One class only, a class that is nearly all, and classes with a handful of examples."""
    dataset, counts = splits["train"], count(splits)["train"]
    if not counts:
        return
    reading = dataset.reading
    single = reading.classes and not reading.several
    where = (dataset.examples[0].where,)
    common, times = next(iter(counts.items()))
    total = sum(counts.values())
    if len(counts) == 1 and not reading.several:
        what, advice = f"train: every example is {common!r}", "training needs at least two labels"
        yield Finding("error", "one-class", what, total, where, advice)
        return
    if single and times > LOPSIDED * total:
        what = f"train: {times / total:.1%} of the examples are {common!r}"
        advice = "look at macro F1 or MCC, not at accuracy"
        yield Finding("warning", "lopsided", what, times, (), advice)
    elif single and times > IMBALANCE * (least := min(counts.values())):
        rarest = min(counts, key=counts.__getitem__)
        what = f"train: {common!r} has {times / least:.0f} times as many examples as {rarest!r}"
        advice = "look at macro F1, or train with balanced class weights"
        yield Finding("warning", "imbalance", what, times, (), advice)
    rare = {name: times for name, times in counts.items() if times < FEW}
    if rare:
        names = ", ".join(f"{name} ({times})" for name, times in list(rare.items())[-5:])
        have = "has" if len(rare) == 1 else "have"
        what = f"train: {counted(len(rare), 'label')} {have} fewer than {FEW} examples: {names}"
        places = places_of(dataset, rare)
        yield Finding("warning", "rare-label", what, len(rare), tuple(places[:5]))


def unseen(splits: Splits) -> Iterator[Finding]:
    """Labels of dev or test that are not in train, and the other way round."""
    known = set(splits["train"].labels)
    for name, dataset in splits.items():
        if name == "train" or not known or not dataset.labels:
            continue
        new = [label for label in dataset.labels if label not in known]
        for label in new[:5]:
            places = places_of(dataset, {label})
            what = f"examples with the label {label!r}, which is not in train"
            yield from finding("error", "unseen-label", name, what, places, "is it misspelled?")
        absent = sorted(known - set(dataset.labels))
        if absent:
            names = ", ".join(absent[:5])
            what = f"{name}: {counted(len(absent), 'label')} of train without an example: {names}"
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
    if splits["train"].reading.classes:
        yield from _misspelled(splits)


def _misspelled(splits: Splits) -> Iterator[Finding]:
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
                places = [one for data in splits.values() for one in places_of(data, {rare})]
                yield Finding("warning", "label-spelling", what, times[rare], tuple(places[:5]))


def _without_a_letter(name: str) -> set[str]:
    """A label, and what remains of it without one of its letters; nothing for short labels."""
    word = name.casefold()
    if not SHORTEST <= len(word) <= LONGEST:
        return set()
    return {word, *(word[:place] + word[place + 1 :] for place in range(len(word)))}


def _is_slip(one: str, other: str) -> bool:
    """Do two words differ by one letter that is missing, wrong or swapped with the next?"""
    start = len(commonprefix([one, other]))  # noqa: RUF071 - it compares letters
    before, one, other = one[:start], one[start:], other[start:]
    end = len(commonprefix([one[::-1], other[::-1]]))  # noqa: RUF071
    after = one[len(one) - end :]
    one, other = one[: len(one) - end], other[: len(other) - end]
    inside = before[-1:].isalpha() or after[:1].isalpha()  # the a of "class a" is no slip
    if not inside or not (one + other).isalpha():
        return False
    swapped = len(one) == 2 and one == other[::-1]
    return swapped or max(len(one), len(other)) == 1
