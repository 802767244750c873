"""Prompts of queries and documents: the model's, or given by hand, stored in the index."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from bertsmith import Bert
from bertsmith.checkpoint import Sentence
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.search import Index
from bertsmith.search.build import BuildSettings, add_documents, update_folders
from tasks.models import Maker

CLOSE = 1e-5
QUERY, TEXTS = "where is the river", ["the old stone", "a river of the morning"]


def saved(made: Maker, folder: Path, **prompts: str) -> Path:
    """A model directory in the layout of E5's: mean pooling, normalised, prompts named."""
    source = made("bert", "Model").ours
    sentence = Sentence(normalise=True, more={"prompts": prompts} if prompts else {})
    Bert(source.checkpoint, source.tokenizer, sentence=sentence).save(folder)
    return folder


def vectors(index: Index) -> Any:
    return np.concatenate([matrix for _, matrix in index.portions()])


def apart(first: Any, second: Any) -> float:
    return float(np.abs(first - second).max())


@pytest.mark.parametrize("side", ["document", "passage"])
def test_the_models_prompts(made: Maker, tmp_path: Path, side: str) -> None:
    model = saved(made, tmp_path / "model", **{"query": "query: ", side: "passage: "})
    index = Index.create(tmp_path / "index", model=model)
    index.add(TEXTS)
    theirs = SentenceTransformer(str(model), device="cpu")
    assert apart(index.embed(QUERY), theirs.encode_query(QUERY)) <= CLOSE
    assert apart(index.embed(QUERY), theirs.encode(QUERY)) > CLOSE
    want = theirs.encode(TEXTS, prompt_name=side)
    assert apart(vectors(index), want) <= CLOSE
    again = Index.open(tmp_path / "index")
    stamp = again.about["model"]
    assert (stamp["query_prompt"], stamp["document_prompt"]) == ("query: ", "passage: ")
    hit = again.search(QUERY, top=1, mode="vectors")[0]
    cosines = theirs.encode_query(QUERY) @ want.T
    assert (hit.text, hit.score) == (
        TEXTS[cosines.argmax()],
        pytest.approx(cosines.max(), abs=CLOSE),
    )


def test_prompts_by_hand(made: Maker, tmp_path: Path) -> None:
    model = saved(made, tmp_path / "model")
    root = tmp_path / "index"
    index = Index.create(root, model=model, query_prompt="query: ", document_prompt="passage: ")
    index.add(TEXTS)
    theirs = SentenceTransformer(str(model), device="cpu")
    assert apart(index.embed(QUERY), theirs.encode("query: " + QUERY)) <= CLOSE
    assert apart(vectors(index), theirs.encode(["passage: " + text for text in TEXTS])) <= CLOSE
    with pytest.raises(BertsmithError, match="document_prompt='passage: '; use re_embed") as other:
        add_documents(root, [], BuildSettings(document_prompt="text: "))
    assert "--document-prompt 'passage: '; use --re-embed" in other.value.for_command_line()
    add_documents(root, ["more"], BuildSettings(query_prompt="ask: "))  # needs no new vectors
    index = Index.open(root)
    assert apart(index.embed(QUERY), theirs.encode("ask: " + QUERY)) <= CLOSE
    update_folders(root, [tmp_path / "model" / "README.md"], BuildSettings(), re_embed=True)
    assert Index.open(root).about["model"]["query_prompt"] == "ask: "


def test_an_index_of_an_earlier_version_has_no_prompts(made: Maker, tmp_path: Path) -> None:
    """Its passages were embedded without the prompt, and so are its queries."""
    model = saved(made, tmp_path / "model", query="query: ", document="passage: ")
    index = Index.create(tmp_path / "index", model=model)
    database = index._store.folder / "index.db"
    index.close()

    with sqlite3.connect(database) as connection:
        (text,) = connection.execute("SELECT value FROM meta WHERE key = 'model'").fetchone()
        old = {key: one for key, one in json.loads(text).items() if not key.endswith("_prompt")}
        connection.execute("UPDATE meta SET value = ? WHERE key = 'model'", (json.dumps(old),))
        connection.execute("DELETE FROM meta WHERE key = 'sum'")  # it had none
    connection.close()
    index = Index.open(tmp_path / "index")
    index.add(TEXTS)
    theirs = SentenceTransformer(str(model), device="cpu")
    assert apart(index.embed(QUERY), theirs.encode(QUERY)) <= CLOSE
    assert apart(vectors(index), theirs.encode(TEXTS)) <= CLOSE


def test_long_passages_are_counted(made: Maker, tmp_path: Path) -> None:
    """The person learns that they take several passes, and how to avoid it."""
    model = saved(made, tmp_path / "model")
    (tmp_path / "long.txt").write_text("the river " * 100)
    ledger = Ledger()
    update_folders(tmp_path / "i", [tmp_path / "long.txt"], BuildSettings(model=model), ledger)
    assert ledger.lines() == [
        "passages of more than 128 tokens, read in several windows (`long` set to cut reads only"
        " their beginning, which is faster): 1"
    ]
    ledger = Ledger()
    settings = BuildSettings(model=model, long="cut")
    update_folders(tmp_path / "cut", [tmp_path / "long.txt"], settings, ledger)
    assert ledger.lines() == []


def test_the_model_of_the_index_reranks(made: Maker, tmp_path: Path) -> None:
    model = saved(made, tmp_path / "model")
    index = Index.create(tmp_path / "index", model=model)
    index.add(TEXTS)
    hits = index.search("river", rerank="index")
    assert hits == index.search("river", rerank=str(model)) == index.search("river", rerank=model)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 2
    with pytest.raises(BertsmithError, match="no such directory"):
        index.search("river", rerank=tmp_path / "nowhere")
    with pytest.raises(BertsmithError, match="expected a model directory"):
        index.search("river", rerank=5)
    add_documents(tmp_path / "plain", TEXTS, BuildSettings(keywords_only=True))
    with pytest.raises(BertsmithError, match="built without a model"):
        Index.open(tmp_path / "plain").search("river", rerank="index")


def test_vectors_that_are_cut(tmp_path: Path, made: Maker) -> None:
    """--width keeps the first elements; queries are cut as well, also after reopening."""
    model = made("bert", "Model").folder
    with Index.create(tmp_path / "i", model=model, width=8) as index:
        index.add(["the river flows through Prague", "a letter to his daughter"])
        assert (index.about["model"]["dimension"], index.about["model"]["width"]) == (8, 8)
    with Index.open(tmp_path / "i") as index:
        [best, _] = index.search("the river flows through Prague", mode="vectors")
        assert best.text == "the river flows through Prague"
        assert best.score == pytest.approx(1, abs=1e-5)
        [(_, vectors)] = index.portions()
        assert vectors.shape == (2, 8)
    with pytest.raises(BertsmithError, match="embedded with width=8"):
        add_documents(tmp_path / "i", ["more"], BuildSettings(width=16))
    with pytest.raises(BertsmithError, match="width must be from 1 to 32"):
        Index.create(tmp_path / "j", model=model, width=100).add(["a text"])
