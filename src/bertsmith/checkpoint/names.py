"""Our tensor names to theirs and back, by the family's table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from bertsmith.families import Family, HeadEntry, Names, PerHead, Settings, Stacked

BLOCK = re.compile(r"^blocks\.(\d+)\.(?:block\.)?")


class Translation:
    """One checkpoint's names: which of theirs hold each of ours, and how to join or part them."""

    def __init__(
        self, family: Family, settings: Settings, entries: Mapping[str, HeadEntry], heads: int
    ) -> None:
        self.family, self.entries, self.heads = family, entries, heads
        self.label: Callable[[int], str] = lambda number: family.block_label(settings, number)

    def theirs(self, ours: str) -> list[str]:
        """The names under which a tensor of ours is stored."""
        rule, leaf = self._rule(ours)
        parts = rule.parts if isinstance(rule, Stacked) else (rule,)
        return [(p.part if isinstance(p, PerHead) else p) + leaf for p in parts]

    def join(self, ours: str, stored: list[Tensor]) -> Tensor:
        """Stored tensors → our one."""
        rule, _ = self._rule(ours)
        if isinstance(rule, PerHead):
            return stored[0].unflatten(0, (self.heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        return torch.cat(stored) if isinstance(rule, Stacked) else stored[0]

    def part(self, ours: str, tensor: Tensor) -> list[Tensor]:
        """Our tensor → the stored ones; the inverse of `join`."""
        rule, _ = self._rule(ours)
        if isinstance(rule, PerHead):
            return [tensor.unflatten(0, (3, self.heads, -1)).transpose(0, 1).flatten(0, 2)]
        return list(tensor.chunk(len(rule.parts))) if isinstance(rule, Stacked) else [tensor]

    def _rule(self, ours: str) -> tuple[str | Stacked | PerHead, str]:
        """The table's rule for a tensor, in absolute names, and the leaf to add to it."""
        room, _, inner = ours.partition(".")
        if room == "heads":
            kind, _, inner = inner.partition(".")
            return _find(self.entries[kind].names, inner)
        found = BLOCK.match(inner)
        if not found:
            rule, leaf = _find(self.family.names, inner)
            return _each(rule, lambda path: self.family.prefix + path), leaf
        plain = BLOCK.sub(rf"blocks.{found[1]}.", inner)
        table, label = self.family.names, self.label(int(found[1]))
        try:
            rule, leaf = _find(table, plain)
        except KeyError:
            rule, leaf = _find(table, BLOCK.sub("blocks.*.", inner))
        return _each(rule, lambda path: self.family.prefix + path.replace("*", label)), leaf


def _find(table: Names, name: str) -> tuple[str | Stacked | PerHead, str]:
    """An exact entry, or the entry of the tensor's module with its leaf left over."""
    if name in table:
        return table[name], ""
    module, _, leaf = name.rpartition(".")
    return table[module], "." + leaf


def _each(rule: str | Stacked | PerHead, change: Callable[[str], str]) -> str | Stacked | PerHead:
    if isinstance(rule, Stacked):
        return Stacked(tuple(change(part) for part in rule.parts))
    return PerHead(change(rule.part)) if isinstance(rule, PerHead) else change(rule)


def paths(names: Names) -> Iterator[str]:
    """All of their modules and tensors that a table names."""
    for rule in names.values():
        if isinstance(rule, Stacked):
            yield from rule.parts
        else:
            yield rule.part if isinstance(rule, PerHead) else rule


def canonical(family: Family, stored: Iterable[str]) -> dict[str, str]:
    """Stored names → absolute ones: old norm names made new, a missing prefix added."""
    roots = {path.split(".")[0] + "." for path in paths(family.names)}
    for entry in family.heads:
        bare = (
            p.removeprefix(family.prefix) for p in paths(entry.names) if p.startswith(family.prefix)
        )
        roots.update(path.split(".")[0] + "." for path in bare)
    names = list(stored)
    prefixed = any(name.startswith(family.prefix) for name in names)
    known = {}
    for name in names:
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if not prefixed and any(new.startswith(root) for root in roots):
            new = family.prefix + new
        known[name] = new
    return known


def stored_as(entry: HeadEntry, stored: Iterable[str]) -> bool:
    """Is every part of this head in the checkpoint (a tied output matrix need not be)?"""
    names = set(stored)
    modules = {name.rpartition(".")[0] for name in names}
    needed = [path for ours, path in entry.names.items() if ours != "output.weight"]
    return all(path in names or path in modules for path in needed)


def partly_stored(entry: HeadEntry, family: Family, stored: Iterable[str]) -> bool:
    """Is anything of this head in the checkpoint, beside what belongs to the bare encoder?"""
    own = [path for path in paths(entry.names) if not path.startswith(family.prefix)]
    return any(name.startswith(path) for name in stored for path in own)
