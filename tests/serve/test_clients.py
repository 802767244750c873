"""Clients that people already have get the answers of `bs.load`."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

import bertsmith as bs
from bertsmith import Bert
from bertsmith.errors import BertsmithError
from serve.live import batcher_of, serving

TEXTS = ["The river flows.", "", "Anna lives in Kraków 😀", "bees " * 90]


def test_openai(http: httpx.Client, bert: Bert) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
    expected = bert.embed(TEXTS, normalise=True)
    for format in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        answer = client.embeddings.create(input=TEXTS, model="tiny", **format)
        if format.get("encoding_format") == "base64":
            import base64

            vectors = [np.frombuffer(base64.b64decode(one.embedding), "<f4") for one in answer.data]
        else:
            vectors = [one.embedding for one in answer.data]
        assert np.abs(np.asarray(vectors) - expected).max() < 1e-5
    assert answer.usage.prompt_tokens > 90
    assert [model.id for model in client.models.list()] == ["tiny", "reranker"]
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(input="a", model="text-embedding-3-small")
    with pytest.raises(openai.BadRequestError, match="128 dimensions"):
        client.embeddings.create(input="a", model="tiny", dimensions=16)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(input=[[15339, 1917]], model="tiny")
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(input=[[5, 9]], model="tiny")  # in range, but of whom?
    ids = bert.tokenizer.encode("The river flows.").ids
    answer = client.embeddings.create(input=[ids], model="tiny")
    assert np.abs(np.asarray(answer.data[0].embedding) - expected[0]).max() < 1e-5


def test_openai_keys_and_models(http: httpx.Client) -> None:
    body = {"input": "a", "model": "tiny"}
    plain = http.post("/v1/embeddings", json=body).json()
    for more in ({"encoding_format": None}, {"dimensions": None}, {"input_type": "query"}):
        answer = http.post("/v1/embeddings", json={**body, **more})
        assert (answer.status_code, answer.json()["data"]) == (200, plain["data"])
    assert http.get("/v1/models/tiny").json() == http.get("/v1/models").json()["data"][0]
    missing = http.get("/v1/models/org/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="none")
    assert client.models.retrieve("tiny").id == "tiny"


def test_ingestion_by_eight_workers_is_not_refused(bert: Bert) -> None:
    documents = [" ".join(["bees make honey"] * 50)] * 16
    with serving({"tiny": bert}) as http, ThreadPoolExecutor(8) as workers:
        batcher = batcher_of(http)

        def ask(_: int) -> int:
            body = {"input": documents, "model": "tiny"}
            return http.post("/v1/embeddings", json=body, timeout=60).status_code

        with batcher._turn:  # nothing is computed before all have arrived
            asked = [workers.submit(ask, number) for number in range(8)]
            end = time.monotonic() + 30
            while len(batcher.jobs) < 8 and time.monotonic() < end:
                time.sleep(0.01)
                assert not any(one.done() for one in asked), [one.result() for one in asked]
        assert [one.result() for one in asked] == [200] * 8


def test_langchain(http: httpx.Client, bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("openai")
    langchain = pytest.importorskip("langchain_openai")
    options = {"base_url": f"{http.base_url}/v1", "api_key": "none", "model": "tiny"}

    class Encoding:  # stands for tiktoken's cl100k, whose file is on the network
        def encode_ordinary(self, text: str) -> list[int]:
            return [len(word) * 11 for word in text.split()]

        def encode(self, text: str, **_: object) -> list[int]:
            return self.encode_ordinary(text)

    monkeypatch.setattr("tiktoken.encoding_for_model", lambda *_: Encoding())
    monkeypatch.setattr("tiktoken.get_encoding", lambda *_: Encoding())
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        langchain.OpenAIEmbeddings(**options).embed_documents(["The river flows."])
    ready = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
    vectors = np.asarray(ready.embed_documents(TEXTS))
    assert np.abs(vectors - bert.embed(TEXTS, normalise=True)).max() < 1e-5


def test_huggingface_hub(http: httpx.Client, bert: Bert, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    address = str(http.base_url).rstrip("/")
    one = hub.InferenceClient(model=f"{address}/embed")
    vectors = one.feature_extraction("The river flows.")
    assert np.abs(vectors - bert.embed(["The river flows."], normalise=True)).max() < 1e-5
    plain = hub.InferenceClient(model=address)
    labels = plain.text_classification("The river flows.")
    best = bert.classify("The river flows.")
    assert (labels[0].label, labels[0].score) == (best.label, pytest.approx(best.score, abs=1e-5))
    near = plain.sentence_similarity("a", other_sentences=["a", "b"])
    assert near[0] == pytest.approx(1, abs=1e-5)
    answer = plain.question_answering(question="Who?", context="Anna lives in Kraków")
    expected = bert.answer("Who?", "Anna lives in Kraków")[0]
    found = answer[0] if isinstance(answer, list) else answer
    assert (found.answer, found.start) == (expected.text, expected.start)


def test_our_own_knows_versions_and_aliases(bert: Bert) -> None:
    aliases = {"stable/one": {"tiny@2": 1.0}}
    with serving({"tiny@2": bert, "other": bert}, aliases=aliases) as http:
        for name in ("tiny@2", "tiny", "stable/one"):
            with bs.connect(str(http.base_url), model=name) as far:
                assert far.fill_mask("a [MASK]")[0].token == bert.fill_mask("a [MASK]")[0].token
        with bs.connect(f"{http.base_url}/models/other", model="tiny") as far:
            assert [one["id"] for one in far.models] == ["tiny@2", "other"]


def test_our_own(http: httpx.Client, bert: Bert, tmp_path: Path) -> None:
    far = bs.connect(str(http.base_url), model="tiny")
    assert "tiny on http" in repr(far)
    many = [f"text {n}" for n in range(70)]
    assert np.abs(far.embed(many) - bert.embed(many)).max() < 1e-5
    assert np.abs(far.embed(TEXTS, long="cut") - bert.embed(TEXTS, long="cut")).max() < 1e-5
    prompted = far.embed(many[:2], prompt="query: ", normalise=True, pooling="cls")
    ours = bert.embed(many[:2], prompt="query: ", normalise=True, pooling="cls")
    assert np.abs(prompted - ours).max() < 1e-5
    with pytest.raises(BertsmithError, match="the model has no prompt 'query'"):
        far.embed("a", prompt_name="query")
    with pytest.raises(BertsmithError, match="tokens, but the model reads"):
        far.embed(TEXTS, long="refuse")
    assert far.embed("a").shape == (128,)
    assert far.embed([]).shape == (0, 128)
    assert far.classify(TEXTS)[3].label == bert.classify(TEXTS)[3].label
    assert far.classify("a", "b").score == pytest.approx(bert.classify("a", "b").score, abs=1e-5)
    assert [one.text for one in far.tag(TEXTS)[2]] == [one.text for one in bert.tag(TEXTS)[2]]
    assert far.fill_mask("a [MASK]")[0].token == bert.fill_mask("a [MASK]")[0].token
    assert far.answer("Who?", TEXTS[3])[0].start == bert.answer("Who?", TEXTS[3])[0].start
    assert far.choose("a", ["b", "c"]).index == bert.choose("a", ["b", "c"]).index
    assert far.follows(many, many) == pytest.approx(bert.follows(many, many), abs=1e-5)
    assert far.tag(TEXTS[2])._repr_html_() == bert.tag(TEXTS[2])._repr_html_()
    with pytest.raises(BertsmithError, match="70 texts cannot be paired"):
        far.classify(many, many[1:])
    assert far.follows("a", "b") == pytest.approx(bert.follows("a", "b"), abs=1e-5)
    ours, theirs = far.states("The river", depth=[0, 2]), bert.states("The river", depth=[0, 2])
    assert ours.spans == theirs.spans
    assert np.abs(ours.vectors - theirs.vectors).max() < 1e-4
    view = far.attention("The river")
    assert np.abs(view.maps() - bert.attention("The river").maps()).max() < 1e-4
    view.save(tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    with pytest.raises(BertsmithError, match="no mask"):
        far.fill_mask("nothing")
    far.close()
    assert far.classify(TEXTS[3]).label == bert.classify(TEXTS[3]).label  # on a new connection
    far.close()
    with pytest.raises(
        BertsmithError, match="there is no model 'other' here; the models are: tiny"
    ):
        bs.connect(str(http.base_url), model="other")
    with pytest.raises(BertsmithError, match="does not answer"):
        bs.connect("http://127.0.0.1:9")
    for wrong in ("127.0.0.1", "http://", "http://127.0.0.1:port", "http://[::1", "ftp://a"):
        with pytest.raises(BertsmithError, match="is not the address of a server"):
            bs.connect(wrong)
