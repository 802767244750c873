"""Extend a vocabulary with words of text files."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tokenizer.families import Pipeline
from bertsmith.tokenizer.guard import guarded
from bertsmith.tokenizer.tokenizer import Tokenizer
from bertsmith.tokenizer.train import count_words, read_lines

LONGEST = 40  # characters of a word that may become a token
Word = tuple[str, int, list[Any]]  # with its count, and its pieces in the old vocabulary


class Added(NamedTuple):
    """A new token: the frequency of its word, and the tokens that it replaces."""

    token: str
    id: int
    times: int
    pieces: list[int]


def extend(
    tokenizer: Tokenizer,
    files: Iterable[str | Path],
    count: int,
    *,
    min_frequency: int = 5,
    lines: Iterable[str] | None = None,
    ledger: Ledger | None = None,
) -> tuple[Tokenizer, list[Added]]:
    """Add the words of text files that save the most tokens: frequency times tokens saved.

    In a byte-level vocabulary, a word needs a chain of merges, whose intermediate results become
    tokens too. All added tokens are returned, each with the tokens of the old vocabulary that it
    replaces. Words with characters that the vocabulary does not have cannot be added; `ledger`
    counts them. Pass `lines` to read these instead of files.
    """
    if count < 1:
        raise BertsmithError("at least one word must be added")
    backend = tokenizer.backend
    pipeline = Pipeline(backend.normalizer, backend.pre_tokenizer, backend.decoder)
    words = count_words(read_lines(files) if lines is None else lines, pipeline)
    if not words:
        raise BertsmithError("there is no text to take words from")
    chosen = _choose(tokenizer, words, count, min_frequency, Ledger() if ledger is None else ledger)
    if not chosen:
        raise BertsmithError("no word of this text is both frequent and split into several tokens")
    content = json.loads(backend.to_str())
    with guarded("the vocabulary cannot be extended"):
        _settle(content)
        model, size = content["model"], tokenizer.size
        if tokenizer.kind == "bpe":
            added = _add_merges(model, chosen, size)
        else:
            added = _add_words(model, chosen, size, words.total())
        extended = Backend.from_str(json.dumps(content))
    return Tokenizer(tokenizer.parts._replace(backend=extended)), added


def _settle(content: dict[str, Any]) -> None:
    """Give tokens that stand beside the model's vocabulary their places in it.

    The library numbers them again after the vocabulary when a file is read, and it grows.
    """
    vocabulary = content["model"]["vocab"]
    for token in sorted(content["added_tokens"], key=lambda token: int(token["id"])):
        if isinstance(vocabulary, dict):
            vocabulary.setdefault(token["content"], token["id"])
        elif token["id"] == len(vocabulary):
            vocabulary.append([token["content"], 0.0])


def _choose(
    tokenizer: Tokenizer, words: Counter[str], count: int, least: int, ledger: Ledger
) -> list[Word]:
    candidates: list[Word] = []
    special = tokenizer.special_ids
    for word, times in words.items():
        if times < least or len(word) > LONGEST or not any(map(str.isalpha, word)):
            continue
        pieces = tokenizer.backend.model.tokenize(word)
        if any(piece.id in special for piece in pieces):
            ledger.note("words of unknown characters, which cannot be added")
        elif len(pieces) > 1:
            candidates.append((word, times, pieces))
    candidates.sort(key=lambda word: (-word[1] * (len(word[2]) - 1), word[0]))
    return candidates[:count]


def _add_words(model: dict[str, Any], words: list[Word], size: int, total: int) -> list[Added]:
    """Extend a WordPiece vocabulary, or a Unigram one, which is a list with scores."""
    vocabulary: Any = model["vocab"]
    scored = isinstance(vocabulary, list)
    if scored and len(vocabulary) != size:
        raise BertsmithError("its pieces and its ids do not end together: it cannot be extended")
    added: list[Added] = []
    for word, times, pieces in words:
        added.append(Added(word, size + len(added), times, [piece.id for piece in pieces]))
        if scored:
            # Better than its pieces together, or it would never be chosen.
            path = sum(vocabulary[piece.id][1] for piece in pieces)
            vocabulary.append([word, max(path + 0.01, math.log(times / total))])
        else:
            vocabulary[word] = added[-1].id
    return added


def _add_merges(model: dict[str, Any], words: list[Word], size: int) -> list[Added]:
    vocabulary: dict[str, int] = model["vocab"]
    known = {tuple(merge) for merge in model["merges"]}
    added: list[Added] = []
    for _, times, pieces in words:
        start = pieces[0].value
        for place, following in enumerate(pieces[1:], 1):
            if (start, following.value) not in known:
                known.add((start, following.value))
                model["merges"].append([start, following.value])
            start += following.value
            if start not in vocabulary:
                before = [piece.id for piece in pieces[: place + 1]]
                added.append(Added(start, size + len(added), times, before))
                vocabulary[start] = added[-1].id
    return added
