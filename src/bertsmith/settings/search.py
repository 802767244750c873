"""Settings of a search index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertsmith.settings import setting


@dataclass(frozen=True)
class IndexSettings:
    """Options of an index; None selects the value stored in the index, or the default."""

    model: str | Path | None = None
    device: str | None = None
    keywords_only: bool = setting(False, "Build an index without vectors.")
    size: int | None = setting(
        None, "Longest passage, in characters; default 1600.", option="--passage-size"
    )
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
