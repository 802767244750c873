"""Tiny models that `transformers` made, beside tokenizers of ours: both can open them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from bertsmith import Bert, load
from parity.compare import make
from tasks.words import LINES, tokenizer

__all__ = ["LINES", "STEMS", "Made", "Maker", "save", "tokenizer"]

STEMS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "albert": "Albert",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
    "modernbert": "ModernBert",
}
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
SIZES: dict[str, dict[str, Any]] = {
    "roberta": {"max_position_embeddings": 130, "type_vocab_size": 1},
    "albert": {"embedding_size": 16},
    "deberta": {**RELATIVE, "position_biased_input": False},
    "deberta-v2": {**RELATIVE, "position_biased_input": False, "position_buckets": 16},
    "modernbert": {"local_attention": 16, "num_hidden_layers": 3},
}


@dataclass(frozen=True)
class Made:
    """A model directory, opened by us and by `transformers`."""

    folder: Path
    theirs: Any  # the model that was saved there

    @cached_property
    def ours(self) -> Bert:
        return load(self.folder, device="cpu")

    @cached_property
    def their_tokenizer(self) -> Any:
        return transformers.AutoTokenizer.from_pretrained(self.folder)

    def logits(self, *texts: str) -> Any:
        """What `transformers` says of one text, or of a pair."""
        with torch.no_grad():
            # As lists: an empty second text alone would be taken for none.
            lists = [[text] for text in texts]
            return self.theirs(**self.their_tokenizer(*lists, return_tensors="pt"))


def save(folder: Path, family: str, suffix: str, **settings: Any) -> Made:
    """Let `transformers` make a model and save it, with a tokenizer beside it."""
    words = tokenizer(family)
    ids = {"pad_token_id": words.pad_id, "bos_token_id": words.cls_id, "eos_token_id": words.sep_id}
    given = {"vocab_size": words.size, **ids, **SMALL, **SIZES.get(family, {}), **settings}
    if family == "modernbert":
        given |= {"cls_token_id": words.cls_id, "sep_token_id": words.sep_id}
    theirs = make(STEMS[family], suffix, deviation=0.2, **given)
    theirs.save_pretrained(folder)
    words.save(folder)
    return Made(folder, theirs)


Maker = Callable[..., Made]
