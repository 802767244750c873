"""The splits of a folder: files called train, dev and test, or shards of each."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from bertsmith.errors import BertsmithError

SPLITS = {
    "train": ("train_rebuilt", "train", "training"),  # a corrected file before the original
    "dev": ("dev", "valid", "validation", "val", "dev_matched", "development"),
    "test": ("test", "testing", "test_matched"),
}
SHARD = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\..+)")  # train-00000-of-00003.parquet


def find_splits(folder: str | Path, needed: Sequence[str] = ("train",)) -> dict[str, Path]:
    """Return the files of a folder that are named train, dev (or valid, ...) and test.

    Several shards of a split are one path with a star (train-*-of-00003.parquet). Data sets of the
    Hub have their files in a folder `data`, or in one folder for each configuration.
    """
    folder = Path(folder)
    entries = sorted(folder.iterdir())
    splits = _splits_of([path for path in entries if not path.is_dir()])
    if not splits:
        inner = [path for path in entries if path.is_dir() and not path.name.startswith(".")]
        filled = [splits for path in inner if (splits := _splits_of(sorted(path.iterdir())))]
        splits = filled[0] if len(filled) == 1 else {}
    for split in needed:
        if split not in splits:
            raise BertsmithError(f"{folder}: contains no file called {split}; name a file")
    return splits


def _splits_of(files: Sequence[Path]) -> dict[str, Path]:
    stems: dict[str, Path] = {}
    for path in files:
        name = path.name.partition(".")[0]
        if shard := SHARD.fullmatch(path.name):
            name = shard[1]
            path = path.with_name(f"{name}-*-of-{shard[3]}{shard[4]}")
        stems[name.lower()] = path
    splits = {}
    for split, names in SPLITS.items():
        known = [stems[name] for name in names if name in stems]
        ending = [path for stem, path in stems.items() if re.search(rf"[-_]{split}$", stem)]
        if known or len(ending) == 1:
            splits[split] = (known or ending)[0]
    return splits


HOME = "BERTSMITH_DATA"  # the environment variable that names a folder of benchmarks
BENCHMARKS = {  # the folders in it that may hold each; GLUE has a folder for each task
    "glue": (),
    "squad": ("squad", "squad_dev"),
    "conll": ("conll2003_en", "conll2003", "conll-2003"),
}


def benchmark_folder(name: str, advice: str) -> Path:
    """The folder of a benchmark in the one that the environment names; errors end with advice."""
    home, names = os.environ.get(HOME), BENCHMARKS[name]
    if not home:
        raise BertsmithError(f"no data: {advice}, or name one by setting {HOME}")
    if not Path(home).is_dir():
        raise BertsmithError(f"{HOME} is {home}, which is not a folder")
    folders = {path.name.lower(): path for path in sorted(Path(home).iterdir()) if path.is_dir()}
    folder = next((folders[name] for name in names if name in folders), None)
    if names and folder is None:
        raise BertsmithError(f"{home} ({HOME}): no {' or '.join(names)} in it; {advice}")
    return folder or Path(home)
