"""`bertsmith.load`, and the model as a person uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

from bertsmith.checkpoint import Checkpoint, Sentence, locate, read, read_sentence, save
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.model import Model, prepare
from bertsmith.tasks import answering, choice, classification, embedding, filling, tagging
from bertsmith.tasks.run import Compute, run
from bertsmith.tasks.windows import Window, Windower
from bertsmith.tokenizer import Encoding, Tokenizer

Result = TypeVar("Result")
Texts = list[str] | tuple[str, ...]
VERBS = {
    "masked_lm": "fill masks",
    "classify": "classify",
    "tag": "tag",
    "answer": "answer questions",
    "choose": "choose",
}

# Rooms that stand on this one: what they make of a model is found when it is first asked for.
ROOMS = {"attention": "bertsmith.analysis"}


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    heads: Sequence[str] | None = None,
    family: str | None = None,
    budget: int | None = None,
    progress: bool | None = None,
) -> Bert:
    """Open a model: a directory of the Hugging Face or sentence-transformers layout, or a name.

    A name is that of a model which comes with the package ("bertsmith-small"), or a hub id.
    `dtype="bfloat16"` is the fast path of GPUs, and of CPUs with bf16 matrix units. `heads` are
    those that must be there, `family` says what a config.json without model_type is, `budget`
    is the number of tokens in a batch.
    """
    directory = locate(name)
    chosen = pick_device(device)
    sentence = read_sentence(directory)
    directory, how = sentence or (directory, Sentence())
    settings = {"model_type": family} if family else None
    needed = [heads] if isinstance(heads, str) else heads
    checkpoint = read(
        directory, heads=needed, settings=settings, dtype=pick_dtype(dtype), device=chosen
    )
    prepare(checkpoint.model)
    tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
    return Bert(checkpoint, tokenizer, sentence=how, budget=budget, progress=progress)


class Bert:
    """A model and its tokenizer, ready for use."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        *,
        sentence: Sentence | None = None,
        budget: int | None = None,
        progress: bool | None = None,
    ) -> None:
        rows = checkpoint.config.vocabulary
        if tokenizer.size > rows:
            raise BertsmithError(
                f"the tokenizer has {tokenizer.size:,} tokens, the model only {rows:,}: "
                "they do not belong together"
            )
        self.checkpoint, self.tokenizer = checkpoint, tokenizer
        self.sentence = sentence or Sentence()
        self.budget = None if budget is None else _positive(budget, "budget")
        self.progress = progress
        self.ledger = Ledger()

    def __repr__(self) -> str:
        config = self.checkpoint.config
        count = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"<{self.checkpoint.family.name} {config.layers}x{config.width}, {count / 1e6:.1f} M "
            f"parameters, heads: {', '.join(self.checkpoint.entries) or 'none'}>"
        )

    @property
    def model(self) -> Model:
        """The modules themselves."""
        return self.checkpoint.model

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int:
        """How many tokens the model reads at once, special tokens included."""
        return min(self.checkpoint.config.max_length, self.tokenizer.max_length or 10**9)

    # ------------------------------------------------------------------ what a person asks

    @overload
    def fill_mask(self, text: str, top: int = 5) -> list[filling.Guess]: ...
    @overload
    def fill_mask(self, text: Texts, top: int = 5) -> list[list[filling.Guess]]: ...
    def fill_mask(self, text: str | Sequence[str], top: int = 5) -> Any:
        """Guess the masked tokens of a text, or of each of several."""
        self._needs("masked_lm")
        return _one(text, lambda texts: filling.fill_mask(self, texts, _positive(top, "top")))

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        long: str = "window",
    ) -> embedding.Vectors:
        """Turn texts into vectors: float32 (N, D), or (D,) of a single text.

        `pooling` ("mean" or "cls") and `normalise` are as the model's directory says unless
        given. Texts beyond the model's length are read in windows, or `long="refuse"` or "cut".
        """
        return _one(texts, lambda many: embedding.embed(self, many, pooling, normalise, long))

    @overload
    def classify(self, texts: str, pairs: str | None = None) -> classification.Classification: ...
    @overload
    def classify(
        self, texts: Texts, pairs: Texts | None = None
    ) -> list[classification.Classification]: ...
    def classify(self, texts: Any, pairs: Any = None) -> Any:
        """Label a text (or a pair of texts), or each of several."""
        self._needs("classify")
        if isinstance(texts, str):
            return classification.classify(self, [texts], None if pairs is None else [pairs])[0]
        second = None if pairs is None else _listed(pairs, "pairs")
        return classification.classify(self, _listed(texts, "texts"), second)

    @overload
    def tag(self, texts: str, *, words: bool = False) -> list[tagging.Entity]: ...
    @overload
    def tag(self, texts: Texts, *, words: bool = False) -> list[list[tagging.Entity]]: ...
    def tag(self, texts: Any, *, words: bool = False) -> Any:
        """Find entities in a text, or in each of several; or label every word."""
        self._needs("tag")
        find = tagging.tag_words if words else tagging.tag
        return _one(texts, lambda many: find(self, many))

    def answer(
        self, question: str, passage: str, *, top: int = 1, longest: int = 30, empty: bool = False
    ) -> list[answering.Answer]:
        """Find the `top` answers to a question in a passage of any length.

        With `empty`, "no answer" competes (for models trained on questions without one).
        """
        self._needs("answer")
        most, length = _positive(top, "top"), _positive(longest, "longest")
        return answering.answer(self, question, passage, most, length, empty)

    def choose(self, prompt: str, choices: Sequence[str]) -> choice.Choice:
        """Pick the choice that goes best with the prompt."""
        self._needs("choose")
        return choice.choose(self, prompt, _listed(choices, "choices"))

    def attention(
        self,
        text: str,
        pair: str | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
    ) -> Any:
        """See what it attends to: renders in a notebook, `.save("page.html")` writes a page."""
        look = import_module(ROOMS["attention"]).attention
        return look(self, text, pair, layers=layers, heads=heads)

    def save(self, directory: str | Path, dtype: str | torch.dtype | None = None) -> None:
        """Write a directory that bertsmith, transformers and sentence-transformers open."""
        stored = None if dtype is None else pick_dtype(dtype)
        save(directory, self.checkpoint, self.tokenizer, self.sentence, stored)

    # ------------------------------------------------------------------ what tasks share

    def windower(
        self, long: str = "window", overlap: int | None = None, limit: int | None = None
    ) -> Windower:
        """How inputs of this model become windows."""
        if long not in ("window", "refuse", "cut"):
            raise BertsmithError(f'long is "window", "refuse" or "cut", not {long!r}')
        most = min(self.max_length, limit or self.max_length)
        if most <= self.tokenizer.special_count(pair=True):
            raise BertsmithError(f"this model reads {most} tokens at once: no room for a text")
        shared = most // 4 if overlap is None else overlap
        return Windower(self.tokenizer, most, shared, long, self.ledger)

    def windows(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        how: Windower | None = None,
    ) -> list[Window]:
        """The windows of texts, or of pairs of texts."""
        windower = how or self.windower()
        ids = self.token_ids(texts)
        if pairs is None:
            grouped = [windower.single(number, one) for number, one in enumerate(ids)]
        else:
            if len(pairs) != len(texts):
                raise BertsmithError(f"{len(texts)} texts cannot be paired with {len(pairs)}")
            both = zip(ids, self.token_ids(pairs), strict=True)
            grouped = [windower.pair(number, *pair) for number, pair in enumerate(both)]
        return [window for group in grouped for window in group]

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Texts as tokens that know their characters, without special tokens."""
        encoded = self.tokenizer.encode_many(texts, special=False)
        self._known([one.ids for one in encoded])
        return encoded

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as token ids alone, without special tokens."""
        return self._known(self.tokenizer.encode_ids(texts))

    def _known(self, texts: list[list[int]]) -> list[list[int]]:
        """The same ids; those that stand for unknown characters are counted."""
        unknown = self.tokenizer.unk_id
        if unknown is not None:
            self.ledger.note("unknown tokens", sum(ids.count(unknown) for ids in texts))
        return texts

    def run(self, windows: Sequence[Window], compute: Compute[Result]) -> list[Result]:
        """Send windows through the model."""
        return run(
            self.model,
            windows,
            compute,
            device=self.device,
            budget=self.budget,
            progress=self.progress,
        )

    def _needs(self, head: str) -> None:
        if head not in self.model.heads:
            has = ", ".join(self.checkpoint.entries) or "none"
            raise BertsmithError(f"this model cannot {VERBS[head]}: no such head (it has: {has})")


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device that was asked for, else a GPU if there is one."""
    try:
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=chosen)
    except (RuntimeError, TypeError, ValueError, AssertionError, ImportError) as error:
        there = "cpu and cuda" if torch.cuda.is_available() else "cpu only"
        raise BertsmithError(f"there is no device {device!r} here: {there}") from error
    if chosen.type == "meta":
        raise BertsmithError("the device meta holds no values; take one that is here: cpu")
    return chosen


def pick_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """float32, bfloat16 or float16."""
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    chosen = names.get(dtype) if isinstance(dtype, str) else dtype
    if chosen is None or chosen not in names.values():
        raise BertsmithError(f"unknown dtype {dtype!r}; known: {', '.join(names)}")
    return chosen


def _one(given: Any, use: Callable[[list[str]], Any]) -> Any:
    """Let a function of many texts take a single one too."""
    return use([given])[0] if isinstance(given, str) else use(_listed(given, "texts"))


def _listed(given: Any, name: str) -> list[str]:
    """A list of strings, whatever they came in."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise BertsmithError(f"{name} must be a list of strings, not a {type(given).__name__}")
    listed = list(given)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise BertsmithError(f"{name} must be strings, but number {number} is a {kind}")
    return listed


def _positive(number: Any, name: str) -> int:
    if type(number) is not int or number < 1:
        raise BertsmithError(f"{name} must be a whole number from 1 up, not {number!r}")
    return number
