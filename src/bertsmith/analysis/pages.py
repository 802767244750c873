"""Pages of heads, layers, words and senses: results as values for templates."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith import pages
from bertsmith.analysis.heads import METRICS, HeadNumbers
from bertsmith.analysis.importance import Explained, WordImportance
from bertsmith.analysis.layers import DepthGuess
from bertsmith.analysis.maps import Floats
from bertsmith.analysis.senses import Senses

RELATIONS = 12  # heat maps of relations; the table lists all
EXAMPLES = 8  # sentences of each group
FINAL = 5  # final predictions in the chart of the lens
STRONGEST = 20  # words listed with their importance


def heads_page(numbers: HeadNumbers, model: str) -> str:
    """A heat map of every metric, and of the most frequent dependency relations."""
    metrics = [
        (name, f"{meaning[0].upper()}{meaning[1:]}.", _by_head(numbers.metrics[name], name))
        for name, meaning in METRICS.items()
    ]
    headings = ("relation", "words", "head", "accuracy", "distance", "accuracy", "direction")
    return pages.page(
        "heads.html",
        f"Attention heads of {model}",
        about=f"{numbers.inputs:,} inputs, {numbers.tokens:,} tokens. Rows are layers, columns are "
        "heads, both counted from 0.",
        metrics=metrics,
        relations=pages.table(headings, numbers.relation_rows()) if numbers.relations else "",
        relation_maps=[
            (
                name,
                f"Accuracy of each head ({one.direction}); the best has {one.accuracy:.0%}.",
                _by_head(one.table.max(0), name, most=1.0),
            )
            for name, one in list(numbers.relations.items())[:RELATIONS]
        ],
    )


def _grid(values: Floats, label: str, most: float | None = None) -> str:
    rows, columns = ([str(number) for number in range(size)] for size in values.shape)
    return pages.heat_map(values.tolist(), rows=rows, columns=columns, label=label, most=most)


def _by_head(values: Floats, name: str, most: float | None = None) -> str:
    return _grid(values, f"{name}: layers by heads", most)


def _by_depth(title: str, series: Mapping[str, Sequence[float]], **more: Any) -> str:
    lines = [
        pages.Series(name, list(enumerate(values)), dots=True) for name, values in series.items()
    ]
    return pages.line_chart(title, lines, x_label="depth", **more)


def lens_page(text: str, guesses: Sequence[DepthGuess], model: str) -> str:
    """A table for each mask, the predictions at every depth, and a chart of the final ones."""
    masks = sorted({one.mask for one in guesses})
    tables = [
        (
            f"Mask {mask + 1}" if len(masks) > 1 else "The mask",
            _final_chart([one for one in guesses if one.mask == mask]),
            [
                (
                    depth_name(one.depth),
                    [
                        (token, f"{score:.0%}", pages.shade(score))
                        for token, score in zip(one.tokens, one.scores, strict=True)
                    ],
                )
                for one in guesses
                if one.mask == mask
            ],
        )
        for mask in masks
    ]
    title = f"Predictions of {model} at each depth"
    return pages.page("lens.html", title, text=text, masks=tables)


def _final_chart(guesses: Sequence[DepthGuess]) -> str:
    series = {
        token: [100 * one.final[rank] for one in guesses]
        for rank, token in enumerate(guesses[-1].tokens[:FINAL])
    }
    return _by_depth("Probability of the final predictions", series, unit="%", from_zero=True)


def depth_name(depth: int) -> str:
    """A depth with what it is: 0 is the output of the embeddings, k that of block k."""
    return "0 (embeddings)" if depth == 0 else str(depth)


def cka_page(values: Floats, models: Sequence[str], texts: int, notes: Sequence[str] = ()) -> str:
    """A heat map of CKA between the depths of one model, or of two."""
    first, last = models[0], models[-1]
    return pages.page(
        "cka.html",
        f"Layers of {first}" + (f" and {last}" if len(models) > 1 else ""),
        scripts=(),
        about=f"Linear CKA over the mean states of {texts:,} texts, without special tokens.",
        notes=notes,
        axes=f"Rows are depths of {first}, columns depths of {last}; depth 0 is the embeddings.",
        map=_grid(values, f"CKA: depths of {first} by depths of {last}", most=1.0),
    )


def importance_page(texts: Sequence[str], result: Explained, model: str) -> str:
    """The texts, each word shaded by its importance for the prediction."""
    most = max((abs(word.importance) for word in result.words), default=0.0) or 1.0
    names = ("First text", "Second text") if len(texts) > 1 else ("Text",)
    strongest = sorted(result.words, key=lambda word: -abs(word.importance))[:STRONGEST]
    return pages.page(
        "importance.html",
        f"Why {model} predicts “{result.said}”",
        scripts=(),
        about=summary(result),
        texts=[
            (name, _shaded(text, [word for word in result.words if word.source == source], most))
            for source, (name, text) in enumerate(zip(names, texts, strict=True))
        ],
        meaning="Decrease of the predicted number when the word is masked."
        if result.kind == "number"
        else "Decrease of the log probability of the prediction when the word is masked.",
        bars=pages.bar_list(
            [(word.text, word.importance, f"{word.importance:+.3f}") for word in strongest]
        ),
    )


def summary(result: Explained) -> str:
    """The prediction in a line."""
    score = f"{result.score:.3f}" if result.kind == "number" else f"{result.score:.1%}"
    return f"{result.kind} {result.said!r}, {score}"


def _shaded(text: str, words: Sequence[WordImportance], most: float) -> list[pages.MarkedPart]:
    parts, place = [], 0
    for word in words:
        level = pages.shade(word.importance / most)
        kind = f"{'s' if level > 0 else 'n'}{abs(level)}" if level else ""
        parts.append(pages.MarkedPart(text[place : word.start]))
        parts.append(
            pages.MarkedPart(text[word.start : word.end], kind, title=f"{word.importance:+.3f}")
        )
        place = word.end
    return [*parts, pages.MarkedPart(text[place:])]


def _name(result: Senses, group: int) -> str:
    """A short name of a group: its first typical words that are not function words."""
    return ", ".join([word for word in result.words(group) if len(word) > 3][:2])


def senses_page(result: Senses, model: str, accuracies: Sequence[float] | None = None) -> str:
    """The occurrences as points, and the groups with their words and sentences."""
    count = max(result.groups) + 1
    groups = [
        {
            "count": f"{len(members):,}",
            "words": ", ".join(result.words(group)),
            "examples": [result.places[number].context(70) for number in members[:EXAMPLES]],
        }
        for group in range(count)
        for members in [result.members(group)]
    ]
    points = [
        (float(x), float(y), group, place.around(70))
        for (x, y), group, place in zip(result.plane, result.groups, result.places, strict=True)
    ]
    cosines = {"cosine": result.alike}
    charts = [_by_depth("Mean cosine between two occurrences", cosines, from_zero=True)]
    if accuracies is not None:
        scores = {"accuracy": [100 * share for share in accuracies]}
        title = "Accuracy: do two occurrences have the same sense?"
        charts.append(_by_depth(title, scores, unit="%"))
    return pages.page(
        "senses.html",
        f"“{result.word}” in {model}",
        about=f"{len(result.places):,} occurrences, vectors at depth {result.depth}",
        points=pages.scatter(
            f"{len(points)} occurrences of {result.word} in a plane",
            points,
            [_name(result, group) for group in range(count)] if count > 1 else (),
        ),
        groups=groups,
        charts=charts,
    )
