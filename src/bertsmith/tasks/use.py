"""Use: something that a model can be asked for, from Python, on a server and in the playground.

A use that can also be learned is a `Task` (tasks/task.py). The server's routes, the client's
methods, the OpenAPI schema, the forms of the playground and the methods of `Bert` are made of uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel

Asked = TypeVar("Asked", bound=BaseModel)
Texts = str | Annotated[list[str], Field(min_length=1)]


class Result:
    """Results that turn into JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python values."""
        return asdict(self)  # type: ignore[call-overload]


class Request(BaseModel):
    """What a use is asked: the body of its route. Unknown keys are an error.

    The playground has a field for each entry whose `json_schema_extra` has a `form`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Call(NamedTuple):
    """A request as work for the encoder: a function with its arguments, and the texts it reads."""

    steps: EncoderTask[..., Any]
    args: tuple[Any, ...]
    texts: Sequence[str]  # what a server's limits apply to; of pairs, the first texts
    seconds: Sequence[str] = ()  # the second texts of pairs
    windowed: Sequence[str] | None = None  # those read in windows where they are long
    letters: int = 0  # characters that the answer repeats


class Askable:
    """Whatever answers requests: a loaded model, or one on a server.

    The methods of `Bert` are those of the classes `Use.Methods`, each of which inherits this.
    """

    def ask(self, use: Use, request: Request) -> Any:
        """The answer to a request, in the form of `Use.Answer`."""
        raise NotImplementedError


class Use:
    """Something that a model can be asked for. There is one value for each."""

    verb: ClassVar[str]  # "fill-mask": the route /fill-mask, the method fill_mask
    order: ClassVar[int] = 100  # its place in lists
    title: ClassVar[str]  # of its form in the playground
    question: ClassVar[str]  # one line under the title
    ability: ClassVar[str]  # "fill masks": what a model without the head cannot do
    heads: ClassVar[tuple[str, ...]] = ()  # a model needs one of them; none: every model can
    Request: ClassVar[type[Request]] = Request
    Answer: ClassVar[Any]  # the type of answers: a client rebuilds them from JSON
    Methods: ClassVar[type[Askable]]  # the methods of `Bert` that ask for it
    lists: ClassVar[tuple[str, ...]] = ()  # entries of a request with an item for each text

    def can(self, bert: LoadedModel) -> bool:
        """Return whether a model can do it."""
        return not self.heads or any(head in bert.model.heads for head in self.heads)

    def demand(self, bert: LoadedModel) -> None:
        """Raise an error if the model cannot do it."""
        if not self.can(bert):
            has = ", ".join(bert.checkpoint.entries) or "none"
            raise BertsmithError(f"this model cannot {self.ability}: no such head (it has: {has})")

    def call(self, bert: LoadedModel, request: Any) -> Call:
        """Return what the encoder has to do for a request."""
        raise NotImplementedError


def as_json(value: Any) -> Any:
    """An answer as plain values."""
    if isinstance(value, Result):
        return value.to_dict()
    return [as_json(one) for one in value] if isinstance(value, list) else value
