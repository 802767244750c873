"""Train the BERT of docs/examples/film.html: two layers, by the recipe and start of the demo.

python scripts/film.py SHARDS TOKENIZER [--steps 1024] --out RUN
bertsmith export RUN --html docs/examples/film.html
"""

import argparse
from dataclasses import replace
from pathlib import Path

from bertsmith.demo.budget import FULL
from bertsmith.demo.initialization import write_initial_model
from bertsmith.demo.steps import recipe_for
from bertsmith.tokenizer import Tokenizer
from bertsmith.train import pretrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    budget, start = replace(FULL, steps=options.steps), options.out.with_name("start")
    write_initial_model(Tokenizer.load(options.tokenizer), options.shards, start, budget)
    pretrain(recipe_for(start, options.shards, budget), options.out, show="lines")


if __name__ == "__main__":
    main()
