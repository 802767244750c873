"""Static vectors: what they are made of, and that everyone opens them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sentence_transformers import SentenceTransformer

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.distilling import to_static
from bertsmith.distilling.static import (
    principal_components,
    smooth_inverse_frequency,
    token_frequencies,
    token_vectors,
)
from finetuning.conftest import FAST, Write, labelled
from tasks.models import Maker

TEXTS = ["The river Vltava flows.", "", "bees 你好 storm", "Anna lives in Prague. " * 300]
FAMILIES = ["bert", "roberta", "modernbert", "albert", "deberta-v2"]


def static(made: Maker, family: str = "bert", width: int = 8) -> bs.Bert:
    """Static vectors of a tiny encoder."""
    return bs.Bert.of(to_static(bs.load(made(family, "Model").folder), width=width)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_sentence_transformers_opens_them(family: str, made: Maker, tmp_path: Path) -> None:
    vectors = static(made, family)
    vectors.save(tmp_path / "static")
    again = bs.load(tmp_path / "static")
    theirs = SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert_allclose(again.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    assert_allclose(again.embed(TEXTS), vectors.embed(TEXTS), atol=1e-6)
    assert (again.embed("") == 0).all()


def test_a_text_is_the_mean_of_its_tokens(made: Maker) -> None:
    vectors = static(made)
    table = vectors.model.encoder.embedding.token.weight.detach().numpy()
    ids = vectors.tokenizer.encode_ids([TEXTS[0]])[0]
    mean = table[ids].mean(0)
    assert_allclose(vectors.embed(TEXTS[0], normalise=False), mean, rtol=1e-5, atol=1e-8)
    assert_allclose(vectors.embed(TEXTS[0]), mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-7)
    assert (table[sorted(vectors.tokenizer.special_ids)] == 0).all()


def test_the_parts(made: Maker) -> None:
    teacher = bs.load(made("bert", "Model").folder)
    vectors = token_vectors(teacher)
    alone = teacher.embed([teacher.tokenizer.token(7)])  # a token that is a word of its own
    assert vectors.shape == (teacher.tokenizer.size, teacher.checkpoint.config.width)
    if teacher.tokenizer.encode_ids([teacher.tokenizer.token(7)]) == [[7]]:
        assert_allclose(vectors[7], alone[0], atol=1e-5)
    reduced = principal_components(vectors, 5)
    assert_allclose(reduced.directions.T @ reduced.directions, np.eye(5), atol=1e-9)
    assert 0 < reduced.explained <= 1
    full = principal_components(vectors, vectors.shape[1])
    near = full(vectors)
    assert_allclose(near @ near.T, (vectors - full.centre) @ (vectors - full.centre).T, atol=1e-3)
    counts = token_frequencies(teacher, ["bees bees storm"])
    weights = smooth_inverse_frequency(np.arange(len(counts)), counts, 1e-4)
    assert weights.argmin() == counts.argmax()
    zipf = smooth_inverse_frequency(np.arange(1000), None, 1e-4)
    assert (np.diff(zipf) > 0).all()
    assert 0 < zipf[0] < zipf[-1] < 1


def test_the_verb_in_python(made: Maker, tmp_path: Path) -> None:
    out = tmp_path / "static"
    result = bs.distill(made("bert", "Model").folder, out=out, to="static", width=6)
    content = json.loads((out / "distill.json").read_text())
    assert content == result.to_dict()
    assert content["student"]["layers"] == 0
    assert content["student"]["width"] == 6
    assert content["student"]["parameters"] < content["teacher"]["parameters"]
    assert content["speed"][0]["ratio"] > 0
    assert "StaticEmbedding" in (out / "modules.json").read_text()
    assert "transformers opens" not in (out / "README.md").read_text()
    assert result.model.embed(["a"]).shape == (1, 6)
    again = bs.distill(made("bert", "Model").folder, out=out, to="static", width=6, overwrite=True)
    assert torch.equal(
        again.student.model.encoder.embedding.token.weight,
        result.student.model.encoder.embedding.token.weight,
    )


def test_documents_are_searched_with_them(made: Maker, tmp_path: Path) -> None:
    static(made, width=16).save(tmp_path / "static")
    texts = ["The river Vltava flows.", "bees storm", "Anna lives in Prague."]
    with bs.Index.create(tmp_path / "index", model=tmp_path / "static") as index:
        index.add(texts)
        for text in texts:
            assert index.search(text, top=1, mode="vectors")[0].text == text


def test_they_can_be_fine_tuned(made: Maker, write: Write, tmp_path: Path) -> None:
    static(made, width=16).save(tmp_path / "static")
    file = write("train.jsonl", labelled())
    settings = {**FAST, "learning_rate": 0.05}
    bs.finetune(tmp_path / "static", file, tmp_path / "model", dev=file, **settings)
    model = bs.load(tmp_path / "model")
    assert model.classify("the old river flows Prague number 3").label == "city"
    assert bs.evaluate(model, file).scores["accuracy"] == 1.0
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    assert_allclose(model.embed(TEXTS), vectors, atol=1e-5)


def test_what_cannot_be(made: Maker, tmp_path: Path) -> None:
    teacher = made("bert", "Model")
    for width in (100_000, 0, "x", 4.5, True, None):
        with pytest.raises(BertsmithError, match=r"width is .*, not a whole number from 1 to 32"):
            bs.distill(teacher.folder, to="static", width=width)
    with pytest.raises(BertsmithError, match="smoothing"):
        bs.distill(teacher.folder, to="static", width=4, smoothing=0.0)
    static(made).save(tmp_path / "static")
    with pytest.raises(BertsmithError, match="static vectors already"):
        bs.distill(tmp_path / "static", to="static", width=4)
    vectors = bs.load(tmp_path / "static")
    for use in (lambda: vectors.fill_mask("[MASK]"), lambda: vectors.attention("a b")):
        with pytest.raises(BertsmithError):
            use()
    with pytest.raises(BertsmithError, match="static has no head"):
        bs.load(tmp_path / "static", heads=["answer"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(BertsmithError, match="not empty"):
        bs.distill(teacher.folder, out=tmp_path / "full", to="static")
