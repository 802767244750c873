"""A model with a new head, ready to be fine-tuned."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from bertsmith.checkpoint import (
    Checkpoint,
    Sentence,
    locate,
    read,
    read_sentence,
)
from bertsmith.errors import BertsmithError
from bertsmith.files import read_whole
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.surgery import freeze, reinitialise
from bertsmith.folders import check_replaceable
from bertsmith.model import prepare
from bertsmith.tasks.loaded import LoadedModel, pick_device
from bertsmith.tasks.training import Training
from bertsmith.tokenizer import Tokenizer

LARGEST = 64 << 20  # bytes of a report.json


def open_fresh(
    model: str | Path,
    training: Training,
    settings: Settings,
    device: str | torch.device | None = None,
) -> LoadedModel:
    """Read a model and give it the head that a task needs."""
    directory, sentence = find_encoder(model)
    checkpoint = _read(directory, training, settings, pick_device(device))
    tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
    reinitialise(checkpoint.model, checkpoint.config, settings.reinitialise, settings.seed)
    freeze(checkpoint.model, settings.freeze)
    return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False)


def open_model(model: str | Path, device: str | torch.device | None = None) -> LoadedModel:
    """Read a fine-tuned model as it is."""
    directory, sentence = find_encoder(model)
    checkpoint = read(directory, device=pick_device(device))
    prepare(checkpoint.model)
    tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
    return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False)


def find_encoder(model: str | Path) -> tuple[Path, Sentence]:
    """The directory of the encoder, and how it makes vectors of texts."""
    directory = locate(model)
    return read_sentence(directory) or (directory, Sentence())


def _read(
    directory: Path, training: Training, settings: Settings, device: torch.device
) -> Checkpoint:
    if training.head is not None:
        return read(
            directory,
            heads=(),
            new=[training.head],
            settings=training.config_changes(),
            device=device,
            seed=settings.seed,
        )
    found = read(directory, device=device)
    kept = [kind for kind in found.entries if kind == "pooler"]
    return found if len(kept) == len(found.entries) else read(directory, heads=kept, device=device)


def is_interrupted(out: Path) -> bool:
    """Does a directory hold the best epoch of a run that was interrupted?"""
    try:
        content = json.loads(read_whole(out / "report.json", LARGEST))
        return bool(content["interrupted"])
    except (BertsmithError, ValueError, LookupError, TypeError, RecursionError):
        return False


def check_out(out: str | Path, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse an output directory that may not be written, before any work is done."""
    check_replaceable(out, overwrite or (resume and is_interrupted(Path(out))))
