"""`bertsmith.load` and the model class with its methods: embed, classify, tag, …."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch

from bertsmith.analysis import attention as look_at_attention
from bertsmith.analysis.attention import AttentionView
from bertsmith.errors import BertsmithError
from bertsmith.explorer import explorer as write_explorer
from bertsmith.tasks import (
    answering,
    choice,
    classification,
    embedding,
    filling,
    following,
    tagging,
)
from bertsmith.tasks.loaded import LoadedModel, positive
from bertsmith.tasks.opening import open_model
from bertsmith.tasks.states import TextStates, all_depths, hidden_states
from bertsmith.tasks.stream import predict_source

Texts = list[str] | tuple[str, ...]


def predict(
    model: str | Path | Bert,
    source: Any,
    out: str | Path | None = None,
    *,
    top: int = 1,
    device: str | torch.device | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Every row of a source (a file, a table, a list, ...) with all columns and the prediction.

    With `out` (.jsonl, .csv, .tsv or .parquet) the rows are written there, in portions, and not
    returned. `options` are those of `bertsmith.data.open_data`: `columns`, `header`, ...
    """
    bert = model if isinstance(model, Bert) else load(model, device=device)
    rows = predict_source(bert, source, out, top, **options)
    if out is None:
        return list(rows)
    for _ in rows:
        pass
    return []


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
    loaded = open_model(
        name,
        device=device,
        dtype=dtype,
        heads=heads,
        family=family,
        budget=budget,
        progress=progress,
    )
    return Bert.of(loaded)


class Bert(LoadedModel):
    """A model and its tokenizer, ready for use."""

    @classmethod
    def of(cls, loaded: LoadedModel) -> Bert:
        """The same model, such as the result of a fine-tuning, with the methods of this class."""
        return cls(
            loaded.checkpoint,
            loaded.tokenizer,
            sentence=loaded.sentence,
            budget=loaded.budget,
            progress=loaded.progress,
        )

    @overload
    def fill_mask(self, text: str, top: int = 5) -> filling.Guesses: ...
    @overload
    def fill_mask(self, text: Texts, top: int = 5) -> list[filling.Guesses]: ...
    def fill_mask(self, text: str | Sequence[str], top: int = 5) -> Any:
        """Guess the masked tokens of a text, or of each of several."""
        self.demand_head("masked_lm")
        most = positive(top, "top")

        def look(texts: list[str]) -> list[filling.Guesses]:
            return [filling.Guesses(one) for one in filling.fill_mask(self, texts, most)]

        return _one(text, look)

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
        self.demand_head("classify")
        if isinstance(texts, str):
            return classification.classify(self, [texts], None if pairs is None else [pairs])[0]
        second = None if pairs is None else _listed(pairs, "pairs")
        return classification.classify(self, _listed(texts, "texts"), second)

    @overload
    def tag(self, texts: str, *, words: bool = False) -> tagging.Entities: ...
    @overload
    def tag(self, texts: Texts, *, words: bool = False) -> list[tagging.Entities]: ...
    def tag(self, texts: Any, *, words: bool = False) -> Any:
        """Find entities in a text, or in each of several; or label every word."""
        self.demand_head("tag")
        find = tagging.tag_words if words else tagging.tag

        def look(many: list[str]) -> list[tagging.Entities]:
            pairs = zip(find(self, many), many, strict=True)
            return [tagging.Entities(entities, text) for entities, text in pairs]

        return _one(texts, look)

    def answer(
        self,
        question: str,
        passage: str,
        *,
        top: int = 1,
        longest: int = 30,
        empty: bool | None = None,
    ) -> answering.Answers:
        """Find the `top` answers to a question in a passage of any length.

        With `empty`, "no answer" competes with the answers. None: the threshold that was stored
        when the model was fine-tuned decides, if there is one.
        """
        self.demand_head("answer")
        most, length = positive(top, "top"), positive(longest, "longest")
        found = answering.answer(self, question, passage, most, length, empty)
        return answering.Answers(found, passage)

    def choose(self, prompt: str, choices: Sequence[str]) -> choice.Choice:
        """Pick the choice that goes best with the prompt."""
        self.demand_head("choose")
        return choice.choose(self, prompt, _listed(choices, "choices"))

    @overload
    def follows(self, first: str, second: str) -> float: ...
    @overload
    def follows(self, first: Texts, second: Texts) -> list[float]: ...
    def follows(self, first: Any, second: Any) -> Any:
        """The probability that the second text follows the first, for one pair or several.

        For models with a next-sentence head (BERT) or a sentence-order head (ALBERT).
        """
        if isinstance(first, str) and isinstance(second, str):
            return following.follows(self, [first], [second])[0]
        return following.follows(self, _listed(first, "first"), _listed(second, "second"))

    @overload
    def states(
        self,
        texts: str,
        *,
        depth: int | Sequence[int] | None = None,
        pool: str | None = None,
        special: bool = False,
    ) -> TextStates: ...
    @overload
    def states(
        self,
        texts: Texts,
        *,
        depth: int | Sequence[int] | None = None,
        pool: str | None = None,
        special: bool = False,
    ) -> list[TextStates]: ...
    def states(
        self,
        texts: Any,
        *,
        depth: int | Sequence[int] | None = None,
        pool: str | None = None,
        special: bool = False,
    ) -> Any:
        """The hidden states of a text, or of each of several.

        `depth` 0 is the output of the embeddings, k that of block k; the last by default. With a
        list of depths `vectors` has one more axis. A row is a token, or the mean of a word
        (`pool="words"`) or of the text (`pool="mean"`). `special` includes special tokens.
        """
        single = not isinstance(depth, Sequence)
        chosen: Any = [all_depths(self)[-1] if depth is None else depth] if single else depth

        def look(many: list[str]) -> list[TextStates]:
            found = hidden_states(self, many, chosen, pool, special)
            return [replace(one, vectors=one.vectors[0]) if single else one for one in found]

        return _one(texts, look)

    def attention(
        self,
        text: str,
        pair: str | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
    ) -> AttentionView:
        """See what it attends to: renders in a notebook, `.save("page.html")` writes a page."""
        return look_at_attention(self, text, pair, layers=layers, heads=heads)

    def explorer(
        self,
        path: str | Path,
        *,
        dtype: str = "int8",
        name: str | None = None,
        examples: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Write the model as one HTML file that runs it in a browser, without a server.

        `dtype` ("int8" or "float16") is how the weights are stored, `name` the page's title,
        `examples` are texts that it offers to try.
        """
        texts = _listed(examples, "examples")
        return write_explorer(self, path, dtype=dtype, name=name, examples=texts)


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
