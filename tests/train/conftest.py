"""A small prepared corpus of this Python's own help texts, and a recipe that takes seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.corpus import prepare
from bertsmith.tokenizer import train
from bertsmith.train import Recipe
from bertsmith.train.recipe import checked


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pydoc_data.topics

    folder = tmp_path_factory.mktemp("prepared")
    text = folder / "topics.txt"
    topics = list(pydoc_data.topics.topics.values())[:40]
    text.write_text("\n\n".join("\n".join(filter(str.strip, t.splitlines())) for t in topics))
    train([text], "wordpiece", size=600).save(folder / "tokenizer")
    prepare(
        [text], folder / "tokenizer", folder / "corpus", held_out=0.1, workers=1, progress=False
    )
    return folder / "corpus"


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


@pytest.fixture
def recipe(prepared: Path) -> Callable[..., Recipe]:
    """A recipe of a tiny BERT, 12 steps; tables given change its tables."""

    def make(**tables: Any) -> Recipe:
        base: dict[str, Any] = {
            "model": {"size": "bert-tiny", "settings": SMALL},
            "data": {"corpus": str(prepared), "length": 32},
            "train": {"steps": 12, "batch_tokens": 512, "micro_tokens": 256, "learning_rate": 1e-3},
            "evaluate": {"tokens": 512, "pseudo": 1, "every": 5},
            "checkpoint": {"every": 4},
        }
        for name, table in tables.items():
            whole = name in ("objectives", "stages", "model")
            base[name] = table if whole else {**base.get(name, {}), **table}
        return checked(base, "test")

    return make
