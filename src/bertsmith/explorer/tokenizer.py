"""A tokenizer as data for the page's script; unsupported components are refused."""

import json
import re
from collections.abc import Iterator
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer

NORMALIZERS = {
    *("Sequence", "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"),
    *("Strip", "Replace", "Prepend", "Precompiled"),
}
PRE_TOKENIZERS = {
    *("Sequence", "BertPreTokenizer", "WhitespaceSplit", "Punctuation", "ByteLevel", "Metaspace"),
}
MODELS = {"WordPiece", "BPE", "Unigram"}
# Groups with options, possessive repetitions, and classes that JavaScript spells otherwise.
OTHER_REGEX = re.compile(r"\(\?(?![:=!])|[*+?}]\+|\[\[:|&&|\\[AhHKGRXzZ]")
KEPT = {
    "WordPiece": ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word"),
    "BPE": ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges"),
    "Unigram": ("unk_id", "byte_fallback"),
}


def tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """All that the page needs to encode a text, or one line on what it does not know."""
    stored = json.loads(tokenizer.reader("mask").to_str())
    for part, known in (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS)):
        for step in _steps(stored[part]):
            _check_step(step, part, known)
    bytewise = any(step["type"] == "ByteLevel" for step in _steps(stored["pre_tokenizer"]))
    model, kind = stored["model"], stored["model"]["type"]
    if kind not in MODELS:
        raise _unsupported(f"the model {kind}")
    if kind == "BPE" and (model["continuing_subword_prefix"] or model["end_of_word_suffix"]):
        raise _unsupported("a BPE model with prefixes or suffixes")
    tokens: list[str | None] = [None] * tokenizer.size
    for token, number in tokenizer.vocabulary().items():
        tokens[number] = token
    return {
        "kind": "bytes" if bytewise else kind.lower(),
        "tokens": tokens,
        "model": {"type": kind, **{key: model.get(key) for key in KEPT[kind]}, **_learned(model)},
        "normalizer": stored["normalizer"],
        "pre_tokenizer": stored["pre_tokenizer"],
        "added": [token for token in stored["added_tokens"] if not token["special"]],
        "special": sorted(tokenizer.special_ids),
        "templates": [list(map(list, tokenizer.template(pair))) for pair in (False, True)],
        "mask": tokenizer.mask_token,
        "mask_id": tokenizer.mask_id,
        "unk_id": tokenizer.unk_id,
        "lowercase": tokenizer.lowercase,
    }


def _learned(model: dict[str, Any]) -> dict[str, Any]:
    """Merges, or pieces and their scores; a vocabulary itself is in `tokens`."""
    if model["type"] == "BPE":
        merges = model["merges"]
        return {"merges": [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]}
    if model["type"] == "Unigram":
        pieces, scores = zip(*model["vocab"], strict=True)
        return {"pieces": pieces, "scores": scores}
    return {}


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    if part is None:
        return
    yield part
    for step in part.get("normalizers") or part.get("pretokenizers") or ():
        yield from _steps(step)


def _check_step(step: dict[str, Any], part: str, known: set[str]) -> None:
    name = step["type"]
    if name not in known:
        raise _unsupported(f"the {part.replace('_', '-')} {name}")
    if name == "Punctuation" and step.get("behavior", "Isolated") != "Isolated":
        raise _unsupported(f"the pre-tokenizer Punctuation with the behavior {step['behavior']}")
    pattern = step.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if isinstance(expression, str) and OTHER_REGEX.search(expression):
        raise _unsupported(f"the regular expression {expression[:60]!r}")


def _unsupported(what: str) -> BertsmithError:
    return BertsmithError(f"the explorer's tokenizer does not support {what}: not exported")
