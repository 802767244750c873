"""DeBERTa's own heads, which `transformers` has not: checked with its layers, by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from bertsmith.batch import Batch
from bertsmith.checkpoint import read, write
from parity.compare import LENGTHS, LOGITS, _difference, _inputs, make
from parity.test_families import RELATIVE, V3


def stored(model: Any, folder: Path, **extra: torch.Tensor) -> Path:
    """Save a model with the tensors that its class has no place for."""
    model.save_pretrained(folder)
    weights = folder / "model.safetensors"
    save_file({**load_file(weights), **extra}, weights, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("stem", "settings"),
    [("Deberta", RELATIVE), ("DebertaV2", V3), ("DebertaV2", {**V3, "conv_kernel_size": 3})],
)
def test_enhanced_mask_decoder(stem: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = make(stem, "ForMaskedLM", **settings, legacy=False)
    positions = torch.randn(128, 32) * 0.5
    name = "deberta.embeddings.position_embeddings.weight"
    checkpoint = read(stored(model, tmp_path / "a", **{name: positions}))
    assert checkpoint.config.heads["masked_lm"].enhanced == 128
    ids, _ = _inputs(model.config, LENGTHS)
    batch = Batch.of(ids)
    with torch.no_grad():
        ours = batch.layout.split(checkpoint.model(batch, "masked_lm"))
        for row, logits in zip(ids, ours, strict=True):
            assert _difference(logits, by_hand(model, row, positions)) <= LOGITS
    write(checkpoint, tmp_path / "b")
    before, after = (load_file(tmp_path / f / "model.safetensors") for f in "ab")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def by_hand(model: Any, ids: list[int], positions: torch.Tensor) -> torch.Tensor:
    """What the authors describe, on the layers of `transformers`, one sequence alone.

    Their v1 layer cannot be asked by other states than it reads, so v1's last layer is
    written out here.
    """
    out = model.deberta(torch.tensor([ids]), output_hidden_states=True)
    before = out.hidden_states[-2]
    encoder = model.deberta.encoder
    mask = encoder.get_attention_mask(torch.ones(1, len(ids)))
    query = before + positions[: len(ids)]
    for _ in range(2):
        if hasattr(encoder.layer[-1].attention.self, "in_proj"):
            query = first_version(encoder, before, query)
        else:
            query = encoder.layer[-1](
                before,
                mask,
                query_states=query,
                relative_pos=encoder.get_rel_pos(before),
                rel_embeddings=encoder.get_rel_embedding(),
            )[0]
    return model.lm_predictions(query, model.deberta.embeddings.word_embeddings)[0]


def first_version(encoder: Any, memory: torch.Tensor, asking: torch.Tensor) -> torch.Tensor:
    """The last layer of a v1 encoder, asked by other states than it reads."""
    layer = encoder.layer[-1]
    part = layer.attention.self
    heads = part.num_attention_heads
    weight = part.in_proj.weight.view(heads, 3, -1, memory.shape[-1])

    def project(x: torch.Tensor, which: int, bias: torch.Tensor | None) -> torch.Tensor:
        found = torch.einsum("nd,hed->hne", x[0], weight[:, which])
        return found if bias is None else found + bias.view(heads, 1, -1)

    query, key = project(asking, 0, part.q_bias), project(memory, 1, None)
    value = project(memory, 2, part.v_bias)
    table = encoder.get_rel_embedding()
    span = part.max_relative_positions
    place = torch.arange(memory.shape[1])
    row = (place[:, None] - place[None, :] + span).clamp(0, 2 * span - 1)
    near_key = part.pos_proj(table).view(2 * span, heads, -1)[row]
    near_query = part.pos_q_proj(table).view(2 * span, heads, -1)[row]
    scores = query @ key.mT
    scores = scores + torch.einsum("hid,ijhd->hij", query, near_key)
    scores = scores + torch.einsum("hjd,ijhd->hij", key, near_query)
    weights = (scores / (3 * query.shape[-1]) ** 0.5).softmax(-1)
    mixed = (weights @ value).transpose(0, 1).flatten(1)[None]
    attended = layer.attention.output(mixed, asking)
    return layer.output(layer.intermediate(attended), attended)


@pytest.mark.parametrize("spelling", ["classifier", "classifer"])
def test_replaced_tokens_of_v3(spelling: str, tmp_path: Path) -> None:
    model = make("DebertaV2", "Model", **V3)
    torch.manual_seed(2)
    norm, bias, wide, narrow = (
        torch.rand(32),
        torch.randn(32),
        torch.randn(32, 32),
        torch.randn(1, 32),
    )
    extra = {
        "mask_predictions.LayerNorm.weight": norm,
        "mask_predictions.LayerNorm.bias": bias,
        "mask_predictions.dense.weight": wide,
        "mask_predictions.dense.bias": bias * 2,
        f"mask_predictions.{spelling}.weight": narrow,
        f"mask_predictions.{spelling}.bias": torch.tensor([0.3]),
    }
    checkpoint = read(stored(model, tmp_path, **extra))
    ids, _ = _inputs(model.config, LENGTHS)
    batch = Batch.of(ids)
    with torch.no_grad():
        ours = batch.layout.split(checkpoint.model(batch, "replaced"))
        for row, logits in zip(ids, ours, strict=True):
            states = model(torch.tensor([row])).last_hidden_state[0]
            x = F.layer_norm(states + states[:1], (32,), norm, bias, 1e-7)
            x = F.gelu(F.linear(x, wide, bias * 2))
            assert _difference(logits, F.linear(x, narrow, torch.tensor([0.3]))) <= LOGITS
