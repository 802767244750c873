"""A Hugging Face directory → a model, with a report of every tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, configure, entry_of, shorten
from bertsmith.checkpoint.files import TensorFiles, inside, read_json
from bertsmith.checkpoint.names import Translation, canonical, partly_stored, stored_as
from bertsmith.errors import BertsmithError
from bertsmith.families import Family, HeadEntry, family_of
from bertsmith.model import Model, build, initialise


def read(
    directory: str | Path,
    *,
    heads: Iterable[str] | None = None,
    new: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Checkpoint:
    """Read a model directory.

    `heads` are those that must be there (default: all that the checkpoint stores); `new` ones
    are made afresh; `settings` change config.json, for example its labels; `dtype` None keeps
    each tensor as it is stored.
    """
    directory = Path(directory)
    given = {**read_json(inside(directory, "config.json")), **(settings or {})}
    if not given.get("model_type"):
        raise BertsmithError(f"{directory}: config.json has no model_type; say which family it is")
    family = family_of(given)
    files = TensorFiles(directory)
    stored = {theirs: raw for raw, theirs in canonical(family, files.where).items()}
    fresh = {kind: entry_of(family, kind) for kind in new}
    entries = {**_entries(family, given, stored, heads, set(fresh)), **fresh}
    absent = [] if heads else [kind for kind in _declared(family, given) if kind not in entries]
    config = configure(family, given, entries)
    with torch.device("meta"):
        model = build(config)
    names = Translation(family, given, entries, config.attention_heads)
    tensors, made = _match(model, names, files, stored, fresh, directory)
    used = {theirs for ours in tensors for theirs in names.theirs(ours)}
    _assign(
        model,
        {ours: read().to(device, dtype) for ours, read in tensors.items()},
        made,
        device,
        dtype,
    )
    generator = torch.Generator(device=device).manual_seed(seed)
    initialise(model, config.initial_deviation, generator, only=made)
    left = sorted(set(stored) - used)
    ways = [entry for entry in family.heads if entry.kind in entries]
    repeated = [name for name in left if _repeats(name, ways)]
    report = Report(
        len(tensors),
        tuple(sorted(made)),
        tuple(name for name in left if name not in repeated),
        tuple(repeated),
        tuple(absent),
    )
    return Checkpoint(model.eval(), family, given, entries, report)


def _entries(
    family: Family,
    settings: Mapping[str, Any],
    stored: Mapping[str, str],
    asked: Iterable[str] | None,
    fresh: set[str],
) -> dict[str, HeadEntry]:
    """Which heads to build, and which way each is stored."""
    wanted = list(_declared(family, settings) if asked is None else asked)
    chosen: dict[str, HeadEntry] = {}
    claimed: set[str] = set()
    for kind in wanted:
        entry_of(family, kind)  # a kind that the family does not have is an error here
        if kind not in fresh:
            ways = [entry for entry in family.heads if entry.kind == kind]
            way = min(ways, key=lambda way: _doubt(way, settings, stored))
            if asked is None and not partly_stored(way, family, stored):
                continue  # config.json names it, but nothing of it is here: the report says so
            chosen[kind] = way
            claimed.update(map(str, chosen[kind].names.values()))
    if asked is None:
        for entry in family.heads:
            # A classifier's tensors fit several kinds: what one head has claimed is taken.
            own = set(map(str, entry.names.values()))
            spare = entry.kind not in {*chosen, *fresh} and not own & claimed
            if spare and _doubt(entry, settings, stored) == (False, 0):
                chosen[entry.kind] = entry
                claimed |= own
    return chosen


def _declared(family: Family, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the class that config.json names."""
    named = settings.get("architectures") or [""]
    suffix = re.search(r"(For[A-Z]\w+|Model)$", str(named[0]))
    return family.architectures.get(suffix[0] if suffix else "", ())


def _doubt(
    entry: HeadEntry, settings: Mapping[str, Any], stored: Mapping[str, str]
) -> tuple[bool, int]:
    """How little speaks for a head being stored this way: tensors first, then settings."""
    against = sum(settings.get(key, value) != value for key, value in entry.settings.items())
    return not stored_as(entry, stored), against


def _match(
    model: Model,
    names: Translation,
    files: TensorFiles,
    stored: Mapping[str, str],
    fresh: Mapping[str, HeadEntry],
    directory: Path,
) -> tuple[dict[str, Any], set[str]]:
    """For each of our tensors a function that reads it; and those that are to be made."""
    found: dict[str, Any] = {}
    made: set[str] = set()
    missing: list[str] = []
    for ours, parameter in model.named_parameters():
        theirs = names.theirs(ours)
        absent = [name for name in theirs if name not in stored]
        if ours.startswith("heads.") and ours.split(".")[1] in fresh and absent:
            made.add(ours)
        elif absent:
            missing += absent
        else:
            raw = [stored[name] for name in theirs]
            _check(ours, raw, parameter, names, files)
            found[ours] = lambda raw=raw, ours=ours: names.join(ours, [files.read(n) for n in raw])
    if missing:
        raise BertsmithError(
            f"{directory}: {len(missing)} tensors the model needs are missing: {shorten(missing)}"
        )
    return found, made


def _check(
    ours: str, raw: list[str], parameter: Tensor, names: Translation, files: TensorFiles
) -> None:
    """Do the stored shapes give the shape that config.json asks for?"""
    expected = [tuple(part.shape) for part in names.part(ours, parameter)]
    for name, shape in zip(raw, expected, strict=True):
        if files.shapes[name] != shape:
            raise BertsmithError(
                f"{files.where[name]}: {name} has shape {list(files.shapes[name])}, "
                f"but config.json asks for {list(shape)}"
            )


def _assign(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    made: set[str],
    device: torch.device | str,
    dtype: torch.dtype | None,
) -> None:
    """Put real tensors in place of the model's empty ones; what was one tensor stays one."""
    real: dict[int, nn.Parameter] = {}
    for ours, empty in model.named_parameters():
        if ours in made:
            value = torch.empty(empty.shape, device=device, dtype=dtype)
        else:
            value = tensors[ours].contiguous()
        real[id(empty)] = nn.Parameter(value)
    for module in model.modules():
        for name, empty in list(module.named_parameters(recurse=False)):
            setattr(module, name, real[id(empty)])


def _repeats(name: str, ways: Iterable[HeadEntry]) -> bool:
    """Is this a buffer that is computed, or what another way to store the same head has?"""
    module, _, leaf = name.rpartition(".")
    if leaf in ("position_ids", "inv_freq"):
        return True
    tied = {str(path) for way in ways for ours, path in way.names.items() if "output" in ours}
    return name in tied or module in {path.removesuffix(".weight") for path in tied}
