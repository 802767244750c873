"""Checkpoint: a model with its settings, and a report of how it was read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint.assemble import assemble
from bertsmith.checkpoint.names import Translation
from bertsmith.errors import BertsmithError
from bertsmith.families import Family, HeadEntry, Settings, family_of, preset
from bertsmith.families.family import labels
from bertsmith.files import one_line
from bertsmith.model import Config, Model, initialise
from bertsmith.numbers import whole_number

MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class Report:
    """How every tensor of a checkpoint was used, so that nothing is lost silently."""

    loaded: int = 0
    new: tuple[str, ...] = ()  # ours, newly initialised because they were asked for as new
    unused: tuple[str, ...] = ()  # theirs, with no place in the model
    repeated: tuple[str, ...] = ()  # theirs, derived or tied: stored again, not needed
    absent: tuple[str, ...] = ()  # heads that config.json names but nothing is stored of
    notes: tuple[str, ...] = ()  # how the files were read, where that is not plain

    def lines(self) -> list[str]:
        """The report as lines of text; empty if all tensors were used."""
        lines = list(self.notes)
        for names, text in (
            (self.new, "newly initialised: train before use"),
            (self.unused, "in the checkpoint but not used by this model"),
        ):
            if names:
                lines.append(f"{len(names)} tensors {text}: {shorten(names)}")
        if self.absent:
            lines.append(f"config.json names a head that is not stored: {', '.join(self.absent)}")
        return lines


@dataclass(frozen=True)
class Checkpoint:
    """A model, its family, its config.json settings and how each head is stored."""

    model: Model
    family: Family
    settings: Mapping[str, Any]
    entries: Mapping[str, HeadEntry]
    report: Report = field(default_factory=Report)
    notes: Mapping[str, Any] = field(default_factory=dict)  # what else bertsmith.json says

    @cached_property
    def config(self) -> Config:
        """What the settings describe, with the heads that are there."""
        return configure(self.family, self.settings, self.entries)

    @property
    def names(self) -> Translation:
        """The translation between our tensor names and the stored ones."""
        return Translation(self.family, self.settings, self.entries, self.config.per_head)

    @property
    def labels(self) -> list[str]:
        """The label names of a classifier or tagger, in the order of its outputs."""
        with meaningful("config.json: labels"):
            stored, count = self.settings.get("id2label") or {}, labels(self.settings)
            if len(stored) == count:
                number = partial(whole_number, name="a key of id2label", high=MOST_LABELS)
                names = [str(stored[key]) for key in sorted(stored, key=number)]
                for name, times in Counter(names).items():
                    if times > 1:
                        raise BertsmithError(
                            f"{times} are called {name!r:.80}: give each its own name in id2label"
                        )
                return names
            if not 0 < count <= MOST_LABELS:
                raise BertsmithError(f"{count} of them")
            return [f"LABEL_{number}" for number in range(count)]


def configure(
    family: Family,
    settings: Settings,
    entries: Mapping[str, HeadEntry],
    where: str | Path = "config.json",
) -> Config:
    """Settings and chosen heads as a Config; a bad value is a one-line error."""
    with meaningful(where):
        config = pruned(family.config(settings), settings)
        heads = {kind: entry.config(config, settings) for kind, entry in entries.items()}
        return replace(config, heads=heads)


def pruned(config: Config, settings: Settings) -> Config:
    """The same without the heads in `pruned_heads` of `transformers` 4, such as {"0": [2, 3]}."""
    counts = [config.attention_heads] * (max(config.plan, default=-1) + 1)
    for block, heads in (settings.get("pruned_heads") or {}).items():
        number, gone = int(block), {int(head) for head in heads}
        if not 0 <= number < len(counts) or not gone < {*range(config.attention_heads)}:
            raise BertsmithError(f"pruned_heads: block {block} cannot lose heads {sorted(gone)}")
        counts[number] -= len(gone)
    return config if {*counts} <= {config.attention_heads} else replace(config, kept=tuple(counts))


@contextmanager
def meaningful(where: str | Path) -> Iterator[None]:
    """Turn what bad settings raise into one line that says where they are."""
    try:
        yield
    except BertsmithError as error:
        message = error.message  # with names of settings, which `one_line` would lose
        message = message if len(message) < 1000 else one_line(message)
        raise BertsmithError(f"{where}: {message.removeprefix('config.json: ')}") from error
    except FAULTS as error:
        raise BertsmithError(f"{where}: a setting has a bad value ({one_line(error)})") from error


# What a value of the wrong kind or size raises where it is first used.
FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)


def create(
    settings: str | Settings,
    *,
    heads: Iterable[str] = ("masked_lm",),
    seed: int = 0,
    device: str = "cpu",
    **changes: Any,
) -> Checkpoint:
    """Create a model of a published size, or from config.json settings, with random weights.

    On the device "meta" it has shapes but takes no memory.
    """
    settings = preset(settings) if isinstance(settings, str) else settings
    settings = {**settings, **changes}
    family = family_of(settings)
    entries = {kind: entry_of(family, kind) for kind in heads}
    config = configure(family, settings, entries)
    model = assemble(config, Translation(family, settings, entries, config.per_head), device)
    if device != "meta":
        initialise(model, config.initial_deviation, torch.Generator(device).manual_seed(seed))
    new = tuple(name for name, _ in model.named_parameters())
    return Checkpoint(model.eval(), family, settings, entries, Report(new=new))


def entry_of(family: Family, kind: str) -> HeadEntry:
    """How a new head of this kind is stored."""
    for entry in family.heads:
        if entry.kind == kind:
            return entry
    known = ", ".join(dict.fromkeys(entry.kind for entry in family.heads))
    raise BertsmithError(f"{family.name} has no head {kind!r}; it has: {known}")


def declared(settings: Settings) -> str:
    """The class that config.json names."""
    classes = settings.get("architectures")
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def shorten(names: Iterable[str], most: int = 4) -> str:
    """A few of many names."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
