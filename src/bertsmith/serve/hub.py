"""`POST /`: Hugging Face's inference API, which sends inputs of all tasks to one URL.

Keys are those of huggingface_hub's InferenceClient (in `parameters`) and of TEI (beside `inputs`).
A key that the task of the model does not honour is an error.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter
from pydantic import ConfigDict, Field, ValidationError

from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import ServedModel
from bertsmith.serve.route import Body, Filled, JsonRoute, ModelName
from bertsmith.serve.tei import Tei, label_scores
from bertsmith.serve.tei_bodies import EmbedBody, Input, Pair, Sentences, SimilarityBody, Truncation
from bertsmith.serve.validation import invalid
from bertsmith.serve.work import Work
from bertsmith.tasks.answering.task import Answer, AnswerRequest
from bertsmith.tasks.filling import FillMaskRequest
from bertsmith.tasks.tagging.task import TagRequest
from bertsmith.tasks.use import Texts, listed

Top = Annotated[int, Field(ge=1, le=1000)]
Task = TypeVar("Task", bound="TaskBody")


class Options(Body):
    """Options for servers of the hub. Models here are loaded, and nothing is cached."""

    wait_for_model: bool | None = None
    use_cache: bool | None = None


class HubBody(Body):
    """Inputs of whatever task the model is for; other keys are those of the task."""

    model_config = ConfigDict(extra="allow")

    model: ModelName = None
    inputs: Any
    parameters: dict[str, Any] | None = None
    options: Options | None = None


class TaskBody(Truncation, Body):
    """Inputs and parameters of one task."""

    inputs: Any


class LabelBody(TaskBody):
    """Texts to classify; a list has one result for each. Pairs are lists of two."""

    inputs: str | Filled[str] | Filled[Pair]
    top_k: Top | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    raw_scores: bool = False


class EntityBody(TaskBody):
    """Texts to find entities in. A word has the label of its first token."""

    inputs: Texts
    aggregation_strategy: Literal["first"] | None = None
    ignore_labels: list[str] | None = None


class MaskBody(TaskBody):
    """Texts with masks."""

    inputs: Texts
    top_k: Top | None = None


class Question(Body):
    """A question and the passage that may answer it."""

    question: str
    context: str


class QuestionBody(TaskBody):
    """A question to answer."""

    inputs: Question
    top_k: Annotated[int, Field(ge=1, le=100)] | None = None
    max_answer_len: Annotated[int, Field(ge=1, le=128)] | None = None
    handle_impossible_answer: bool | None = None


class VectorBody(TaskBody):
    """Texts to embed."""

    inputs: Input
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class SentencesBody(TaskBody):
    """Sentences to compare."""

    inputs: Sentences
    prompt_name: str | None = None


class Hub:
    """The tasks of `POST /`, chosen by the inputs and by the heads of the model."""

    def __init__(self, work: Work) -> None:
        self.work, self.tei = work, Tei(work)

    async def answer(self, body: HubBody) -> Any:
        """Inputs of whatever task the model is for (huggingface_hub's InferenceClient)."""
        inputs, models = body.inputs, self.work.models
        if isinstance(inputs, dict) and "source_sentence" in inputs:
            own = parsed(SentencesBody, body).model_dump()
            asked = {"model": body.model, "inputs": own.pop("inputs"), "parameters": own}
            return await self.tei.similarity(SimilarityBody.model_validate(asked))
        if isinstance(inputs, dict) and "question" in inputs:
            served = models.pick(body.model, "answer")
            return await self._question(served, parsed(QuestionBody, body))
        served = models.named(body.model) if body.model else next(iter(models))
        if "candidate_labels" in {*(body.parameters or ()), *(body.model_extra or ())}:
            labels = served.bert.checkpoint.labels if "classify" in served.can else ("none",)
            raise ServeError(
                422,
                f"candidate_labels: no model here classifies with labels of a request (zero-shot); "
                f"the labels of {served.name}: {', '.join(labels)}",
            )
        if "classify" in served.can:
            return await self._labels(served, parsed(LabelBody, body))
        if "tag" in served.can:
            return await self._entities(served, parsed(EntityBody, body))
        mask, texts = served.bert.tokenizer.mask_token, listed(inputs)
        masked = mask and any(isinstance(text, str) and mask in text for text in texts)
        if "fill-mask" in served.can and masked:
            return await self._masks(served, parsed(MaskBody, body))
        if "answer" in served.can:
            parsed(QuestionBody, body)  # says what is missing
        own = parsed(VectorBody, body).model_dump()
        return await self.tei.embed(EmbedBody(model=served.name, **own))

    async def _labels(self, served: ServedModel, body: LabelBody) -> list[list[dict[str, Any]]]:
        rows = [[one] if isinstance(one, str) else one for one in listed(body.inputs)]  # type: ignore[arg-type]
        how = "none" if body.raw_scores else body.function_to_apply
        scores = await label_scores(self.work, served, rows, how, body.long)
        return [row[: body.top_k] for row in scores]

    async def _entities(self, served: ServedModel, body: EntityBody) -> Any:
        ignored = body.ignore_labels
        if ignored is not None and "O" not in ignored:
            raise ServeError(422, "ignore_labels must contain 'O': entities only are listed")
        rows = await self.work.ask(served, "tag", TagRequest(inputs=body.inputs), body.long)
        found = [
            [
                {
                    "entity_group": one.label,
                    "score": one.score,
                    "word": one.text,
                    "start": one.start,
                    "end": one.end,
                }
                for one in row
                if one.label not in (ignored or ())
            ]
            for row in rows
        ]
        return found[0] if isinstance(body.inputs, str) else found

    async def _masks(self, served: ServedModel, body: MaskBody) -> Any:
        asked = FillMaskRequest(inputs=body.inputs, top=body.top_k or 5)
        rows = await self.work.ask(served, "fill-mask", asked, body.long)
        found = [
            [
                {"score": one.score, "token": one.id, "token_str": one.token, "sequence": one.text}
                for one in row
            ]
            for row in rows
        ]
        return found[0] if isinstance(body.inputs, str) else found

    async def _question(self, served: ServedModel, body: QuestionBody) -> Any:
        asked = AnswerRequest(
            question=body.inputs.question,
            passage=body.inputs.context,
            top=body.top_k or 1,
            longest=body.max_answer_len or 30,
            empty=body.handle_impossible_answer,
        )
        rows = await self.work.ask(served, "answer", asked, body.long)
        found = [
            {"answer": one.text, "score": one.score, "start": one.start, "end": one.end}
            for one in rows or [Answer("", 0, 0, 0.0)]
        ]
        return found[0] if asked.top == 1 else found


def parsed(kind: type[Task], body: HubBody) -> Task:
    """Return the inputs and parameters of a request as those of a task."""
    try:
        keys = {**(body.model_extra or {}), **(body.parameters or {})}
        return kind.model_validate({**keys, "inputs": body.inputs})
    except ValidationError as error:
        raise invalid(error, {None: kind}) from error


def hub_routes(work: Work) -> APIRouter:
    """`POST /`."""
    router = APIRouter(route_class=JsonRoute, tags=["Hugging Face"])
    router.post("/", response_model=None, name="any_task")(Hub(work).answer)
    return router
