"""Tensor names of bertsmith to those of the family and back."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.families import FAMILIES, Family, HeadEntry, Names, Settings, Stacked

OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
BLOCK = re.compile(r"^blocks\.(\d+)\.(?:block\.)?")


class Translation:
    """One checkpoint's names: which of theirs hold each of ours, and how to join or part them."""

    def __init__(
        self, family: Family, settings: Settings, entries: Mapping[str, HeadEntry], per_head: int
    ) -> None:
        self.family, self.entries, self.per_head = family, entries, per_head
        self.label: Callable[[int], str] = lambda number: family.block_label(settings, number)

    def theirs(self, ours: str) -> list[str]:
        """The names under which a tensor of ours is stored."""
        rule, leaf = self._rule(ours)
        return [part + leaf for part in rule.parts]

    def join(self, ours: str, stored: list[Tensor]) -> Tensor:
        """Stored tensors → our one."""
        if self._rule(ours)[0].per_head:
            return stored[0].unflatten(0, (-1, 3, self.per_head)).transpose(0, 1).flatten(0, 2)
        return torch.cat(stored) if len(stored) > 1 else stored[0]

    def part(self, ours: str, tensor: Tensor) -> list[Tensor]:
        """Our tensor → the stored ones; the inverse of `join`."""
        rule, _ = self._rule(ours)
        if rule.per_head:
            return [tensor.unflatten(0, (3, -1, self.per_head)).transpose(0, 1).flatten(0, 2)]
        return list(tensor.chunk(len(rule.parts))) if len(rule.parts) > 1 else [tensor]

    def _rule(self, ours: str) -> tuple[Stacked, str]:
        """The table's rule for a tensor, in absolute names, and the leaf to add to it."""
        room, _, inner = ours.partition(".")
        if room == "heads":
            kind, _, inner = inner.partition(".")
            return _find(self.entries[kind].names, inner)
        label = ""
        exact = general = inner
        if block := BLOCK.match(inner):
            label = self.label(int(block[1]))
            exact, general = (BLOCK.sub(f"blocks.{n}.", inner) for n in (block[1], "*"))
        rule, leaf = _find(self.family.names, exact, general)
        parts = (self.family.prefix + path.replace("*", label) for path in rule.parts)
        return rule._replace(parts=tuple(parts)), leaf


def _find(table: Names, *names: str) -> tuple[Stacked, str]:
    """An exact entry, or the entry of the tensor's module with its leaf left over."""
    for name in names:
        module, _, leaf = name.rpartition(".")
        for key, rest in ((name, ""), (module, f".{leaf}")):
            if key in table:
                return _as_stacked(table[key]), rest
    raise BertsmithError(f"config.json: {names[0]} is not a part of this family")


def _as_stacked(rule: str | Stacked) -> Stacked:
    return Stacked((rule,)) if isinstance(rule, str) else rule


def paths(names: Names) -> Iterator[str]:
    """All of their modules and tensors that a table names."""
    for rule in names.values():
        yield from _as_stacked(rule).parts


def canonical(family: Family, stored: Iterable[str]) -> dict[str, str]:
    """Absolute names → stored ones: old norm names made new, a missing prefix added."""
    own = {*paths(family.names)}
    for entry in family.heads:
        at_home = (path for path in paths(entry.names) if path.startswith(family.prefix))
        own.update(path.removeprefix(family.prefix) for path in at_home)
    roots = tuple({path.split(".")[0] + "." for path in own})
    names = list(stored)
    prefixed = any(name.startswith(family.prefix) for name in names)
    known: dict[str, str] = {}
    for name in names:
        module, _, leaf = name.rpartition(".")
        new = f"{module}.{OLD_LEAVES[leaf]}" if leaf in OLD_LEAVES else name
        if not prefixed and new.startswith(roots):
            new = family.prefix + new
        if new not in known or new == name:
            known[new] = name
    return known


def unwrapped(family: Family, stored: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The prefix of a wrapper ("module.", "backbone."), or "", and `canonical` names without it."""
    names = list(stored)
    known = canonical(family, names)
    rule, leaf = _find(family.names, "embedding.token.weight")
    token = rule.parts[0] + leaf
    if family.prefix + token in known:
        return "", known
    for name in names:
        prefix = name.removesuffix(token).removesuffix(family.prefix)
        if name.endswith(f".{token}") and prefix and prefix not in FOREIGN_PREFIXES:
            inner = {stored_name.removeprefix(prefix): stored_name for stored_name in names}
            if len(inner) == len(names):
                return prefix, {new: inner[old] for new, old in canonical(family, inner).items()}
    return "", known


FOREIGN_PREFIXES = {family.prefix for family in FAMILIES.values()}


def outputs(entry: HeadEntry) -> set[str]:
    """Where a head's last layer is stored: no two heads of a checkpoint can share that."""
    return {str(path) for ours, path in entry.names.items() if ours.startswith("output")}
