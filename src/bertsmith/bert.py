"""`bertsmith.load` and the model class, whose methods come from the tasks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, overload

import torch

from bertsmith.analysis import attention
from bertsmith.analysis.attention import AttentionView
from bertsmith.errors import BertsmithError
from bertsmith.explorer import explorer as write_explorer
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.infer.states import TextStates, all_depths, hidden_states
from bertsmith.infer.texts import listed_strings
from bertsmith.tasks.evaluate import state_coverage
from bertsmith.tasks.methods import Methods
from bertsmith.tasks.stream import predict_source
from bertsmith.tasks.use import RequestBody, Several, Use

Depth = int | Sequence[int] | None
Chosen = Sequence[int] | None  # numbers from 0; None: all
LONGEST_NAME = 255  # bytes of a file's name; a system raises an error for longer ones


class Bert(Methods, LoadedModel):
    """A loaded model with its tokenizer; its methods are the tasks that the model can do."""

    @classmethod
    def of(cls, loaded: LoadedModel) -> Self:
        """Return a `Bert` with the same model and tokenizer, such as a fine-tuning result."""
        return cls(
            loaded.checkpoint,
            loaded.tokenizer,
            sentence=loaded.sentence,
            budget=loaded.budget,
            progress=loaded.progress,
            shared_devices=loaded.shared_devices,
            ranks=loaded.ranks,
        )

    def ask(self, use: Use, request: RequestBody) -> Any:
        """Return the answer to a request; an error if the model cannot do it."""
        use.demand(self)
        call = use.call(self, request)
        return call.steps(self, *call.args)

    @overload
    def states(
        self, texts: str, *, depth: Depth = None, pool: str | None = None, special: bool = False
    ) -> TextStates: ...
    @overload
    def states(
        self, texts: Several, *, depth: Depth = None, pool: str | None = None, special: bool = False
    ) -> list[TextStates]: ...
    def states(
        self, texts: Any, *, depth: Depth = None, pool: str | None = None, special: bool = False
    ) -> Any:
        """Return the hidden states of a text, or of each of several texts.

        `depth` 0 is the output of the embeddings, k that of block k; the default is the last. With
        a list of depths, `vectors` has one more axis. A row is a token, or the mean over a word
        (`pool="words"`) or over the text (`pool="mean"`). `special` includes the special tokens.
        """
        single = not isinstance(depth, Sequence)
        chosen: Any = [all_depths(self)[-1] if depth is None else depth] if single else depth
        many = [texts] if isinstance(texts, str) else listed_strings(texts)
        rows = list(hidden_states(self, many, chosen, pool, special))
        if single:
            rows = [replace(row, vectors=row.vectors[0]) for row in rows]
        return rows[0] if isinstance(texts, str) else rows

    def attention(
        self, text: str, pair: str | None = None, *, layers: Chosen = None, heads: Chosen = None
    ) -> AttentionView:
        """Return attention weights: shown in notebooks, written by `.save("page.html")`."""
        return attention(self, text, pair, layers=layers, heads=heads)

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


def predict(
    model: str | Path | Bert,
    source: Any,
    out: str | Path | None = None,
    *,
    top: int = 1,
    labels: Sequence[str] | None = None,
    coverage: float | None = None,
    device: str | torch.device | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Predict every row of a source (a file, a table, a list, ...); return rows with all columns.

    With `out` (.jsonl, .csv, .tsv or .parquet), rows are written to that file in portions and an
    empty list is returned. `labels` are the labels to choose from, for models that accept any;
    `coverage` is that of a calibrated model's label sets or intervals. `options` are those of
    `bertsmith.tasks.read.open_data`: `columns`, `header`, ...
    """
    sentence = isinstance(source, str) and " " in source
    if sentence and (len(source.encode()) > LONGEST_NAME or not Path(source).exists()):
        raise BertsmithError(f"{source[:60]!r}: no such file; texts are given as a list")
    bert = model if isinstance(model, Bert) else load(model, device=device)
    names = None if labels is None else listed_strings(labels, "labels")
    if coverage is not None:
        state_coverage(bert, coverage)
    rows = predict_source(bert, source, out, top, names, **options)
    if out is None:
        return list(rows)
    for _ in rows:
        pass
    return []


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    heads: Sequence[str] | None = None,
    family: str | None = None,
    budget: int | None = None,
    progress: bool | None = None,
) -> Bert:
    """Load a model from a directory in Hugging Face or sentence-transformers layout, or by name.

    A name is a model that comes with the package ("bertsmith-small", "bertsmith-embed") or a
    Hugging Face id.
    Without `device` large jobs use all GPUs of the machine; `device="cuda:0"` is this one only.
    `dtype="bfloat16"` is faster on GPUs, and on CPUs with bf16 matrix units; "int8" is faster on
    other CPUs. The default is float32, or int8 for a model that `quantize` wrote. `heads` are the
    heads that the checkpoint must have, `family` names the family if config.json has no model_type,
    and `budget` is the number of tokens in a batch.
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
