"""A loaded model with its tokenizer: texts → tokens → windows → batches → results."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, Sentence, save
from bertsmith.errors import BertsmithError
from bertsmith.infer.run import Compute, InferencePass, Steps, run
from bertsmith.infer.windows import Window, Windower
from bertsmith.ledger import Ledger
from bertsmith.model import Hidden, Model
from bertsmith.numbers import counted
from bertsmith.tokenizer import SPELLED, Encoding, Spelled, Tokenizer

if TYPE_CHECKING:
    from bertsmith.train.distributed import Ranks

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
LONG = ("window", "refuse", "cut", "cut_left")
Activation = Callable[[Tensor], Tensor]
WORTHWHILE = 8  # times as many inputs per device justify a copy of the model on each


class LoadedModel:
    """A model, its tokenizer and its windows, with a ledger of truncated inputs.

    Large jobs are shared with the other devices of `shared_devices`, among which the model's own
    is, and divided over `ranks` if this process is one of several that compute the same.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        *,
        sentence: Sentence | None = None,
        budget: int | None = None,
        progress: bool | None = None,
        shared_devices: Sequence[torch.device] = (),
        ranks: "Ranks | None" = None,
    ) -> None:
        rows = checkpoint.config.vocabulary
        if tokenizer.size > rows:
            sizes = f"the tokenizer has {tokenizer.size:,} tokens, the model only {rows:,}"
            raise BertsmithError(f"{sizes}: they do not belong together")
        self.checkpoint, self.tokenizer = checkpoint, tokenizer
        self.sentence = sentence or Sentence()
        dense, width = self.sentence.dense, checkpoint.config.width
        if dense and (reads := dense[0].weight.shape[1]) != width:
            module = f"the Dense module of this model reads vectors of width {reads}"
            raise BertsmithError(f"{module}, but its encoder has {width}")
        self.budget = None if budget is None else positive(budget, "budget")
        self.progress = progress
        self.shared_devices, self.ranks = shared_devices, ranks
        self.long = "window"  # what is done with inputs beyond the model's length
        self.ledger = Ledger()

    def __repr__(self) -> str:
        config = self.checkpoint.config
        count = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"<{self.checkpoint.family.name} {config.layers}x{config.width}, {count / 1e6:.1f} M "
            f"parameters, heads: {', '.join(self.checkpoint.entries) or 'none'}>"
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the file that the model was fine-tuned on: text, label and so on."""
        stored = self.checkpoint.notes.get("columns")
        pairs = stored.items() if isinstance(stored, dict) else ()
        return {role: name for role, name in pairs if isinstance(name, str)}

    @property
    def model(self) -> Model:
        """The torch module."""
        return self.checkpoint.model

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.encoder.table.device

    @property
    def devices(self) -> list[torch.device]:
        """The device of the model, and those that large jobs are shared with."""
        device, others = self.device, list(self.shared_devices)
        if device not in others:  # none are, or the model was moved
            return [device]
        others.remove(device)
        return [device, *others]

    def portion(self, inputs: int) -> int:
        """The number of inputs per chunk: more if several devices share the work."""
        return inputs if len(self.devices) == 1 else inputs * WORTHWHILE * len(self.devices)

    @property
    def vector_width(self) -> int:
        """The width of the vectors that `embed` returns."""
        dense = self.sentence.dense
        return dense[-1].weight.shape[0] if dense else self.checkpoint.config.width

    @property
    def max_length(self) -> int:
        """The number of tokens that the model reads at once, special tokens included."""
        return min(self.checkpoint.config.max_length, self.tokenizer.max_length or 10**9)

    def save(self, directory: str | Path, dtype: str | torch.dtype | None = None) -> None:
        """Write a directory that bertsmith, transformers and sentence-transformers open."""
        stored = None if dtype is None else pick_dtype(dtype)
        save(directory, self.checkpoint, self.tokenizer, self.sentence, stored)

    def windower(
        self, long: str | None = None, overlap: int | None = None, limit: int | None = None
    ) -> Windower:
        """Return how inputs are split into windows; `long` defaults to the model's setting."""
        long = self.long if long is None else long
        if long not in LONG:
            raise BertsmithError(f'long must be "window", "refuse" or "cut", not {long!r}')
        most = min(self.max_length, limit or self.max_length)
        if most <= self.tokenizer.special_count(pair=True):
            raise BertsmithError(f"this model reads {most} tokens at once: no room for a text")
        shared = most // 4 if overlap is None else overlap
        return Windower(self.tokenizer, most, shared, long, self.ledger)

    def windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, how: Windower | None = None
    ) -> list[Window]:
        """Return the windows of texts, or of pairs of texts."""
        windower = how or self.windower()
        ids = self.token_ids(texts)
        if pairs is None:
            grouped = [windower.single(number, one) for number, one in enumerate(ids)]
        else:
            if len(pairs) != len(texts):
                second = counted(len(pairs), "second text")
                raise BertsmithError(f"{counted(len(texts), 'text')} but {second}")
            both = zip(ids, self.token_ids(pairs), strict=True)
            grouped = [windower.pair(number, *pair) for number, pair in enumerate(both)]
        return [window for group in grouped for window in group]

    def encode(self, texts: Sequence[str], spelled: Spelled = "text") -> list[Encoding]:
        """Encode texts to tokens with their characters, without special tokens around them."""
        encodings = self.tokenizer.encode_many(texts, special=False, spelled=spelled)
        self._note([encoding.ids for encoding in encodings], texts if spelled == "text" else ())
        return encodings

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts to token ids only, without special tokens."""
        ids = self.tokenizer.encode_ids(texts)
        self._note(ids, texts)
        return ids

    def _note(self, ids: list[list[int]], texts: Sequence[str]) -> None:
        if (unknown := self.tokenizer.unk_id) is not None:
            count = sum(row.count(unknown) for row in ids)
            self.ledger.note("unknown tokens", count, sum(map(len, ids)))
        self.ledger.note(SPELLED, self.tokenizer.spelled(texts))

    def run(
        self, windows: Sequence[Window], compute: Compute[Result], progress: bool | None = None
    ) -> list[Result]:
        """Run windows through the model; `progress` defaults to the model's setting."""
        progress = self.progress if progress is None else progress
        shared: dict[str, Any] = {"devices": self.devices, "ranks": self.ranks}
        return run(self.model, windows, compute, budget=self.budget, progress=progress, **shared)

    def head_pass(
        self,
        head: str,
        windows: Sequence[Window],
        activation: Activation | None = None,
        *,
        tokens: bool = False,
    ) -> InferencePass:
        """The pass that gives a head's outputs for each window, or with `tokens` for its tokens."""

        def compute(
            model: Model, hidden: Hidden, batch: Batch, _: Sequence[Window]
        ) -> list[Tensor]:
            outputs = model.heads[head](hidden, batch).float()
            outputs = (outputs if activation is None else activation(outputs)).cpu()
            return list(batch.layout.split(outputs) if tokens else outputs)

        return InferencePass(windows, compute, (head, activation, tokens))


def with_changes(
    bert: LoadedModel, model: Model | None = None, ranks: "Ranks | None" = None, **changes: Any
) -> LoadedModel:
    """The same tokenizer and pooling with another module, or other fields of the checkpoint."""
    checkpoint = replace(bert.checkpoint, model=model or bert.model, **changes)
    tokenizer, sentence = bert.tokenizer, bert.sentence
    return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False, ranks=ranks)


class EncoderTask(Generic[Parameters, Result]):
    """A function of a model that needs encoder passes, which a call runs one after the other.

    `steps` is the generator itself: a server encodes the passes of many requests together.
    """

    def __init__(
        self, steps: Callable[Concatenate[LoadedModel, Parameters], Steps[Result]]
    ) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(
        self, bert: LoadedModel, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run all passes and return the result."""
        steps = self.steps(bert, *args, **kwargs)
        try:
            needed = next(steps)
            while True:
                needed = steps.send(bert.run(needed.windows, needed.compute))
        except StopIteration as stop:
            return stop.value


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device that was asked for, else a GPU if there is one."""
    try:
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=chosen)
    except (RuntimeError, TypeError, ValueError, AssertionError, ImportError) as error:
        there = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise BertsmithError(f"device {device!r} is not available (available: {there})") from error
    if chosen.type == "meta":
        raise BertsmithError("device 'meta' holds no data (available: cpu)")
    return chosen


def all_devices() -> list[torch.device]:
    """All GPUs of the machine; none if each is used by another process of one job."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return []
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def pick_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """float32, bfloat16 or float16, the data types in which weights are kept."""
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    chosen = names.get(dtype) if isinstance(dtype, str) else dtype
    if chosen is None or chosen not in names.values():
        raise BertsmithError(f"unknown dtype {dtype!r}; known: {', '.join(names)}")
    return chosen


def positive(number: Any, name: str) -> int:
    """A whole number from 1 up."""
    if type(number) is not int or number < 1:
        raise BertsmithError(f"{name} must be a whole number of at least 1, not {number!r}")
    return number
