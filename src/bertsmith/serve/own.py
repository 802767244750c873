"""The server's own routes: one for each task that a loaded model has a head for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter
from pydantic import Discriminator, Field, Tag
from starlette.responses import HTMLResponse

from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import all_depths, hidden_state_steps
from bertsmith.serve.route import Body, JsonRoute, ModelName, Read, Top
from bertsmith.serve.vllm import VllmClassify, vllm_classify
from bertsmith.serve.work import USAGE, Work
from bertsmith.tasks import filling, following
from bertsmith.tasks.answering import task as answering
from bertsmith.tasks.choice import task as choice
from bertsmith.tasks.classification import task as classification
from bertsmith.tasks.tagging import task as tagging

Long = Annotated[
    Literal["window", "refuse", "cut"] | None,
    Field(description="Texts beyond the model's length; None: the server's setting."),
]
Text = str
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Texts = str | Annotated[list[Text], Field(min_length=1)]


class OwnBody(Body):
    """The fields that all routes of the server accept."""

    model: ModelName = None
    long: Long = None
    read: Read = False


class FillMaskBody(OwnBody):
    """Texts with masks."""

    inputs: Texts
    top: Top = 5


class ClassifyBody(OwnBody):
    """Texts, or pairs of texts."""

    inputs: Texts
    pairs: Texts | None = None


class TagBody(OwnBody):
    """Texts; `words` asks for the label of every word instead of entities."""

    inputs: Texts
    words: bool = False


class AnswerBody(OwnBody):
    """A question and a passage of any length."""

    question: Text
    passage: Text
    top: Annotated[int, Field(ge=1, le=100)] = 1
    longest: Annotated[int, Field(ge=1, le=128)] = 30
    empty: bool | None = None


class ChooseBody(OwnBody):
    """A prompt and its choices."""

    prompt: Text
    choices: Annotated[list[Text], Field(min_length=1)]


class FollowsBody(OwnBody):
    """Pairs of texts for next-sentence prediction."""

    first: Texts
    second: Texts


class StatesBody(Body):
    """Hidden states at some depths."""

    model: ModelName = None
    inputs: Texts
    depths: Annotated[list[int], Field(min_length=1, max_length=64)] | None = None
    pool: Literal["words", "mean"] | None = None
    special: bool = False


class AttentionBody(Body):
    """The attention of some layers and heads in a text or pair."""

    model: ModelName = None
    text: Text
    pair: Text | None = None
    layers: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    heads: Annotated[list[int], Field(min_length=1, max_length=256)] | None = None
    format: Literal["json", "html"] = "json"


def classify_kind(value: Any) -> str:
    """Return the dialect of a body of /classify."""
    keys = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return "vllm" if "input" in keys else "own"


Classify = Annotated[
    Annotated[ClassifyBody, Tag("own")] | Annotated[VllmClassify, Tag("vllm")],
    Discriminator(classify_kind),
]


def own_routes(work: Work) -> APIRouter:
    """Return the routes of tasks that at least one model supports."""
    router = APIRouter(route_class=JsonRoute, tags=["bertsmith"])
    can = work.models.can

    def post(path: str, ability: str) -> Callable[[Endpoint], Endpoint]:
        return router.post(path) if ability in can else lambda endpoint: endpoint

    @post("/fill-mask", "fill-mask")
    async def fill_mask(body: FillMaskBody) -> dict[str, Any]:
        """The likeliest tokens for every mask."""
        served, texts = work.models.pick(body.model, "fill-mask"), listed(body.inputs)
        work.check_guesses(served, texts, body.top)
        rows = await work.run(
            served, filling.fill_mask, texts, body.top, texts=texts, long=body.long
        )
        return result([[one.to_dict() for one in row] for row in rows], body)

    @post("/classify", "classify")
    async def classify(body: Classify) -> dict[str, Any]:
        """The label of every text or pair, with the scores of all labels."""
        if isinstance(body, VllmClassify):
            return await vllm_classify(work, body)
        served, texts = work.models.pick(body.model, "classify"), listed(body.inputs)
        pairs = None if body.pairs is None else listed(body.pairs)
        rows = await work.run(
            served,
            classification.classify,
            texts,
            pairs,
            texts=texts,
            seconds=pairs or (),
            long=body.long,
        )
        return result([one.to_dict() for one in rows], body)

    @post("/tag", "tag")
    async def tag(body: TagBody) -> dict[str, Any]:
        """Entities with the characters where they begin and end."""
        served, texts = work.models.pick(body.model, "tag"), listed(body.inputs)
        task = tagging.tag_words if body.words else tagging.tag
        rows = await work.run(served, task, texts, texts=texts, long=body.long)
        return result([[one.to_dict() for one in row] for row in rows], body)

    @post("/answer", "answer")
    async def answer(body: AnswerBody) -> dict[str, Any]:
        """The parts of a passage that answer a question, best first."""
        served = work.models.pick(body.model, "answer")
        args = (body.question, body.passage, body.top, body.longest, body.empty)
        rows = await work.run(
            served,
            answering.answer,
            *args,
            texts=[body.question],
            seconds=[body.passage],
            long=body.long,
        )
        return result([one.to_dict() for one in rows], body)

    @post("/choose", "choose")
    async def choose(body: ChooseBody) -> dict[str, Any]:
        """The choice that fits a prompt best."""
        served = work.models.pick(body.model, "choose")
        best = await work.run(
            served,
            choice.choose,
            body.prompt,
            body.choices,
            texts=[body.prompt] * len(body.choices),
            seconds=body.choices,
            windowed=[body.prompt],
            long=body.long,
        )
        return result(best.to_dict(), body)

    @post("/follows", "follows")
    async def follows(body: FollowsBody) -> dict[str, Any]:
        """The probability that the second text follows the first."""
        served = work.models.pick(body.model, "follows")
        first, second = listed(body.first), listed(body.second)
        rows = await work.run(
            served, following.follows, first, second, texts=first, seconds=second, long=body.long
        )
        return result(rows, body)

    @router.post("/states")
    async def states(body: StatesBody) -> dict[str, Any]:
        """Hidden states of tokens, words or texts at any depth."""
        served, texts = work.models.pick(body.model, "embed"), listed(body.inputs)
        depths = body.depths or [all_depths(served.bert)[-1]]

        def steps(bert: LoadedModel) -> Generator[None, None, list[dict[str, Any]]]:
            rows = []
            for one in hidden_state_steps(bert, texts, depths, body.pool, body.special):
                if one is None:
                    yield
                else:
                    rows.append({"spans": one.spans, "vectors": one.vectors})
            return rows

        return result(await work.alone(served, texts, steps, len(depths)), None)

    @router.post("/attention")
    async def attention(body: AttentionBody) -> Any:
        """Attention weights of every layer and head, or the page that shows them."""
        served = work.models.pick(body.model, "embed")
        if body.format == "html":
            html = await work.attention(
                served,
                body.text,
                body.pair,
                lambda view: view.page().html(),
                body.layers,
                body.heads,
            )
            return HTMLResponse(html)
        return await work.attention(served, body.text, body.pair, _weights, body.layers, body.heads)

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models of this server and what each can do."""
        return {"models": [one.describe() for one in work.models]}

    return router


def listed(texts: str | list[str]) -> list[str]:
    """Return texts as a list, also a single one."""
    return [texts] if isinstance(texts, str) else texts


def result(value: Any, body: OwnBody | None) -> dict[str, Any]:
    """Return a response of the server's own routes, with `read` if it was requested."""
    usage = USAGE.get()
    answer = {"model": usage.model, "results": value, "tokens": usage.tokens}
    return {**answer, "read": usage.read} if body is not None and body.read else answer


def _weights(view: Any) -> dict[str, Any]:
    tokens = [{"text": one.text, "token": one.token, "source": one.source} for one in view.tokens]
    return {
        "model": view.name,
        "tokens": tokens,
        "layers": list(view.layers),
        "heads": list(view.heads),
        "weights": view.maps().round(5),
    }
