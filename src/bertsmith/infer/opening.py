"""Open a model directory, or a model by its name, for use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from bertsmith.checkpoint import Sentence, locate, read, read_sentence
from bertsmith.infer.loaded import LoadedModel, all_devices, pick_device, pick_dtype
from bertsmith.model import prepare
from bertsmith.tokenizer import Tokenizer


def open_model(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    heads: Sequence[str] | None = None,
    family: str | None = None,
    budget: int | None = None,
    progress: bool | None = None,
) -> LoadedModel:
    """Read a model with its tokenizer; the parameters are those of `bertsmith.load`."""
    directory = locate(name)
    chosen = pick_device(device)
    sentence = read_sentence(directory)
    directory, pooling = sentence or (directory, Sentence())
    settings = {"model_type": family} if family else None
    needed = [heads] if isinstance(heads, str) else heads
    checkpoint = read(
        directory, heads=needed, settings=settings, dtype=pick_dtype(dtype), device=chosen
    )
    prepare(checkpoint.model)
    tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
    return LoadedModel(
        checkpoint,
        tokenizer,
        sentence=pooling,
        budget=budget,
        progress=progress,
        shared_devices=all_devices() if device is None else (),
    )
