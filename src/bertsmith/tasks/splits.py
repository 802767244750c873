"""Training, dev and test data of a run, and the automatic hold-out."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.annotations import parts_of
from bertsmith.data.folders import find_splits
from bertsmith.data.records import json_lines_tables, read_document, splits_of
from bertsmith.data.streams import Stream
from bertsmith.data.tables import PORTION
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import suffix_of
from bertsmith.tasks.corrections import corrected
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data
from bertsmith.tasks.reading import TaskExample

MOSTLY_SHARED = "most examples share a text, so only whole examples are kept apart"


@dataclass(frozen=True)
class Splits:
    """Training, dev and test data of one task; dev and test are optional."""

    train: Dataset[Any]
    dev: Dataset[Any] | None = None
    test: Dataset[Any] | None = None
    notes: list[str] = field(default_factory=list)


def read_splits(
    train: Any,
    dev: Any = None,
    test: Any = None,
    *,
    task: str | None = None,
    label_names: Sequence[str] | None = None,
    hold_out: float = 0.1,
    corrections: Any = None,
    **options: Any,
) -> Splits:
    """Read the data of a run; a folder is searched for train, dev and test files.

    Sources and `options` are those of `open_data`. Without a dev file, a fraction of the training
    examples is held out (0: none). `corrections` is a file of decisions about rows of the training
    file: some are left out, or get another label.
    """
    if not 0 <= hold_out <= 0.9:
        raise BertsmithError(
            f"{setting_name('hold_out')} must be a fraction from 0 to 0.9, not {hold_out:g}"
        )
    sources = split_sources(train, dev, test)

    def read(name: str, task: str | None, options: Mapping[str, Any]) -> Dataset[Any]:
        source, split = sources[name]
        chosen = {**options, "split": split} if split else options
        return read_data(source, task, label_names=label_names, **chosen)

    train_data = read("train", task, options)
    if corrections is not None:
        train_data = corrected(train_data, corrections)
    if not train_data.gold():
        raise BertsmithError(
            f"{train_data.path} has no labels to train on; name their column, as in "
            f"{setting_name('columns', {'label': 'NAME'}, '--column label=NAME')}"
        )
    if all(name.isdigit() for name in train_data.columns.values()):  # no header: the same in all
        options = {**options, "columns": train_data.columns}
    options = {**options, "separator": train_data.separator}
    others: dict[str, Dataset[Any]] = {}
    notes = []
    for name in [name for name in ("dev", "test") if name in sources]:
        others[name] = read(name, train_data.task, options)
        if not others[name].gold():
            del others[name]
            notes.append(f"the {name} file has no labels: it is not used")
    if "dev" not in others and hold_out:
        train_data, others["dev"], how = split_off(train_data, hold_out)
        notes.append(how)
    return Splits(train_data, others.get("dev"), others.get("test"), notes)


def split_sources(
    train: Any, dev: Any = None, test: Any = None
) -> dict[str, tuple[Any, str | None]]:
    """The source of each split that there is, and the key of the split inside of it."""
    sources: dict[str, tuple[Any, str | None]] = {"train": (train, None)}
    path = Path(train) if isinstance(train, str | Path) else None
    kind = suffix_of(path) if path is not None and path.is_file() else ""
    if path is not None and path.is_dir():
        sources = {name: (file, None) for name, file in find_splits(train).items()}
    elif path is not None and kind == ".json":  # CLINC150's document holds all splits
        keys = splits_of(read_document(Stream(path)))
        sources = {name: (train, key) for name, key in keys.items()} or sources
    elif path is not None and kind == ".jsonl":  # people's labels, of which a part is held out
        parts = parts_of(json_lines_tables(Stream(path), PORTION))
        sources |= {name: (train, name) for name in parts}
    for name, source in (("dev", dev), ("test", test)):
        if source is not None:
            sources[name] = (source, None)
    return sources


def split_off(
    dataset: Dataset[Any], share: float, seed: int = 0
) -> tuple[Dataset[Any], Dataset[Any], str]:
    """Split a data set in two so that no text is in both, stratified by label.

    The only example of a label is not held out, unless there is nothing else. Questions are split
    by article, or by passage if there are few articles.
    """
    examples = dataset.gold()
    if not examples:
        raise BertsmithError(f"{dataset.path}: too few different texts to hold some out")
    unit, keys = dataset.reading.kept_apart(examples)
    groups = grouped(keys)
    connected = max(map(len, groups)) > (1 - share) * len(examples)
    if connected:  # a prompt before every text, say
        groups = grouped([["\0".join(several)] if several else [] for several in keys])
    if len(groups) < 2:
        why = "too few different texts to hold some out; give a dev file"
        raise BertsmithError(f"{dataset.path}: {why}")
    held = _drawn(groups, examples, share, seed)
    numbered = list(enumerate(examples))
    sides = [[one for n, one in numbered if (n in held) == side] for side in (False, True)]
    labelled = len({_stratum(example) for example in examples} - {""})
    how = (
        f"no dev file: {len(sides[1]):,} of {len(examples):,} examples are held out as dev data"
        f"{' in proportion to their labels' if 0 < labelled <= len(sides[1]) else ''}; "
    ) + (MOSTLY_SHARED if connected else f"no {unit} is in both")
    rest, dev = (replace(dataset, examples=side) for side in sides)
    return rest, dev, how


def fold_numbers(dataset: Dataset[Any], folds: int, seed: int = 0) -> list[int]:
    """The fold of each labelled example, from 0: no text is in two folds, and labels are spread.

    There are fewer folds where there are fewer different texts; all are in fold 0 if all share one.
    """
    from bertsmith.examples.draw import shuffled  # its room imports PyTorch; reading data does not

    examples = dataset.gold()
    groups = grouped(dataset.reading.kept_apart(examples)[1])
    if len(groups) < 2 or max(map(len, groups)) > len(examples) // 2:
        groups = [[number] for number in range(len(examples))]
    places = shuffled(np.arange(len(groups)), len(groups), seed, "folds")
    order = [groups[place] for place in places]
    order.sort(key=lambda group: (-len(group), _stratum(examples[group[0]])))
    sizes = [0] * max(1, min(folds, len(groups)))
    of_label = [Counter[str]() for _ in sizes]
    numbers = [0] * len(examples)
    for group in order:
        label = _stratum(examples[group[0]])
        fold = min(range(len(sizes)), key=lambda one: (of_label[one][label], sizes[one], one))
        of_label[fold][label] += len(group)
        sizes[fold] += len(group)
        for number in group:
            numbers[number] = fold
    return numbers


def folds_of(
    dataset: Dataset[Any], numbers: Sequence[int]
) -> Iterator[tuple[Dataset[Any], list[int]]]:
    """For every fold the other examples, to learn from, and the places of its own, to predict."""
    for fold in range(max(numbers) + 1):
        rest = [one for one, n in zip(dataset.examples, numbers, strict=True) if n != fold]
        held = [place for place, n in enumerate(numbers) if n == fold]
        if held:
            yield replace(dataset, examples=rest), held


def _stratum(example: TaskExample) -> str:
    """The label by which examples are held out in proportion; none for tags, scores and answers."""
    names = example.label_names
    return names[0] if len(names) == 1 else "+".join(sorted(set(names))[:3])


def grouped(keys: Sequence[Sequence[str]]) -> list[list[int]]:
    """Numbers of items in groups that share no key, directly or through others (union-find)."""
    parents = list(range(len(keys)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    owners: dict[str, int] = {}
    for number, several in enumerate(keys):
        for key in several:
            first, here = root(owners.setdefault(key, number)), root(number)
            parents[max(first, here)] = min(first, here)
    groups: dict[int, list[int]] = defaultdict(list)
    for number in range(len(keys)):
        groups[root(number)].append(number)
    return list(groups.values())


def _drawn(
    groups: list[list[int]], examples: Sequence[TaskExample], share: float, seed: int
) -> set[int]:
    """Whole groups, drawn until each stratum has its share of held-out examples."""
    from bertsmith.examples.draw import shuffled  # its room imports PyTorch; reading data does not

    strata = [_stratum(example) for example in examples]
    labels = [set(example.label_names) for example in examples]
    learned = Counter(name for names in labels for name in names)  # examples left to learn from
    total = len(strata)
    counts = Counter(strata)
    wanted = {name: share * count for name, count in counts.items()}
    taken: Counter[str] = Counter()
    goal = min(total - 1, max(1, round(share * total)))
    held: set[int] = set()
    left = len(groups)
    later = []

    def hold(group: list[int]) -> bool:
        """Take a group, unless a label would have no example left."""
        taken_away = Counter(name for number in group for name in labels[number])
        if any(learned[name] == count for name, count in taken_away.items()):
            return False
        learned.subtract(taken_away)
        held.update(group)
        return True

    for place in shuffled(np.arange(len(groups)), len(groups), seed, "hold out"):
        group = groups[place]
        if left == 1 or len(held) + len(group) > goal + len(group) // 2:
            continue
        short = sum(taken[strata[number]] + 0.5 < wanted[strata[number]] for number in group)
        if 2 * short < len(group):
            later.append(group)
            continue
        if hold(group):
            taken.update(strata[number] for number in group)
            left -= 1
    for group in sorted(later, key=len) if len(held) < goal else ():
        if len(held) >= goal or left == 1:
            break
        if len(held) + len(group) <= goal + len(group) // 2 and hold(group):
            left -= 1
    by_size = sorted(groups, key=len)
    if not held and not any(map(hold, by_size)):  # every group is larger than the share
        held.update(by_size[0])
    return held
