"""Directories of sentence-transformers: how an embedding is made of hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.checkpoint.files import read_json
from bertsmith.checkpoint.write import write_json
from bertsmith.errors import BertsmithError

# The older keys of 1_Pooling/config.json, which every reader understands, and our names.
MODES = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": None,
    "pooling_mode_mean_sqrt_len_tokens": None,
    "pooling_mode_weightedmean_tokens": None,
    "pooling_mode_lasttoken": None,
}
NEWER = {"cls": "first", "mean": "mean"}
PACKAGE = "sentence_transformers.models."


@dataclass(frozen=True)
class Sentence:
    """How one vector is made of a text's states."""

    pool: str = "mean"  # or "first"
    normalise: bool = False
    max_length: int | None = None


def read_sentence(directory: Path) -> tuple[Path, Sentence] | None:
    """The encoder's own directory and how to pool, if this is a sentence-transformers one."""
    if not (directory / "modules.json").is_file():
        return None
    modules = read_json(directory / "modules.json", list)
    encoder, pool, normalise = directory, "mean", False
    for module in modules:
        kind = str(module.get("type", "") if isinstance(module, dict) else "").split(".")[-1]
        if kind == "Transformer":
            encoder = _inside(directory, module.get("path", ""))
        elif kind == "Pooling":
            pool = _pool(_inside(directory, module.get("path", "")) / "config.json")
        elif kind == "Normalize":
            normalise = True
        else:
            raise BertsmithError(f"{directory / 'modules.json'}: module {kind!r} is not supported")
    settings = encoder / "sentence_bert_config.json"
    limit = read_json(settings).get("max_seq_length") if settings.is_file() else None
    if limit is not None and (not isinstance(limit, int) or limit < 3):
        raise BertsmithError(f"{settings}: max_seq_length is {limit!r}")
    return encoder, Sentence(pool, normalise, limit)


def write_sentence(directory: Path, sentence: Sentence, width: int) -> None:
    """The files that make a model directory one of sentence-transformers."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if sentence.normalise else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": number, "name": str(number), "path": paths[number], "type": PACKAGE + kind}
        for number, kind in enumerate(kinds)
    ]
    pooling: dict[str, Any] = {key: pool == sentence.pool for key, pool in MODES.items()}
    (directory / "1_Pooling").mkdir(exist_ok=True)
    write_json(
        directory / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **pooling}
    )
    write_json(
        directory / "sentence_bert_config.json",
        {"max_seq_length": sentence.max_length, "do_lower_case": False},
    )
    write_json(directory / "modules.json", modules)


def _inside(directory: Path, path: Any) -> Path:
    """A module's folder, which must lie in the model's."""
    inner = directory / str(path)
    if not inner.resolve().is_relative_to(directory.resolve()):
        raise BertsmithError(f"{directory}: modules.json names a folder outside it: {path!r}")
    return inner


def _pool(path: Path) -> str:
    """The one way of pooling that a config asks for."""
    settings = read_json(path)
    asked: list[Any] = [pool for key, pool in MODES.items() if settings.get(key)]
    newer = settings.get("pooling_mode")
    asked += [NEWER.get(str(newer))] if newer else []
    if len(asked) != 1 or asked[0] is None:
        raise BertsmithError(f"{path}: only mean pooling or [CLS] pooling is supported")
    return str(asked[0])
