"""The ONNX graph: padded batches equal ragged ones, for all families; onnxruntime agrees."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import Bert, create
from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, Sentence
from bertsmith.checkpoint.dense import Dense
from bertsmith.checkpoint.onnx import PaddedModel, check_onnx, export_model, export_onnx
from bertsmith.errors import BertsmithError
from bertsmith.model.pooling import POOLS
from tasks.words import tokenizer

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 48, "vocab_size": 60, "initializer_range": 0.2}
ALL = ("masked_lm", "classify", "tag", "answer")
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "bert": ("bert-tiny", (*ALL, "next_sentence", "choose"), {}),
    "roberta": ("roberta-base", ALL, {}),
    "albert": ("albert-base-v2", (*ALL, "sentence_order"), {"embedding_size": 16}),
    "distilbert": ("distilbert-base-uncased", ALL, {"dim": 32, "n_heads": 4, "hidden_dim": 48}),
    "electra": ("electra-small", ("replaced", "tag"), {"embedding_size": 16}),
    "deberta": ("deberta-base", ("masked_lm", "tag"), {}),
    "deberta-v2": ("deberta-v2-xlarge", ("masked_lm", "classify"), {}),
    "deberta-v3": ("deberta-v3-small", ("masked_lm", "tag", "answer"), {}),
    "modernbert": ("modernbert-base", ("masked_lm", "classify", "tag"), {"local_attention": 8}),
    "mpnet": ("mpnet-base", ("masked_lm", "classify", "tag"), {}),
    "nomic_bert": ("nomic-bert-2048", ("masked_lm", "classify"), {}),
}


def model(name: str) -> Checkpoint:
    preset, heads, settings = CASES[name]
    return create(preset, heads=heads, **{**SMALL, **settings})


@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("name", CASES)
def test_padded_batches_equal_ragged_ones(name: str, pool: str) -> None:
    checkpoint = model(name)
    rows = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], [5], [20, 30]]
    segments = checkpoint.config.segments > 1
    batch = Batch.of(rows, [[n % 2 * segments for n in range(len(row))] for row in rows])
    ids, mask = torch.zeros(3, 13, dtype=torch.long), torch.zeros(3, 13, dtype=torch.long)
    types = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = torch.tensor(row), 1
        types[number, : len(row)] = torch.arange(len(row)) % 2 * segments
    with torch.no_grad():
        hidden = checkpoint.model.encoder(batch)
        expected = [hidden.last, POOLS[pool](hidden.last, batch.layout, None)]
        expected[1] = torch.nn.functional.normalize(expected[1], dim=-1)
        expected += [head(hidden, batch) for head in checkpoint.model.heads.values()]
        padded = PaddedModel(checkpoint.model, Sentence(pool, True))
        outputs = padded(ids, mask, types)
    for ours, theirs in zip(outputs, expected, strict=True):
        flat = torch.cat([ours[n, : len(row)] for n, row in enumerate(rows)])
        same = flat if len(theirs) == len(batch.ids) else ours
        assert torch.allclose(same.reshape(theirs.shape), theirs, atol=1e-5)


def test_an_exported_model(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    words = tokenizer("bert")
    checkpoint = create("bert-tiny", heads=("classify",), vocab_size=words.size)
    dense = Dense(torch.linspace(-1, 1, 640).view(5, 128), torch.ones(5))
    bert = Bert(checkpoint, words, sentence=Sentence("mean", True, dense=(dense,)))
    out = tmp_path / "onnx"
    done = export_model(out, checkpoint, words, bert.sentence, longest=512)
    assert done["lengths"] == [1, 2, 512]
    assert max(done["differences"].values()) < 1e-4
    assert json.loads((out / "config.json").read_text())["model_type"] == "bert"
    session = onnxruntime.InferenceSession(out / "model.onnx")
    shapes = {one.name: one.shape for one in session.get_outputs()}
    assert shapes["last_hidden_state"] == ["batch", "length", 128]
    assert [*map(type, shapes["classify"])] == [str, int]
    texts = ["The river flows.", "bees " * 30, "a"]
    encoded = words.encode_many(texts)
    longest = max(map(len, encoded))
    feeds = {name: np.zeros((3, longest), np.int64) for name in done["inputs"]}
    for number, one in enumerate(encoded):
        feeds["input_ids"][number, : len(one)] = one.ids
        feeds["attention_mask"][number, : len(one)] = 1
    vectors = session.run(["sentence_embedding"], feeds)[0]
    assert np.abs(vectors - bert.embed(texts)).max() < 1e-4
    with pytest.raises(BertsmithError, match="not empty"):
        export_model(out, checkpoint, words, bert.sentence, longest=8)
    torch.nn.init.normal_(checkpoint.model.encoder.embedding.token.weight)
    with pytest.raises(BertsmithError, match="differs from torch"):
        check_onnx(checkpoint, bert.sentence, out / "model.onnx", 8)


QUICK = ("bert", "modernbert")  # heads that read the first token, and those that read the mean


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES],
)
def test_every_family_is_exported(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    differences = export_onnx(model(name), Sentence("mean", True), tmp_path / "model.onnx", 512)
    assert max(differences.values()) < 1e-4
