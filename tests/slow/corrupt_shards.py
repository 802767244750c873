"""Damage the files of a prepared corpus at random, and see that each damage is found and named.

    python tests/slow/corrupt_shards.py --count 1000 --seed 0

One bit is flipped, or the file is cut short, lengthened or emptied; then `check` and
`Corpus.open` are asked. The suite uses the same functions fewer times.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bertsmith.corpus import Corpus, check, prepare
from bertsmith.errors import BertsmithError
from corpus.texts import documents, write
from tasks.words import tokenizer

KINDS = ("bit", "truncation", "more", "gone")


def make(folder: Path) -> Path:
    """A corpus of many small shards."""
    source = write(folder / "a.txt", documents(200))
    out = folder / "out"
    prepare([source], tokenizer("bert"), out, held_out=0.2, shard_tokens=700, workers=0)
    return out


def damage(data: bytes, kind: str, rng: random.Random) -> bytes:
    """The content of a file after an accident."""
    if kind == "bit":
        place = rng.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == "truncation":
        return data[: rng.randrange(len(data))]
    return data + b"\0" * rng.randint(1, 9) if kind == "more" else b""


def found(folder: Path, kind: str, rng: random.Random) -> bool:
    """Damage one file, ask, repair it; whether the damage was found and its file named."""
    path = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "plan.json"))
    whole = path.read_bytes()
    path.write_bytes(damage(whole, kind, rng))
    split = rng.choice(["train", "held_out"])
    try:
        complaint = _opened(folder, split, check_sums=True)
        named = complaint is not None and path.name in complaint
        if path.name != "manifest.json":
            complaints = check(folder)[1]
            named = named and len(complaints) == 1 and str(path) in complaints[0]
            if kind != "bit":  # that is seen without sums too
                quick = _opened(folder, split, check_sums=False)
                named = named and quick is not None and str(path) in quick
    finally:
        path.write_bytes(whole)
    return named


def _opened(folder: Path, split: str, *, check_sums: bool) -> str | None:
    try:
        Corpus.open(folder, split, check=check_sums)
    except BertsmithError as error:
        return str(error)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = make(Path(place))
        for _ in range(options.count):
            kind = rng.choice(KINDS)
            seen[f"{kind}, {'found' if found(folder, kind, rng) else 'MISSED'}"] += 1
        assert check(folder)[1] == []
    for what, count in sorted(seen.items()):
        print(f"{what}: {count:,}")
    sys.exit(any("MISSED" in what for what in seen))


if __name__ == "__main__":
    main()
