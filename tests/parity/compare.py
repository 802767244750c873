"""The one assertion of parity: `transformers` made the weights, both must say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, read, write
from bertsmith.model import Trace

HIDDEN, LOGITS = 1e-5, 1e-4
LENGTHS = (5, 70, 1, 33, 33, 90, 2)
CHOICES = 2


def make(stem: str, suffix: str, deviation: float = 0.1, **settings: Any) -> Any:
    """A `transformers` model with weights large enough for every part to matter."""
    config = getattr(transformers, f"{stem}Config")(**settings)
    torch.manual_seed(0)
    model = getattr(transformers, stem + suffix)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=deviation)
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.add_(1.0)
    return model


def assert_parity(model: Any, folder: Path, head: str, lengths: tuple[int, ...] = LENGTHS) -> None:
    """Same hidden states and logits after reading; same again after writing and re-opening.

    And the round trip changes no tensor.
    """
    model.save_pretrained(folder / "theirs")
    checkpoint = read(folder / "theirs")
    assert not checkpoint.report.unused
    assert not checkpoint.report.new
    ids, segments = _inputs(model.config, lengths)
    _assert_same(model, checkpoint, head, ids, segments)
    write(checkpoint, folder / "ours")
    before = load_file(folder / "theirs" / "model.safetensors")
    after = load_file(folder / "ours" / "model.safetensors")
    repeated = set(checkpoint.report.repeated)
    assert before.keys() - repeated == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in after)
    again, info = type(model).from_pretrained(folder / "ours", output_loading_info=True)
    assert set(info["missing_keys"]) <= repeated
    assert not info["unexpected_keys"]
    _assert_same(again.eval(), checkpoint, head, ids, segments)
    stored = json.loads((folder / "ours" / "config.json").read_text("utf-8"))
    assert stored["architectures"] == [type(model).__name__]


def _assert_same(
    model: Any, checkpoint: Checkpoint, head: str, ids: list[list[int]], segments: list[list[int]]
) -> None:
    theirs = _their_outputs(model, ids, segments)
    batch, trace = Batch.of(ids, segments), Trace(states=True)
    with torch.no_grad():
        hidden = checkpoint.model.encoder(batch, trace)
        logits = checkpoint.model.heads[head](hidden, batch) if head else None
    layers = [*trace.hidden[:-1], hidden.last]
    assert len(layers) == len(theirs.hidden_states)
    for ours, padded in zip(layers, theirs.hidden_states, strict=True):
        for mine, row in zip(batch.layout.split(ours), padded, strict=True):
            assert _difference(mine, row[: len(mine)]) <= HIDDEN
    if logits is not None:
        _assert_logits(theirs, head, logits, batch)


def _assert_logits(theirs: Any, head: str, logits: Tensor, batch: Batch) -> None:
    expected = {
        "masked_lm": ["prediction_logits", "logits"],
        "next_sentence": ["seq_relationship_logits", "logits"],
        "sentence_order": ["sop_logits"],
        "pooler": ["pooler_output"],
        "choose": ["logits"],
    }.get(head, ["logits"])
    if head == "answer":
        reference = torch.stack([theirs.start_logits, theirs.end_logits], dim=-1)
    else:
        reference = next(theirs[name] for name in expected if name in theirs)
    if head == "choose":
        reference = reference.reshape(-1, 1)
    if reference.shape[: len(logits.shape)] == logits.shape:
        assert _difference(logits, reference) <= LOGITS
        return
    for mine, row in zip(batch.layout.split(logits), reference, strict=True):
        row = row.unsqueeze(-1) if row.ndim < mine.ndim else row
        assert _difference(mine, row[: len(mine)]) <= LOGITS


def _difference(ours: Tensor, reference: Tensor) -> float:
    assert ours.shape == reference.shape
    assert reference.isfinite().all()
    return float((ours - reference).abs().max())


def _inputs(config: Any, lengths: tuple[int, ...]) -> tuple[list[list[int]], list[list[int]]]:
    random = torch.Generator().manual_seed(1)
    low = (config.pad_token_id or 0) + 1 if (config.pad_token_id or 0) < 9 else 0
    ids = [torch.randint(low, 90, (n,), generator=random).tolist() for n in lengths]
    two = getattr(config, "type_vocab_size", 0) == 2
    return ids, [[int(two and place > n // 2) for place in range(n)] for n in lengths]


def _their_outputs(model: Any, ids: list[list[int]], segments: list[list[int]]) -> Any:
    longest = max(map(len, ids))
    pad = model.config.pad_token_id or 0
    inputs = {
        "input_ids": torch.tensor([row + [pad] * (longest - len(row)) for row in ids]),
        "attention_mask": torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r in ids]),
    }
    if any(map(any, segments)):
        padded = [row + [0] * (longest - len(row)) for row in segments]
        inputs["token_type_ids"] = torch.tensor(padded)
    if type(model).__name__.endswith("MultipleChoice"):
        inputs = {name: tensor.unsqueeze(1) for name, tensor in inputs.items()}
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True, return_dict=True)
