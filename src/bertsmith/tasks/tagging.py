"""Labels for words, and the entities that they spell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.data.schemes import chunks
from bertsmith.model import Hidden
from bertsmith.tasks.spans import blank, trimmed, wordless
from bertsmith.tasks.windows import clearest
from bertsmith.tokenizer import Encoding

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class Entity:
    """A labelled stretch of a text: text[start:end]."""

    label: str
    text: str
    start: int
    end: int
    score: float  # probability; of several words, their mean


Place = tuple[int | None, int, int]  # a word's first token, if it has one, and its characters


def tag_words(bert: LoadedModel, texts: Sequence[str]) -> list[list[Entity]]:
    """Every word of every text with its label: that of the word's first token."""
    return _labelled(bert, texts, lambda number, one: words(texts[number], one))


def tag_given(
    bert: LoadedModel, texts: Sequence[str], given: Sequence[Sequence[tuple[int, int]]]
) -> list[list[Entity]]:
    """The label of every word that is given by where it begins and ends.

    A word that the tokenizer sees nothing in gets the label O, or the first, with probability 0.
    """

    def places(number: int, encoding: Encoding) -> Iterator[Place]:
        firsts = first_tokens(encoding.offsets, given[number])
        for token, (start, end) in zip(firsts, given[number], strict=True):
            yield token, start, end

    return _labelled(bert, texts, places)


def first_tokens(
    offsets: Sequence[tuple[int, int]], given: Sequence[tuple[int, int]]
) -> list[int | None]:
    """For each word (its characters) the first token that begins in it, else that touches it."""
    found: list[int | None] = []
    token = 0
    for start, end in given:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        touching = None
        for place in range(token, len(offsets)):
            left, right = offsets[place]
            if left >= end:
                break
            if right > max(left, start):
                touching = place if touching is None else touching
                if left >= start:
                    touching = place
                    break
        found.append(touching)
    return found


def _labelled(
    bert: LoadedModel, texts: Sequence[str], places: Callable[[int, Encoding], Iterable[Place]]
) -> list[list[Entity]]:
    """The label of every word, read where it is clearest."""
    encoded = bert.encode(texts)
    windower, labels = bert.windower(), bert.checkpoint.labels
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        scores = bert.model.heads["tag"](hidden, batch).float().softmax(-1).cpu()
        return list(batch.layout.split(scores))

    scores = iter(bert.run([window for group in grouped for window in group], compute))
    missing = "O" if "O" in labels else labels[0]
    results = []
    for number, (text, encoding, group) in enumerate(zip(texts, encoded, grouped, strict=True)):
        found = [next(scores)[w.first : w.first + len(w.tokens)] for w in group]
        best = clearest([window.tokens for window in group], len(encoding))
        row = []
        for token, start, end in places(number, encoding):
            if token is None:
                bert.ledger.note("words that the tokenizer sees nothing in")
                row.append(Entity(missing, text[start:end], start, end, 0.0))
                continue
            inside = found[best[token]][token - group[best[token]].tokens.start]
            score, label = inside.max(0)
            row.append(Entity(labels[int(label)], text[start:end], start, end, float(score)))
        results.append(row)
    return results


def words(text: str, encoding: Encoding) -> Iterator[tuple[int, int, int]]:
    """The first token of every word, and the characters from where to where the word goes.

    Punctuation at a word's ends stands alone, also where a tokenizer splits at spaces only.
    """
    done = 0
    tokens = [token for token, number in enumerate(encoding.words) if number is not None]
    for _, group in groupby(tokens, key=encoding.words.__getitem__):
        for part in _parts(text, encoding.offsets, list(group)):
            start = max(done, encoding.offsets[part[0]][0])
            start, end = trimmed(text, start, encoding.offsets[part[-1]][1])
            if start < end:
                yield part[0], start, end
                done = end


def _parts(text: str, offsets: Sequence[tuple[int, int]], inside: list[int]) -> list[list[int]]:
    """The tokens of what a tokenizer calls a word: punctuation, the word itself, punctuation."""
    shown = {token: text[slice(*offsets[token])] for token in inside}
    spelled = [token for token in inside if not wordless(shown[token])] or [-1]
    parts = [inside[:1]]
    for before, token in pairwise(inside):
        within = spelled[0] <= before and token <= spelled[-1]
        # A space belongs to what follows; and several tokens may spell one character.
        if within or all(map(blank, shown[before])) or offsets[token][0] < offsets[before][1]:
            parts[-1].append(token)
        else:
            parts.append([token])
    return parts


def tag(bert: LoadedModel, texts: Sequence[str]) -> list[list[Entity]]:
    """The entities of every text; where labels have no B- and I-, every word and its label."""
    spelled = any(label[:2] in ("B-", "I-") for label in bert.checkpoint.labels)
    rows = zip(texts, tag_words(bert, texts), strict=True)
    return [entities(text, row) if spelled else row for text, row in rows]


def entities(text: str, labelled: Sequence[Entity]) -> list[Entity]:
    """Words that belong together by their B-, I-, E- and S- (or L- and U-) labels."""
    found = []
    # Whatever a model calls the outside, it has no type.
    for chunk in chunks([word.label if "-" in word.label else "O" for word in labelled]):
        group = labelled[chunk.start : chunk.stop]
        start, end = group[0].start, group[-1].end
        score = sum(word.score for word in group) / len(group)
        found.append(Entity(chunk.type, text[start:end], start, end, score))
    return found
