"""A corpus, a task and a spec of seconds."""

import pydoc_data.topics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.compare.spec import Spec, checked_spec
from bertsmith.corpus import prepare
from bertsmith.tokenizer import train

SETTINGS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a task."""
    folder = tmp_path_factory.mktemp("material")
    text = folder / "topics.txt"
    topics = list(pydoc_data.topics.topics.values())[:12]
    text.write_text("\n\n".join("\n".join(filter(str.strip, t.splitlines())) for t in topics))
    train([text], "wordpiece", size=400).save(folder / "tokenizer")
    prepare([text], folder / "tokenizer", folder / "corpus", held_out=0.2, workers=1, progress=None)
    words = ["list", "class", "file", "name", "value", "module", "object", "string"]
    rows = [
        f"the {word} {number} is {kind},{label}"
        for number in range(4)
        for word in words
        for kind, label in (("empty", "bad"), ("right", "good"))
    ]
    (folder / "task.csv").write_text("\n".join(["text,label", *rows]))
    return folder


@pytest.fixture
def make_spec(material: Path) -> Callable[..., Spec]:
    """A spec of two variants; keys given replace its own."""

    def make(**changes: Any) -> Spec:
        values: dict[str, Any] = {
            "corpus": str(material / "corpus"),
            "seeds": 2,
            "draws": 30,
            "budget": {"tokens": 1100},
            "settings": {
                "model": {"settings": SETTINGS},
                "data": {"length": 16, "workers": 1},
                "train": {"batch_tokens": 128, "micro_tokens": 128},
                "evaluate": {"tokens": 128, "pseudo": 0},
            },
            "variants": {
                "pairs": {"recipe": "tiny-bert"},
                "masked": {"recipe": "tiny-bert-no-nsp"},
            },
            "tasks": {"words": {"data": str(material / "task.csv")}},
            "finetune": {
                "seeds": 1,
                "learning_rates": [1e-3, 1e-2],
                "settings": {"epochs": 1, "batch_size": 32},
            },
        }
        return checked_spec({**values, **changes}, "test")

    return make
