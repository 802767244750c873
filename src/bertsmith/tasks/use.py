"""Use: something that a model can be asked for, from Python, on a server and in the playground.

A use that can also be learned is a `Task` (tasks/task.py). The server's routes, the client's
methods, the OpenAPI schema, the forms of the playground and the methods of `Bert` are made of uses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.texts import listed_strings

Texts = str | Annotated[list[str], Field(min_length=1)]  # of a request
Several = list[str] | tuple[str, ...]  # of a method that takes one text or several


class TaskResult:
    """Results that turn into JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python values."""
        return asdict(self)  # type: ignore[call-overload]


class RequestBody(BaseModel):
    """The request of a use: the body of its route. Unknown keys are an error.

    The playground has a form for a use with entries that are described by `form`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def form(label: str, value: Any = "", **more: Any) -> Any:
    """Describe the field of an entry in the playground: its label and what is in it at first.

    `rows` is its height (0: a single line), `insert` a text that a button inserts, `examples` are
    texts to try. [MASK] stands for the mask token of the model. Without a label, the entry has no
    field, and `value` is sent.
    """
    return Field(json_schema_extra={"form": {"label": label, "value": value, "rows": 3, **more}})


class Call(NamedTuple):
    """A request as work for the encoder: a function with its arguments, and the texts it reads."""

    steps: EncoderTask[..., Any]
    args: tuple[Any, ...]
    texts: Sequence[str]  # what a server's limits apply to; of pairs, the first texts
    seconds: Sequence[str] = ()  # the second texts of pairs
    windowed: Sequence[str] | None = None  # those read in windows where they are long
    letters: int = 0  # characters that the answer repeats
    prompt: int = 0  # characters that the model itself puts before each text


class PairScores(NamedTuple):
    """How a model scores pairs of texts: how relevant the second text is to the first."""

    steps: EncoderTask[..., list[float]]  # of first and second texts
    scale: str  # what a score means
    logits: bool  # scores are logits, else probabilities
    single: bool  # the model has this one output: it was trained for it


class Askable:
    """Whatever answers requests: a loaded model, or one on a server.

    The methods of `Bert` are those of the classes `Use.Methods`, each of which inherits this. They
    are written once, and neither check what a server would accept nor where the model is.
    """

    def ask(self, use: Use, request: RequestBody) -> Any:
        """The answer to a request, in the form of `Use.Answer`."""
        raise NotImplementedError

    def ask_each(
        self, use: Use, texts: Any, wrap: Callable[[Any, str], Any] | None = None, **more: Any
    ) -> Any:
        """The answer for a single text, or for each of several; `wrap` also gets the text."""
        single = isinstance(texts, str)
        inputs = [texts] if single else listed_strings(texts)
        request: Any = use.Request  # one of those with `inputs`
        answers = self.ask(use, request.model_construct(inputs=inputs, **more))
        if wrap is not None:
            answers = [wrap(one, text) for one, text in zip(answers, inputs, strict=True)]
        return answers[0] if single else answers


class Use:
    """Something that a model can be asked for. There is one value for each."""

    verb: ClassVar[str] = ""  # "fill-mask": the route /fill-mask; empty: nothing is asked
    order: ClassVar[int] = 100  # its place in lists
    title: ClassVar[str]  # of its form in the playground
    question: ClassVar[str]  # one line under the title
    ability: ClassVar[str]  # "fill masks": what a model without the head cannot do
    heads: ClassVar[tuple[str, ...]] = ()  # a model needs one of them; none: every model can
    Request: ClassVar[type[RequestBody]] = RequestBody
    Answer: ClassVar[Any]  # the type of answers as JSON: a client rebuilds them from it
    Methods: ClassVar[type[Askable]] = Askable  # the methods of `Bert` that ask for it
    lists: ClassVar[tuple[str, ...]] = ()  # entries of a request with an item for each text
    labelled: ClassVar[bool] = False  # do answers name the labels of the model?
    labels_given: ClassVar[bool] = False  # are labels given with the texts, as `predict --labels`?

    def can(self, bert: LoadedModel) -> bool:
        """Return whether a model can do it."""
        return not self.heads or any(head in bert.model.heads for head in self.heads)

    def demand(self, bert: LoadedModel) -> None:
        """Raise an error if the model cannot do it."""
        if not self.can(bert):
            has = ", ".join(bert.checkpoint.entries) or "none"
            why = f"no such head (it has: {has})"
            if any(head in bert.model.heads for head in self.heads):
                why = "it was not trained for that"
            raise BertsmithError(f"this model cannot {self.ability}: {why}")

    def call(self, bert: LoadedModel, request: Any) -> Call:
        """Return what the encoder has to do for a request."""
        raise NotImplementedError

    def rebuilt(self, answer: Any) -> Any:
        """Return an answer from its JSON."""
        return self._adapter.validate_python(answer)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.Answer)

    def pair_scores(self, bert: LoadedModel) -> PairScores | None:
        """Return how the model ranks texts for a query, or an error; None: by their vectors."""
        return None

    def view(self) -> str:
        """Return the script that shows answers in the playground: view.js beside task.py, or ""."""
        here = Path(inspect.getfile(type(self)))
        script = here.with_name("view.js") if here.stem == "task" else here.with_suffix(".js")
        return script.read_text("utf-8") if script.is_file() else ""


def uses() -> Iterator[Use]:
    """Load every `TASK`: from the `task.py` of folders, and from single files."""
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.glob("*/task.py")]):
        if "\nTASK = " in path.read_text("utf-8"):
            module = ".".join(path.relative_to(here).with_suffix("").parts)
            yield import_module(f"bertsmith.tasks.{module}").TASK


def listed(texts: str | list[str]) -> list[str]:
    """Return texts of a request as a list, also a single one."""
    return [texts] if isinstance(texts, str) else texts


def as_json(value: Any) -> Any:
    """An answer as plain values."""
    if isinstance(value, TaskResult):
        return value.to_dict()
    return [as_json(one) for one in value] if isinstance(value, list) else value
