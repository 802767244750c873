"""Settings of a search index, and of a search in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertsmith.settings import setting


@dataclass(frozen=True)
class IndexSettings:
    """Options of an index; None selects the value stored in the index, or the default."""

    model: str | Path | None = None
    device: str | None = None
    keywords_only: bool = setting(False, "Build an index without vectors.")
    passage_size: int | None = setting(None, "Longest passage, in characters; default 1600.")
    overlap: int | None = setting(
        None, "Overlap of neighbouring passages, in characters; default 200."
    )
    long: Literal["window", "cut"] | None = setting(
        None,
        "Passages beyond the model's length: window averages the vectors of all parts (default), "
        "cut embeds the beginning alone, which is faster.",
    )
    query_prompt: str | None = setting(
        None, 'Text that is put before queries, such as "query: "; default: the model\'s.'
    )
    document_prompt: str | None = setting(
        None, 'Text that is put before passages, such as "passage: "; default: the model\'s.'
    )
    width: int | None = setting(
        None, "Keep this many elements of each vector, for models trained with --matryoshka.", ge=1
    )
    dtype: Literal["float32", "float16", "int8"] | None = setting(
        None,
        "Number format of stored vectors; default float32. int8 takes a quarter of the space.",
        option="--vector-dtype",
    )
    exclude: list[str] | None = setting(
        None,
        "Leave out what matches this pattern (as in .gitignore): drafts/, *.csv; !PATTERN "
        "indexes files that are left out by default; repeatable; the index keeps it.",
    )
    include: list[str] | None = setting(
        None, "Index only files that match this pattern: *.md; repeatable; the index keeps it."
    )
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = setting(
        None,
        "Data type of weights and activations; int8 is for CPUs; default: float32, or int8 if the "
        "model is stored so.",
        option="--dtype",
    )


@dataclass(frozen=True)
class SearchSettings:
    """How passages are ranked, and which ones."""

    weights: tuple[float, float] | None = setting(
        None,
        "Weights of keywords and vectors in hybrid search; default 1,1; 1,0.7 for vectors of "
        "bertsmith-embed and 1,0.2 for those of bertsmith-small.",
        written=str | None,
    )
    fusion: Literal["min-max", "rrf"] = setting(
        "min-max", "How the two rankings are combined: by scaled scores, or by ranks."
    )
    files: str | Sequence[str] = setting(
        (),
        "Search only files whose path matches this pattern: *.md; repeatable.",
        option="--file",
        written=list[str],
    )
    kinds: str | Sequence[str] = setting(
        (),
        "Search only files of this kind: pdf, markdown, code, ...",
        option="--kind",
        written=list[str],
    )
    after: str | float | None = setting(
        None, "Search only files changed on or after this date: 2026-01-31.", written=str | None
    )
    before: str | float | None = setting(
        None, "Search only files changed on or before this date.", written=str | None
    )
    by_document: bool = setting(False, "Show the best passage of each document.")
    rerank: Any = setting(
        None,
        "Reorder the best passages with this model: a pair classifier, or any encoder "
        "by late interaction; index: the model of the index.",
        written=str | None,
    )
    rerank_top: int = setting(50, "How many passages --rerank reorders.", ge=1, le=10_000)


@dataclass(frozen=True)
class MiningSettings:
    """Which passages are hard negatives of a query."""

    mode: Literal["hybrid", "keywords", "vectors"] = setting(
        "hybrid", "How passages are ranked for a query."
    )
    negatives: int = setting(5, "Most negatives for a query.", ge=1, le=1000)
    depth: int = setting(100, "Negatives are among this many best passages.", ge=1, le=1000)
    skip: int = setting(0, "Leave out this many best passages.", ge=0, le=999)
    margin: float = setting(
        0.0,
        "Least difference from the score of the best positive: a cosine, or the teacher's score.",
        ge=0,
        le=1000,
    )
    relative_margin: float = setting(
        0.05,
        "Least difference from the cosine of the best positive, as a fraction of it.",
        ge=0,
        le=1,
    )
    teacher: Any = setting(
        None,
        "A reranker that scores positives and negatives; the scores are written, too.",
        written=str | None,
    )


@dataclass(frozen=True)
class AdaptationSettings:
    """How the model of an index is adapted to its documents."""

    minutes: float = setting(10.0, "Time for training and comparing, roughly.", ge=0.1, le=10_000)
    seed: int = setting(0, "Seed of the pairs and of the training.", ge=0, le=10**9)
    replace: bool = setting(
        False, "Embed the index with the adapted model, if the search gains by it."
    )
    overwrite: bool = setting(False, "Replace a model directory of the same name.")
