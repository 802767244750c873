"""A few lines of text, and tokenizers of every family learned from them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bertsmith.tokenizer import FAMILIES, Tokenizer, train

LINES = """
The old lighthouse keeper writes a letter to his daughter every Sunday.
Anna Karlsson lives in Uppsala, Sweden, and works for a small bakery called Brödboden.
Dr. Miller (the one from Boston) played the violin in New-York and Paris!
"Why do you keep bees?" asked the mayor of Kraków; nobody could answer her question.
In 1997 a storm tore the roof off the town hall, and the repairs took 3.5 years.
He kept playing, singing and unpacking until the unbelievable morning light came.
Prices rose by 12 % in March - a record - but fell again in June.
The river Vltava flows through Prague; the river Vistula flows through Warsaw.
My sister's dog, a friendly spaniel, chased the neighbour's cats around the garden.
Scientists at the University of Leeds study how ants find the shortest way home.
""".strip()


@cache
def tokenizer(family: str) -> Tokenizer:
    """A tokenizer of a family, learned from a few lines."""
    kind = FAMILIES[family].kind
    size = {"wordpiece": 300, "bpe": 420, "unigram": 180}[kind]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines.txt"
        path.write_text(LINES, "utf-8")
        return train([path], kind, size=size, family=family, min_frequency=1, max_length=128)
