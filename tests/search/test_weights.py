"""Weights of hybrid search, learned from judged queries."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Index, learn_weights
from bertsmith.search.build import BuildSettings, add_documents, update_folders
from search.conftest import HashedWords

NUMBERS = range(30)


class Sevens(HashedWords):
    """Vectors that know what keywords do not: `word7` is near to `7`."""

    def embed(self, texts):  # type: ignore[no-untyped-def]
        return super().embed([text.replace("word", "") for text in texts])


def sevens(path: Path) -> Index:
    encoder = Sevens()
    rows = [{"id": f"d{n}", "text": f"item {n} " + "common words " * (n % 3)} for n in NUMBERS]
    add_documents(path, rows, BuildSettings(encoder=encoder))
    return Index(path, model=encoder)


def test_better_weights_are_stored(tmp_path: Path) -> None:
    index = sevens(tmp_path / "i")
    queries = {f"q{n}": f"common words word{n}" for n in NUMBERS}
    judgements = {f"q{n}": {f"d{n}": 1} for n in NUMBERS}
    result = learn_weights(index, queries, judgements, draws=100)
    assert result.gained
    assert result.former == (1.0, 1.0)
    assert result.weights[0] < result.weights[1]
    assert result.ndcg == pytest.approx(result.former_ndcg + result.difference)
    assert index.weights == result.weights == Index(index.path, model=Sevens()).weights
    again = learn_weights(index, queries, judgements, draws=100)
    assert not again.gained
    assert index.weights == result.weights
    assert again.to_dict()["stored"] is False
    index.check()


def test_weights_are_those_of_one_model(tmp_path: Path, folder: Path) -> None:
    update_folders(tmp_path / "i", [folder], BuildSettings(encoder=HashedWords()))
    Index(tmp_path / "i", model=HashedWords()).keep_weights((1.0, 0.3))
    assert Index(tmp_path / "i", model=HashedWords()).weights == (1.0, 0.3)
    other = HashedWords("another")
    update_folders(tmp_path / "i", [], BuildSettings(encoder=other), re_embed=True)
    assert Index(tmp_path / "i", model=other).weights == (1.0, 1.0)


def test_weights_need_queries_and_vectors(tmp_path: Path) -> None:
    index = sevens(tmp_path / "i")
    with pytest.raises(BertsmithError, match="20 judged queries or more; there are 1"):
        learn_weights(index, {"q": "item"}, {"q": {"d1": 1}})
    add_documents(tmp_path / "k", ["a text"], BuildSettings(keywords_only=True))
    with pytest.raises(BertsmithError, match="no vectors"):
        Index(tmp_path / "k").keep_weights((1.0, 0.5))
