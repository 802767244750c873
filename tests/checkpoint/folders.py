"""Tiny model directories, good ones to break, and what must happen to broken ones."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from bertsmith.checkpoint import create, read, write
from bertsmith.errors import BertsmithError, printable

SIZES: dict[str, Any] = {
    "vocab_size": 23,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 24,
}
RELATIVE = {
    **SIZES,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
}
DISTIL = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "seq_classif_dropout": 0.1}
THIRD = {
    "share_att_key": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 3,
    "conv_groups": 2,
    "attention_head_size": 4,
}
# For each family: its settings, and heads that can stand in one directory.
TINY: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bert": (SIZES, ("masked_lm", "next_sentence", "tag", "answer")),
    "roberta": ({**SIZES, "type_vocab_size": 1}, ("masked_lm", "classify", "answer", "pooler")),
    "albert": (
        {**SIZES, "embedding_size": 4, "num_hidden_groups": 2, "inner_group_num": 1},
        ("masked_lm", "sentence_order", "classify"),
    ),
    "distilbert": (
        {"vocab_size": 23, "max_position_embeddings": 24, **DISTIL},
        ("masked_lm", "classify", "answer"),
    ),
    "electra": ({**SIZES, "embedding_size": 4}, ("masked_lm", "replaced", "classify")),
    "deberta": (RELATIVE, ("masked_lm", "classify", "answer")),
    "deberta-v2": ({**RELATIVE, **THIRD}, ("masked_lm", "replaced", "tag")),
    "modernbert": (
        {**SIZES, "local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0},
        ("masked_lm", "classify"),
    ),
}


def make(folder: Path, kind: str = "bert", heads: tuple[str, ...] = (), **settings: Any) -> Path:
    """A good directory of a family, with the heads of the table or others."""
    sizes, all_heads = TINY[kind]
    write(create({"model_type": kind, **sizes, **settings}, heads=heads or all_heads), folder)
    return folder


def refused(folder: Path, names: str = "", seconds: float = 5, **asked: Any) -> str:
    """Reading must fail with one line that names the folder, soon and in little memory."""
    message = outcome(folder, seconds, **asked)
    assert message, "it was read"
    assert names in message
    return message


def outcome(folder: Path, seconds: float = 5, **asked: Any) -> str:
    """Read, and return the line that says why not; nothing but such a line may stop it."""
    began, before = time.process_time(), peak()  # other work on this machine does not count
    try:
        read(folder, **asked)
        message = ""
    except BertsmithError as error:
        message = str(error)
    assert time.process_time() - began < seconds
    assert peak() - before < 500_000_000
    assert "\n" not in message
    assert len(message) < 1000 + len(str(folder))
    assert not message or printable(str(folder)) in message
    return message


def peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def settings(folder: Path, **changes: Any) -> None:
    """Change keys of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the stored tensors."""
    path = folder / "model.safetensors"
    stored = load_file(path)
    change(stored)
    save_file(stored, path, metadata={"format": "pt"})


def header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite the header of the weights file and leave its data as they are."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    content = json.loads(raw[8 : 8 + length])
    change(content)
    new = json.dumps(content).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + raw[8 + length :])


def copy(source: Path, target: Path) -> Path:
    """A directory of its own to break."""
    return Path(shutil.copytree(source, target))
