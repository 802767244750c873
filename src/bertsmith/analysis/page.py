"""The attention page: one HTML file that needs no network."""

import base64
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertsmith.analysis.maps import AttentionMaps, Floats, Token, head_counts, rollout
from bertsmith.analysis.weights import AttentionWeights
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, write_text
from bertsmith.pages import page
from bertsmith.pages.results import framed

MOST = 2**27  # weights that a pane holds, a byte each
LONGEST = 1024  # tokens that a pane shows; of longer texts it shows blocks
SIDE = 256  # blocks in the overview of a long text, and tokens shown one by one beside it
LINES = 40  # a longer text opens as a matrix, not with lines


@dataclass(frozen=True)
class AttentionPage:
    """A page with one attention view, or several side by side."""

    views: tuple[AttentionMaps, ...]
    tokens: range | None = None  # those shown one by one where a text is long
    opens_with: str = ""  # text, lines, matrix or heads; by default lines, or a matrix if long

    def html(self) -> str:
        """Render the page."""
        panes = [pane for view in self.views for pane in _panes(view, self.tokens)]
        longest = max(len(pane.tokens) for pane in panes)
        opens_with = self.opens_with or ("lines" if longest <= LINES else "matrix")
        names = list(dict.fromkeys(view.name for view in self.views))
        return page(
            "attention.html",
            f"What {' and '.join(names)} attend{'s' if len(names) == 1 else ''} to",
            styles=("attention.css",),
            scripts=("attention.js",),
            settings={"view": opens_with, "panes": [pane.settings() for pane in panes]},
            maps=[block for number, pane in enumerate(panes) for block in pane.blocks(number)],
            plain=" | ".join(" ".join(token["text"] for token in pane.tokens) for pane in panes),
        )

    def save(self, path: str | Path) -> None:
        """Write a page (.html), or the weights and tokens of a single view (.npz)."""
        path = Path(path)
        if path.suffix not in (".html", ".htm", ".npz"):
            raise BertsmithError(f"{path}: the name must end in .html or .npz")
        if path.suffix == ".npz" and len(self.views) > 1:
            raise BertsmithError(f"{path}: a .npz file holds one view: save each view separately")
        if path.suffix == ".npz":
            _save_arrays(path, self.views[0], self.tokens)
        else:
            write_text(path, self.html())

    def _repr_html_(self) -> str:
        return framed(self.html(), "attention")


@dataclass
class Pane:
    """One pane: tokens (or blocks of them) and the packed weights between them."""

    title: str
    about: str
    tokens: list[dict[str, Any]]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    start: int = 0  # index of the layer shown first: that of the sharpest head
    start_head: int = 0  # and of that head
    sharpness: float = -1.0
    first: int = 0  # the place of the first token in its text
    unit: int = 1  # tokens in a block
    partial: bool = False  # are there tokens that look outside?
    counts: list[int] = field(default_factory=list)  # of the heads, how many each layer has
    maps: list[str] = field(default_factory=list)  # a layer each
    means: list[Floats] = field(default_factory=list)  # of all heads, a layer each
    rollout: bool = False
    said: str = ""  # what the model makes of the text
    worth: list[float] = field(default_factory=list)  # what each token's word does for that

    def add(self, weights: Tensor) -> None:
        """Add the next layer: (H, n, n)."""
        self._keep_sharpest(weights)
        self.counts.append(len(weights))
        self.maps.append(_packed(weights))
        if self.rollout:
            self.means.append(weights.mean(0).cpu().numpy())

    def _keep_sharpest(self, weights: Tensor) -> None:
        """Open with the head whose tokens attend most strongly to one other word.

        Attention to special tokens and to the token itself does not count: most heads have much
        of it, and it says little.
        """
        words = [place for place, token in enumerate(self.tokens) if token["source"] is not None]
        if len(words) < 2:
            return
        between = weights[:, words][:, :, words].clone()
        between.diagonal(dim1=1, dim2=2).zero_()
        sharpness, head = between.amax(2).mean(1).max(0)
        if float(sharpness) > self.sharpness:
            self.start, self.start_head = len(self.counts), int(head)
            self.sharpness = float(sharpness)

    def blocks(self, number: int) -> Iterator[tuple[str, str]]:
        """All weights of this pane as text, each with its id."""
        yield from ((f"maps-{number}-{layer}", text) for layer, text in enumerate(self.maps))
        if self.rollout:
            for name, causal in (("rollout", False), ("causal", True)):
                for layer, one in enumerate(rollout(np.stack(self.means), causal=causal)):
                    yield f"{name}-{number}-{layer}", _packed(torch.from_numpy(one))

    def settings(self) -> dict[str, Any]:
        """What the script needs to know beside the weights."""
        left_out = ("maps", "means", "sharpness")
        return {key: v for key, v in self.__dict__.items() if key not in left_out}


def _panes(view: AttentionMaps, tokens: range | None) -> list[Pane]:
    """The whole text; of a long one an overview in blocks, and a part token by token."""
    count, maps = len(view), len(view.layers) * len(view.heads)
    if tokens is not None and not 0 <= tokens.start < tokens.stop <= count:
        raise BertsmithError(
            f"tokens {tokens.start} to {tokens.stop} are out of range: the text has {count} tokens"
        )
    fits = count <= LONGEST and maps * count**2 <= MOST
    part = tokens or range(count if fits else min(count, SIDE))
    if not fits and (len(part) > LONGEST or maps * len(part) ** 2 > MOST):
        raise BertsmithError(f"{len(part)} tokens are too many for one page: choose fewer")
    panes = [_pane(view, part)] if fits else [_overview(view, -(-count // SIDE)), _pane(view, part)]

    def look(layer: int, weights: AttentionWeights) -> None:
        for pane in panes:
            if pane.unit == 1:
                places = range(pane.first, pane.first + len(pane.tokens))
                pane.add(weights.cells(places, places))
            else:
                pane.add(weights.blocks(pane.unit))

    view.visit(look)  # all weights are from one pass of the model
    return panes


def _pane(view: AttentionMaps, places: range) -> Pane:
    all_tokens = len(places) == len(view)
    about = f"{len(view):,} tokens" if all_tokens else f"tokens {places.start} to {places.stop - 1}"
    tokens = [_shown(view.tokens[place]) for place in places]
    complete = all_tokens and _complete(view)
    explained = {"said": view.said, "worth": view.worth[places.start : places.stop]}
    more = {"first": places.start, "partial": not all_tokens, "rollout": complete}
    return _empty(view, about, tokens, **more, **explained)


def _overview(view: AttentionMaps, size: int) -> Pane:
    blocks = []
    for start in range(0, len(view), size):
        inside = view.tokens[start : start + size]
        end = start + len(inside) - 1
        words = " ".join(token.text for token in inside if token.source is not None)
        block = {"text": f"{start}–{end}", "title": words[:300], "apart": True}
        blocks.append({**block, "source": inside[0].source if len(inside) == 1 else 0})
    about = f"{len(view):,} tokens in blocks of {size}: attention from one block to another"
    return _empty(view, about, blocks, unit=size, rollout=_complete(view))


def _empty(view: AttentionMaps, about: str, tokens: list[dict[str, Any]], **more: Any) -> Pane:
    counts, family = head_counts(view.bert), view.bert.checkpoint.family.name
    heads = f"{min(counts)} to {max(counts)}" if len({*counts}) > 1 else f"{counts[0]}"
    made_of = f"{family}, {len(counts)} layers, {heads} heads · {about}"
    return Pane(view.name, made_of, tokens, view.layers, view.heads, **more)


def _complete(view: AttentionMaps) -> bool:
    """Are all layers and heads shown? A rollout needs them."""
    counts = head_counts(view.bert)
    return (len(view.layers), len(view.heads)) == (len(counts), max(counts))


def _shown(token: Token) -> dict[str, Any]:
    shown = asdict(token)
    spelled = shown.pop("token")
    return {**shown, "title": "" if spelled == token.text else spelled}


def _packed(weights: Tensor) -> str:
    """Weights as bytes, finer near zero (a byte's square), deflated, in base64."""
    codes = (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)
    return base64.b64encode(zlib.compress(codes.cpu().numpy().tobytes(), 3)).decode()


def _save_arrays(path: Path, view: AttentionMaps, tokens: range | None) -> None:
    places = tokens or range(len(view))
    if len(view.layers) * len(view.heads) * len(places) * len(view) > MOST:
        raise BertsmithError(f"{path}: too many weights; choose layers, heads or tokens")
    with atomic(path) as stream:
        np.savez_compressed(
            stream,
            weights=view.rows(places),
            rows=np.array(places),
            tokens=np.array([token.text for token in view.tokens]),
            layers=np.array(view.layers),
            heads=np.array(view.heads),
        )
