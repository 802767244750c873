"""Settings of a run over a folder of files."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.settings import setting


@dataclass(frozen=True)
class FolderSettings:
    """Where the files of a folder are processed; the result does not depend on it."""

    workers: int | None = setting(
        None, "Workers for a folder of files; default: one per GPU, or per 4 CPU cores."
    )
    engine: str = setting("local", "Where to process a folder of files: local or ray.")
