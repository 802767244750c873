"""One vector for each text."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import InferencePass, Steps
from bertsmith.infer.texts import listed_strings
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model
from bertsmith.model.pooling import POOLS
from bertsmith.tasks.use import Askable, Call, RequestBody, Texts, Use, listed

Vectors = np.ndarray[Any, np.dtype[np.float32]]
NAMES = {"mean": "mean", "cls": "first"}


@EncoderTask
def embed(
    bert: LoadedModel,
    texts: Sequence[str],
    pooling: str | None = None,
    normalise: bool | None = None,
    long: str | None = None,
    prompt: str | None = None,
    width: int | None = None,
) -> Steps[Vectors]:
    """Texts → float32 (N, D); a long text's vector is the mean of its windows', by length."""
    sentence = bert.sentence
    if width is not None and not 1 <= width <= bert.vector_width:
        raise BertsmithError(f"width must be from 1 to {bert.vector_width}, not {width}")
    if pooling is not None and pooling not in NAMES:
        raise BertsmithError(f"unknown pooling {pooling!r}; known: {', '.join(NAMES)}")
    pool = POOLS[NAMES[pooling] if pooling else sentence.pool]
    prepared = [sentence.prepared(text, prompt) for text in texts]
    windows = bert.windows(prepared, how=bert.windower(long, overlap=0, limit=sentence.max_length))

    def compute(_: Model, hidden: Hidden, batch: Batch, __: Sequence[Window]) -> list[torch.Tensor]:
        return list(pool(hidden.last.float(), batch.layout, None).cpu())

    total = np.zeros((len(texts), bert.checkpoint.config.width), dtype=np.float32)
    weight = np.zeros((len(texts), 1), dtype=np.float32)
    pooled = yield InferencePass(windows, compute, ("embed", pool))
    for window, vector in zip(windows, pooled, strict=True):
        total[window.number] += vector.numpy() * len(window.ids)
        weight[window.number] += len(window.ids)
    vectors: Vectors = np.divide(total, np.maximum(weight, 1), dtype=np.float32)
    if sentence.dense:
        vectors = sentence.project(torch.from_numpy(vectors)).numpy()
    vectors = vectors[:, :width]
    if sentence.normalise if normalise is None else normalise:
        vectors = unit_vectors(vectors)
    return vectors


def unit_vectors(vectors: Vectors) -> Vectors:
    """The rows of a matrix, each with length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.float32(1e-12))


class EmbedRequest(RequestBody):
    """Texts to embed; None: the settings in the model's directory."""

    inputs: Texts
    pooling: Literal["mean", "cls"] | None = None
    normalise: bool | None = None
    long: Literal["window", "refuse", "cut"] | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    width: Annotated[int, Field(ge=1)] | None = None


class EmbedMethods(Askable):
    """`embed`."""

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        long: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        width: int | None = None,
    ) -> Vectors:
        """Embed texts: float32 vectors of shape (N, D), or (D,) for a single text.

        `pooling` ("mean" or "cls") and `normalise` default to the settings in the model's
        directory. Texts longer than the model reads are embedded in windows; `long="cut"` truncates
        them, which is faster, and `long="refuse"` raises an error. `prompt` is a text that is put
        before each text, `prompt_name` that of one of the model's prompts ("query", "document",
        ...); without them, the model's default prompt is used, if it has one. `width` keeps the
        first elements of the vectors, which are normalised afterwards if they are: for models
        that were trained so (Matryoshka).
        """
        more: dict[str, Any] = {"pooling": pooling, "normalise": normalise, "long": long}
        more |= {"prompt": prompt, "prompt_name": prompt_name, "width": width}
        if not isinstance(texts, str) and not (texts := listed_strings(texts)):
            return self.ask_each(TASK, [""], **more)[:0]  # no vectors are as wide as others
        return self.ask_each(TASK, texts, **more)


class Embed(Use):
    """A vector for every text."""

    verb, order, ability = "embed", 69, "embed"
    title, question = "Embed", "A vector for every text."
    Request, Answer, Methods = EmbedRequest, list[list[float]], EmbedMethods
    lists = ("inputs",)

    def call(self, bert: LoadedModel, request: EmbedRequest) -> Call:
        """The model's prompt, or that of the request, is put before each text."""
        texts, prompt = listed(request.inputs), request.prompt
        if request.prompt_name is not None:
            if prompt is not None:
                raise BertsmithError("give a prompt or the name of one, not both")
            prompt = bert.sentence.named_prompt(request.prompt_name)
        args = (texts, request.pooling, request.normalise, request.long, prompt, request.width)
        before = bert.sentence.prompt if prompt is None else prompt
        return Call(embed, args, texts, prompt=len(before))

    def rebuilt(self, answer: Any) -> Vectors:
        """Lists of numbers as an array."""
        return np.asarray(answer, dtype=np.float32)


TASK = Embed()
