"""Make build/panels/film.html, the film of a small run, in ten minutes on two cores: `make film`.

The text is that of the demo: the docstrings and help topics of this Python. `make docs` puts the
page on the site if it is there. `python scripts/film.py KEY=VALUE` changes keys of the recipe.
"""

import sys
from pathlib import Path

from bertsmith.corpus import prepare
from bertsmith.demo.text import standard_library
from bertsmith.explorer import film
from bertsmith.tokenizer import train
from bertsmith.train import pretrain
from bertsmith.train.recipe import load_recipe

BUILD = Path(__file__).resolve().parent.parent / "build"
EXAMPLES = (
    "Return the [MASK] of the list.",
    "Raise an [MASK] if the file does not exist.",
    "If the [MASK] is true, return a new string.",
)


def main() -> None:
    """Train a vocabulary and a model, and write the page; an interrupted run goes on."""
    folder, run = BUILD / "film", BUILD / "film" / "run"
    (BUILD / "panels").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    text, words, corpus = folder / "text.txt", folder / "words", folder / "corpus"
    if not corpus.exists():
        documents = (
            "\n".join(line for passage in one.passages for line in passage.paragraphs)
            for one in standard_library()
        )
        text.write_text("\n\n".join(documents), "utf-8")
        if not words.exists():
            train([text], "wordpiece", size=6000).save(words)
        prepare([text], words, corpus, workers=1, progress=False)
    changes = ["train.steps=1024", "checkpoint.film=true", f"data.corpus={corpus}", *sys.argv[1:]]
    pretrain(load_recipe("tiny-bert", changes), run, resume=(run / "recipe.toml").is_file())
    out = BUILD / "panels" / "film.html"
    done = film(run, out, name="A BERT learns to read", examples=EXAMPLES)
    print(f"written to {done['out']}, {done['bytes'] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
