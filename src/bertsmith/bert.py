"""`bertsmith.load` and the model class with its methods: embed, classify, tag, …."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch

from bertsmith.analysis import attention as look_at_attention
from bertsmith.analysis.attention import AttentionView
from bertsmith.errors import BertsmithError
from bertsmith.explorer import explorer as write_explorer
from bertsmith.infer.loaded import LoadedModel, positive
from bertsmith.infer.opening import open_model
from bertsmith.infer.states import TextStates, all_depths, hidden_states
from bertsmith.infer.texts import listed_strings
from bertsmith.tasks import embedding, filling, following
from bertsmith.tasks.answering import task as answering
from bertsmith.tasks.choice import task as choice
from bertsmith.tasks.classification import task as classification
from bertsmith.tasks.stream import predict_source
from bertsmith.tasks.tagging import task as tagging

Texts = list[str] | tuple[str, ...]
LONGEST_NAME = 255  # bytes of a file's name; a system raises an error for longer ones


def predict(
    model: str | Path | Bert,
    source: Any,
    out: str | Path | None = None,
    *,
    top: int = 1,
    device: str | torch.device | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Predict every row of a source (a file, a table, a list, ...); return rows with all columns.

    With `out` (.jsonl, .csv, .tsv or .parquet), rows are written to that file in portions and an
    empty list is returned. `options` are those of `bertsmith.tasks.read.open_data`: `columns`,
    `header`, ...
    """
    if (
        isinstance(source, str)
        and " " in source
        and (len(source.encode()) > LONGEST_NAME or not Path(source).exists())
    ):
        raise BertsmithError(f"{source[:60]!r}: no such file; texts are given as a list")
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
    """Load a model from a directory in Hugging Face or sentence-transformers layout, or by name.

    A name is a model that comes with the package ("bertsmith-small", "bertsmith-embed") or a
    Hugging Face id.
    `dtype="bfloat16"` is faster on GPUs, and on CPUs with bf16 matrix units. `heads` are the heads
    that the checkpoint must have, `family` names the family if config.json has no model_type, and
    `budget` is the number of tokens in a batch.
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
    """A loaded model with its tokenizer; its methods are the tasks that the model can do."""

    @classmethod
    def of(cls, loaded: LoadedModel) -> Bert:
        """Return a `Bert` with the same model and tokenizer, such as a fine-tuning result."""
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
        """Predict the masked tokens of a text, or of each of several texts."""
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
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> embedding.Vectors:
        """Embed texts: float32 vectors of shape (N, D), or (D,) for a single text.

        `pooling` ("mean" or "cls") and `normalise` default to the settings in the model's
        directory. Texts longer than the model reads are embedded in windows; `long="cut"` truncates
        them, which is faster, and `long="refuse"` raises an error. `prompt` is a text that is put
        before each text, `prompt_name` that of one of the model's prompts ("query", "document",
        ...); without them, the model's default prompt is used, if it has one.
        """
        if prompt_name is not None:
            if prompt is not None:
                raise BertsmithError("give a prompt or the name of one, not both")
            prompt = self.sentence.named_prompt(prompt_name)
        options = (pooling, normalise, long, prompt)
        return _one(texts, lambda many: embedding.embed(self, many, *options))

    @overload
    def classify(self, texts: str, pairs: str | None = None) -> classification.Classification: ...
    @overload
    def classify(
        self, texts: Texts, pairs: Texts | None = None
    ) -> list[classification.Classification]: ...
    def classify(self, texts: Any, pairs: Any = None) -> Any:
        """Classify a text or a pair of texts, or each of several."""
        self.demand_head("classify")
        if isinstance(texts, str):
            return classification.classify(self, [texts], None if pairs is None else [pairs])[0]
        second = None if pairs is None else listed_strings(pairs, "pairs")
        return classification.classify(self, listed_strings(texts, "texts"), second)

    @overload
    def tag(self, texts: str, *, words: bool = False) -> tagging.Entities: ...
    @overload
    def tag(self, texts: Texts, *, words: bool = False) -> list[tagging.Entities]: ...
    def tag(self, texts: Any, *, words: bool = False) -> Any:
        """Find the entities in a text or in each of several texts; with `words`, tag every word."""
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

        With `empty=True`, "no answer" is one of the candidates. By default it is one if the model
        was fine-tuned on unanswerable questions, with the threshold that was stored then.
        """
        self.demand_head("answer")
        most, length = positive(top, "top"), positive(longest, "longest")
        found = answering.answer(self, question, passage, most, length, empty)
        return answering.Answers(found, passage)

    def choose(self, prompt: str, choices: Sequence[str]) -> choice.Choice:
        """Return the choice that fits the prompt best, with the probability of each."""
        self.demand_head("choose")
        return choice.choose(self, prompt, listed_strings(choices, "choices"))

    @overload
    def follows(self, first: str, second: str) -> float: ...
    @overload
    def follows(self, first: Texts, second: Texts) -> list[float]: ...
    def follows(self, first: Any, second: Any) -> Any:
        """Return the probability that the second text follows the first, for one pair or several.

        The model needs a next-sentence head (BERT) or a sentence-order head (ALBERT).
        """
        if isinstance(first, str) and isinstance(second, str):
            return following.follows(self, [first], [second])[0]
        sides = listed_strings(first, "first"), listed_strings(second, "second")
        return following.follows(self, *sides)

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
        """Return the hidden states of a text, or of each of several texts.

        `depth` 0 is the output of the embeddings, k that of block k; the default is the last. With
        a list of depths, `vectors` has one more axis. A row is a token, or the mean over a word
        (`pool="words"`) or over the text (`pool="mean"`). `special` includes the special tokens.
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
        """Return attention weights: shown in notebooks, written by `.save("page.html")`."""
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

        `dtype` ("int8" or "float16") is the data type of the stored weights, `name` the title of
        the page, and `examples` are texts that the page offers to try.
        """
        texts = listed_strings(examples, "examples")
        return write_explorer(self, path, dtype=dtype, name=name, examples=texts)


def _one(given: Any, use: Callable[[list[str]], Any]) -> Any:
    """Let a function of many texts take a single one too."""
    return use([given])[0] if isinstance(given, str) else use(listed_strings(given, "texts"))
