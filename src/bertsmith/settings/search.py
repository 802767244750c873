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
    dtype: Literal["float32", "float16"] | None = setting(
        None, "Number format of stored vectors; default float32.", option="--vector-dtype"
    )
    exclude: list[str] | None = setting(
        None,
        "Leave out what matches this pattern (as in .gitignore): drafts/, *.csv; !PATTERN "
        "indexes files that are left out by default; repeatable; the index keeps it.",
    )
    include: list[str] | None = setting(
        None, "Index only files that match this pattern: *.md; repeatable; the index keeps it."
    )
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "Data type of weights and activations.", option="--dtype"
    )


@dataclass(frozen=True)
class SearchSettings:
    """How passages are ranked, and which ones."""

    weights: tuple[float, float] | None = setting(
        None,
        "Weights of keywords and vectors in hybrid search; default 1,1; 1,0.5 for vectors of "
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
        "Reorder the best 50 passages with this model: a pair classifier, or any encoder "
        "by late interaction; index: the model of the index.",
        written=str | None,
    )
