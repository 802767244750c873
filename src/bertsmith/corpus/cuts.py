"""Places where a text can be split without changing its token ids.

All of it is read from tokenizer.json. What is not known to be safe is not cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Definition = dict[str, Any]  # the content of tokenizer.json
Cut = Callable[[str], list[str]]  # a text's parts; none where it has to stay whole
# These change characters one by one, and never a space.
CHARACTERWISE = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"}
SPACED = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
ODD = re.compile(r"[^\S ]|  |\0")
RUNS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


class Mark(NamedTuple):
    """A special token that can stand between words, and how it joins them."""

    id: int
    text: str
    joiner: str


def at_spaces(definition: Definition) -> Cut | None:
    """How sentences are cut into words, if they can be."""
    added = definition.get("added_tokens") or []
    if any(token["rstrip"] or re.search(r"\s", token["content"]) for token in added):
        return None
    normalizers, splitters = _steps(definition, "normalizer"), _steps(definition, "pre_tokenizer")
    kinds = {step["type"] for step in normalizers}
    first = splitters[0]["type"] if splitters else None
    model = definition["model"]
    if model["type"] == "WordPiece" and kinds <= CHARACTERWISE and first in SPACED:
        return _without_space
    if model["type"] == "BPE" and kinds <= {"NFC"} and len(splitters) == 1:
        by_regex = first == "ByteLevel" and splitters[0].get("use_regex", True)
        return _with_space if by_regex and not model.get("dropout") else None
    if model["type"] == "Unigram" and all(map(_leaves_spaces, normalizers)):
        ways = [step["type"] for step in splitters]
        if ways == ["WhitespaceSplit", "Metaspace"]:
            return _ascii_without_space
        if ways == ["Metaspace"] and splitters[0].get("split", True):
            special = _special(definition)  # next to one, a space is a token of its own
            return lambda text: [] if special.search(text) else _ascii_without_space(text)
    return None


def at_punctuation(definition: Definition) -> Cut | None:
    """How words are cut further: there are far fewer words without the commas behind them."""
    normalizers, splitters = _steps(definition, "normalizer"), _steps(definition, "pre_tokenizer")
    if [step["type"] for step in splitters] != ["BertPreTokenizer"]:
        return None
    if [step["type"] for step in normalizers] not in ([], ["BertNormalizer"]):
        return None
    lower = any(step["lowercase"] for step in normalizers)
    special = _special(definition)

    def cut(word: str) -> list[str]:
        if not (word.isascii() and word.isprintable()) or special.search(word):
            return []
        return RUNS.findall(word.lower() if lower else word)

    return cut


def between(definition: Definition) -> Mark | None:
    """A special token that leaves the words on both sides of it as they would be alone."""
    model = definition["model"]
    splitters = _steps(definition, "pre_tokenizer")
    if any(step.get("prepend_scheme", "always") != "always" for step in splitters):
        return None  # only the first word of a text would get its mark
    unknown = {model.get("unk_token"), model.get("unk_id")}
    for token in definition.get("added_tokens") or []:
        plain = not (token["lstrip"] or token["rstrip"] or token["single_word"])
        as_written = not token["normalized"] or definition.get("normalizer") is None
        known = token["special"] and not unknown & {token["content"], token["id"]}
        if plain and as_written and known:
            text = token["content"]
            return Mark(token["id"], text, f" {text} " if model["type"] == "WordPiece" else text)
    return None


def _special(definition: Definition) -> re.Pattern[str]:
    """What finds any token that is looked for before all else."""
    added = [re.escape(token["content"]) for token in definition.get("added_tokens") or []]
    return re.compile("|".join(added) or r"(?!)", re.IGNORECASE)  # some are compared in lower case


def _steps(definition: Definition, part: str) -> list[dict[str, Any]]:
    """The steps of a part of a pipeline, one after the other."""
    step = definition.get(part)
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    inside: Iterable[dict[str, Any]] = step.get("normalizers") or step.get("pretokenizers") or []
    return list(inside)


def _leaves_spaces(step: dict[str, Any]) -> bool:
    """Whether a normalizer leaves the single spaces of printable ASCII text where they are."""
    if step["type"] == "Replace":
        pattern = step["pattern"]
        known = pattern.get("Regex") in {" {2,}", r"\s{2,}|[\n\r\t]"}
        return known or not re.search(r"\s", pattern.get("String", " "))
    return step["type"] in CHARACTERWISE | {"Precompiled", "Strip", "Nmt"}


def _without_space(sentence: str) -> list[str]:
    """Words without spaces, which part words for BERT and leave nothing behind."""
    return sentence.split(" ")


def _with_space(sentence: str) -> list[str]:
    """Words with the space before them, which is part of their first byte-level token."""
    return [] if ODD.search(sentence) else sentence.replace(" ", "\0 ").split("\0")


def _ascii_without_space(sentence: str) -> list[str]:
    """Words without the space that SentencePiece puts before each; other text stays whole."""
    plain = sentence.isascii() and sentence.isprintable() and "  " not in sentence
    return sentence.split(" ") if plain else []
