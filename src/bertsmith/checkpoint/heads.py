"""Which heads a checkpoint stores, and under which names."""

import re
from collections.abc import Container, Iterable

from bertsmith.checkpoint.checkpoint import declared, entry_of
from bertsmith.checkpoint.names import outputs, paths
from bertsmith.families import Family, HeadEntry, Settings

Entries = dict[str, HeadEntry]


def stored_heads(
    family: Family, settings: Settings, stored: Iterable[str], known: Container[str], fresh: Entries
) -> tuple[Entries, list[str]]:
    """The heads that are stored, and those that config.json names but that are not stored.

    A classifier's tensors fit several kinds of head. Heads that config.json names come first, then
    the `known` ones (of bertsmith.json), then the others; each tensor belongs to one head only.
    """
    chosen: Entries = {}
    absent: list[str] = []
    claimed = {path for entry in fresh.values() for path in outputs(entry)}
    suffix = re.search(r"(For[A-Z]\w+|Model)$", declared(settings))
    listed = family.architectures.get(suffix[0] if suffix else "", ())
    for kind in (kind for kind in listed if kind not in fresh):
        entry = best_layout(family, kind, settings, stored)
        if not _partly_stored(entry, family, stored):
            absent.append(kind)
        elif not outputs(entry) & claimed:
            chosen[kind] = entry
            claimed |= {*paths(entry.names)}
    for entry in sorted(family.heads, key=lambda entry: entry.kind not in known):
        own = {*paths(entry.names)}
        free = entry.kind not in {*chosen, *fresh} and not (outputs(entry) or own) & claimed
        if free and _mismatch(entry, settings, stored) == (False, 0):
            chosen[entry.kind] = entry
            claimed |= own
    return chosen | fresh, absent


def best_layout(family: Family, kind: str, settings: Settings, stored: Iterable[str]) -> HeadEntry:
    """The layout of a kind of head that fits the stored tensors best."""
    entry_of(family, kind)  # an error if the family does not have this kind
    layouts = [entry for entry in family.heads if entry.kind == kind]
    return min(layouts, key=lambda entry: _mismatch(entry, settings, stored))


def _mismatch(entry: HeadEntry, settings: Settings, stored: Iterable[str]) -> tuple[bool, int]:
    """Are tensors missing (a tied output matrix may be), and how many settings differ?"""
    names = set(stored)
    modules = {name.rpartition(".")[0] for name in names}
    needed = [path for ours, path in entry.names.items() if ours != "output.weight"]
    missing = not all(path in names or path in modules for path in needed)
    return missing, sum(settings.get(key, value) != value for key, value in entry.settings.items())


def _partly_stored(entry: HeadEntry, family: Family, stored: Iterable[str]) -> bool:
    """Is any tensor of this head in the checkpoint, beside those of the bare encoder?"""
    bare = family.prefix or " "  # no name has a space
    own = tuple(path for path in paths(entry.names) if not path.startswith(bare))
    return any(name.startswith(own) for name in stored)
