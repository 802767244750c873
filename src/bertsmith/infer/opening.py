"""Open a model directory, or a model by its name, for use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith.batch import Batch
from bertsmith.checkpoint import kept_float32, locate, read, read_sentence, tokenizer_folder
from bertsmith.cpu import prepare, speed_up_single_texts, to_int8
from bertsmith.infer.loaded import LoadedModel, all_devices, pick_device, pick_dtype
from bertsmith.tokenizer import Tokenizer

PANGRAMS = [
    "The quick brown fox jumps over the lazy dog.",
    "How vexingly quick daft zebras jump!",
    "Pack my box with five dozen liquor jugs, and write to me before the end of the year.",
]


def open_model(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    heads: Sequence[str] | None = None,
    family: str | None = None,
    budget: int | None = None,
    progress: bool | None = None,
) -> LoadedModel:
    """Read a model with its tokenizer; the parameters are those of `bertsmith.load`."""
    directory = locate(name)
    int8 = dtype == "int8"
    chosen = pick_device("cpu" if int8 and device is None else device)
    sentence = read_sentence(directory)
    directory, pooling = sentence or (directory, None)
    settings = {"model_type": family} if family else None
    needed = [heads] if isinstance(heads, str) else heads
    kind = torch.float32 if int8 or dtype is None else pick_dtype(dtype)
    checkpoint = read(directory, heads=needed, settings=settings, dtype=kind, device=chosen)
    tokenizer = Tokenizer.load(tokenizer_folder(directory), family=checkpoint.family.name)
    shared = all_devices() if device is None else ()
    options: dict[str, Any] = {"budget": budget, "progress": progress, "shared_devices": shared}
    loaded = LoadedModel(checkpoint, tokenizer, sentence=pooling, **options)
    keep = kept_float32(checkpoint.settings)
    if int8 or (dtype is None and keep is not None and chosen.type == "cpu"):
        to_int8(checkpoint.model, keep or (), pangrams(loaded))
    prepare(checkpoint.model)
    speed_up_single_texts(checkpoint.model)
    return loaded


def pangrams(loaded: LoadedModel) -> Batch:
    """A sample of text for a model."""
    tokenizer, room = loaded.tokenizer, loaded.max_length - loaded.tokenizer.special_count()
    built = [tokenizer.build(one[:room]) for one in tokenizer.encode_ids(PANGRAMS)]
    return Batch.of(*zip(*(pair for pair in built if pair[0]), strict=True))
