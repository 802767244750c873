"""A table of token vectors → a ModernBERT of one layer that computes with it.

The vector of a text is the sum of the vectors of its tokens, each divided by the square root of
how often the token occurs in the text, and then normalised. The length of a token's vector is its
weight. A ModernBERT computes the same, so that every tool opens the model:

- A row of the embedding holds the token's vector (its content), a random signature, and two numbers
  that fill the row up to mean 0 and variance 1: the norm after the embedding leaves it as it is.
  Frequent tokens have short vectors, and the rest of the row is outside the content.
- One attention head compares signatures, over slowly rotating dimensions only, so that distance
  does not matter. A token attends to its repeats (logit 8 each) and to [CLS] (logit 8 + ln 8): with
  n repeats, the share of the repeats is about n / (n + 8).
- The head writes that share into two columns outside the content, with opposite signs. The final
  norm divides the row by its standard deviation, which thereby grows by about the square root of n.
- The final norm has weight 0 outside the content. Mean pooling adds up what is left.

All other heads and the feed-forward have random inputs and outputs of 0: they change nothing, and
fine-tuning can train them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.checkpoint import Checkpoint, Sentence, create, save
from bertsmith.files import write_json
from bertsmith.folders import marking
from bertsmith.tokenizer import Tokenizer

WIDTH = 960
HEADS = 15
SIZE = WIDTH // HEADS  # of a head
SETTINGS = {
    "model_type": "modernbert",
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "global_attn_every_n_layers": 1,
    "global_rope_theta": 1e9,
    "classifier_pooling": "mean",
    "max_position_embeddings": 512,
}
# Pairs of a head's dimensions that turn by less than 0.8 radians over 512 positions. The slowest
# one is for the logit of [CLS].
PAIRS = range(10, SIZE // 2 - 1)
SIGNATURE = 2 * len(PAIRS)  # 42 columns
MARKS = ("constant", "first", "repeats", "repeats_negative", "fill", "fill_negative")
CONTENT = WIDTH - SIGNATURE - len(MARKS)  # 912 columns

LOGIT = 8.0  # of a token and its repeats
OTHERS = 8.0  # weight of [CLS] in the attention, in repeats
SIGNATURE_ENERGY = 0.15 * WIDTH  # squared length of a signature
CONSTANT = 5.0
FIRST = 20.0
# With these, the squared length of a row after attention is 2.0, 3.9, 8.3 and 16.9 times WIDTH for
# 1, 2, 4 and 8 repeats.
REPEATS_BEFORE, REPEATS_GAIN = 0.12 * WIDTH**0.5, 5.4 * WIDTH**0.5
RESERVE = 60.0  # squared length of a row that is left for the columns that fill it


def random_columns(vocabulary: int, columns: int) -> Tensor:
    """Return fixed random directions of unit length (V, columns)."""
    draws = np.random.default_rng(0).standard_normal((vocabulary, columns)).astype(np.float32)
    return F.normalize(torch.from_numpy(draws), dim=-1)


def content_of(table: Tensor) -> Tensor:
    """Return the vectors (V, 912) of a stored table: trained columns, length of the random ones."""
    trained, length = table[:, :-1].float(), table[:, -1:].float()
    return torch.cat([trained, random_columns(len(table), CONTENT - trained.shape[1]) * length], 1)


def rows_of(content: Tensor, first: int, silent: list[int]) -> Tensor:
    """Return the embedding (V, 960). `first` is [CLS]; `silent` tokens have no content."""
    content = content - content.mean(1, keepdim=True)
    lengths = content.norm(dim=1, keepdim=True)
    longest = torch.quantile(lengths, 0.999)  # a few longer ones are cut
    room = WIDTH - SIGNATURE_ENERGY - CONSTANT**2 - 2 * REPEATS_BEFORE**2 - RESERVE
    content = content * (longest / lengths.clamp(min=1e-9)).clamp(max=1) * (room**0.5 / longest)
    draws = torch.randn(len(content), SIGNATURE, generator=torch.Generator().manual_seed(0))
    signature = F.normalize(draws - draws.mean(1, keepdim=True), dim=1) * SIGNATURE_ENERGY**0.5
    marks = torch.zeros(len(content), len(MARKS))
    marks[:, MARKS.index("constant")] = CONSTANT
    marks[:, MARKS.index("repeats")] = REPEATS_BEFORE
    marks[:, MARKS.index("repeats_negative")] = -REPEATS_BEFORE
    rows = torch.cat([content, signature, marks], 1)
    rows[silent] = 0
    rows[first, column("first")] = FIRST
    # Two numbers whose sum and sum of squares complete the row: mean 0 and variance 1.
    middle = -rows.sum(1) / 2
    left = (WIDTH - rows.square().sum(1)).clamp(min=0)
    spread = (left / 2 - middle.square()).clamp(min=0).sqrt()
    rows[:, column("fill")], rows[:, column("fill_negative")] = middle + spread, middle - spread
    return rows


def column(mark: str) -> int:
    """Return the column of a mark in a row."""
    return CONTENT + SIGNATURE + MARKS.index(mark)


@torch.no_grad()
def model_of(content: Tensor, tokenizer: Tokenizer) -> Checkpoint:
    """Return the model whose vectors of texts are made from vectors of tokens (V, 912)."""
    pad, first, last = tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id
    if pad is None or first is None or last is None:
        raise SystemExit("the tokenizer has no [PAD], [CLS] or [SEP]")
    ids = {"pad_token_id": pad, "cls_token_id": first, "sep_token_id": last}
    ids |= {"bos_token_id": first, "eos_token_id": last}
    checkpoint = create({**SETTINGS, **ids, "vocab_size": len(content)}, heads=())
    parameters = dict(checkpoint.model.named_parameters())
    rows = rows_of(content.float().cpu(), first, [pad, first, last])
    parameters["encoder.embedding.token.weight"].copy_(rows)
    parameters["encoder.norm.weight"][CONTENT:] = 0
    set_head(
        parameters["encoder.blocks.0.attention.qkv.weight"],
        parameters["encoder.blocks.0.attention.output.weight"],
    )
    parameters["encoder.blocks.0.feedforward.down.weight"].zero_()
    return checkpoint


def set_head(qkv: Tensor, output: Tensor) -> None:
    """Set the first head: a token attends to its repeats, and their share is written."""
    query, key, value = (qkv[start : start + SIZE] for start in range(0, 3 * WIDTH, WIDTH))
    for part in (query, key, value, output):
        part.zero_()
    scale = SIZE**0.5  # logits are divided by it
    dimensions = [*PAIRS, *(pair + SIZE // 2 for pair in PAIRS)]
    for number, dimension in enumerate(dimensions):
        for part in (query, key):
            part[dimension, CONTENT + number] = (LOGIT * scale / SIGNATURE_ENERGY) ** 0.5
    slowest = SIZE // 2 - 1
    query[slowest, column("constant")] = 1.0
    wanted = (LOGIT + math.log(OTHERS)) * scale
    key[slowest, column("first")] = wanted / CONSTANT / FIRST
    value[0, column("constant")] = 1 / CONSTANT
    output[column("repeats"), 0] = REPEATS_GAIN
    output[column("repeats_negative"), 0] = -REPEATS_GAIN


def write_model(folder: Path, table: Tensor, tokenizer: Tokenizer) -> None:
    """Write the model of a stored table, in float16."""
    checkpoint = model_of(content_of(table), tokenizer)
    with marking(folder):
        save(folder, checkpoint, tokenizer, Sentence(normalise=True), torch.float16)
        # `transformers` computes in the type that config.json names: float32 on every machine.
        path = folder / "config.json"
        write_json(path, {**json.loads(path.read_text("utf-8")), "dtype": "float32"})
