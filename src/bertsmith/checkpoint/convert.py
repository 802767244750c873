"""Any layout that can be read → one directory with safetensors, and the proof that it is so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint.card import write_card
from bertsmith.checkpoint.checkpoint import Checkpoint
from bertsmith.checkpoint.locate import locate
from bertsmith.checkpoint.read import read
from bertsmith.checkpoint.sentence import Sentence, read_sentence, write_sentence
from bertsmith.checkpoint.write import write
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer


def save(
    directory: str | Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    sentence: Sentence,
    dtype: torch.dtype | None = None,
) -> None:
    """A whole model directory: weights, config, tokenizer, pooling, model card."""
    directory = Path(directory)
    write(checkpoint, directory, dtype)
    config = checkpoint.config
    tokenizer.save(directory, segments=config.segments > 1, longest=config.max_length)
    write_sentence(directory, sentence, checkpoint.config.width)
    write_card(directory, checkpoint)


def convert(
    source: str | Path,
    out: str | Path,
    *,
    dtype: torch.dtype | None = None,
    family: str | None = None,
) -> dict[str, Any]:
    """Rewrite a model, open what was written, and report the largest difference of any weight."""
    directory = locate(source)
    found = read_sentence(directory)
    directory, sentence = found or (directory, Sentence())
    checkpoint = read(directory, settings={"model_type": family} if family else None, dtype=None)
    tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
    save(out, checkpoint, tokenizer, sentence, dtype)
    again = read(out, heads=checkpoint.entries, dtype=None)
    before = dict(checkpoint.model.named_parameters())
    kinds = ", ".join(sorted({str(p.dtype) for p in again.model.parameters()}))
    kinds = kinds.replace("torch.", "")
    largest = max(
        float((before[name].detach().double() - after.detach().double()).abs().max())
        for name, after in again.model.named_parameters()
    )
    if not math.isfinite(largest):
        raise BertsmithError(f"{out}: not all weights fit in {kinds}; bfloat16 holds larger ones")
    return {
        "out": str(out),
        "family": checkpoint.family.name,
        "heads": list(checkpoint.entries),
        "tensors": checkpoint.report.loaded,
        "parameters": sum(p.numel() for p in before.values()),
        "dtype": kinds,
        "bytes": (Path(out) / "model.safetensors").stat().st_size,
        "largest_difference": largest,
        "unused": list(checkpoint.report.unused),
        "notes": checkpoint.report.lines(),
    }
