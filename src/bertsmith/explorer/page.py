"""The explorer page: settings and weights for the scripts in pages/, written as one file."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.explorer.tokenizer import tokenizer_settings
from bertsmith.explorer.weights import Packed, pack
from bertsmith.files import write_text
from bertsmith.infer.loaded import LoadedModel
from bertsmith.kernels import distance_rows
from bertsmith.model import Disentangled, DistanceBias, Rotary
from bertsmith.pages import page
from bertsmith.tasks.answering.task import stored_threshold
from bertsmith.tasks.classifying import activation, raw, softmax
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.registry import TASKS

LONGEST = 256  # tokens that the page reads at once; a browser takes seconds for more
LARGEST = 1_500_000_000  # bytes of weights: a browser does not open a much larger page
WORKER = ("normalizers", "tokenizer", "encoder", "worker", "arithmetic")
UNRELATED = (
    "The committee will vote on the new tax in March.",
    "My cat sleeps on the warm roof all day.",
    "Whisk the eggs with sugar until they are pale.",
    "The telescope found a planet around a distant star.",
    "She lost the tennis match in three sets.",
    "Please restart the computer after the update.",
)
SCRIPTS = ("parts", "input", "answers", "attention", "steps", "address")


def explorer(
    bert: LoadedModel,
    path: str | Path,
    *,
    dtype: str = "int8",
    name: str | None = None,
    examples: Sequence[str] = (),
) -> dict[str, Any]:
    """Write a model as one HTML file that runs it in a browser; report what the file holds.

    `dtype` is how weights are stored: "int8", or "float16", which is exact to 1e-2 and twice as
    large. `name` is the page's title, `examples` are texts that it offers to try.
    """
    check_page(path)
    config = bert.checkpoint.config
    title = name or f"{bert.checkpoint.family.name} {config.layers}x{config.width}"
    settings = explorer_settings(bert, dtype, examples)
    packed = pack(bert.model.state_dict(keep_vars=True), dtype)
    return write_explorer(path, title, settings, packed)


def check_page(path: str | Path) -> None:
    """Refuse a path that does not name an HTML file."""
    if Path(path).suffix not in (".html", ".htm"):
        raise BertsmithError(f"{path}: the explorer is an HTML file, such as page.html")


def write_explorer(
    path: str | Path,
    title: str,
    settings: dict[str, Any],
    packed: Packed,
    charts: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the page of a model, or of a film, whose charts show its training."""
    config, count, film = settings["config"], settings["parameters"], settings.get("film")
    size = f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,}"
    layers = f"{len(config['plan'])} layers of {config['attention_heads']} heads"
    scripts = [*SCRIPTS, *(["film"] if film else []), "page"]
    workers = [*WORKER, *(["vectors"] if film else [])]
    html = page(
        "explorer.html",
        title,
        styles=("explorer.css",),
        scripts=("elements.js", *(f"explorer_{script}.js" for script in scripts)),
        worker=tuple(f"explorer_{script}.js" for script in workers),
        about=f"{settings['family']}, {layers}, {size} parameters",
        charts=charts,
        settings=settings | {"weights": packed.entries, "bytes": len(packed.data)},
        parts=packed.parts(),
    )
    write_text(path, html)
    report = {name: settings[name] for name in ("dtype", "parameters", "panels")}
    if film:
        report["steps"] = [state["step"] for state in film["steps"]]
    return {"out": str(path), "bytes": len(html.encode()), **report}


def training_page(path: str | Path) -> None:
    """Write a page in which a small BERT learns the masks of a text, in the reader's browser."""
    html = page(
        "train.html",
        "Train a BERT in this page",
        styles=("train_page.css",),
        scripts=("elements.js", "train_page.js"),
        worker=("explorer_encoder.js", "train_worker.js"),
    )
    write_text(path, html)


def explorer_settings(bert: LoadedModel, dtype: str, examples: Sequence[str]) -> dict[str, Any]:
    """What the page's scripts need to know beside the weights."""
    size = sum(parameter.numel() for parameter in bert.model.parameters())
    if size * (2 if dtype == "float16" else 1) > LARGEST:
        raise BertsmithError(
            f"the model has {size / 1e6:,.0f} M parameters: too many for a page in a browser"
        )
    checkpoint, config, sentence = bert.checkpoint, bert.checkpoint.config, bert.sentence
    if sentence.dense:
        raise BertsmithError("the page cannot compute vectors of a model with Dense modules")
    signal, longest = config.signal, min(bert.max_length, LONGEST)
    if longest <= bert.tokenizer.special_count(pair=True):
        raise BertsmithError(f"this model reads {longest} tokens at once: no room for a text")
    scores = activation(checkpoint)
    return {
        "parameters": size,
        "dtype": dtype,
        "examples": examples,
        "family": checkpoint.family.name,
        "longest": longest,
        "max_length": bert.max_length,
        "panels": _panels(list(config.heads)),
        "labels": checkpoint.labels if {"classify", "tag"} & {*config.heads} else [],
        "activation": "raw" if scores is raw else "softmax" if scores is softmax else "sigmoid",
        "decision": checkpoint.settings.get("decision_threshold"),
        "thresholds": checkpoint.settings.get("label_thresholds"),  # of multi-label models
        "threshold": stored_threshold(bert),
        "unrelated": _unrelated(bert),
        "sentence": {
            "pool": sentence.pool,
            "prompt": sentence.prompt,
            "lowercase": sentence.lowercase,
            "max_length": sentence.max_length,
        },
        "tokenizer": tokenizer_settings(bert.tokenizer),
        "config": asdict(config)
        | {
            "plan": config.plan,
            "per_head": config.per_head,
            "bases": signal.bases if isinstance(signal, Rotary) else None,
            "distances": _distances(signal, longest),
        },
    }


def _unrelated(bert: LoadedModel) -> float | None:
    """The mean cosine similarity of sentences that have nothing to do with each other."""
    vectors = np.asarray(embed(bert, UNRELATED, normalise=True))
    alike = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return float(alike.mean()) if np.isfinite(alike).all() else None


def _distances(signal: object, longest: int) -> list[int] | None:
    """The table row of each relative distance, if positions are relative."""
    match signal:
        case Disentangled(span, buckets, furthest):
            return list(map(int, distance_rows(longest, span, buckets, furthest)))
        case DistanceBias(buckets, furthest):
            return list(map(int, distance_rows(longest, 0, buckets, furthest, floored=True)))
    return None


def _panels(heads: list[str]) -> list[str]:
    """What the model can do, in the order in which the page shows it."""
    order = ("classify", "tag", "answer", "masked_lm", "next_sentence", "sentence_order")
    vectors = [task.name for task in TASKS.values() if task.verb == "embed"]
    return [name for name in (*order, "replaced") if name in heads] + vectors
