"""In half precision on a CPU batches are filled up, also for models of few positions."""

from pathlib import Path

import numpy as np

from bertsmith import create, load
from bertsmith.checkpoint import Sentence, save
from tasks.words import tokenizer


def test_fillers_fit_the_position_table(tmp_path: Path) -> None:
    words = tokenizer("bert")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model = create("bert-tiny", vocab_size=words.size, max_position_embeddings=16, **small)
    save(tmp_path, model, words, Sentence())
    vectors = [
        load(tmp_path, device="cpu", dtype=dtype).embed(["a text", "another", "a third text"])
        for dtype in ("float32", "bfloat16")
    ]
    assert np.allclose(vectors[0], vectors[1], atol=0.1)
