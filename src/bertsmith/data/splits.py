"""The files of a folder that are called train, dev and test."""

from __future__ import annotations

import re
from pathlib import Path

from bertsmith.errors import BertsmithError

SPLITS = {
    "train": ("train_rebuilt", "train", "training"),  # where there is a mended one, it is meant
    "dev": ("dev", "valid", "validation", "val", "dev_matched", "development"),
    "test": ("test", "testing", "test_matched"),
}


def find_splits(folder: str | Path) -> dict[str, Path]:
    """The files of a folder that are called train, dev (or valid, ...) and test."""
    folder = Path(folder)
    found: dict[str, Path] = {}
    files = {path.name.partition(".")[0].lower(): path for path in sorted(folder.iterdir())}
    for split, names in SPLITS.items():
        hits = [files[name] for name in names if name in files]
        ends = [path for stem, path in files.items() if re.search(rf"[-_]{split}$", stem)]
        if hits or len(ends) == 1:
            found[split] = (hits or ends)[0]
    if "train" not in found:
        raise BertsmithError(f"{folder}: no file in it is called train; give a file")
    return found
