"""The routes of text-embeddings-inference (TEI)."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from bertsmith import __version__
from bertsmith.cpu import int8_weights
from bertsmith.serve.cohere import CohereRerank
from bertsmith.serve.models import ServedModel
from bertsmith.serve.own import TokenSimilarityBody
from bertsmith.serve.route import (
    Body,
    Filled,
    Ids,
    Loose,
    ModelName,
    Read,
    Truncate,
    by_score,
    either,
    routes,
)
from bertsmith.serve.service import USAGE, ModelService
from bertsmith.tasks.classifying import activation, raw, softmax, vote
from bertsmith.tasks.use import Call, listed

ACTIVATIONS = {"sigmoid": torch.sigmoid, "softmax": softmax, "none": raw}
Input = str | Ids | Filled[str | Ids]
Pair = Annotated[list[str], Field(min_length=1, max_length=2)]


class Truncation(BaseModel):
    """The fields that say how long texts are handled."""

    truncate: Truncate | None = None
    truncation_direction: Literal["right", "left", "Right", "Left"] = "right"

    @property
    def long(self) -> str | None:
        """How long texts are handled; None selects the server's setting."""
        if not self.truncate:
            return None
        return "cut" if self.truncation_direction.lower() == "right" else "cut_left"


class TeiBody(Truncation, Loose):
    """The fields that most routes of TEI accept; `model` and `read` are additions."""

    model: ModelName = None
    prompt_name: str | None = None


class TeiEmbed(TeiBody):
    """Texts to embed: a vector for each; with `read`, an object with `embeddings` and `read`."""

    inputs: Input
    normalize: bool | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    pooling: Literal["mean", "cls"] | None = None
    read: Read = False

    async def respond(self, service: ModelService) -> Any:
        """A vector for every input."""
        served = service.pick(self.model, "embed")
        vectors = await service.embed(
            served,
            await service.texts(served, self.inputs),
            pooling=self.pooling,
            normalise=self.normalize is not False,
            long=self.long,
            dimensions=self.dimensions,
            prompt=served.prompt(self.prompt_name),
        )
        return {"embeddings": vectors, "read": USAGE.get().read} if self.read else vectors


class TeiEmbedAll(TeiBody):
    """Texts to embed: a vector for each of their tokens."""

    inputs: Input

    async def respond(self, service: ModelService) -> Any:
        """A vector for every token of every input."""
        served = service.pick(self.model, "embed")
        texts = await service.texts(served, self.inputs)
        rows = await service.states(served, texts, special=True, long=self.long)
        return [states.vectors[0] for states in rows]


class TeiPredict(TeiBody):
    """A text, a pair of texts, or a batch of lists of one or two texts: labels, best first."""

    inputs: str | Pair | Filled[Pair]
    raw_scores: bool = False

    async def respond(self, service: ModelService) -> Any:
        """Labels with scores, best first."""
        served = service.pick(self.model, "classify")
        single = isinstance(self.inputs, str) or isinstance(self.inputs[0], str)
        rows: Any = [listed(self.inputs)] if single else self.inputs  # type: ignore[arg-type]
        how = "none" if self.raw_scores else None
        ranked = await label_scores(service, served, rows, how, self.long)
        return ranked[0] if single else ranked


class TeiRerank(TeiBody):
    """A query and texts to order by relevance; with `documents`, as Cohere and Jina ask."""

    query: str
    texts: Filled[str]
    raw_scores: bool = False
    return_text: bool = False
    read: Read = False

    async def respond(self, service: ModelService) -> Any:
        """Texts by relevance, best first."""
        served, texts = service.reranker(self.model), self.texts
        queries = [self.query] * len(texts)
        scores = await service.relevance(
            served, queries, texts, long=self.long, raw_scores=self.raw_scores
        )
        ranked = []
        for n in by_score(scores):
            text = {"text": texts[n]} if self.return_text else {}
            ranked.append({"index": n, **text, "score": scores[n]})
        return {"results": ranked, "read": USAGE.get().read} if self.read else ranked


class Sentences(Loose):
    """A sentence and those that it is compared with."""

    source_sentence: str
    sentences: Filled[str]


class SimilarityParameters(Truncation, Body):
    """How sentences are read."""

    prompt_name: str | None = None


class TeiSimilarity(Loose):
    """Sentences to compare by the cosine of their vectors; `first` and `second`: token by token."""

    model: ModelName = None
    inputs: Sentences
    parameters: SimilarityParameters | None = None

    async def respond(self, service: ModelService) -> list[float]:
        """Cosines of a sentence and others."""
        served = service.pick(self.model, "embed")
        texts = [self.inputs.source_sentence, *self.inputs.sentences]
        how = self.parameters or SimilarityParameters()
        start = served.prompt(how.prompt_name)
        vectors = await service.embed(served, texts, normalise=True, long=how.long, prompt=start)
        return [float(cosine) for cosine in vectors[1:] @ vectors[0]]


class TeiTokenize(Loose):
    """Texts to split into tokens, with the characters that these stand for."""

    model: ModelName = None
    inputs: str | Filled[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None

    async def respond(self, service: ModelService) -> list[list[dict[str, Any]]]:
        """Tokens with the characters that they stand for."""
        served, texts = service.pick(self.model, "embed"), listed(self.inputs)
        service.begin(served, texts)
        service.check(texts)
        start, tokenizer = served.prompt(self.prompt_name) or "", served.bert.tokenizer

        def tokens(text: str) -> list[dict[str, Any]]:
            encoding, rows = tokenizer.encode(start + text, special=self.add_special_tokens), []
            for id_, span, source in zip(
                encoding.ids, encoding.offsets, encoding.sources, strict=True
            ):
                first, stop = (None, None) if source is None else span
                row = {"id": id_, "text": tokenizer.token(id_), "special": source is None}
                rows.append({**row, "start": first, "stop": stop})
            return rows

        rows = await service.call(sum(map(len, texts)), lambda: [*map(tokens, texts)])
        USAGE.get().tokens += sum(map(len, rows))
        return rows


class TeiDecode(Loose):
    """Token ids to turn into text."""

    model: ModelName = None
    ids: Ids | Filled[Ids]
    skip_special_tokens: bool = True

    async def respond(self, service: ModelService) -> list[str]:
        """The texts of token ids."""
        served = service.pick(self.model, "embed")
        rows: Any = [self.ids] if isinstance(self.ids[0], int) else self.ids
        service.begin(served, ())
        service.check([""] * len(rows))
        decode, skip = served.bert.tokenizer.decode, self.skip_special_tokens
        size = sum(map(len, rows))
        return await service.call(size, lambda: [decode(row, skip_special=skip) for row in rows])


async def label_scores(
    service: ModelService,
    served: ServedModel,
    rows: Sequence[list[str]],
    how: str | None,
    long: str | None,
) -> list[list[dict[str, Any]]]:
    """The labels of each text or pair with their scores, best first; `how` makes logits scores."""
    service.check([text for row in rows for text in row])
    labels = served.bert.checkpoint.labels
    default = torch.sigmoid if len(labels) == 1 else activation(served.bert.checkpoint)
    activate = default if how is None else ACTIVATIONS[how]
    ranked: dict[int, list[dict[str, Any]]] = {}
    for size in {*map(len, rows)}:  # 1: texts, 2: pairs
        numbers = [number for number, row in enumerate(rows) if len(row) == size]
        texts = [rows[number][0] for number in numbers]
        pairs = [rows[number][1] for number in numbers] if size == 2 else None
        call = Call(vote, (texts, pairs, activate), texts, pairs or ())
        for number, scores in zip(numbers, await service.run(served, call, long), strict=True):
            ranked[number] = [{"score": scores[n], "label": labels[n]} for n in by_score(scores)]
    return [ranked[number] for number in range(len(rows))]


def tei_routes(service: ModelService) -> APIRouter:
    """Return the routes of TEI that the models support; /embed is shared with our own."""
    bodies = {
        "/embed_all": TeiEmbedAll,
        "/rerank": either(lambda keys: "documents" in keys, CohereRerank, TeiRerank),
        "/similarity": either(lambda keys: "inputs" in keys, TeiSimilarity, TokenSimilarityBody),
        "/tokenize": TeiTokenize,
        "/decode": TeiDecode,
        **({"/predict": TeiPredict} if "classify" in service.models.can else {}),
    }
    router = routes("text-embeddings-inference", service, bodies)

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """The model of the address, else the first one, and the server's limits."""
        return _info(service.addressed[0], service.settings.max_inputs)

    @router.get("/metrics", response_model=None)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        content, kind = service.metrics.text()
        return Response(content, media_type=kind)

    return router


def _info(served: ServedModel, most: int) -> dict[str, Any]:
    bert = served.bert
    labels = bert.checkpoint.labels
    if served.cross_encoder or "classify" in served.can:
        kind = "reranker" if served.cross_encoder else "classifier"
        content: Any = {"id2label": {str(number): label for number, label in enumerate(labels)}}
        content["label2id"] = {label: number for number, label in enumerate(labels)}
    else:
        kind, content = "embedding", {"pooling": served.describe()["pooling"]}
    dtype = str(next(bert.model.parameters()).dtype).removeprefix("torch.")
    return {
        "model_id": served.name,
        "model_sha": served.sha,
        "model_dtype": "int8" if int8_weights(bert.model) else dtype,
        "model_type": {kind: content},
        "max_concurrent_requests": 512,
        "max_input_length": min(bert.max_length, bert.sentence.max_length or bert.max_length),
        "max_batch_tokens": served.batcher.budget,
        "max_batch_requests": None,
        "max_client_batch_size": most,
        "auto_truncate": False,
        "tokenization_workers": 2,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
