"""A Hugging Face directory → a model, with a report of every tensor."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.checkpoint.assemble import assemble, substitute
from bertsmith.checkpoint.checkpoint import (
    Checkpoint,
    Report,
    configure,
    entry_of,
    meaningful,
    shorten,
)
from bertsmith.checkpoint.files import TensorFiles, inside
from bertsmith.checkpoint.heads import best_layout, stored_heads
from bertsmith.checkpoint.lora import MergedFiles, adapter_in, base_of
from bertsmith.checkpoint.names import Translation, outputs, unwrapped
from bertsmith.errors import BertsmithError, nearest
from bertsmith.families import Family, HeadEntry, family_of, model_types
from bertsmith.foreign import read_json
from bertsmith.model import Config, Model, initialise

WRITTEN = {"version", "family", "heads", "files"}  # entries of bertsmith.json that `write` makes


def read(
    directory: str | Path,
    *,
    heads: Iterable[str] | None = None,
    new: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    dropout: float | None = None,
    dtype: torch.dtype | None = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Checkpoint:
    """Read a model directory.

    `heads` are those that must be there (default: all heads of the checkpoint). Heads in `new` get
    a new output layer, and other new layers if none are stored. `settings` override config.json,
    for example its labels, and `dropout` that of all layers. With `dtype` None, tensors keep the
    data type in which they are stored.
    """
    directory = Path(directory)
    adapter = adapter_in(directory)
    base = directory if adapter is None else adapter.base
    path = inside(base, "config.json")
    if settings and "model_type" in settings:
        check_family(settings["model_type"])
    content = {**read_json(path), **(settings or {})}
    with meaningful(path):
        family = family_of(content)
    files = TensorFiles(base)
    if adapter is not None:
        content |= {**adapter.settings(family, content["model_type"]), **(settings or {})}
        files = MergedFiles(files, adapter, family)
    if dropout is not None:
        content |= dict.fromkeys(dropout_keys(family), dropout)
    prefix, stored = unwrapped(family, files.where)
    if prefix:
        files.notes.append(f"the names of its tensors begin with {prefix!r}, which is left out")
    fresh = {kind: entry_of(family, kind) for kind in new}
    notes = read_notes(directory)
    absent: list[str] = []
    if heads is None:
        known = noted if isinstance(noted := notes.get("heads"), list) else []
        entries, absent = stored_heads(family, content, stored, known, fresh)
    else:
        entries = {kind: best_layout(family, kind, content, stored) for kind in heads} | fresh
    config = configure(family, content, entries, path)
    names = Translation(family, content, entries, config.per_head)
    with meaningful(path):
        if config.plan and max(config.plan) >= len(files.where):
            raise BertsmithError(f"{max(config.plan) + 1} layers, but {len(files.where)} tensors")
        model = assemble(config, names, "meta")
    places, new_tensors = _match(model, names, files, stored, fresh, directory)

    def value(ours: str, empty: Tensor) -> Tensor:
        if ours not in places:
            return torch.empty(empty.shape, device=device, dtype=dtype)
        tensor = names.join(ours, [files.read(raw) for raw in places[ours]])
        return tensor.to(device, dtype).contiguous()

    own = model.named_parameters()
    substitute(model, {empty: nn.Parameter(value(ours, empty)) for ours, empty in own})
    _demand_finite(model, places, directory)
    generator = torch.Generator(device=device).manual_seed(seed)
    initialise(model, config.initial_deviation, generator, only=new_tensors)
    used = {raw for parts in places.values() for raw in parts}
    unused = {raw: name for name, raw in stored.items() if raw not in used}
    loaded_heads = [head for head in family.heads if head.kind in entries.keys() - fresh.keys()]
    repeated = {raw for raw, name in unused.items() if _repeats(name, loaded_heads)}
    report = Report(
        loaded=len(places),
        new=tuple(sorted(new_tensors)),
        unused=tuple(sorted(files.where.keys() - used - repeated)),
        repeated=tuple(sorted(repeated)),
        absent=tuple(absent),
        notes=tuple(files.notes),
    )
    notes = {name: value for name, value in notes.items() if name not in WRITTEN}
    return Checkpoint(model.eval(), family, content, entries, report, notes)


def dropout_keys(family: Family) -> tuple[str, ...]:
    """Keys of config.json that set dropout of the encoder, and nothing else."""
    keys = {key: fields.split() for key, fields in family.keys.items()}
    return tuple(k for k, fields in keys.items() if all(f.endswith("_dropout") for f in fields))


def check_family(name: object) -> None:
    """Refuse a family that a person names and that is not known."""
    names = model_types()
    if name not in names:
        near = nearest(str(name), names) or ";"
        raise BertsmithError(f"unknown family {name!r:.80}{near} known: {', '.join(names)}")


def read_config(directory: str | Path) -> Config:
    """Read the encoder's configuration from config.json, without weights."""
    path = inside(base_of(Path(directory)), "config.json")
    settings = read_json(path)
    with meaningful(path):
        family = family_of(settings)
    return configure(family, settings, {}, path)


def read_notes(directory: str | Path) -> dict[str, Any]:
    """Read bertsmith.json, which exists if bertsmith wrote the directory."""
    ours = Path(directory) / "bertsmith.json"
    return read_json(ours) if ours.is_file() else {}


def _match(
    model: Model,
    names: Translation,
    files: TensorFiles,
    stored: Mapping[str, str],
    fresh: Mapping[str, HeadEntry],
    directory: Path,
) -> tuple[dict[str, list[str]], set[str]]:
    """For each of our tensors the stored ones that it consists of; and those to initialise."""
    places: dict[str, list[str]] = {}
    new_tensors: set[str] = set()
    missing: list[str] = []
    for ours, parameter in model.named_parameters():
        theirs = names.theirs(ours)
        absent = [name for name in theirs if name not in stored]
        room, kind, module = (*ours.split("."), "", "")[:3]
        if room == "heads" and kind in fresh and (absent or module == "output"):
            new_tensors.add(ours)
        elif absent:
            missing += absent
        else:
            places[ours] = [stored[name] for name in theirs]
            for raw, part in zip(places[ours], names.part(ours, parameter), strict=True):
                if files.shapes[raw] != part.shape:
                    asked = f"config.json asks for {list(part.shape)}"
                    shape = f"{raw} has shape {list(files.shapes[raw])}"
                    raise BertsmithError(f"{files.where[raw]}: {shape}, but {asked}")
    if missing:
        used = {raw for parts in places.values() for raw in parts}
        others = sorted(files.where.keys() - used)
        instead = f"; stored instead: {shorten(others)}" if others and len(missing) > 1 else ""
        fault = f"{len(missing)} tensors the model needs are missing"
        raise BertsmithError(f"{directory}: {fault}: {shorten(missing)}{instead}")
    return places, new_tensors


def _demand_finite(model: Model, places: Mapping[str, list[str]], directory: Path) -> None:
    """Refuse weights that are NaN or infinite: every result would be NaN."""
    broken = [
        name
        for ours, parameter in model.named_parameters()
        if ours in places and not bool(torch.isfinite(parameter.sum(dtype=torch.float64)))
        for name in places[ours]
    ]
    if broken:
        fault = "hold NaN or infinite values, so that every result would be NaN"
        raise BertsmithError(f"{directory}: {len(broken)} tensors {fault}: {shorten(broken)}")


def _repeats(name: str, heads: Iterable[HeadEntry]) -> bool:
    """Is this a computed buffer, or the output matrix of another layout of the same head?"""
    module, _, leaf = name.rpartition(".")
    if leaf in ("position_ids", "inv_freq"):
        return True
    tied = {path for head in heads for path in outputs(head)}
    return name in tied or module in {path.removesuffix(".weight") for path in tied}
