"""Attention weights of a text as arrays, as a page, or in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.analysis.importance import explained
from bertsmith.analysis.maps import AttentionMaps, Token, encoded, head_counts
from bertsmith.analysis.page import AttentionPage
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.spans import trimmed
from bertsmith.tokenizer import Encoding, Tokenizer

BLANKS = ("▁", "Ġ")  # how vocabularies spell a space that is a token by itself


@dataclass(frozen=True, repr=False)
class AttentionView(AttentionMaps):
    """The attention weights of a text, shown in notebooks and saved as a page."""

    def beside(self, other: AttentionView) -> AttentionPage:
        """Return a page with this view and another one: two models, or two texts."""
        return AttentionPage((self, other))

    def page(self, tokens: range | None = None) -> AttentionPage:
        """Return the page of this view; `tokens` selects those shown one by one in a long text."""
        return AttentionPage((self,), tokens)

    def save(self, path: str | Path, tokens: range | None = None) -> None:
        """Write a page (.html), or the weights and tokens as arrays (.npz)."""
        self.page(tokens).save(path)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def attention(
    bert: LoadedModel,
    text: str,
    pair: str | None = None,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    importance: bool = False,
    name: str = "",
) -> AttentionView:
    """Compute the attention of a model on a text or a pair; all layers and heads by default.

    With `importance`, the page also shows how much each word contributes to the model's label or
    answer (see `bertsmith.analysis.importance`).
    """
    config = bert.checkpoint.config
    # Labels and answers are predicted from the text alone, so that they need the same tokens.
    encoding = encoded(bert, text, pair, masks=not importance)
    if not config.plan:
        raise BertsmithError("this model has static vectors: no layers and no attention")
    counts, shown = head_counts(bert), _chosen(layers, len(config.plan), "layer")
    said, worth = "", [0.0] * (len(encoding) * importance)
    if importance:
        explanation = explained(bert, text, pair)
        said = f"{explanation.kind} “{explanation.said}”"
        for word in explanation.words:
            for place in word.tokens:
                worth[place] = word.importance
    return AttentionView(
        bert=bert,
        name=name or f"{bert.checkpoint.family.name} {config.layers}x{config.width}",
        ids=encoding.ids,
        segments=encoding.segments,
        tokens=_tokens(bert.tokenizer, encoding, (text, pair or "")),
        layers=shown,
        heads=_chosen(heads, max(counts[layer] for layer in shown), "head"),
        said=said,
        worth=worth,
    )


def _tokens(tokenizer: Tokenizer, encoding: Encoding, texts: tuple[str, str]) -> list[Token]:
    """Tokens with their characters; of several that spell one character, the first shows it."""
    tokens: list[Token] = []
    ends = [-1, -1]  # where the last token of each text ended
    for id_, span, source in zip(encoding.ids, encoding.offsets, encoding.sources, strict=True):
        spelled = tokenizer.token(id_)
        if source is None:
            tokens.append(Token(spelled, spelled, None, True))
            continue
        if spelled in BLANKS:  # some tokenizers say that it stands for the letter that follows
            tokens.append(Token("␣", spelled, source, True))
            continue
        start, end = trimmed(texts[source], max(span[0], ends[source]), span[1])
        shown = "".join(c if c.isprintable() else "·" for c in texts[source][start:end])
        tokens.append(Token(shown or spelled, spelled, source, start != ends[source]))
        ends[source] = end
    return tokens


def _chosen(asked: Sequence[int] | None, count: int, kind: str) -> tuple[int, ...]:
    chosen = tuple(range(count)) if asked is None else tuple(sorted(set(asked)))
    if not chosen:
        raise BertsmithError(f"no {kind} selected")
    for number in chosen:
        if not 0 <= number < count:
            raise BertsmithError(f"no {kind} {number}: valid numbers are 0 to {count - 1}")
    return chosen
