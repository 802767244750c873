"""Places where a text can be split without changing its token ids.

The rules are derived from tokenizer.json. A text is split only where that is known to be safe.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

Definition = dict[str, Any]  # the content of tokenizer.json
Cut = Callable[[str], list[str]]  # the parts of a text; empty if it must not be split
# These change characters one by one, and never a space.
CHARACTERWISE = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"}
SPACED = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
ODD = re.compile(r"[^\S ]|  |\0")
RUNS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


def at_spaces(definition: Definition) -> Cut | None:
    """Return how to split texts into words, if possible."""
    added = _added(definition)
    spaced = [token["content"] for token in added if re.search(r"\s", token["content"])]
    if any(token["rstrip"] for token in added):
        return None
    normalizers, splitters = _steps(definition, "normalizer"), _steps(definition, "pre_tokenizer")
    kinds = {step["type"] for step in normalizers}
    first = splitters[0]["type"] if splitters else None
    model = definition["model"]
    if model["type"] == "BPE" and kinds <= {"NFC"} and len(splitters) == 1:
        by_regex = first == "ByteLevel" and splitters[0].get("use_regex", True)
        runs = all(content.isspace() and ODD.search(content) for content in spaced)
        return _with_space if by_regex and runs and not model.get("dropout") else None
    if spaced:
        return None
    if model["type"] == "WordPiece" and kinds <= CHARACTERWISE and first in SPACED:
        return _without_space
    if model["type"] == "Unigram" and all(map(_leaves_spaces, normalizers)):
        ways = [step["type"] for step in splitters]
        if any(step.get("prepend_scheme", "always") != "always" for step in splitters):
            return None  # only the first word of a text would get its mark, or none
        if ways == ["WhitespaceSplit", "Metaspace"]:
            return _ascii_without_space
        if ways == ["Metaspace"] and splitters[0].get("split", True):
            special = _special(definition)  # a space next to one is a separate token
            return lambda text: [] if special.search(text) else _ascii_without_space(text)
    return None


def border(definition: Definition) -> re.Pattern[str] | None:
    """Return how the second of two texts begins that have the same ids apart and together.

    The first must not end with white space.
    """
    if at_spaces(definition) is None:
        return None
    return re.compile(r" [^\s▁]" if definition["model"]["type"] == "Unigram" else " ")


def at_punctuation(definition: Definition) -> Cut | None:
    """Return how to split words at punctuation, so that there are fewer distinct words."""
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


def _added(definition: Definition) -> list[dict[str, Any]]:
    """The added tokens that are read in a text; those marked special are text."""
    return [token for token in definition.get("added_tokens") or [] if not token["special"]]


def _special(definition: Definition) -> re.Pattern[str]:
    added = [re.escape(token["content"]) for token in _added(definition)]
    return re.compile("|".join(added) or r"(?!)", re.IGNORECASE)  # some are matched in lower case


def _steps(definition: Definition, part: str) -> list[dict[str, Any]]:
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


def _without_space(text: str) -> list[str]:
    """Split at spaces and drop them, as BERT does."""
    return text.lstrip(" ").split(" ")


def _with_space(text: str) -> list[str]:
    """Split before spaces, which are part of a word's first byte-level token."""
    return [] if ODD.search(text) else (text[:1] + text[1:].replace(" ", "\0 ")).split("\0")


def _ascii_without_space(text: str) -> list[str]:
    """Split ASCII text at spaces, which SentencePiece adds again; other text is not split."""
    plain = text.isascii() and text.isprintable() and "  " not in text
    return text.lstrip(" ").split(" ") if plain else []
