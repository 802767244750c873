"""`quantize`: a model in int8, measured beside its float32 original before it is written."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.checkpoint import demand_float
from bertsmith.cpu import blocks, int8_candidates, to_int8
from bertsmith.errors import BertsmithError
from bertsmith.files import finite
from bertsmith.folders import check_replaceable, replace_directory
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import PANGRAMS, open_model, pangrams
from bertsmith.kernels import dequantize_weight, quantize_rows, quantize_weight
from bertsmith.tasks.embedding import embed, unit_vectors
from bertsmith.tasks.evaluate import Evaluation, compare, evaluate, sample_of
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.registry import task_of

SAMPLE = 128  # texts on which the error of each layer is measured
COMPARED = 1000  # texts whose vectors are compared
NEAREST = 10  # neighbours of each text, whose order is compared


@dataclass(frozen=True)
class LayerError:
    """How much a layer's output changes in int8, relative to its size."""

    layer: str
    error: float
    dtype: str = "int8"


@dataclass(frozen=True)
class QuantizationProof:
    """An int8 model beside its float32 original on the same data."""

    examples: int
    lost: float  # points: of the score, of equal predictions, or of the cosine
    measure: str  # the score's name, "agreement" or "cosine"
    scores: dict[str, float] = field(default_factory=dict)  # float32, int8 and their interval
    agreement: float | None = None  # part of the predictions that are equal
    largest_change: float | None = None  # of predicted numbers
    cosine: dict[str, float] = field(default_factory=dict)  # mean and minimum over texts
    neighbours: dict[str, float] = field(default_factory=dict)  # equal first, and of the first ten


@dataclass(frozen=True)
class Quantized:
    """What `quantize` wrote, and how it compares with the original."""

    out: str
    megabytes: tuple[float, float]  # of the weights before and after
    layers: list[LayerError]
    proof: QuantizationProof | None

    @property
    def float32(self) -> list[str]:
        """The layers that stay in float32."""
        return [layer.layer for layer in self.layers if layer.dtype == "float32"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return finite(asdict(self) | {"float32": self.float32})


def quantize(
    model: str | Path,
    out: str | Path,
    *,
    data: Any = None,
    at_most: float | None = None,
    limit: int = 0,
    overwrite: bool = False,
    **reading: Any,
) -> Quantized:
    """Write a model whose weights are int8, if it is as good as its float32 original on `data`.

    With labels both models are scored; without, their predictions or vectors are compared. Where
    more than `at_most` points are lost (a point estimate), the layers with the largest errors stay
    in float32, more of them each time; if that does not help, an error says so.
    """
    if at_most is not None and (data is None or not at_most >= 0):
        raise BertsmithError("at_most is a number of points, 0 or more, and needs data to score on")
    check_replaceable(out, overwrite)
    plain = open_model(model, device="cpu", dtype="float32", progress=False)
    demand_float(plain.checkpoint.settings, model)
    comparison = None if data is None else Int8Comparison(plain, data, limit, reading)
    texts = comparison.texts[:SAMPLE] if comparison else PANGRAMS
    errors = layer_errors(plain, texts)
    keep: list[str] = []
    while True:
        int8 = open_model(model, device="cpu", dtype="float32", progress=False)
        to_int8(int8.model, keep, pangrams(int8))
        proof = comparison.proof(int8) if comparison else None
        if proof is None or at_most is None or proof.lost <= at_most:
            break
        more = max(1, 2 * len(keep))
        if more >= len(errors):
            raise BertsmithError(
                f"int8 loses {proof.lost:.2f} points of {proof.measure}, more than {at_most:g},"
                f" even with {len(keep)} of {len(errors)} layers in float32: {out} was not written"
            )
        keep = [one.layer for one in errors[:more]]
    replace_directory(out, int8.save, overwrite)
    layers = [replace(one, dtype="float32") if one.layer in keep else one for one in errors]
    before = sum(4 * parameter.numel() for parameter in plain.model.parameters()) / 1e6
    after = (Path(out) / "model.safetensors").stat().st_size / 1e6
    return Quantized(str(out), (round(before, 1), round(after, 1)), layers, proof)


@torch.inference_mode()
def layer_errors(bert: LoadedModel, texts: Sequence[str]) -> list[LayerError]:
    """The relative error of every layer in int8 on the inputs it gets in float32; largest first."""
    modules = dict(int8_candidates(bert.model))
    sums = {path: [0.0, 0.0] for path in modules}

    def measured(path: str) -> Any:
        def hook(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            rows, scale = quantize_rows(inputs[0])
            values, scales = quantize_weight(layer.weight)
            exact = F.linear(inputs[0], layer.weight)
            rounded = F.linear(rows.float(), values.float()) * scale * scales
            sums[path][0] += float((rounded - exact).square().sum())
            sums[path][1] += float(exact.square().sum())

        return hook

    table, *linear = modules
    table_weight = modules[table].weight
    rounded = dequantize_weight(*quantize_weight(table_weight, blocks(modules[table])))
    change = rounded - table_weight
    sums[table] = [float(change.square().sum()), float(table_weight.square().sum())]
    hooks = [modules[path].register_forward_hook(measured(path)) for path in linear]
    try:
        embed(bert, list(texts))
    finally:
        for hook in hooks:
            hook.remove()
    errors = [
        LayerError(path, (bad / total) ** 0.5) for path, (bad, total) in sums.items() if total
    ]
    return sorted(errors, key=lambda layer: -layer.error)


class Int8Comparison:
    """A float32 model's results on a file, which those of int8 models are compared with."""

    def __init__(self, plain: LoadedModel, data: Any, limit: int, reading: dict[str, Any]) -> None:
        self.task = task_of(plain)
        options = {"usual": plain.columns, **reading}
        self.scored = self._score(plain, data, limit, options)
        if self.scored is not None:
            self.dataset = self.scored.dataset
            self.examples = list(self.dataset.examples)
        else:
            kind = "text" if self.task.head is None else self.task.name
            portions = open_data(data, kind, **options).portions()
            examples = (one for part in portions for one in part.examples if one is not None)
            self.examples = list(islice(examples, limit or COMPARED))
        texts = [text for one in self.examples for text in one.texts]
        self.texts = list(dict.fromkeys(texts))[:COMPARED]
        self.predicted = self._values(plain)
        self.vectors = unit_vectors(embed(plain, self.texts))

    def _score(
        self, plain: LoadedModel, data: Any, limit: int, options: dict[str, Any]
    ) -> Evaluation | None:
        """The score of the float32 model; None if the file has no labels for its task."""
        try:
            name = None if self.task.head is None else self.task.name
            dataset = read_data(data, name, **options)
            labelled = self.task.scores(dataset) and bool(dataset.gold())
        except BertsmithError:  # no column of labels; other errors are raised when texts are read
            return None
        return evaluate(plain, sample_of(dataset, limit)) if labelled else None

    def _values(self, bert: LoadedModel) -> list[Any]:
        if self.scored is not None or self.task.head is None:
            return []
        return [one.value for one in self.task.predict(bert, self.examples)]

    def proof(self, int8: LoadedModel) -> QuantizationProof:
        """Compare an int8 model with the original."""
        vectors = unit_vectors(embed(int8, self.texts))
        cosines = (vectors * self.vectors).sum(1)
        about: dict[str, Any] = {
            "cosine": {"mean": float(cosines.mean()), "minimum": float(cosines.min())},
            "neighbours": neighbours(self.vectors, vectors),
        }
        if self.scored is None:
            if self.predicted:
                about |= agreement(self.predicted, self._values(int8))
            measure = "agreement" if "agreement" in about else "cosine"  # numbers are never equal
            lost = 100 * (1 - about.get("agreement", float(cosines.mean())))
            return QuantizationProof(len(self.predicted or self.texts), lost, measure, **about)
        result = evaluate(int8, self.dataset)
        metric = self.scored.task.metrics(self.dataset)[0]
        paired = compare(self.scored, result, metric)
        about |= agreement(self.scored.values, result.values)
        scores = {"float32": self.scored.scores[metric], "int8": result.scores[metric]}
        scores |= {name: float(getattr(paired, name)) for name in ("difference", "low", "high")}
        lost = 100 * (scores["float32"] - scores["int8"])
        return QuantizationProof(len(self.examples), lost, metric, scores, **about)


def agreement(before: Sequence[Any], after: Sequence[Any]) -> dict[str, float]:
    """The part of the predictions that are equal; of numbers, the largest change."""
    pairs = list(zip(before, after, strict=True))
    if all(isinstance(one, int | float) for pair in pairs for one in pair):
        return {"largest_change": max(abs(a - b) for a, b in pairs)}
    return {"agreement": sum(a == b for a, b in pairs) / len(pairs)}


def neighbours(before: Any, after: Any) -> dict[str, float]:
    """How many texts keep their nearest neighbour, and how many of their ten nearest ones."""
    count = min(NEAREST, len(before) - 1)
    if count < 1:
        return {}
    orders = []
    for vectors in (before, after):
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, -2)
        orders.append(np.argsort(-cosines, axis=1)[:, :count])
    first = float((orders[0][:, 0] == orders[1][:, 0]).mean())
    pairs = zip(*orders, strict=True)
    shared = float(np.mean([len({*a} & {*b}) / count for a, b in pairs]))
    return {"first": first, "of": count, "shared": shared}
