"""A model with a new head, ready to be fine-tuned."""

from __future__ import annotations

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
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.surgery import freeze, reinitialise
from bertsmith.tasks.loaded import LoadedModel, pick_device
from bertsmith.tasks.training import Training
from bertsmith.tokenizer import Tokenizer


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


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, to write where something lies."""
    if out.exists() and not out.is_dir():
        raise BertsmithError(f"{out} is a file; a model is a directory")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise BertsmithError(f"{out} is not empty: choose another directory, or give --overwrite")
