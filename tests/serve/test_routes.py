"""Answers of all routes equal those of `bs.load`, and say what was read."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import bertsmith as bs
from bertsmith import Bert
from bertsmith.errors import BertsmithError
from bertsmith.search.rerank import Reranker
from bertsmith.tasks.classifying import relevance
from serve.live import serving, tiny

TEXTS = ["The river flows.", "Anna lives in Kraków 😀", "bees " * 90]
FIRSTS = ["Who?", "", "A storm."]


def post(http: httpx.Client, path: str, **body: Any) -> Any:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def close(one: Any, other: Any) -> None:
    """Equal but for the last digits of floats."""
    if isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in other:
            close(one[key], other[key])
    elif isinstance(other, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            close(left, right)
    elif isinstance(other, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other


def test_own_routes(http: httpx.Client, bert: Bert) -> None:
    masked = "The [MASK] flows to the [MASK]."
    guesses = [guess.to_dict() for guess in bert.fill_mask(masked, top=3)]
    close(post(http, "/fill-mask", inputs=masked, top=3)["results"], [guesses])
    labels = [one.to_dict() for one in bert.classify(TEXTS)]
    close(post(http, "/classify", inputs=TEXTS)["results"], labels)
    pairs = [one.to_dict() for one in bert.classify(FIRSTS, TEXTS)]
    close(post(http, "/classify", inputs=FIRSTS, pairs=TEXTS)["results"], pairs)
    entities = [[one.to_dict() for one in row] for row in bert.tag(TEXTS)]
    close(post(http, "/tag", inputs=TEXTS)["results"], entities)
    words = [[one.to_dict() for one in row] for row in bert.tag(TEXTS, words=True)]
    close(post(http, "/tag", inputs=TEXTS, words=True)["results"], words)
    answers = [one.to_dict() for one in bert.answer("Who?", TEXTS[2], top=3)]
    close(post(http, "/answer", question="Who?", passage=TEXTS[2], top=3)["results"], answers)
    best = bert.choose(TEXTS[2], ["a storm", "bees"]).to_dict()
    close(post(http, "/choose", prompt=TEXTS[2], choices=["a storm", "bees"])["results"], best)
    follows = bert.follows(FIRSTS, TEXTS)
    close(post(http, "/follows", first=FIRSTS, second=TEXTS)["results"], follows)
    states = bert.states("The river", depth=1)
    answer = post(http, "/states", inputs="The river", depths=[1])["results"][0]
    close(answer["vectors"][0], states.vectors.tolist())
    long = post(http, "/states", inputs=TEXTS[2], pool="words")["results"][0]  # in windows
    close(long["vectors"][0], bert.states(TEXTS[2], pool="words").vectors.tolist())
    maps = bert.attention("The river").maps()
    close(post(http, "/attention", text="The river")["weights"], maps.round(5).tolist())
    assert "<html" in http.post("/attention", json={"text": "a", "format": "html"}).text


def test_tei_routes(http: httpx.Client, bert: Bert) -> None:
    close(post(http, "/embed", inputs=TEXTS), bert.embed(TEXTS, normalise=True).tolist())
    raw = bert.embed(TEXTS, normalise=False, long="cut").tolist()
    close(post(http, "/embed", inputs=TEXTS, normalize=False, truncate=True), raw)
    left = post(
        http, "/embed", inputs=TEXTS[2] + "river", truncate=True, truncation_direction="left"
    )
    assert left != post(http, "/embed", inputs=TEXTS[2] + "river", truncate=True)
    refused = http.post("/embed", json={"inputs": "a", "dimensions": 8})
    assert "was not trained for 8: no model here can" in refused.json()["error"]
    states = bert.states(TEXTS, special=True)
    close(post(http, "/embed_all", inputs=TEXTS), [one.vectors.tolist() for one in states])
    one = bert.classify("a", "b")
    ranked = post(http, "/predict", inputs=["a", "b"])
    assert [row["label"] for row in ranked] == sorted(
        one.scores, key=lambda name: -one.scores[name]
    )
    close(
        {row["label"]: row["score"] for row in ranked},
        dict(sorted(one.scores.items())) | one.scores,
    )
    batch = post(http, "/predict", inputs=[["a"], ["b", "c"], ["d"]], raw_scores=True)
    assert len(batch) == 3
    assert batch[1] != post(http, "/predict", inputs=[["b"]], raw_scores=True)[0]
    vectors = bert.embed(["a", *TEXTS], normalise=True)
    sentences = {"source_sentence": "a", "sentences": TEXTS}
    close(post(http, "/similarity", inputs=sentences), (vectors[1:] @ vectors[0]).tolist())
    tokens = post(http, "/tokenize", inputs="The river")[0]
    assert [token["special"] for token in tokens] == [True, *[False] * (len(tokens) - 2), True]
    assert "The river"[tokens[1]["start"] : tokens[1]["stop"]] == "The"
    ids = [token["id"] for token in tokens]
    assert post(http, "/decode", ids=ids) == ["the river"]
    close(post(http, "/embed", inputs=ids), bert.embed(["The river"], normalise=True).tolist())
    assert http.get("/info").json()["max_input_length"] == 64


def test_tokens_of_two_texts_are_compared(http: httpx.Client, bert: Bert) -> None:
    answer = post(http, "/similarity", first="The river flows.", second="A river!")
    one, two = bert.states(["The river flows.", "A river!"])
    expected = float(np.dot(*bert.embed(["The river flows.", "A river!"], normalise=True)))
    assert answer["similarity"] == pytest.approx(expected, abs=1e-5)
    assert np.asarray(answer["tokens"]).shape == (len(one.spans), len(two.spans))
    first, second = one.vectors[1], two.vectors[1]
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert answer["tokens"][1][1] == pytest.approx(float(cosine), abs=1e-4)


def test_rerank_in_three_dialects(http: httpx.Client) -> None:
    service = http.app.state.service  # type: ignore[attr-defined]
    reranker = service.models.served["reranker"].bert
    logits = [one.score for one in reranker.classify(["who"] * 3, TEXTS)]
    order = sorted(range(3), key=lambda n: -logits[n])
    ours = post(http, "/rerank", query="who", texts=TEXTS, raw_scores=True, return_text=True)
    assert [row["index"] for row in ours] == order
    close([row["score"] for row in ours], [logits[n] for n in order])
    assert ours[0]["text"] == TEXTS[order[0]]
    theirs = post(http, "/rerank", query="who", documents=TEXTS, top_n=2, return_documents=True)
    assert [row["index"] for row in theirs["results"]] == order[:2]
    sigmoid = 1 / (1 + np.exp(-logits[order[0]]))
    assert theirs["results"][0]["relevance_score"] == pytest.approx(sigmoid, abs=1e-5)
    assert theirs["results"][0]["document"] == {"text": TEXTS[order[0]]}
    scored = post(http, "/score", text_1="who", text_2=TEXTS)["data"]
    assert scored[order[0]]["score"] == pytest.approx(sigmoid, abs=1e-5)
    cosine = post(http, "/rerank", query="a", texts=TEXTS, model="reranker")
    assert len(cosine) == 3
    wrong = http.post("/rerank", json={"query": "a", "texts": TEXTS, "model": "tiny"})
    assert (wrong.status_code, wrong.json()["error_type"]) == (424, "Backend")


def test_a_two_label_classifier_reranks_as_in_search(http: httpx.Client) -> None:
    pairs = tiny(("classify",), seed=3, id2label={"0": "no", "1": "yes"})
    expected = relevance(pairs, ["who"] * 3, TEXTS)
    order = sorted(range(3), key=lambda n: -expected[n])
    with serving({"pairs": pairs}) as alone:
        ranked = post(alone, "/rerank", query="who", texts=TEXTS)
        assert [row["index"] for row in ranked] == order
        close([row["score"] for row in ranked], [expected[n] for n in order])
        raw = post(alone, "/rerank", query="who", texts=TEXTS, raw_scores=True)
        odds = [1 / (1 + np.exp(-row["score"])) for row in raw]
        close(odds, [expected[n] for n in order])
        assert len(post(alone, "/v1/rerank", query="who", documents=TEXTS)["results"]) == 3
        assert "classifier" in alone.get("/info").json()["model_type"]
    with serving({"pairs": pairs, "plain": tiny(())}) as both:  # vectors, unless it is named
        assert post(both, "/v1/rerank", query="who", documents=TEXTS)["model"] == "plain"
        named = post(both, "/v1/rerank", query="who", documents=TEXTS, model="pairs")
        assert [row["index"] for row in named["results"]] == order
    assert Reranker(pairs).scale.startswith("probability of 'yes'")
    with pytest.raises(BertsmithError, match="has 3 labels"):
        relevance(tiny(("classify",)), ["who"], ["a"])


def test_vllm_classify(http: httpx.Client, bert: Bert) -> None:
    data = post(http, "/classify", input=TEXTS)["data"]
    expected = bert.classify(TEXTS)
    assert [row["label"] for row in data] == [one.label for one in expected]
    close([row["probs"] for row in data], [[*one.scores.values()] for one in expected])


def test_answers_say_what_was_read(http: httpx.Client, bert: Bert) -> None:
    long = "bees " * 90 + "end"
    windows = post(http, "/classify", inputs=["a", long], read=True)
    assert windows["read"] == [[[0, 1]], [[0, len(long)]]]
    cut = post(http, "/embed", inputs=["a", long], truncate=True, read=True)
    (start, end), *_ = cut["read"][1]
    assert start == 0
    assert long[:end] == ("bees " * 90)[: len("bees " * 62) - 1][:end]
    assert end < len(long)
    masked = "[MASK] " + "bees " * 300 + "[MASK]"
    spans = post(http, "/fill-mask", inputs=masked, read=True)["read"][0]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(masked)
    assert len(spans) == 2
    body = {"input": long, "model": "tiny", "truncate": True, "read": True}
    assert post(http, "/v1/embeddings", **body)["data"][0]["read"] == cut["read"][1:][0]
    response = http.post("/embed", json={"inputs": ["a b", "c"]})
    count = sum(len(one) for one in bert.tokenizer.encode_many(["a b", "c"]))
    assert response.headers["x-compute-tokens"] == str(count)


def test_dialects_say_what_was_read(http: httpx.Client) -> None:
    long = "bees " * 90 + "end"
    body: dict[str, Any] = {"query": "a", "truncate": True, "read": True}

    def ranked(client: httpx.Client) -> None:
        for answer in (
            post(client, "/rerank", **body, texts=["a", long, "a"]),
            post(client, "/v1/rerank", **body, documents=["a", long, "a"]),
        ):
            assert answer["read"][0] == answer["read"][2] == [[0, 1]]
            assert [0 < end < len(long) for _, end in answer["read"][1]] == [True]

    ranked(http)  # a cross-encoder reads pairs
    with serving({"plain": tiny(())}) as plain:
        ranked(plain)  # other models embed each text once
    scored = post(http, "/score", text_1="a", text_2=["a", long], read=True)
    assert scored["read"] == [[[0, 1]], [[0, len(long)]]]
    assert post(http, "/classify", input=["a", long], read=True)["read"][1] == [[0, len(long)]]
    assert isinstance(post(http, "/rerank", query="a", texts=["a"]), list)


def test_long_texts_can_be_refused(bert: Bert) -> None:
    from bertsmith.serve import ServingSettings

    with serving({"tiny": bert}, ServingSettings(long="refuse")) as http:
        refused = http.post("/embed", json={"inputs": "bees " * 90})
        assert refused.status_code == 422
        assert "tokens, but the model reads" in refused.json()["error"]
        assert http.post("/embed", json={"inputs": "bees " * 90, "truncate": True}).is_success
        assert http.post("/classify", json={"inputs": "bees " * 90, "long": "window"}).is_success


def test_models_are_chosen_by_name(http: httpx.Client) -> None:
    names = [model["id"] for model in http.get("/v1/models").json()["data"]]
    assert names == ["tiny", "reranker"]
    one, other = (post(http, "/embed", inputs="a", model=name) for name in names)
    assert one != other
    missing = http.post("/v1/embeddings", json={"input": "a", "model": "/etc/passwd"})
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert (
        http.post("/fill-mask", json={"inputs": "[MASK]", "model": "reranker"}).status_code == 424
    )


def test_only_what_models_can_do_is_there() -> None:
    with serving({"plain": tiny(())}) as http:
        assert http.post("/fill-mask", json={"inputs": "a"}).status_code == 404
        assert http.post("/predict", json={"inputs": "a"}).status_code == 404
        paths = http.get("/openapi.json").json()["paths"]
        assert "/embed" in paths
        assert "/tag" not in paths
        assert "/search" not in paths


def test_search_in_an_index(bert: Bert, tmp_path: Path) -> None:
    index = bs.Index.create(tmp_path / "index")
    index.add(["The river flows to the sea.", "Bees make honey."])
    with serving({"tiny": bert}, index=index) as http:
        found = post(http, "/search", query="honey", top=3)["results"]
        assert "honey" in found[0]["text"]
        assert http.post("/search", json={"top": 1}).status_code == 422
        with bs.connect(str(http.base_url)) as far:
            assert "river" in far.search("river")[0]["text"]


def test_an_index_that_changes_and_one_that_fails(bert: Bert, tmp_path: Path) -> None:
    index = bs.Index.create(tmp_path / "index")
    index.add(["The river flows to the sea."])
    with serving({"tiny": bert}, index=bs.Index.open(tmp_path / "index")) as http:
        assert post(http, "/search", query="honey")["results"][0]["text"].startswith("The river")
        index.add(["Bees make honey."])
        for _ in range(4):  # whichever handle answers
            assert "honey" in post(http, "/search", query="honey", top=1)["results"][0]["text"]
        assert http.get("/ready").status_code == 200
        index.close()
        shutil.move(tmp_path / "index", tmp_path / "elsewhere")
        assert http.get("/ready").status_code == 503
        assert http.post("/search", json={"query": "honey"}).status_code == 503
        assert http.get("/live").status_code == 200
        shutil.move(tmp_path / "elsewhere", tmp_path / "index")
        assert http.get("/ready").status_code == 200
