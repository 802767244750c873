"""Hugging Face's inference API: `POST /`, one URL for all tasks, and `POST /pipeline/TASK`.

Keys are those of huggingface_hub's InferenceClient (in `parameters`) and of TEI (beside `inputs`).
A key that the task does not honour is an error.
"""

from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, ValidationError, create_model

from bertsmith.serve import tei
from bertsmith.serve.errors import ServeError
from bertsmith.serve.models import Models, ServedModel
from bertsmith.serve.route import Body, Filled, ModelName, routes
from bertsmith.serve.service import ModelService
from bertsmith.serve.validation import invalid
from bertsmith.tasks.answering.task import Answer, AnswerRequest
from bertsmith.tasks.filling import FillMaskRequest
from bertsmith.tasks.tagging.task import TagRequest
from bertsmith.tasks.use import RequestBody, Texts, listed
from bertsmith.tasks.zero_shot.task import TEMPLATE, LabelRequest

Top = Annotated[int, Field(ge=1, le=1000)]


class TaskBody(tei.Truncation, Body):
    """Inputs and parameters of one task of Hugging Face."""

    verb: ClassVar[str]  # of the use
    own: ClassVar[tuple[str, ...]] = ()  # keys that only this task has
    inputs: Any

    async def pipeline(self, service: ModelService, served: ServedModel) -> Any:
        """The answer of the pipeline of this task: for a single text, or a list for several."""
        results = await service.ask(served, self.verb, self._request(), self.long)
        answers = [self._answer(result) for result in results]
        return answers[0] if isinstance(self.inputs, str) else answers

    def _request(self) -> RequestBody:
        raise NotImplementedError

    def _answer(self, result: Any) -> Any:
        """The result for one text in Hugging Face's format."""
        raise NotImplementedError


class SentencesBody(TaskBody):
    """Sentences to compare."""

    verb, own = "embed", ("source_sentence",)
    inputs: tei.Sentences
    prompt_name: str | None = None

    async def pipeline(self, service: ModelService, served: ServedModel) -> list[float]:
        """The cosine of each sentence with the first."""
        parameters, inputs = self.model_dump(exclude={"inputs"}), self.inputs.model_dump()
        body = {"model": served.name, "inputs": inputs, "parameters": parameters}
        return await tei.TeiSimilarity.model_validate(body).respond(service)


class QuestionInputs(Body):
    """A question and the passage that may answer it."""

    question: str
    context: str


class QuestionBody(TaskBody):
    """A question to answer."""

    verb, own = "answer", ("question",)
    inputs: QuestionInputs
    top_k: Annotated[int, Field(ge=1, le=100)] = 1
    max_answer_len: Annotated[int, Field(ge=1, le=128)] = 30
    handle_impossible_answer: bool | None = None

    async def pipeline(self, service: ModelService, served: ServedModel) -> Any:
        """The best answer, or several."""
        answers = await super().pipeline(service, served) or [self._answer(Answer("", 0, 0, 0.0))]
        return answers[0] if self.top_k == 1 else answers

    def _request(self) -> AnswerRequest:
        return AnswerRequest(
            question=self.inputs.question,
            passage=self.inputs.context,
            top=self.top_k,
            longest=self.max_answer_len,
            empty=self.handle_impossible_answer,
        )

    def _answer(self, result: Answer) -> dict[str, Any]:
        start, end = result.start, result.end
        return {"answer": result.text, "score": result.score, "start": start, "end": end}


class ZeroShotBody(TaskBody):
    """Texts to classify with labels of the request."""

    verb, own = "choose-label", ("candidate_labels",)
    inputs: Texts
    candidate_labels: str | Filled[str]
    hypothesis_template: str | None = None
    multi_label: bool = False

    def _request(self) -> LabelRequest:
        labels = self.candidate_labels
        if isinstance(labels, str):  # as the pipeline of transformers reads it
            labels = [label.strip() for label in labels.split(",") if label.strip()]
        template = (self.hypothesis_template or TEMPLATE).replace("{}", "{label}", 1)
        return LabelRequest.model_construct(
            inputs=self.inputs, labels=labels, template=template, several=self.multi_label
        )

    def _answer(self, result: Any) -> list[dict[str, Any]]:
        ranked = sorted(result.scores.items(), key=lambda item: -item[1])
        return [{"label": name, "score": score} for name, score in ranked]


class LabelBody(TaskBody):
    """Texts to classify; a list has one result for each. Pairs are lists of two."""

    verb, own = "classify", ("function_to_apply", "raw_scores")
    inputs: str | Filled[str] | Filled[tei.Pair]
    top_k: Top | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    raw_scores: bool = False

    async def pipeline(self, service: ModelService, served: ServedModel) -> Any:
        """The labels with their scores, best first."""
        inputs: list[Any] = listed(self.inputs)  # type: ignore[arg-type]
        rows = [[text] if isinstance(text, str) else text for text in inputs]
        activation = "none" if self.raw_scores else self.function_to_apply
        scores = await tei.label_scores(service, served, rows, activation, self.long)
        return [row[: self.top_k] for row in scores]


class EntityBody(TaskBody):
    """Texts to find entities in. A word has the label of its first token."""

    verb, own = "tag", ("aggregation_strategy", "ignore_labels")
    inputs: Texts
    aggregation_strategy: Literal["first"] | None = None
    ignore_labels: Annotated[list[str], Field(default_factory=lambda: ["O"])]

    def _request(self) -> TagRequest:
        if "O" not in self.ignore_labels:
            raise ServeError(422, "ignore_labels must contain 'O': entities only are listed")
        return TagRequest(inputs=self.inputs)

    def _answer(self, result: Any) -> list[dict[str, Any]]:
        return [
            {
                "entity_group": entity.label,
                "score": entity.score,
                "word": entity.text,
                "start": entity.start,
                "end": entity.end,
            }
            for entity in result
            if entity.label not in self.ignore_labels
        ]


class MaskBody(TaskBody):
    """Texts with masks."""

    verb = "fill-mask"
    inputs: Texts
    top_k: Top = 5

    def _request(self) -> FillMaskRequest:
        return FillMaskRequest(inputs=self.inputs, top=self.top_k)

    def _answer(self, result: Any) -> list[dict[str, Any]]:
        return [
            {"score": fill.score, "token": fill.id, "token_str": fill.token, "sequence": fill.text}
            for fill in result
        ]


class VectorBody(TaskBody):
    """Texts to embed."""

    verb, own = "embed", ("normalize", "dimensions", "prompt_name")
    inputs: tei.Input
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None

    async def pipeline(self, service: ModelService, served: ServedModel) -> Any:
        """A vector for each text."""
        return await tei.TeiEmbed(model=served.name, **self.model_dump()).respond(service)


TASKS: dict[str, type[TaskBody]] = {
    "sentence-similarity": SentencesBody,
    "question-answering": QuestionBody,
    "zero-shot-classification": ZeroShotBody,
    "text-classification": LabelBody,
    "token-classification": EntityBody,
    "fill-mask": MaskBody,
    "feature-extraction": VectorBody,
}


class HubOptions(Body):
    """Options for servers of the hub. Models here are loaded, and nothing is cached."""

    wait_for_model: bool | None = None
    use_cache: bool | None = None


class HubBody(Body):
    """Inputs and parameters of a task; without a task, of whatever task the model is for."""

    model_config = ConfigDict(extra="allow")

    task: ClassVar[str | None] = None
    model: ModelName = None
    inputs: Any
    parameters: dict[str, Any] | None = None
    options: HubOptions | None = None

    async def respond(self, service: ModelService) -> Any:
        """The answer of the pipeline of the task."""
        keys = {**(self.model_extra or {}), **(self.parameters or {})}
        task = TASKS[
            self.task or self._by_inputs(service.models, {*keys}) or self._of_model(service)
        ]
        served = service.pick(self.model, task.verb)
        keys["inputs"] = self.inputs
        try:
            body = task.model_validate({key: keys[key] for key in keys if keys[key] is not None})
        except ValidationError as error:
            raise invalid(error, {None: task}) from error
        return await body.pipeline(service, served)

    def _by_inputs(self, models: Models, keys: set[str]) -> str | None:
        """The task that only these inputs or parameters can be for."""
        inputs = self.inputs
        if not isinstance(inputs, str | list | dict):
            return None  # which is refused by any task
        keys.update(inputs if isinstance(inputs, dict) else ())
        if tasks := [name for name, task in TASKS.items() if keys & {*task.own}]:
            return tasks[0]
        able = [models.get(self.model)] if self.model else [*models]
        masks = [str(model.bert.tokenizer.mask_token) for model in able if "fill-mask" in model.can]
        texts = [text for text in listed(inputs) if isinstance(text, str)]  # type: ignore[arg-type]
        return "fill-mask" if any(mask in text for mask in masks for text in texts) else None

    def _of_model(self, service: ModelService) -> str:
        """The task that a model is for; without a name, the first one that the caller may use."""
        served = service.models.get(self.model) if self.model else service.usable(service.models)[0]
        for name in ("text-classification", "token-classification", "question-answering"):
            if TASKS[name].verb in served.can:
                return name
        return "feature-extraction"


def hub_routes(service: ModelService) -> APIRouter:
    """`POST /`, and a route for each task."""
    bodies: dict[str, type[HubBody]] = {"/": HubBody}
    for name, task in TASKS.items():
        body = create_model(f"Hub{task.__name__}", __base__=HubBody, __doc__=task.__doc__)
        body.task = name
        bodies[f"/pipeline/{name}"] = body
    return routes("Hugging Face", service, bodies)
