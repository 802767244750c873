"""Adapting the model of an index to its documents: pairs, proof, and what is replaced."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Index, adapt, adapting
from bertsmith.search.build import BuildSettings, add_documents
from bertsmith.search.pairs import Pair, pairs_of
from bertsmith.search.store import StoredPassage
from tasks.models import Maker

BODY = "The keeper writes a letter every Sunday. Ants find the way home at night. Prices rose."


def stored(number: int, text: str, **more: Any) -> StoredPassage:
    values = {"file": "a.md", "title": "", "heading": "", "start": 0, **more}
    end = values["start"] + len(text)
    return StoredPassage(
        number, values["file"], "markdown", 0, "", values["title"], values["heading"], 1, "line",
        values["start"], end, text,
    )  # fmt: skip


def of_kind(pairs: list[Pair], kind: str) -> Pair:
    [pair] = [one for one in pairs if one.kind == kind]
    return pair


def test_titles_and_headings_leave_the_text() -> None:
    title, heading = "The life of a lighthouse keeper", "Sundays and letters"
    first = stored(1, f"# {title}\n\n## {heading}\n\n{BODY}", title=title,
                   heading=f"{title} > {heading}")  # fmt: skip
    [pairs] = pairs_of([[first]])
    for kind, query in (("title", title), ("heading", heading)):
        pair = of_kind(pairs, kind)
        assert pair.query == query
        assert query not in pair.text
        assert pair.passages == {1}
    repeated = stored(2, f"{title} . {BODY}", title=title)  # as in Cranfield
    [[pair, *_]] = pairs_of([[repeated]])
    assert pair.kind == "title"
    assert pair.text.startswith("The keeper writes")


def test_sentences_and_items_are_taken_out() -> None:
    items = "\n".join(f"- item number {n} of a long list" for n in range(4))
    [pairs] = pairs_of([[stored(1, f"{BODY} {BODY}\n\n" + items)]])
    for kind in ("item", "sentence"):
        pair = of_kind(pairs, kind)
        assert pair.query in BODY + items
        assert pair.query not in pair.text
        assert len(pair.text) >= 80


def test_neighbours_share_nothing() -> None:
    first = "One sentence about the old town. Another one about the river bank. Shared words here."
    second = stored(2, "Shared words here. " + BODY, start=first.index("Shared"))
    [pairs] = pairs_of([[stored(1, first), second]])
    pair = of_kind(pairs, "neighbour")
    assert pair.query in first
    assert "Shared" not in pair.query
    assert pair.text == second.text


def test_links_lead_to_documents() -> None:
    text = "See [the habits of lighthouse keepers](sub/keepers.md#top) and [elsewhere](x.md)."
    pages = [[stored(1, text)], [stored(2, BODY, file="sub/keepers.md")]]
    pairs, _ = pairs_of(pages)
    pair = of_kind(pairs, "link")
    assert (pair.query, pair.text) == ("the habits of lighthouse keepers", BODY)
    assert pair.passages == {1, 2}
    wiki, _ = pairs_of([[stored(1, "As [[lighthouse keepers|they]] say.")],
                        [stored(2, BODY, file="Lighthouse Keepers.md")]])  # fmt: skip
    assert of_kind(wiki, "link").query == "lighthouse keepers"


# ------------------------------------------------------------------ adapting

ABOVE = ["letter", "garden", "question", "bakery", "violin", "storm"]
ABOVE += ["repairs", "morning", "record", "river", "dog", "ants"]
BELOW = ["Sunday", "Sweden", "Boston", "mayor", "roof", "light"]
BELOW += ["March", "Prague", "Warsaw", "spaniel", "cats", "home"]


def documents(count: int, known: bool) -> list[dict[str, str]]:
    """Words of titles stand for words of texts; or for none."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(count):
        chosen = random.permutation(len(ABOVE))[:3]
        other = chosen if known else random.permutation(len(ABOVE))[:3]
        title = " ".join(["every", *(ABOVE[place] for place in chosen)])
        text = ", ".join(BELOW[place] for place in [*other] * 5)
        rows.append({"id": str(number), "title": title, "text": text})
    return rows


def made_index(path: Path, made: Maker, *, known: bool, count: int = 400) -> Path:
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = made("bert", "Model", **off).folder
    add_documents(path, documents(count, known), BuildSettings(model=model))
    return path


def test_a_gain_is_proved_and_the_index_replaced(tmp_path: Path, made: Maker) -> None:
    path, out = made_index(tmp_path / "i", made, known=True), tmp_path / "adapted"
    said: list[str] = []
    with Index.open(path) as index:
        before = index.about["model"]["name"]
    # So many minutes allow all pairs, however busy the machine is.
    result = adapt(path, out, minutes=100, replace=True, say=said.append)
    assert result.gained
    assert result.replaced
    [proof] = result.proofs
    assert proof.of == "held-out pairs"
    assert proof.comparisons[0]["low"] > 0
    assert proof.scores["new hybrid"]["ndcg@10"] > proof.scores["old hybrid"]["ndcg@10"]
    assert set(result.pairs) == {"title"}
    assert any("pairs" in line for line in said)
    with Index.open(path) as index:
        assert index.about["model"]["name"] == str(out) != before
        assert len(index) == 400
        assert index.search("every letter garden river", mode="vectors")
        index.check()
    with pytest.raises(BertsmithError, match="adapted"):  # it is not overwritten
        adapt(path, out)


def test_a_map_is_learned_from_some_owners_and_checked_on_others() -> None:
    random = np.random.default_rng(0)
    # Half of the dimensions say what a query and its text are about, the others are noise.
    shared, noise = random.normal(size=(600, 8)), random.normal(size=(2, 600, 8))
    queries, texts = (np.concatenate([shared, 2 * own], axis=1).astype(np.float32) for own in noise)
    owners = np.repeat(np.arange(200), 3)
    weight = adapting.learned_map(queries, texts, owners).numpy()

    def found(weight: Any) -> float:
        near, far = queries @ weight.T, texts @ weight.T
        far /= np.linalg.norm(far, axis=1, keepdims=True)
        return float(((near @ far.T).argmax(1) == np.arange(600)).mean())

    assert found(weight) > found(np.eye(16)) + 0.2
    others = random.normal(size=texts.shape).astype(np.float32)
    unrelated = adapting.learned_map(others, texts, owners).numpy()
    assert np.abs(unrelated - np.eye(16)).max() < 0.05  # nothing is learned that others gain by


@pytest.mark.slow
def test_without_a_gain_nothing_is_replaced(tmp_path: Path, made: Maker) -> None:
    path, out = made_index(tmp_path / "i", made, known=False), tmp_path / "adapted"
    files = {one: one.stat().st_mtime_ns for one in path.rglob("*") if one.is_file()}
    queries = {str(n): f"every {ABOVE[n % 12]} {ABOVE[n // 12]}" for n in range(24)}
    grades = {name: {name: 1} for name in queries}
    result = adapt(path, out, minutes=0.1, replace=True, queries=queries, judgements=grades)
    assert not result.gained
    assert [proof.of for proof in result.proofs] == ["held-out pairs", "judged queries"]
    assert (result.out, result.replaced, out.exists()) == (None, False, False)
    assert result.to_dict()["gained"] is False
    now = {one: one.stat().st_mtime_ns for one in path.rglob("*") if one.is_file()}
    assert {one.name for one in now} - {one.name for one in files} <= {
        ".lock",
        "index.db-shm",
        "index.db-wal",
    }
    assert all(now[one] == time for one, time in files.items() if one.suffix == ".npy")


def test_mistakes(tmp_path: Path, made: Maker) -> None:
    small = made_index(tmp_path / "small", made, known=True, count=20)
    with pytest.raises(BertsmithError, match="too few documents to adapt to: 20"):
        adapt(small, tmp_path / "out")
    with pytest.raises(BertsmithError, match="queries and judgements go together"):
        adapt(small, tmp_path / "out", queries={"q": "a"})
    with pytest.raises(BertsmithError, match="minutes is 0, not a number"):
        adapt(small, tmp_path / "out", minutes=0)
    add_documents(tmp_path / "k", ["a text"], BuildSettings(keywords_only=True))
    with pytest.raises(BertsmithError, match="there is no model to adapt"):
        adapt(tmp_path / "k", tmp_path / "out")
