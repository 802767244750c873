"""bertsmith-embed: vectors that depend on the order of words, equal to those of other libraries."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertsmith.bert import Bert, load
from bertsmith.checkpoint import locate
from bertsmith.cli.app import app
from bertsmith.errors import BertsmithError
from bertsmith.search import Index
from bertsmith.tasks.embedding import Vectors

NAME = "bertsmith-embed"
TEXTS = [
    "A doctor treated the patient in the hospital.",
    "The physician cared for a sick man at the clinic.",
    "The train to the coast leaves at noon.",
    "Measles, measles, measles: measles vaccination protects infants.",
]


@pytest.fixture(scope="module")
def bert() -> Bert:
    return load(NAME, device="cpu")


def cosine(bert: Bert, one: str, two: str) -> float:
    first, second = bert.embed([one, two])
    return float(first @ second)


def test_vectors_have_length_one(bert: Bert) -> None:
    vectors = bert.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 320)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert not bert.checkpoint.report.lines()


def test_vectors_are_those_of_transformers(bert: Bert) -> None:
    from transformers import AutoModel, AutoTokenizer

    theirs = AutoModel.from_pretrained(locate(NAME)).eval()
    assert theirs.dtype == torch.float32  # stored in float16, computed in float32
    split = AutoTokenizer.from_pretrained(locate(NAME))
    expected: list[Vectors] = []
    with torch.no_grad():
        for text in TEXTS:
            mean = theirs(**split(text, return_tensors="pt")).last_hidden_state[0].mean(0)
            expected.append((mean / mean.norm()).numpy())
    assert bert.embed(TEXTS) == pytest.approx(np.stack(expected), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_vectors_are_those_of_sentence_transformers(bert: Bert, dtype: torch.dtype) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(locate(NAME)), device="cpu", model_kwargs={"dtype": dtype})
    tolerance = 1e-5 if dtype == torch.float32 else 1e-3
    assert bert.embed(TEXTS) == pytest.approx(theirs.encode(TEXTS), abs=tolerance)


def test_a_paraphrase_is_nearer_than_another_sentence(bert: Bert) -> None:
    near, far = (cosine(bert, TEXTS[0], other) for other in TEXTS[1:3])
    assert near > far + 0.2


def test_order_and_negation_change_a_vector(bert: Bert) -> None:
    assert cosine(bert, "dog bites man", "man bites dog") < 0.99
    bought = "He bought a car."
    assert cosine(bert, bought, "He did not buy a car.") < cosine(
        bert, bought, "He purchased a car."
    )


def test_the_first_numbers_of_a_vector_are_a_vector(bert: Bert) -> None:
    doctor, physician, train, _ = bert.embed(TEXTS, width=64)
    assert doctor.shape == (64,)
    assert doctor @ physician > doctor @ train + 0.2


def test_it_fills_no_masks(bert: Bert) -> None:
    with pytest.raises(BertsmithError, match="cannot fill masks"):
        bert.fill_mask("A [MASK].")


def test_it_is_the_default_of_an_index(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index") as index:
        assert index.about["model"]["name"] == NAME
        assert index.weights == (1.0, 0.7)
        index.add(TEXTS)
        hits = index.search("a physician", top=2, mode="vectors")
    assert {hit.text for hit in hits} == set(TEXTS[:2])


def test_an_index_keeps_the_model_it_was_built_with(tmp_path: Path) -> None:
    """Indexes from before bertsmith-embed was the default: they open, search and are updated."""
    with Index.create(tmp_path / "index", model="bertsmith-small") as index:
        index.add(TEXTS[:2])
    with Index.open(tmp_path / "index") as index:
        index.add(TEXTS[2:])
        assert index.about["model"]["name"] == "bertsmith-small"
        assert index.about["model"]["dimension"] == 320
        assert index.weights == (1.0, 0.2)
        assert index.search("the train to the coast", top=1)[0].text == TEXTS[2]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one.txt").write_text("Ladybirds eat aphids.")
    words = ["index", str(tmp_path / "notes"), "--out", str(tmp_path / "index")]
    assert CliRunner().invoke(app, words).exit_code == 0
    with Index.open(tmp_path / "index") as index:
        assert index.about["model"]["name"] == "bertsmith-small"
        assert index.search("ladybirds", top=1)[0].text == "Ladybirds eat aphids."


def test_other_models_have_equal_weights(tmp_path: Path, bert: Bert) -> None:
    bert.save(tmp_path / "copy")
    with Index.create(tmp_path / "index", model=tmp_path / "copy") as index:
        assert index.weights == (1.0, 1.0)
