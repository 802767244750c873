"""The routes of text-embeddings-inference (TEI), and `POST /` of huggingface_hub's client."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response

from bertsmith import __version__
from bertsmith.serve.cohere import CohereRerank, cohere_rerank, reranker
from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.own import listed
from bertsmith.serve.route import JsonRoute, vectors_answer
from bertsmith.serve.tei_bodies import (
    AnyBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    PredictBody,
    Rerank,
    RerankBody,
    Similarity,
    SimilarityBody,
    TokenizeBody,
    TokenSimilarityBody,
)
from bertsmith.serve.work import USAGE, Work, tokens_to_text
from bertsmith.tasks import answering, filling, tagging
from bertsmith.tasks.classification import activation, raw
from bertsmith.tasks.labels import vote


class Tei:
    """The routes of TEI without HTTP: from request bodies to results."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def texts(self, served: ServedModel, inputs: Any) -> list[str]:
        """Return inputs as texts; token ids are decoded, or an error if they are not a text."""
        several = not isinstance(inputs, str) and not isinstance(inputs[0], int)
        tokenizer = served.bert.tokenizer
        self.work.check([""] * (len(inputs) if several else 1))
        return [
            one if isinstance(one, str) else tokens_to_text(tokenizer, one, whole=False)
            for one in (inputs if several else [inputs])
        ]

    async def embed(self, body: EmbedBody) -> Any:
        """A vector for every input."""
        served = self.work.models.pick(body.model, "embed")
        texts = self.texts(served, body.inputs)
        vectors = await self.work.embed(
            served,
            texts,
            pooling=body.pooling,
            normalise=True if body.normalize is None else body.normalize,
            long=body.long,
            dimensions=body.dimensions,
            prompt=prompt(served, body.prompt_name),
        )
        if body.read:
            return {"embeddings": vectors.tolist(), "read": USAGE.get().read}
        return vectors_answer(vectors.tolist())

    async def predict(self, body: PredictBody) -> Any:
        """Labels with scores, best first."""
        served = self.work.models.pick(body.model, "classify")
        single = isinstance(body.inputs, str) or isinstance(body.inputs[0], str)
        rows: Any = [listed(body.inputs)] if single else body.inputs  # type: ignore[arg-type]
        self.work.check([text for row in rows for text in row])
        how = raw if body.raw_scores else activation(served.bert.checkpoint)
        if len(served.bert.checkpoint.labels) == 1 and not body.raw_scores:
            how = sigmoid
        scores: dict[int, list[float]] = {}
        groups = {size: [n for n, row in enumerate(rows) if len(row) == size] for size in (1, 2)}
        jobs = []
        for size, numbers in groups.items():
            if numbers:
                texts = [rows[n][0] for n in numbers]
                pairs = [rows[n][1] for n in numbers] if size == 2 else None
                jobs.append(
                    self.work.run(
                        served,
                        vote,
                        texts,
                        pairs,
                        how,
                        texts=texts,
                        seconds=pairs or (),
                        long=body.long,
                    )
                )
        results = await self.work.gather(*jobs)
        for numbers, found in zip(filter(None, groups.values()), results, strict=True):
            scores.update(zip(numbers, found, strict=True))
        labels = served.bert.checkpoint.labels
        ranked: list[list[dict[str, Any]]] = [
            sorted(
                (
                    {"score": score, "label": label}
                    for score, label in zip(scores[n], labels, strict=True)
                ),
                key=lambda one: -one["score"],
            )
            for n in range(len(rows))
        ]
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
        order = sorted(range(len(scores)), key=lambda n: -scores[n])
        ranked = [
            {
                "index": n,
                **({"text": body.texts[n]} if body.return_text else {}),
                "score": scores[n],
            }
            for n in order
        ]
        return {"results": ranked, "read": USAGE.get().read} if body.read else ranked

    async def similarity(self, body: SimilarityBody) -> list[float]:
        """Cosines of a sentence and others."""
        served = self.work.models.pick(body.model, "embed")
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        long = "cut" if (body.parameters or {}).get("truncate") is True else None
        vectors = await self.work.embed(served, texts, normalise=True, long=long)
        return [float(one) for one in vectors[1:] @ vectors[0]]

    async def token_similarity(self, body: TokenSimilarityBody) -> dict[str, Any]:
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
        return {
            "model": served.name,
            "similarity": float(vectors[0] @ vectors[1]),
            "first": _spelled(body.first, tokens[0]),
            "second": _spelled(body.second, tokens[1]),
            "tokens": (unit[0] @ unit[1].T).round(5).tolist(),
        }

    async def tokenize(self, body: TokenizeBody) -> list[list[dict[str, Any]]]:
        """Tokens with the characters that they stand for."""
        served = self.work.models.pick(body.model, "embed")
        texts = listed(body.inputs)
        self.work.check(texts)
        start = prompt(served, body.prompt_name) or ""
        tokenizer, rows = served.bert.tokenizer, []

        def encode(text: str) -> Any:
            return tokenizer.encode(start + text, special=body.add_special_tokens)

        for text in texts:
            encoding = await self.work.call(len(text), partial(encode, text))
            row = []
            parts = zip(encoding.ids, encoding.offsets, encoding.sources, strict=True)
            for number, (begin, end), source in parts:
                special = source is None
                row.append(
                    {
                        "id": number,
                        "text": tokenizer.token(number),
                        "special": special,
                        "start": None if special else begin,
                        "stop": None if special else end,
                    }
                )
            USAGE.get().tokens += len(row)
            rows.append(row)
        return rows

    async def decode(self, body: DecodeBody) -> list[str]:
        """The texts of token ids."""
        served = self.work.models.pick(body.model, "embed")
        rows: Any = [body.ids] if isinstance(body.ids[0], int) else body.ids
        self.work.check([""] * len(rows))
        decode = served.bert.tokenizer.decode
        return [decode(row, skip_special=body.skip_special_tokens) for row in rows]

    async def any(self, body: AnyBody) -> Any:
        """Answer huggingface_hub's client, which sends inputs of all tasks to one URL."""
        fields = body.model_fields_set - {"parameters"}
        given = {name: getattr(body, name) for name in fields}
        inputs, models = body.inputs, self.work.models
        if isinstance(inputs, dict) and "source_sentence" in inputs:
            return await self.similarity(SimilarityBody.model_validate(given))
        if isinstance(inputs, dict) and {"question", "context"} <= {*inputs}:
            return await self._question(inputs, body)
        served = models.pick(body.model, "embed") if body.model else next(iter(models))
        text = inputs if isinstance(inputs, str) else None
        if "classify" in served.can:
            labels = await self.predict(PredictBody.model_validate(given))
            return [labels] if isinstance(labels[0], dict) else labels  # nested, as the hub does
        if "tag" in served.can and text is not None:
            rows = await self.work.run(served, tagging.tag, [text], texts=[text], long=body.long)
            return [
                {
                    "entity_group": one.label,
                    "score": one.score,
                    "word": one.text,
                    "start": one.start,
                    "end": one.end,
                }
                for one in rows[0]
            ]
        mask = served.bert.tokenizer.mask_token
        if "fill-mask" in served.can and text is not None and mask is not None and mask in text:
            top = (body.parameters or {}).get("top_k", 5)
            if type(top) is not int or not 1 <= top <= 1000:
                raise ServeError(422, "parameters.top_k must be from 1 to 1000")
            self.work.check_guesses(served, [text], top)
            guesses = await self.work.run(
                served, filling.fill_mask, [text], top, texts=[text], long=body.long
            )
            return [
                {"score": one.score, "token": one.id, "token_str": one.token, "sequence": one.text}
                for one in guesses[0]
            ]
        return await self.embed(EmbedBody.model_validate(given))

    async def _question(self, inputs: Any, body: AnyBody) -> Any:
        question, passage = inputs["question"], inputs["context"]
        if not isinstance(question, str) or not isinstance(passage, str):
            raise ServeError(422, "inputs.question and inputs.context must be strings")
        served = self.work.models.pick(body.model, "answer")
        rows = await self.work.run(
            served,
            answering.answer,
            question,
            passage,
            1,
            30,
            None,
            texts=[question],
            seconds=[passage],
            long=body.long,
        )
        first = rows[0] if rows else answering.Answer("", 0, 0, 0.0)
        return {"answer": first.text, "score": first.score, "start": first.start, "end": first.end}

    def info(self) -> dict[str, Any]:
        """Return TEI's description of the server."""
        served, settings = next(iter(self.work.models)), self.work.settings
        bert = served.bert
        labels = dict(enumerate(bert.checkpoint.labels))
        names = {
            "id2label": {str(n): one for n, one in labels.items()},
            "label2id": {one: n for n, one in labels.items()},
        }
        if served.reranks:
            kind: dict[str, Any] = {"reranker": names}
        elif "classify" in served.can:
            kind = {"classifier": names}
        else:
            kind = {"embedding": {"pooling": served.describe()["pooling"]}}
        dtype = str(next(bert.model.parameters()).dtype).removeprefix("torch.")
        return {
            "model_id": served.name,
            "model_sha": None,
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


def prompt(served: ServedModel, name: str | None) -> str | None:
    """The model's prompt of this name."""
    if name is None:
        return None
    prompts = served.bert.sentence.more.get("prompts") or {}
    if name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ServeError(422, f"the model has no prompt {name[:100]!r}; it has: {known}")
    return str(prompts[name])


def sigmoid(logits: Any) -> Any:
    """The probability of a single output."""
    return logits.sigmoid()


def _spelled(text: str, tokens: Any) -> list[dict[str, Any]]:
    return [
        {"text": text[start:end], "start": start, "end": end}
        for (start, end), special in zip(tokens.spans, tokens.special, strict=True)
        if not special
    ]


def tei_routes(work: Work) -> APIRouter:
    """Return the routes of TEI that the models support."""
    router = APIRouter(route_class=JsonRoute, tags=["text-embeddings-inference"])
    tei = Tei(work)

    @router.post("/", response_model=None)
    async def any_task(body: AnyBody) -> Any:
        """Inputs of whatever task the model is for (huggingface_hub's InferenceClient)."""
        return await tei.any(body)

    @router.post("/embed")
    async def embed(body: EmbedBody) -> list[list[float]]:
        """A vector for every input; with `read`, an object with `embeddings` and `read`."""
        return await tei.embed(body)

    @router.post("/embed_all")
    async def embed_all(body: EmbedAllBody) -> list[list[list[float]]]:
        """A vector for every token of every input."""
        served = work.models.pick(body.model, "embed")
        texts = tei.texts(served, body.inputs)
        rows = await work.tokens(served, texts, body.long)
        return vectors_answer([one.vectors.tolist() for one in rows])  # type: ignore[return-value]

    if "classify" in work.models.can:

        @router.post("/predict", response_model=None)
        async def predict(body: PredictBody) -> Any:
            """Labels with scores, best first."""
            return await tei.predict(body)

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

    @router.post("/tokenize")
    async def tokenize(body: TokenizeBody) -> list[list[dict[str, Any]]]:
        """Tokens with the characters that they stand for."""
        return await tei.tokenize(body)

    @router.post("/decode")
    async def decode(body: DecodeBody) -> list[str]:
        """The texts of token ids."""
        return await tei.decode(body)

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """The first model and the server's limits."""
        return tei.info()

    @router.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        content, kind = work.metrics.text()
        return Response(content, media_type=kind)

    return router
