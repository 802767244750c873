"""How many hidden words does a model find, in text that it never saw and was not chosen by?

    python benchmarks/small/held_out.py CORPUS --models ours=bertsmith-small other=FOLDER --out OUT
    python benchmarks/small/held_out.py CORPUS --models ours=bertsmith-small --seen --out OUT

15% of the tokens of the held-out documents are masked, in windows of 128, the same for all models.
Candidates were compared on the first 262,144 tokens; these are the ones after them. --seen: as many
tokens of what the models learned from, to tell what is known from what is understood.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from proxies import TOKENS, scored

from bertsmith.checkpoint import locate

LATER = 196_608  # with the first, less than all there are: none comes twice


def main() -> None:
    """Score each model and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="a folder that `bertsmith prepare` made")
    parser.add_argument("--models", nargs="+", required=True, help="name=folder")
    parser.add_argument("--seen", action="store_true", help="text that was learned from")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    split = "train" if asked.seen else "held_out"
    found = {}
    for given in asked.models:
        name, _, folder = given.partition("=")
        found[name] = scored(locate(folder), asked.corpus, LATER, after=TOKENS, split=split)
        print(name, json.dumps(found[name]), flush=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
