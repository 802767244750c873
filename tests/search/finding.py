"""The names of found files."""

from pathlib import Path

import bertsmith as bs


def names(hits: list[bs.Index]) -> list[str]:
    return [Path(hit.file).name for hit in hits]
