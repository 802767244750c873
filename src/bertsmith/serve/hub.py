"""Hugging Face's inference API: `POST /`, one URL for all tasks, and `POST /pipeline/TASK`.

Keys are those of huggingface_hub's InferenceClient (in `parameters`) and of TEI (beside `inputs`).
A key that the task does not honour is an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

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
from bertsmith.tasks.zero_shot.task import TEMPLATE, LabelRequest

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


class GivenLabelsBody(TaskBody):
    """Texts to classify with labels of the request (zero-shot)."""

    inputs: Texts
    candidate_labels: str | Filled[str]
    hypothesis_template: str | None = None
    multi_label: bool = False


class HubTask(NamedTuple):
    """A task of Hugging Face: what a model is asked for, its request and its own keys."""

    verb: str
    Body: type[TaskBody]
    keys: set[str]  # only this task has them


TASKS = {
    "sentence-similarity": HubTask("embed", SentencesBody, {"source_sentence"}),
    "question-answering": HubTask("answer", QuestionBody, {"question"}),
    "zero-shot-classification": HubTask("choose-label", GivenLabelsBody, {"candidate_labels"}),
    "text-classification": HubTask("classify", LabelBody, {"function_to_apply", "raw_scores"}),
    "token-classification": HubTask("tag", EntityBody, {"aggregation_strategy", "ignore_labels"}),
    "fill-mask": HubTask("fill-mask", MaskBody, set()),
    "feature-extraction": HubTask("embed", VectorBody, {"normalize", "dimensions", "prompt_name"}),
}


class Hub:
    """The tasks of Hugging Face, each with the request and the answer of its pipeline."""

    def __init__(self, work: Work) -> None:
        self.work, self.tei = work, Tei(work)
        self.steps: dict[str, Callable[[ServedModel, Any], Awaitable[Any]]] = {
            "sentence-similarity": self._similarity,
            "question-answering": self._question,
            "zero-shot-classification": self._given_labels,
            "text-classification": self._labels,
            "token-classification": self._entities,
            "fill-mask": self._masks,
            "feature-extraction": self._vectors,
        }

    async def answer(self, body: HubBody) -> Any:
        """Inputs of whatever task the model is for (huggingface_hub's InferenceClient)."""
        return await self.one(self._by_inputs(body) or self._of_model(body.model), body)

    async def one(self, name: str, body: HubBody) -> Any:
        """Inputs of one task."""
        served = self.work.models.pick(body.model, TASKS[name].verb)
        return await self.steps[name](served, parsed(TASKS[name].Body, body))

    def _by_inputs(self, body: HubBody) -> str | None:
        """The task that only these inputs or parameters can be for."""
        inputs, keys = body.inputs, {*(body.parameters or ()), *(body.model_extra or ())}
        if not isinstance(inputs, str | list | dict):
            return None  # which is refused by any task
        keys.update(inputs if isinstance(inputs, dict) else ())
        for name, task in TASKS.items():
            if keys & task.keys:
                return name
        models = [self.work.models.named(body.model)] if body.model else [*self.work.models]
        masks = [str(one.bert.tokenizer.mask_token) for one in models if "fill-mask" in one.can]
        texts = [text for text in listed(inputs) if isinstance(text, str)]  # type: ignore[arg-type]
        return "fill-mask" if any(mask in text for mask in masks for text in texts) else None

    def _of_model(self, name: str | None) -> str:
        """The task that a model is for; without a name, the first one."""
        models = self.work.models
        served = models.named(name) if name else next(iter(models))
        for task in ("text-classification", "token-classification", "question-answering"):
            if TASKS[task].verb in served.can:
                return task
        return "feature-extraction"

    async def _similarity(self, served: ServedModel, body: SentencesBody) -> list[float]:
        how = body.model_dump(exclude={"inputs"})
        asked = {"model": served.name, "inputs": body.inputs.model_dump(), "parameters": how}
        return await self.tei.similarity(SimilarityBody.model_validate(asked))

    async def _vectors(self, served: ServedModel, body: VectorBody) -> Any:
        return await self.tei.embed(EmbedBody(model=served.name, **body.model_dump()))

    async def _given_labels(self, served: ServedModel, body: GivenLabelsBody) -> Any:
        labels = body.candidate_labels
        if isinstance(labels, str):  # as the pipeline of transformers reads it
            labels = [label.strip() for label in labels.split(",") if label.strip()]
        asked = LabelRequest.model_construct(
            inputs=body.inputs,
            labels=labels,
            template=(body.hypothesis_template or TEMPLATE).replace("{}", "{label}", 1),
            several=body.multi_label,
        )
        rows = await self.work.ask(served, "choose-label", asked, body.long)
        found = [
            sorted(
                ({"label": name, "score": score} for name, score in one.scores.items()),
                key=lambda one: -one["score"],
            )
            for one in rows
        ]
        return found[0] if isinstance(body.inputs, str) else found

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
    """`POST /`, and a route for each task."""
    router, hub = APIRouter(route_class=JsonRoute, tags=["Hugging Face"]), Hub(work)
    router.post("/", response_model=None, name="any_task")(hub.answer)
    for name in TASKS:

        async def one_task(body: HubBody, name: str = name) -> Any:
            """Inputs of one task, for the first model that supports it."""
            return await hub.one(name, body)

        router.post(f"/pipeline/{name}", response_model=None, name=name)(one_task)
    return router
