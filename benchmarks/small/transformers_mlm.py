"""The other side of `bertsmith-small`: masked LM by `transformers`, same minutes, same text.

    python benchmarks/small/transformers_mlm.py CORPUS --rate 0.3 --rows 768 --long 0.12 --out OUT

BERT, ELECTRA or ModernBERT with the library's own model and defaults; ModernBERT in the shape of
`bertsmith-small` (12 layers of 320, global attention in every layer). Documents of the prepared
corpus are concatenated with [CLS] and [SEP] and cut into rows of 128 tokens (512 in the last part
of the time, --long). New tokens are masked each time, as in the library's example. All rows are on
the GPU and masked there, so that no step waits for data. AdamW, bf16 autocast, torch.compile; the
learning rate falls linearly with time, which counts from the first step and includes compiling.
OUT/model is a Hugging Face directory; OUT/row.json has the same fields as rows of proxies.py.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from proxies import TOKENS, scored
from torch import Tensor

from bertsmith.corpus import Corpus
from bertsmith.tokenizer import Tokenizer

LENGTH, LONG = 128, 512
IGNORED = -100  # the label of tokens that are not guessed
KINDS: dict[str, tuple[Any, Any]] = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "electra": (transformers.ElectraConfig, transformers.ElectraForMaskedLM),
    "modernbert": (transformers.ModernBertConfig, transformers.ModernBertForMaskedLM),
}


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="a folder that `bertsmith prepare` made")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=19.2)
    parser.add_argument("--kind", choices=list(KINDS), default="modernbert")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--dropout", type=float, default=0.1, help="of BERT and ELECTRA")
    parser.add_argument("--rows", type=int, default=1024, help="of 128 tokens in a step")
    parser.add_argument("--long", type=float, default=0.0, help="share of the time for rows of 512")
    parser.add_argument("--parts", type=int, default=1, help="passes that a step is made of")
    parser.add_argument("--rate", type=float, default=0.15, help="of tokens that are masked")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.05, help="share of the minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=int, default=TOKENS, help="tokens it is scored on")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    return parser.parse_args()


def grouped(corpus: Corpus) -> Any:
    """All documents with their special tokens, end to end, in rows of 128."""
    words = corpus.tokenizer
    starts, count = np.asarray(corpus.document_starts), corpus.documents
    row = np.empty(corpus.tokens + 2 * count, np.int32)
    text = np.ones(len(row), bool)
    first = starts[:-1] + 2 * np.arange(count)
    last = starts[1:] + 2 * np.arange(count) + 1
    text[first] = text[last] = False
    row[first], row[last] = words.cls_id, words.sep_id
    row[text] = corpus.gather(np.array([0]), np.array([corpus.tokens]))
    return row[: len(row) // LENGTH * LENGTH].reshape(-1, LENGTH)


class Collator:
    """Of the tokens chosen, 80% become [MASK], 10% any token, and 10% stay."""

    def __init__(self, words: Tokenizer, rate: float, device: torch.device) -> None:
        assert words.mask_id is not None
        self.mask, self.size, self.rate = words.mask_id, words.size, rate
        self.special = torch.zeros(words.size, dtype=torch.bool, device=device)
        self.special[sorted(words.special_ids)] = True

    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What the model sees, and what it should have seen."""
        chosen = (torch.rand(ids.shape, device=ids.device) < self.rate) & ~self.special[ids]
        labels = ids.masked_fill(~chosen, IGNORED)
        fate = torch.rand(ids.shape, device=ids.device)
        other = torch.randint(self.size, ids.shape, device=ids.device)
        seen = ids.masked_fill(chosen & (fate < 0.8), self.mask)
        return torch.where(chosen & (fate > 0.9), other, seen), labels


def model_of(asked: argparse.Namespace, words: Tokenizer) -> Any:
    """A new model of the library's."""
    shape = {
        "vocab_size": -(-words.size // 64) * 64,
        "pad_token_id": words.pad_id,
        "hidden_size": asked.width,
        "num_hidden_layers": asked.layers,
        "num_attention_heads": asked.width // 64,
    }
    if asked.kind == "modernbert":
        shape |= {
            "intermediate_size": 12 * asked.width // 5,
            "max_position_embeddings": 512,
            "global_attn_every_n_layers": 1,
            "classifier_pooling": "mean",
            "cls_token_id": words.cls_id,
            "sep_token_id": words.sep_id,
            "bos_token_id": words.cls_id,
            "eos_token_id": words.sep_id,
        }
    else:
        shape |= {
            "intermediate_size": 4 * asked.width,
            "hidden_dropout_prob": asked.dropout,
            "attention_probs_dropout_prob": asked.dropout,
        }
    config, model = KINDS[asked.kind]
    return model(config(**shape))


def share(done: float, warmup: float) -> float:
    """The share of the peak rate when this share of the minutes is over."""
    return done / warmup if done < warmup else max(0.0, (1 - done) / (1 - warmup))


def learn(model: Any, rows: Tensor, collate: Collator, asked: argparse.Namespace) -> list[float]:
    """Train for the given minutes; return when each step ended, in seconds."""
    device = rows.device
    call = model if asked.eager else torch.compile(model, dynamic=False)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-6, fused=True)
    order, size = torch.randperm(len(rows), device=device), asked.rows
    last = torch.tensor(torch.nan)
    ends: list[float] = []
    place = 0
    began = time.monotonic()
    while (done := (time.monotonic() - began) / (60 * asked.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = asked.learning_rate * share(done, asked.warmup)
        if rows.shape[1] == LENGTH and done >= 1 - asked.long:
            rows = rows.flatten()[: rows.numel() // LONG * LONG].view(-1, LONG)
            size, place = asked.rows * LENGTH // LONG, len(rows)
        if place + size > len(rows):
            order, place = torch.randperm(len(rows), device=device), 0
        for some in order[place : place + size].chunk(asked.parts):
            seen, labels = collate(rows[some].long())
            with torch.autocast(device.type, torch.bfloat16):
                loss = call(input_ids=seen, labels=labels).loss
            (loss / asked.parts).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        place += size
        # Read one step late, so that the GPU never waits for Python.
        known, last = float(last), loss.detach()
        if ends and len(ends) % 100 == 0:
            print(f"step {len(ends)}  {done:.1%}  loss {known:.4f}", flush=True)
        ends.append(time.monotonic() - began)
    return ends


def main() -> None:
    """Train, store, score."""
    asked = options()
    torch.manual_seed(asked.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus = Corpus.open(asked.corpus)
    words = corpus.tokenizer
    rows = torch.from_numpy(grouped(corpus)).to(device)
    model = model_of(asked, words).to(device).train()
    ends = learn(model, rows, Collator(words, asked.rate, device), asked)
    model.eval().save_pretrained(asked.out / "model")
    words.save(asked.out / "model")
    half = ends[len(ends) // 2 :]
    row = {
        "name": f"transformers {asked.kind} {asked.layers}x{asked.width}",
        "changes": [
            f"{key}={value}" for key, value in vars(asked).items() if key not in ("corpus", "out")
        ],
        "steps": len(ends),
        "tokens": len(ends) * asked.rows * LENGTH,
        "minutes": ends[-1] / 60,
        "tokens_per_second": (len(half) - 1) * asked.rows * LENGTH / max(half[-1] - half[0], 1e-9),
        **scored(asked.out / "model", asked.corpus, asked.held_out),
    }
    (asked.out / "row.json").write_text(json.dumps(row, indent=1) + "\n", "utf-8")
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
