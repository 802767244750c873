"""A folder of small documents, and an encoder that needs no model: hashed words."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.encoder import TextEncoder
from bertsmith.search.index import Index

WIDTH = 64


class HashedWords(TextEncoder):
    """A vector of the words of a text; `calls` counts the texts that were embedded."""

    def __init__(self, hash: str = "hashed words") -> None:
        self.name, self.hash, self.calls = "hashed-words", hash, 0
        self.long, self.prompts, self.width = "window", (None, None), None

    @property
    def dimension(self) -> int:
        return WIDTH

    @property
    def stamp(self) -> dict[str, Any]:
        return {"name": self.name, "hash": self.hash, "pooling": "mean", "dimension": WIDTH}

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls += len(texts)
        vectors = np.full((len(texts), WIDTH), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, zlib.crc32(word.strip(".,#").encode()) % WIDTH] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Any:
        return self.embed([text])[0]


DOCUMENTS = {
    "cats.md": "# Cats\n\nCats purr when they are happy.\n\n## Food\n\nCats eat fish and mice.\n",
    "dogs.txt": "Dogs bark loudly at night.\n\nThe dog was running home.\n",
    "birds.html": "<html><head><title>Birds</title><script>var hidden = 1</script></head>\n"
    "<body><h1>Birds</h1>\n<p>Birds sing in the <b>morning</b>.</p></body></html>",
    "cities.csv": "id,title,text\nt1,Tokyo,東京都は日本の首都です\n"
    "p2,Paris,Paris est la capitale\n",
    "fruit.jsonl": '{"_id": "a", "title": "Apple", "text": "A red fruit."}\n'
    '{"_id": "b", "title": "Banana", "text": "A yellow fruit."}\n',
    "code.py": "def purr(cat):\n    return cat.happy\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "documents"
    source.mkdir()
    for name, text in DOCUMENTS.items():
        (source / name).write_text(text, "utf-8")
    return source


@pytest.fixture
def encoder() -> HashedWords:
    return HashedWords()


@pytest.fixture
def index(folder: Path, tmp_path: Path, encoder: HashedWords) -> Index:
    update_folders(tmp_path / "index", [folder], BuildSettings(encoder=encoder))
    return Index(tmp_path / "index", model=encoder)
