"""The routes of text-embeddings-inference (TEI)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from fastapi import APIRouter
from starlette.responses import Response

from bertsmith import __version__
from bertsmith.cpu import int8_weights
from bertsmith.serve.address import NAMED
from bertsmith.serve.cohere import CohereRerank, cohere_rerank, reranker
from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.own import Dialect
from bertsmith.serve.route import JsonRoute
from bertsmith.serve.tei_bodies import (
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    PredictBody,
    Rerank,
    RerankBody,
    Similarity,
    SimilarityBody,
    SimilarityParameters,
    TokenizeBody,
    TokenSimilarityBody,
)
from bertsmith.serve.work import USAGE, Work
from bertsmith.tasks.classifying import activation, raw, softmax, vote
from bertsmith.tasks.use import Call, listed

ACTIVATIONS = {"sigmoid": torch.sigmoid, "softmax": softmax, "none": raw}


class SimilarityAnswer(TypedDict):
    """An answer of /similarity."""

    model: str
    similarity: float
    first: Any
    second: Any
    tokens: Any


class Tei:
    """The routes of TEI without HTTP: from request bodies to results."""

    def __init__(self, work: Work) -> None:
        self.work = work

    async def texts(self, served: ServedModel, inputs: Any) -> list[str]:
        """Return inputs as texts; token ids are decoded, or an error if they are not a text."""
        several = not isinstance(inputs, str) and not isinstance(inputs[0], int)
        rows = inputs if several else [inputs]
        return await self.work.texts(served, rows, whole=False)

    async def embed(self, body: EmbedBody) -> Any:
        """A vector for every input; with `read`, an object with `embeddings` and `read`."""
        served = self.work.models.pick(body.model, "embed")
        texts = await self.texts(served, body.inputs)
        vectors = await self.work.embed(
            served,
            texts,
            pooling=body.pooling,
            normalise=True if body.normalize is None else body.normalize,
            long=body.long,
            dimensions=body.dimensions,
            prompt=prompt(served, body.prompt_name),
        )
        return {"embeddings": vectors, "read": USAGE.get().read} if body.read else vectors

    async def embed_all(self, body: EmbedAllBody) -> list[list[list[float]]]:
        """A vector for every token of every input."""
        served = self.work.models.pick(body.model, "embed")
        texts = await self.texts(served, body.inputs)
        rows = await self.work.tokens(served, texts, body.long)
        return [one.vectors for one in rows]  # type: ignore[misc]

    async def predict(self, body: PredictBody) -> Any:
        """Labels with scores, best first."""
        served = self.work.models.pick(body.model, "classify")
        single = isinstance(body.inputs, str) or isinstance(body.inputs[0], str)
        rows: Any = [listed(body.inputs)] if single else body.inputs  # type: ignore[arg-type]
        how = "none" if body.raw_scores else None
        ranked = await label_scores(self.work, served, rows, how, body.long)
        return ranked[0] if single else ranked

    async def rerank(self, body: RerankBody) -> Any:
        """Texts by relevance, best first."""
        served = reranker(self.work, body.model)
        scores = await self.work.relevance(
            served,
            [body.query] * len(body.texts),
            body.texts,
            long=body.long,
            raw_scores=body.raw_scores,
        )
        ranked = []
        for n in sorted(range(len(scores)), key=lambda n: -scores[n]):
            text = {"text": body.texts[n]} if body.return_text else {}
            ranked.append({"index": n, **text, "score": scores[n]})
        return {"results": ranked, "read": USAGE.get().read} if body.read else ranked

    async def similarity(self, body: SimilarityBody) -> list[float]:
        """Cosines of a sentence and others."""
        served = self.work.models.pick(body.model, "embed")
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        how = body.parameters or SimilarityParameters()
        start = prompt(served, how.prompt_name)
        vectors = await self.work.embed(served, texts, normalise=True, long=how.long, prompt=start)
        return [float(one) for one in vectors[1:] @ vectors[0]]

    async def token_similarity(self, body: TokenSimilarityBody) -> SimilarityAnswer:
        """The cosine of two texts, and of each token of one with each of the other."""
        work, served = self.work, self.work.models.pick(body.model, "embed")
        texts = [body.first, body.second]
        vectors, tokens = await work.gather(
            work.embed(served, texts, normalise=True, long=body.long),
            work.tokens(served, texts, body.long),
        )
        rows = [one.vectors[[not special for special in one.special]] for one in tokens]
        if rows[0].shape[0] * rows[1].shape[0] > 250_000:
            raise ServeError(422, "the texts have too many tokens to compare one by one")
        unit = [one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in rows]
        return SimilarityAnswer(
            model=served.name,
            similarity=float(vectors[0] @ vectors[1]),
            first=_spelled(body.first, tokens[0]),
            second=_spelled(body.second, tokens[1]),
            tokens=(unit[0] @ unit[1].T).round(5),
        )

    async def tokenize(self, body: TokenizeBody) -> list[list[dict[str, Any]]]:
        """Tokens with the characters that they stand for."""
        served = self.work.models.pick(body.model, "embed")
        texts = listed(body.inputs)
        self.work.check(texts)
        start = prompt(served, body.prompt_name) or ""
        tokenizer = served.bert.tokenizer

        def tokens(text: str) -> list[dict[str, Any]]:
            encoding = tokenizer.encode(start + text, special=body.add_special_tokens)
            parts = zip(encoding.ids, encoding.offsets, encoding.sources, strict=True)
            return [
                {
                    "id": number,
                    "text": tokenizer.token(number),
                    "special": source is None,
                    "start": None if source is None else begin,
                    "stop": None if source is None else end,
                }
                for number, (begin, end), source in parts
            ]

        rows = await self.work.call(sum(map(len, texts)), lambda: [*map(tokens, texts)])
        USAGE.get().tokens += sum(map(len, rows))
        return rows

    async def decode(self, body: DecodeBody) -> list[str]:
        """The texts of token ids."""
        served = self.work.models.pick(body.model, "embed")
        rows: Any = [body.ids] if isinstance(body.ids[0], int) else body.ids
        self.work.check([""] * len(rows))
        decode, skip = served.bert.tokenizer.decode, body.skip_special_tokens
        size = sum(map(len, rows))
        return await self.work.call(size, lambda: [decode(row, skip_special=skip) for row in rows])

    async def info(self) -> dict[str, Any]:
        """The model of the address, else the first one, and the server's limits."""
        models, settings = self.work.models, self.work.settings
        served = models.named(named) if (named := NAMED.get()) else next(iter(models))
        bert = served.bert
        labels = dict(enumerate(bert.checkpoint.labels))
        names = {
            "id2label": {str(n): one for n, one in labels.items()},
            "label2id": {one: n for n, one in labels.items()},
        }
        if served.cross_encoder:
            kind: dict[str, Any] = {"reranker": names}
        elif "classify" in served.can:
            kind = {"classifier": names}
        else:
            kind = {"embedding": {"pooling": served.describe()["pooling"]}}
        dtype = str(next(bert.model.parameters()).dtype).removeprefix("torch.")
        dtype = "int8" if int8_weights(bert.model) else dtype
        return {
            "model_id": served.name,
            "model_sha": served.sha,
            "model_dtype": dtype,
            "model_type": kind,
            "max_concurrent_requests": 512,
            "max_input_length": served.max_length,
            "max_batch_tokens": served.batcher.budget,
            "max_batch_requests": None,
            "max_client_batch_size": settings.max_inputs,
            "auto_truncate": False,
            "tokenization_workers": 2,
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }


async def label_scores(
    work: Work, served: ServedModel, rows: Sequence[list[str]], how: str | None, long: str | None
) -> list[list[dict[str, Any]]]:
    """The labels of each text or pair with their scores, best first; `how` makes logits scores."""
    work.check([text for row in rows for text in row])
    labels = served.bert.checkpoint.labels
    usual = torch.sigmoid if len(labels) == 1 else activation(served.bert.checkpoint)
    activate = usual if how is None else ACTIVATIONS[how]
    sizes = sorted({*map(len, rows)})  # 1: texts, 2: pairs
    groups = [[n for n, row in enumerate(rows) if len(row) == size] for size in sizes]
    jobs = []
    for numbers in groups:
        texts, *pairs = ([rows[n][side] for n in numbers] for side in range(len(rows[numbers[0]])))
        second = pairs[0] if pairs else None
        call = Call(vote, (texts, second, activate), texts, second or ())
        jobs.append(work.run(served, call, long))
    ranked: dict[int, list[dict[str, Any]]] = {}
    for numbers, found in zip(groups, await work.gather(*jobs), strict=True):
        for number, scores in zip(numbers, found, strict=True):
            named = [{"score": s, "label": name} for s, name in zip(scores, labels, strict=True)]
            ranked[number] = sorted(named, key=lambda one: -one["score"])
    return [ranked[number] for number in range(len(rows))]


def prompt(served: ServedModel, name: str | None) -> str | None:
    """The model's prompt of this name."""
    return None if name is None else served.bert.sentence.named_prompt(name)


def _spelled(text: str, tokens: Any) -> list[dict[str, Any]]:
    return [
        {"text": text[start:end], "start": start, "end": end}
        for (start, end), special in zip(tokens.spans, tokens.special, strict=True)
        if not special
    ]


TEI_EMBED = Dialect(
    EmbedBody,
    lambda keys: "normalise" not in keys,  # our own requests say whether vectors are normalised
    lambda work, body: Tei(work).embed(body),
    list[list[float]],
)


def tei_routes(work: Work) -> APIRouter:
    """Return the routes of TEI that the models support."""
    router = APIRouter(route_class=JsonRoute, tags=["text-embeddings-inference"])
    tei = Tei(work)
    router.post("/embed_all")(tei.embed_all)
    if "classify" in work.models.can:
        router.post("/predict", response_model=None)(tei.predict)

    @router.post("/rerank", response_model=None)
    async def rerank(body: Rerank) -> Any:
        """Texts by relevance; with `documents`, as Cohere and Jina ask and answer."""
        if isinstance(body, CohereRerank):
            return await cohere_rerank(work, body)
        return await tei.rerank(body)

    @router.post("/similarity", response_model=None)
    async def similarity(body: Similarity) -> Any:
        """Cosines of a sentence and others; with `first` and `second`, token by token."""
        if isinstance(body, SimilarityBody):
            return await tei.similarity(body)
        return await tei.token_similarity(body)

    router.post("/tokenize")(tei.tokenize)
    router.post("/decode")(tei.decode)
    router.get("/info")(tei.info)

    @router.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        content, kind = work.metrics.text()
        return Response(content, media_type=kind)

    return router
