"""Pages about layers and words: guesses at each depth, how alike layers are, what words do."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bertsmith.analysis.attention import Floats
from bertsmith.analysis.heatmap import heat_map, page, section
from bertsmith.analysis.importance import Explained, WordImportance
from bertsmith.analysis.layers import DepthGuess

SHADES = 9


def depth_name(depth: int) -> str:
    """A depth as a person calls it."""
    return "embeddings" if depth == 0 else f"layer {depth - 1}"


def lens_page(text: str, found: Sequence[DepthGuess], title: str) -> str:
    """A table for each mask: what would be guessed at every depth."""
    parts = []
    for mask in sorted({one.mask for one in found}):
        rows = [
            "".join(
                [
                    f"<tr><td>{depth_name(one.depth)}</td>",
                    *(
                        f"<td>{_shaded(escape(token), score)} {score:.0%}</td>"
                        for token, score in zip(one.tokens, one.scores, strict=True)
                    ),
                    "</tr>",
                ]
            )
            for one in found
            if one.mask == mask
        ]
        table = f'<table class="guesses"><tbody>{"".join(rows)}</tbody></table>'
        parts.append(section(f"mask {mask + 1}", "the best guess first", table, wide=True))
    return page(f"What {title} would guess at each depth", text, parts)


def alike_page(table: Floats, names: Sequence[str], count: int) -> str:
    """A heat map of CKA between depths, of one model or of two."""
    about = f"linear CKA over {count:,} texts; depth 0 is the embeddings"
    across = names[-1]
    picture = heat_map(table, "CKA", most=1.0, axes=("depth", "depth"))
    sides = f"rows: depths of {names[0]}; columns: depths of {across}"
    part = section("how alike the states are", sides, picture, wide=True)
    title = f"Layers of {names[0]}" + (f" and of {across}" if len(names) > 1 else "")
    return page(title, about, [part])


def importance_page(texts: Sequence[str], found: Explained, title: str) -> str:
    """The texts, each word shaded by what it does for the answer."""
    most = max((abs(word.importance) for word in found.words), default=0.0)
    parts = []
    for source, text in enumerate(texts):
        own = [word for word in found.words if word.source == source]
        name = ("first text", "second text")[source] if len(texts) > 1 else "text"
        parts.append(section(name, SHADED, _marked(text, own, most), wide=True))
    parts.append(section("in numbers", "the strongest words", _strongest(found.words)))
    return page(f"What made {title} say “{found.said}”", told(found), parts)


SHADED = "blue words speak for it, orange words against it; point at one for its number"


def told(found: Explained) -> str:
    """What was said, in a line."""
    sure = f"{found.score:.3f}" if found.kind == "number" else f"{found.score:.1%}"
    return f"{found.kind} {found.said!r}, {sure}"


def _shaded(content: str, share: float) -> str:
    """Content on a ground that is darker, the larger its share; below 0 of another colour."""
    step = min(SHADES, round(SHADES * abs(share)))
    kind = "for" if share > 0 else "against"
    return f'<mark class="{kind}{step}">{content}</mark>' if step else content


def _marked(text: str, words: Sequence[WordImportance], most: float) -> str:
    made, place = [], 0
    for word in words:
        shown = f'<span title="{word.importance:+.3f}">{escape(word.text)}</span>'
        made += [escape(text[place : word.start]), _shaded(shown, word.importance / (most or 1))]
        place = word.end
    return f"<blockquote>{''.join(made)}{escape(text[place:])}</blockquote>"


def _strongest(words: Sequence[WordImportance], most: int = 20) -> str:
    ranked = sorted(words, key=lambda word: -abs(word.importance))[:most]
    rows = (
        f"<tr><td>{escape(word.text)}</td><td>{word.importance:+.3f}</td></tr>" for word in ranked
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"
