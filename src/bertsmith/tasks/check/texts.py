"""Checks of texts: empty, badly decoded, duplicated, or in two splits."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from typing import Any

from bertsmith.data.tables import Where
from bertsmith.tasks.check.findings import Finding, Splits, finding
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import TaskExample

MOJIBAKE = re.compile("Ã[\x80-\xbf©¨¤¶¼±§ª]|â€[™œ\x9d“”¦]|Â[\xa0£§©®°»«]")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
TAGS = re.compile(r"<(br|p|div|a|span|b|i|em|strong)\b[^>]*>", re.IGNORECASE)
ALIKE = 0.8  # share of common words from which texts are near-duplicates
MOSTLY = 0.5  # a split that repeats so much of another measures nothing


def empty(splits: Splits) -> Iterator[Finding]:
    """Examples with an empty text."""
    for name, dataset in splits.items():
        places = [one.where for one in dataset.examples if not all(map(str.strip, one.texts))]
        severity = "error" if len(places) == len(dataset) else "warning"
        what = "examples with an empty text"
        advice = "remove them, or check that the right column is read"
        yield from finding(severity, "empty-text", name, what, places, advice)


def broken(splits: Splits) -> Iterator[Finding]:
    """Signs that a text was read in the wrong encoding, or never cleaned."""
    kinds = (
        ("warning", "replacement", re.compile("�"), "with the replacement character �"),
        ("warning", "mojibake", MOJIBAKE, "of UTF-8 text decoded with another encoding"),
        ("warning", "control", CONTROL, "with control characters"),
        ("note", "markup", TAGS, "with HTML tags"),
    )
    for name, dataset in splits.items():
        for severity, code, pattern, what in kinds:
            places = [one.where for one in dataset.examples if any(map(pattern.search, one.texts))]
            yield from finding(severity, code, name, f"examples {what}", places)


def repeated(splits: Splits) -> Iterator[Finding]:
    """Duplicates within a split, and texts with different labels."""
    for name, dataset in splits.items():
        groups: dict[Hashable, list[Any]] = defaultdict(list)
        for one in dataset.examples:
            groups[key(one)].append(one)
        repeats = [one.where for group in groups.values() for one in group[1:]]
        yield from finding("note", "duplicate", name, "duplicates of earlier examples", repeats)
        disagreeing = [group for group in groups.values() if len({one.gold for one in group}) > 1]
        places = [group[1].where for group in disagreeing]
        what = "texts with different labels in different rows"
        advice = "correct the labels; a model can predict only one of them"
        yield from finding("warning", "contradiction", name, what, places, advice)


def leaked(splits: Splits) -> Iterator[Finding]:
    """Examples of dev or test that are also in another split."""
    for (one, first), (other, second) in combinations(splits.items(), 2):
        known = {key(example) for example in first.examples}
        places = [example.where for example in second.examples if key(example) in known]
        share = len(places) / len(second)
        severity = "error" if share > MOSTLY else "warning"
        what = f"examples also in {one} ({share:.1%})"
        advice = f"scores on {other} will be too optimistic"
        yield from finding(severity, "leak", other, what, places, advice)
        yield from _shared(one, first, other, second)


def _shared(one: str, first: Dataset[Any], other: str, second: Dataset[Any]) -> Iterator[Finding]:
    name = first.reading.shared
    if not name:
        return
    known = {same(getattr(example, name)) for example in first.examples} - {""}
    places: dict[str, Where] = {}
    for example in second.examples:
        if (text := same(getattr(example, name))) in known:
            places.setdefault(text, example.where)
    what, advice = f"{name}s also in {one}", f"split the data by {name}, or better by article"
    yield from finding("warning", f"{name}-leak", other, what, places.values(), advice)


def nearly_leaked(splits: Splits) -> Iterator[Finding]:
    """Examples of dev or test that share most of their words with one of train."""
    train = splits["train"].examples
    for name in [name for name in splits if name != "train"]:
        pairs = near_pairs(train, splits[name].examples)
        places = [splits[name].examples[second].where for _, second in pairs]
        what, advice = "examples nearly equal to one in train", "scores will be too optimistic"
        yield from finding("warning", "near-leak", name, what, places, advice)


def near_pairs(
    first: Sequence[TaskExample], second: Sequence[TaskExample]
) -> list[tuple[int, int]]:
    """Numbers of an example of each side whose words are nearly the same, one for each of `second`.

    The Jaccard similarity of their words is at least 0.8, and their texts are not equal. Exact: two
    such sets share one of their rarest words (prefix filtering), by which candidates are found.
    """
    sides = [
        [frozenset(re.findall(r"\w+", " ".join(example.texts).casefold())) for example in side]
        for side in (first, second)
    ]
    counts = Counter(word for side in sides for words in side for word in words)

    def rarest(words: frozenset[str]) -> list[str]:
        most = len(words) - math.ceil(ALIKE * len(words)) + 1
        return sorted(words, key=lambda word: (counts[word], word))[:most]

    known: dict[str, list[int]] = defaultdict(list)
    for number, words in enumerate(sides[0]):
        for word in rarest(words):
            known[word].append(number)
    pairs = []
    for number, words in enumerate(sides[1]):
        own = key(second[number])
        for other in {one for word in rarest(words) for one in known[word]}:
            common = len(words & sides[0][other])
            alike = common >= ALIKE * (len(words) + len(sides[0][other]) - common)
            if alike and key(first[other]) != own:
                pairs.append((other, number))
                break
    return pairs


def label_in_text(splits: Splits) -> Iterator[Finding]:
    """Texts that contain their own label."""
    dataset = splits["train"]
    single = dataset.reading.classes and not dataset.reading.several
    rows = dataset.gold() if single else []
    names = [name for name in dataset.labels if len(name) > 2 and not name.isdecimal()]
    if len(names) < 2 or len(rows) < 20:
        return
    patterns = {name: re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE) for name in names}
    own = [one for one in rows if one.label in patterns and _says(patterns[one.label], one)]
    some = [(one, [name for name in names[:20] if name != one.label]) for one in rows[:2000]]
    others = sum(any(_says(patterns[name], one) for name in wrong) for one, wrong in some)
    if len(own) > MOSTLY * len(rows) and others < 0.1 * min(2000, len(rows)):
        what, places = "texts that contain their own label", [one.where for one in own]
        advice = "a model would only learn to find it; remove it from the texts"
        yield from finding("warning", "label-in-text", "train", what, places, advice)


def _says(pattern: re.Pattern[str], example: TaskExample) -> bool:
    return any(map(pattern.search, example.texts))


def key(example: TaskExample) -> Hashable:
    """The identity of an input: its texts without case and spaces; blank ones are all different."""
    return tuple(map(same, example.texts)) if "".join(example.texts).strip() else id(example)


def same(text: str) -> str:
    """A text without case and repeated spaces."""
    return " ".join(text.casefold().split())
