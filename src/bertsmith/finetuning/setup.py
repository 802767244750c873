"""Model setup: read a checkpoint, give it a new head, freeze or reset layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import (
    Checkpoint,
    Lora,
    Sentence,
    attach,
    demand_float,
    keep_layers,
    locate,
    read,
    read_sentence,
    tokenizer_folder,
)
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.settings import RunSettings
from bertsmith.infer.loaded import LoadedModel, pick_device
from bertsmith.model import Config, Model, initialise
from bertsmith.tasks.registry import TASKS
from bertsmith.tasks.task import FITTED
from bertsmith.tasks.training import Training
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.activations import freeze, train_biases


def open_fresh(
    model: str | Path,
    training: Training,
    settings: RunSettings,
    device: str | torch.device | None = None,
    layers: Sequence[int] = (),
) -> LoadedModel:
    """Read a model, or some of its layers, and give it the head that a task needs."""
    directory, sentence = find_encoder(model)
    changes = training.config_changes()
    how: Any = {"dropout": settings.dropout, "device": pick_device(device)}
    if training.head is not None:
        new = {"new": [training.head], "settings": changes, "seed": settings.seed}
        checkpoint = read(directory, heads=(), **new, **how)
    else:
        checkpoint = read(directory, **how)
        if checkpoint.entries.keys() - {"pooler"}:
            kept = checkpoint.entries.keys() & {"pooler"}
            checkpoint = read(directory, heads=kept, **how)
        checkpoint = replace(checkpoint, settings={**checkpoint.settings, **changes})
    if layers:
        checkpoint = keep_layers(checkpoint, layers)
    return ready(checkpoint, directory, sentence, settings)


def ready(
    checkpoint: Checkpoint, directory: Path, sentence: Sentence, settings: RunSettings
) -> LoadedModel:
    """A model with its tokenizer, some parameters frozen or reset as the settings say."""
    demand_float(checkpoint.settings, directory)
    tokenizer = Tokenizer.load(tokenizer_folder(directory), family=checkpoint.family.name)
    reinitialise(checkpoint.model, checkpoint.config, settings.reinitialise, settings.seed)
    freeze(checkpoint.model, settings.freeze)
    if settings.trained == "lora":
        attach(checkpoint, lora_of(settings), settings.seed)
    elif settings.trained == "biases":
        train_biases(checkpoint.model)
    return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False)


def lora_of(settings: RunSettings) -> Lora:
    """The shape of the updates that the settings ask for."""
    return Lora(settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.rslora)


def forget_former(bert: LoadedModel, training: Training) -> None:
    """Drop thresholds that were fitted on the model's outputs, and what former tasks stored."""
    former = {*FITTED, *(name for task in TASKS.values() for name in task.stored)}
    former -= training.config_changes().keys()
    settings = bert.checkpoint.settings
    kept = {name: settings[name] for name in settings if name not in former}
    bert.checkpoint = replace(bert.checkpoint, settings=kept)


def limit_length(bert: LoadedModel, most: int) -> None:
    """Read texts in windows of at most `most` tokens, in training and ever after; 0: as before."""
    if most:
        most = min(most, bert.checkpoint.config.max_length)
        bert.tokenizer.max_length = most
        bert.sentence = replace(bert.sentence, max_length=most)


def find_encoder(model: str | Path) -> tuple[Path, Sentence]:
    """The directory of the encoder, and how it makes vectors of texts."""
    directory = locate(model)
    return read_sentence(directory) or (directory, Sentence())


def reinitialise(model: Model, config: Config, count: int, seed: int) -> None:
    """Give the top layers new weights."""
    if not count:
        return
    plan = [number for number, _ in model.encoder.plan]
    if count > len(plan):
        raise BertsmithError(f"{count} layers cannot be reinitialised: the model has {len(plan)}")
    top = set(plan[len(plan) - count :])
    if top & set(plan[: len(plan) - count]):
        raise BertsmithError("the layers of this model share weights: reinitialise none of them")
    prefixes = tuple(f"encoder.blocks.{number}." for number in top)
    names = {name for name, _ in model.named_parameters() if name.startswith(prefixes)}
    device = next(model.parameters()).device
    generator = torch.Generator(device=device).manual_seed(seed)
    initialise(model, config.initial_deviation, generator, only=names)
