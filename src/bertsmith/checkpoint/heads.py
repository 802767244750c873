"""Which heads a checkpoint stores, and under which names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from bertsmith.checkpoint.checkpoint import declared, entry_of
from bertsmith.checkpoint.names import outputs, paths
from bertsmith.families import Family, HeadEntry, Settings

Entries = dict[str, HeadEntry]


def requested(
    family: Family, settings: Settings, stored: Iterable[str], asked: Iterable[str], fresh: Entries
) -> Entries:
    """The heads that a person asks for, each in the way that it is most likely stored."""
    # `entry_of` refuses a kind that the family does not have.
    kinds = [entry_of(family, kind).kind for kind in asked]
    return {kind: _likeliest(family, kind, settings, stored) for kind in kinds} | fresh


def found(
    family: Family,
    settings: Settings,
    stored: Iterable[str],
    known: Container[str],
    fresh: Entries,
) -> tuple[Entries, list[str]]:
    """The heads that are stored, and those that config.json names in vain.

    A classifier's tensors fit several kinds of head. What config.json names comes first, then
    what is known to be there, then the others; what one head has claimed is taken.
    """
    chosen: Entries = {}
    absent: list[str] = []
    claimed = {path for entry in fresh.values() for path in outputs(entry)}
    named = [kind for kind in _declared(family, settings) if kind not in fresh]
    for way in (_likeliest(family, kind, settings, stored) for kind in named):
        if not _partly_stored(way, family, stored):
            absent.append(way.kind)
        elif not outputs(way) & claimed:
            chosen[way.kind] = way
            claimed |= {*paths(way.names)}
    for way in sorted(family.heads, key=lambda way: way.kind not in known):
        own = {*paths(way.names)}
        spare = way.kind not in {*chosen, *fresh} and not (outputs(way) or own) & claimed
        if spare and _doubt(way, settings, stored) == (False, 0):
            chosen[way.kind] = way
            claimed |= own
    return chosen | fresh, absent


def _declared(family: Family, settings: Settings) -> tuple[str, ...]:
    """The heads of the class that config.json names."""
    suffix = re.search(r"(For[A-Z]\w+|Model)$", declared(settings))
    return family.architectures.get(suffix[0] if suffix else "", ())


def _likeliest(family: Family, kind: str, settings: Settings, stored: Iterable[str]) -> HeadEntry:
    """The stored form of a head that fits the checkpoint best."""
    ways = [way for way in family.heads if way.kind == kind]
    return min(ways, key=lambda way: _doubt(way, settings, stored))


def _doubt(entry: HeadEntry, settings: Settings, stored: Iterable[str]) -> tuple[bool, int]:
    """A sort key, lowest for the best fit: are tensors missing, and how many settings differ."""
    against = sum(settings.get(key, value) != value for key, value in entry.settings.items())
    return not _wholly_stored(entry, stored), against


def _wholly_stored(entry: HeadEntry, stored: Iterable[str]) -> bool:
    """Is every part of this head in the checkpoint (a tied output matrix need not be)?"""
    names = set(stored)
    modules = {name.rpartition(".")[0] for name in names}
    needed = [path for ours, path in entry.names.items() if ours != "output.weight"]
    return all(path in names or path in modules for path in needed)


def _partly_stored(entry: HeadEntry, family: Family, stored: Iterable[str]) -> bool:
    """Is anything of this head in the checkpoint, beside what belongs to the bare encoder?"""
    bare = family.prefix or " "  # no name has a space
    own = tuple(path for path in paths(entry.names) if not path.startswith(bare))
    return any(name.startswith(own) for name in stored)
