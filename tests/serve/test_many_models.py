"""Clients of other services, unchanged, on a server with a model for each task."""

import asyncio
import base64
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from bertsmith import Bert
from bertsmith.serve import ServingSettings
from bertsmith.serve.ids import NAME, cl100k
from serve.live import serving, tiny

HEADS = {"classify": "labels", "tag": "tags", "masked_lm": "masks", "answer": "answers"}
ENTAIL = {"0": "contradiction", "1": "neutral", "2": "entailment"}
TEXTS = ["The river flows.", "Anna lives in Kraków"]
DOCUMENTS = ["The bank is closed.", "Bees live in hives.", "A river flows."]


@pytest.fixture(scope="module")
def berts() -> dict[str, Bert]:
    models = {"vectors": tiny(())}
    models |= {name: tiny((head,)) for head, name in HEADS.items()}
    models["entailment"] = tiny(("classify",), seed=2, id2label=ENTAIL)
    models["reranker"] = tiny(("classify",), seed=1, id2label={"0": "score"})
    models["nested"] = tiny((), seed=3, matryoshka_dimensions=[64, 32])
    return models


@pytest.fixture(scope="module")
def server(berts: dict[str, Bert]) -> Iterator[httpx.Client]:
    with serving(berts) as client:
        yield client


@pytest.fixture(scope="module")
def address(server: httpx.Client) -> str:
    return str(server.base_url).rstrip("/")


def ranked(bert: Bert, query: str) -> list[int]:
    """The numbers of the documents, best first, by the scores of a cross-encoder."""
    scores = [one.score for one in bert.classify([query] * len(DOCUMENTS), DOCUMENTS)]
    return sorted(range(len(DOCUMENTS)), key=lambda number: -scores[number])


# ------------------------------------------------------------------ huggingface_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    return pytest.importorskip("huggingface_hub").InferenceClient


def test_hub_text_classification(hub: Any, address: str, berts: dict[str, Bert]) -> None:
    best = berts["labels"].classify(TEXTS[0])
    for base in (f"{address}/models/labels", f"{address}/pipeline/text-classification"):
        found = hub(base).text_classification(TEXTS[0], top_k=2)
        assert [found[0].label, len(found)] == [best.label, 2]
        assert found[0].score == pytest.approx(best.score, abs=1e-5)
    found = hub(address).text_classification(TEXTS[0], function_to_apply="softmax")
    assert found[0].score == pytest.approx(best.score, abs=1e-5)  # only a classifier is meant


def test_hub_token_classification(hub: Any, address: str, berts: dict[str, Bert]) -> None:
    expected = [(one.label, one.text, one.start) for one in berts["tags"].tag(TEXTS[1])]
    assert expected
    for base, how in (
        ("/models/tags", None),
        ("/pipeline/token-classification", None),
        ("", "first"),
    ):
        found = hub(address + base).token_classification(TEXTS[1], aggregation_strategy=how)
        assert [(one.entity_group, one.word, one.start) for one in found] == expected


def test_hub_fill_mask(hub: Any, address: str, berts: dict[str, Bert]) -> None:
    expected = [one.token for one in berts["masks"].fill_mask("The river [MASK].", top=3)]
    for base in ("/models/masks", "/pipeline/fill-mask", ""):
        found = hub(address + base).fill_mask("The river [MASK].", top_k=3)
        assert [one.token_str for one in found] == expected


def test_hub_zero_shot_classification(hub: Any, address: str, berts: dict[str, Bert]) -> None:
    labels, how = ["old", "new", "red"], "This is {}."
    ours = berts["entailment"].choose_label(TEXTS[0], labels, template="This is {label}.")
    for base in ("/models/entailment", "/models/entailment/pipeline/zero-shot-classification"):
        found = hub(address + base).zero_shot_classification(
            TEXTS[0], labels, hypothesis_template=how
        )
        assert [one.label for one in found] == sorted(labels, key=lambda one: -ours.scores[one])
        assert found[0].score == pytest.approx(ours.score, abs=1e-5)
    several = hub(f"{address}/models/entailment").zero_shot_classification(
        TEXTS[0], labels, hypothesis_template=how, multi_label=True
    )
    own = berts["entailment"].choose_label(
        TEXTS[0], labels, template="This is {label}.", several=True
    )
    assert {one.label: one.score for one in several} == pytest.approx(own.scores, abs=1e-5)
    assert len(hub(address).zero_shot_classification(TEXTS[0], labels)) == 3


def test_hub_answers_and_vectors(hub: Any, address: str, berts: dict[str, Bert]) -> None:
    expected = berts["answers"].answer("Who?", TEXTS[1])[0]
    for base in ("", "/models/answers"):
        found = hub(address + base).question_answering(question="Who?", context=TEXTS[1])
        assert (found.answer, found.start) == (expected.text, expected.start)
    vector = berts["vectors"].embed(TEXTS[0], normalise=True)
    for base in ("", "/embed", "/models/vectors", "/pipeline/feature-extraction"):
        found = hub(address + base).feature_extraction(TEXTS[0])
        assert np.abs(np.asarray(found) - vector).max() < 1e-5
    for base in ("", "/models/vectors", "/pipeline/sentence-similarity"):
        near = hub(address + base).sentence_similarity("a", other_sentences=["a", "b"])
        assert near[0] == pytest.approx(1, abs=1e-5)
    with pytest.raises(Exception, match="404"):
        hub(f"{address}/models/missing").text_classification("a")


# ------------------------------------------------------------------ OpenAI, LangChain, Haystack


def test_openai(address: str, server: httpx.Client, berts: dict[str, Bert]) -> None:
    openai = pytest.importorskip("openai")

    def client(base: str) -> Any:
        return openai.OpenAI(base_url=address + base, api_key="none", max_retries=0)

    expected = berts["nested"].embed(TEXTS, normalise=True)
    below = client("/models/nested/v1")  # the address decides, not the name
    answer = below.embeddings.create(input=TEXTS, model="text-embedding-3-small")
    assert np.abs(np.asarray([one.embedding for one in answer.data]) - expected).max() < 1e-5
    assert answer.model == "nested"
    assert [one.id for one in below.models.list()] == ["nested"]
    top = client("/v1")
    assert [top.models.retrieve(name).id for name in berts] == list(berts)
    cut = top.embeddings.create(input=TEXTS, model="nested", dimensions=32).data[0].embedding
    short = expected[0, :32] / np.linalg.norm(expected[0, :32])
    assert np.abs(np.asarray(cut) - short).max() < 1e-5
    tei = server.post("/embed", json={"inputs": TEXTS, "model": "nested", "dimensions": 32}).json()
    assert np.abs(np.asarray(tei[0]) - short).max() < 1e-5
    with pytest.raises(openai.BadRequestError, match="not trained for 32: nested can"):
        top.embeddings.create(input="a", model="vectors", dimensions=32)
    with pytest.raises(openai.BadRequestError, match="not trained for 33: no model here can"):
        top.embeddings.create(input="a", model="nested", dimensions=33)
    many = top.embeddings.create(input=["bees"] * 2048, model="vectors")  # OpenAI's own limit
    assert len(many.data) == 2048
    raw = top.embeddings.with_raw_response.create(
        input=TEXTS, model="vectors", encoding_format="base64"
    )
    vectors = [
        np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        for one in raw.http_response.json()["data"]
    ]
    assert np.abs(np.stack(vectors) - berts["vectors"].embed(TEXTS, normalise=True)).max() < 1e-6


def test_names_that_clients_have_by_default(berts: dict[str, Bert]) -> None:
    """An alias for the default model of a client; with `any_model_name`, any name."""
    openai, langchain = map(pytest.importorskip, ("openai", "langchain_openai"))
    some = {name: berts[name] for name in ("labels", "vectors")}
    expected = berts["vectors"].embed(TEXTS, normalise=True)
    for more in (
        {"aliases": {"text-embedding-ada-002": {"vectors": 1.0}}},
        {"settings": ServingSettings(any_model_name=True)},
    ):
        with serving(some, **more) as client:
            options = {"base_url": f"{str(client.base_url).rstrip('/')}/v1", "api_key": "none"}
            found = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
            assert np.abs(np.asarray(found.embed_documents(TEXTS)) - expected).max() < 1e-5
            one = openai.OpenAI(**options, max_retries=0)
            if "aliases" in more:
                assert one.models.retrieve("text-embedding-ada-002").id == "vectors"
                with pytest.raises(openai.NotFoundError):
                    one.embeddings.create(input="a", model="text-embedding-3-small")
            else:
                answer = one.embeddings.create(input=TEXTS, model="text-embedding-3-small")
                assert np.abs(np.asarray(answer.data[0].embedding) - expected[0]).max() < 1e-5


@pytest.fixture
def tiktoken_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of cl100k_base, which litellm's package has."""
    package = find_spec("litellm")  # which takes seconds to import
    found = [*Path(package.origin).parent.rglob(NAME)] if package and package.origin else []
    if not found:
        pytest.skip("litellm comes without the file of cl100k_base")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(found[0].parent))


@pytest.mark.usefixtures("tiktoken_file")
def test_ids_of_tiktoken_are_read(
    address: str, server: httpx.Client, berts: dict[str, Bert]
) -> None:
    langchain = pytest.importorskip("langchain_openai")
    texts = [*TEXTS, "naïve 😀 " * 5]
    expected = berts["vectors"].embed(texts, normalise=True)
    options = {"base_url": f"{address}/v1", "api_key": "none", "model": "vectors"}
    found = langchain.OpenAIEmbeddings(**options, tiktoken_model_name="text-embedding-3-small")
    assert np.abs(np.asarray(found.embed_documents(texts)) - expected).max() < 1e-5
    assert np.abs(np.asarray(found.embed_query(texts[2])) - expected[2]).max() < 1e-5
    ids = cl100k().encode(texts[2])
    for wrong in ([*ids, 200_000], [-1], [10**30]):
        body = {"model": "vectors", "input": [wrong]}
        answer = server.post("/v1/embeddings", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_ids_of_tiktoken_without_its_file(server: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("another file", "utf-8")
    answer = server.post("/v1/embeddings", json={"model": "vectors", "input": [[15339, 1917]]})
    assert answer.status_code == 400
    assert "check_embedding_ctx_length=False" in answer.json()["error"]["message"]


def test_langchain_with_texts(address: str, berts: dict[str, Bert]) -> None:
    langchain = pytest.importorskip("langchain_openai")
    options = {"base_url": f"{address}/models/vectors/v1", "api_key": "none"}
    found = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
    expected = berts["vectors"].embed(TEXTS, normalise=True)
    assert np.abs(np.asarray(found.embed_documents(TEXTS)) - expected).max() < 1e-5
    assert np.abs(np.asarray(asyncio.run(found.aembed_query(TEXTS[0]))) - expected[0]).max() < 1e-5


def test_haystack(address: str, berts: dict[str, Bert], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
    from haystack.utils import Secret

    options: Any = {"api_base_url": f"{address}/v1", "api_key": Secret.from_token("none")}
    expected = berts["vectors"].embed(TEXTS, normalise=True)
    one = OpenAITextEmbedder(model="vectors", **options).run(TEXTS[0])
    assert np.abs(np.asarray(one["embedding"]) - expected[0]).max() < 1e-5
    documents = [Document(content=text) for text in TEXTS]
    many = OpenAIDocumentEmbedder(model="vectors", progress_bar=False, **options).run(documents)
    vectors = np.asarray([document.embedding for document in many["documents"]])
    assert np.abs(vectors - expected).max() < 1e-5


# ------------------------------------------------------------------ litellm


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched
    return pytest.importorskip("litellm")


@pytest.mark.parametrize(
    ("provider", "path"), [("openai", "/v1"), ("hosted_vllm", "/v1"), ("infinity", "/infinity")]
)
def test_litellm_embeddings(
    litellm: Any, provider: str, path: str, address: str, berts: dict[str, Bert]
) -> None:
    expected = berts["nested"].embed(TEXTS, normalise=True)
    more = {"api_base": address + path, "api_key": "none"}
    answer = litellm.embedding(model=f"{provider}/nested", input=TEXTS, **more)
    vectors = [one["embedding"] for one in answer.data]
    assert np.abs(np.asarray(vectors) - expected).max() < 1e-5
    if provider == "infinity":
        cut = litellm.embedding(model=f"{provider}/nested", input=TEXTS, dimensions=32, **more)
        assert len(cut.data[0]["embedding"]) == 32


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("cohere", "/v1/rerank"),
        ("jina_ai", "/v1/rerank"),
        ("huggingface", ""),
        ("infinity", "/infinity"),
        ("hosted_vllm", ""),
    ],
)
def test_litellm_rerank(
    litellm: Any, provider: str, path: str, address: str, berts: dict[str, Bert]
) -> None:
    answer = litellm.rerank(
        model=f"{provider}/reranker",
        query="Where do bees live?",
        documents=DOCUMENTS,
        top_n=2,
        api_base=f"{address}/models/reranker{path}",
        api_key="none",
    )
    ours = ranked(berts["reranker"], "Where do bees live?")
    rows = [(one["index"], one["relevance_score"]) for one in answer.results]
    assert [index for index, _ in rows][:2] == ours[:2]
    if provider == "infinity":
        assert answer.results[0]["document"]["text"] == DOCUMENTS[ours[0]]


# ------------------------------------------------------------------ Cohere


def test_cohere_embed(address: str, berts: dict[str, Bert]) -> None:
    cohere = pytest.importorskip("cohere")
    options = {"api_key": "none", "base_url": address}
    expected = berts["nested"].embed(TEXTS, normalise=True)
    asked = {"texts": TEXTS, "model": "nested", "input_type": "search_document"}
    plain = cohere.Client(**options).embed(**asked)
    assert np.abs(np.asarray(plain.embeddings) - expected).max() < 1e-5
    types = ["float", "base64", "binary", "ubinary"]
    typed = cohere.ClientV2(**options).embed(**asked, embedding_types=types).embeddings
    assert np.abs(np.asarray(typed.float_) - expected).max() < 1e-5
    stored = np.frombuffer(base64.b64decode(typed.base64[1]), "<f4")
    assert np.abs(stored - expected[1]).max() < 1e-6
    bits = np.unpackbits(np.asarray(typed.ubinary, dtype=np.uint8), axis=1)
    assert ((expected > 0) == bits)[np.abs(expected) > 1e-4].all()
    assert (np.asarray(typed.binary) + 128 == np.asarray(typed.ubinary)).all()
    parts = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
    more = {"model": "nested", "input_type": "clustering", "output_dimension": 32}
    short = cohere.ClientV2(**options).embed(inputs=parts, **more)
    assert len(short.embeddings.float_[1]) == 32
    for wrong in ({"embedding_types": ["int8"]}, {"output_dimension": 33}):
        with pytest.raises(cohere.errors.BadRequestError):
            cohere.ClientV2(**options).embed(**asked, **wrong)
    with pytest.raises(cohere.errors.BadRequestError):
        cohere.ClientV2(**options).embed(images=["data:x"], model="nested", input_type="image")


def test_cohere_classify(address: str, berts: dict[str, Bert]) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.Client(api_key="none", base_url=address)
    expected = berts["labels"].classify(TEXTS)
    found = client.classify(inputs=TEXTS, model="labels").classifications
    assert [one.prediction for one in found] == [one.label for one in expected]
    assert found[0].confidence == pytest.approx(expected[0].score, abs=1e-5)
    scores = {name: one.confidence for name, one in found[0].labels.items()}
    assert scores == pytest.approx(expected[0].scores, abs=1e-5)
    examples = [cohere.ClassifyExample(text=text, label=text[:3]) for text in TEXTS]
    own = client.classify(inputs=TEXTS, examples=examples, model="vectors").classifications
    assert [one.prediction for one in own] == [text[:3] for text in TEXTS]
    assert sum(one.confidence for one in own[0].labels.values()) == pytest.approx(1)
    with pytest.raises(cohere.errors.BadRequestError, match="at least two labels"):
        client.classify(inputs=TEXTS, examples=examples[:1], model="vectors")


def test_cohere_rerank(address: str, berts: dict[str, Bert]) -> None:
    cohere = pytest.importorskip("cohere")
    ours = ranked(berts["reranker"], "bees")
    for client in (cohere.Client, cohere.ClientV2):
        one = client(api_key="none", base_url=f"{address}/models/reranker")
        found = one.rerank(model="rerank-v3.5", query="bees", documents=DOCUMENTS, top_n=2)
        assert [row.index for row in found.results] == ours[:2]
        scores = [row.relevance_score for row in found.results]
        assert scores == sorted(scores, reverse=True)


# ------------------------------------------------------------------ addresses


def test_addresses_of_models(server: httpx.Client) -> None:
    assert server.get("/models/tags").json()["id"] == "tags"
    assert server.get("/models/tags/info").json()["model_id"] == "tags"
    assert server.get("/models/tags/health").status_code == 200
    asked = {"inputs": "Anna", "model": "labels"}
    assert server.post("/models/tags/tag", json=asked).json()["model"] == "tags"
    for path in ("/models/missing", "/models/missing/tag", "/models/"):
        answer = (
            server.get(path) if path != "/models/missing/tag" else server.post(path, json=asked)
        )
        assert answer.status_code == 404, path
    wrong = server.post("/models/tags/v1/embeddings", json={"input": 5})
    assert (wrong.status_code, "type" in wrong.json()["error"]) == (400, True)
    for odd in ("%2Fv1", "..%2F..", "%00", "a" * 5000, "%C3%A9"):
        assert server.post(f"/models/{odd}/tag", json=asked).status_code in (404, 424)
