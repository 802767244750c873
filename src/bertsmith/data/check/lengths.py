"""Checks with a model's tokenizer: lengths, unknown tokens, words split into many tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.data import Dataset, Labelled, MultiLabelled, Options, Question, Scored
from bertsmith.data.check.findings import Finding, Lengths, Splits, found
from bertsmith.tokenizer import Tokenizer

FEW_WORDS = 20  # below which shares of words say little
UNKNOWN = 0.02  # the share of unknown tokens above which the tokenizer does not fit
SHATTERED = 0.1  # likewise of words in pieces of fewer than two characters
FOREIGN = 0.3  # the share of unknown and shattered words above which the language does not fit
COMMON = 5000  # different words that are looked at
SMALL = 1000  # tokens of a vocabulary of letters (proteins, DNA), which shatters every word


@dataclass(frozen=True)
class Reader:
    """What of a model matters to texts: its tokenizer, and how much it reads at once."""

    tokenizer: Tokenizer
    limit: int


def open_reader(name: str | Path) -> Reader:
    """The tokenizer and the length of a model, without its weights."""
    from bertsmith.checkpoint import locate, read_sentence  # late: a check without a model is quick
    from bertsmith.checkpoint.checkpoint import meaningful
    from bertsmith.checkpoint.files import inside
    from bertsmith.families import family_of
    from bertsmith.foreign import read_json

    directory = locate(name)
    sentence = read_sentence(directory)
    directory = sentence[0] if sentence else directory
    path = inside(directory, "config.json")
    settings = read_json(path)
    with meaningful(path):
        family = family_of(settings)
        limit = family.config(settings).max_length
    tokenizer = Tokenizer.load(directory, family=family.name)
    shorter = sentence[1].max_length if sentence else None
    return Reader(tokenizer, min(limit, tokenizer.max_length or limit, shorter or limit))


def measure(splits: Splits, reader: Reader | None) -> tuple[dict[str, Lengths], list[Finding]]:
    """The lengths of every split, and what a model will not read at once."""
    lengths, findings = {}, []
    for name, dataset in splits.items():
        if reader is None:
            words = [max(map(_words, units(one, dataset.task))) for one in dataset.examples]
            lengths[name] = _spread("words", words)
        else:
            lengths[name], more = _tokens(name, dataset, reader)
            findings.extend(more)
    return lengths, findings


def units(example: Any, task: str) -> list[tuple[str, ...]]:
    """The inputs that an example becomes: each one text, or a pair that is read together."""
    if task == "similarity":
        return [(text,) for text in example.texts]
    match example:
        case Labelled() | MultiLabelled() | Scored() | Question():
            return [example.texts]
        case Options(prompt=prompt, options=options):
            return [(prompt, option) for option in options]
    return [(text,) for text in example.texts]


def _words(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _tokens(name: str, dataset: Dataset[Any], reader: Reader) -> tuple[Lengths, list[Finding]]:
    tokenizer, limit = reader.tokenizer, reader.limit
    inputs = [units(one, dataset.task) for one in dataset.examples]
    texts = list(dict.fromkeys(text for several in inputs for unit in several for text in unit))
    ids = tokenizer.encode_ids(texts)
    size = dict(zip(texts, map(len, ids), strict=True))
    totals, beyond, stuck = [], [], []
    for one, several in zip(dataset.examples, inputs, strict=True):
        parts = [[size[text] for text in unit] for unit in several]
        special = [tokenizer.special_count(pair=len(part) > 1) for part in parts]
        total = max(sum(part) + extra for part, extra in zip(parts, special, strict=True))
        totals.append(total)
        if total > limit:
            room = limit - max(special) - max(part[0] for part in parts)
            # A window holds the whole first text, and some of the second.
            if isinstance(one, Options) or (len(parts[0]) > 1 and room < max(1, limit // 4)):
                stuck.append(one.where)
            else:
                beyond.append(one.where)
    unknown = sum(one.count(tokenizer.unk_id) for one in ids) if tokenizer.unk_id is not None else 0
    share = unknown / max(1, sum(map(len, ids)))
    return _spread("tokens", totals, limit, len(beyond) + len(stuck)), [
        *_beyond(name, dataset, limit, beyond, stuck),
        *_words_in_pieces(name, texts, reader, unknown, share),
    ]


def _beyond(
    name: str, dataset: Dataset[Any], limit: int, beyond: list[Any], stuck: list[Any]
) -> Iterator[Finding]:
    share = len(beyond) / len(dataset)
    what = f"inputs longer than the model's {limit:,} tokens ({share:.1%})"
    yield from found("note", "long", name, what, beyond, "they are read in windows")
    what = "inputs too long to be read in windows"
    advice = "shorten the first texts" if dataset.task != "choice" else "shorten the prompts"
    yield from found("error", "too-long", name, what, stuck, advice)


def _words_in_pieces(
    name: str, texts: Sequence[str], reader: Reader, unknown: int, share: float
) -> Iterator[Finding]:
    """Unknown tokens, and words that are split into single letters."""
    counts = Counter(word for text in texts for word in text.split())
    common = dict(counts.most_common(COMMON))
    pieces = reader.tokenizer.encode_ids(list(common)) if common else []
    total = sum(common.values())
    per_word = sum(n * len(ids) for n, ids in zip(common.values(), pieces, strict=True))
    broken = {
        word: count
        for (word, count), ids in zip(common.items(), pieces, strict=True)
        if len(word) > 3 and 2 * len(ids) > len(word)
    }
    shattered = sum(broken.values()) / max(1, total)
    if reader.tokenizer.size < SMALL or total < FEW_WORDS:
        shattered = 0.0
    spread = f"{per_word / max(1, total):.1f} tokens per word"
    if share > UNKNOWN:
        what = f"{name}: {share:.1%} of all tokens are unknown to the model"
        yield Finding("warning", "unknown-tokens", what, unknown)
    if shattered > SHATTERED:
        named = ", ".join(list(broken)[:3])
        what = f"{name}: {shattered:.0%} of the words are split into letters ({spread}): {named}"
        yield Finding("warning", "shattered-words", what, sum(broken.values()))
    if share + shattered > FOREIGN:
        what = f"{name}: probably a language or alphabet that the model was not trained on"
        advice = "use a model for this language, or bertsmith tokenizer extend"
        yield Finding("warning", "wrong-language", what, len(texts), (), advice)


def _spread(unit: str, values: Sequence[int], limit: int | None = None, beyond: int = 0) -> Lengths:
    ordered = sorted(values)
    middle, most = (ordered[round(share * (len(ordered) - 1))] for share in (0.5, 0.95))
    return Lengths(unit, middle, most, ordered[-1], limit, beyond)
