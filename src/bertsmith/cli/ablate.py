"""`bertsmith ablate`: the loss or score without some heads or layers; pruning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from bertsmith.cli import inspection, shared
from bertsmith.cli.declare import argument, flag, option
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole, whole_number

if TYPE_CHECKING:
    from bertsmith.analysis.ablation import Material
    from bertsmith.infer.loaded import LoadedModel
    from bertsmith.infer.windows import Window


def ablate(
    model: shared.Model,
    file: Path = argument(
        ..., "A file of texts, or with --task labels a data file of the model's own task."
    ),
    heads: str | None = option(
        None, "Remove these heads, as in 0.3,2.* (layer.head from 0; * for all heads)."
    ),
    layers: str | None = option(None, "Remove these layers, counted from 0, as in 3,5-6."),
    mean: bool = flag("--mean", "Replace heads and layers by their mean output, not by zero."),
    alone: bool = flag(
        "--alone", "Rank heads by the cost of leaving out each one, not by gradients."
    ),
    prune: str | None = option(
        None, "Prune the least important heads: a number, or a fraction such as 25%."
    ),
    out: Path | None = option(None, "Save the pruned model to this directory."),
    overwrite: shared.Overwrite = False,
    keep_shapes: bool = flag(
        "--keep-shapes", "Save zeros in place of pruned heads, which transformers 5 can open."
    ),
    task: Literal["masked", "labels"] | None = option(
        None,
        "Measure on masked tokens or on labels. Default: masked where the model has a "
        "masked-LM head.",
    ),
    limit: inspection.Limit = 500,
    seed: inspection.Seed = 0,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Measure the loss or score of a model without some heads or layers.

    With --heads or --layers, compares the model with and without them. Otherwise ranks all heads
    by importance; --prune removes the least important ones and saves the smaller model.
    """
    if prune is not None and (heads or layers):
        raise BertsmithError("--prune chooses heads itself: leave out --heads and --layers")
    if (prune is None) != (out is None):
        raise BertsmithError("--prune and --out go together")
    if not file.exists():
        raise BertsmithError(f"{file}: no such file")
    from bertsmith.folders import check_replaceable

    if out is not None:
        check_replaceable(out, overwrite)
    layer_numbers = inspection.numbers(layers, "--layers") or []
    count = None if prune is None else _count(prune)
    bert = shared.open_model(model, **loading)
    masked = "masked_lm" in bert.model.heads if task is None else task == "masked"
    if masked:
        bench: Bench = _masked(bert, inspection.sampled_texts(file, limit, seed), seed)
    else:
        bench = _labels(bert, file, limit, seed)
    if heads or layers:
        result = _without(bert, bench, heads, layer_numbers, mean)
    else:
        result = _ranked(bert, bench, alone, mean, count, out, keep_shapes, overwrite)
    shared.output(as_json, result.get("rows") or [result], lambda: _show(result))
    shared.notes(bert.ledger.lines())


class Bench(NamedTuple):
    """How a model is measured: by its loss or scores, a cost, and a loss with a gradient."""

    numbers: Callable[[LoadedModel], dict[str, float]]  # the loss, or scores
    windows: Callable[[], Sequence[Window]]
    cost: Callable[[], float]  # the higher the worse
    material: Callable[[], Material]  # whose loss has a gradient


def _masked(bert: LoadedModel, lines: list[str], seed: int) -> Bench:
    from bertsmith.analysis.ablation import loss, masked_words

    material = masked_words(bert, lines, seed=seed)
    return Bench(
        lambda model: {"loss": loss(model, material)},
        lambda: material.windows,
        lambda: loss(bert, material),
        lambda: material,
    )


def _labels(bert: LoadedModel, file: Path, limit: int, seed: int) -> Bench:
    from dataclasses import replace

    from bertsmith.analysis import ablation
    from bertsmith.tasks.read import read_data
    from bertsmith.tasks.registry import task_of

    task = task_of(bert)
    dataset = read_data(file, task.name)
    dataset = replace(dataset, examples=inspection.sample(dataset.examples, limit, seed))
    metric = task.metrics(dataset)[0]
    return Bench(
        lambda model: ablation.scores(model, dataset),
        lambda: ablation.windows(bert, dataset),
        lambda: -ablation.scores(bert, dataset)[metric],
        lambda: ablation.material(bert, dataset),
    )


def _without(
    bert: LoadedModel, bench: Bench, heads: str | None, layers: list[int], mean: bool
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import ablated, mean_outputs
    from bertsmith.analysis.maps import head_counts

    removed = parse_heads(heads, head_counts(bert)) if heads else []
    before = bench.numbers(bert)
    means = mean_outputs(bert, bench.windows()) if mean else None
    with ablated(bert, removed, layers, means):
        after = bench.numbers(bert)
    return {"heads": removed, "layers": layers, "with": before, "without": after}


def _ranked(
    bert: LoadedModel,
    bench: Bench,
    alone: bool,
    mean: bool,
    prune: Callable[[int], int] | None,
    out: Path | None,
    keep_shapes: bool,
    overwrite: bool,
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import importance, mean_outputs, one_by_one
    from bertsmith.analysis.maps import head_counts
    from bertsmith.analysis.pruning import least, pruned, zeroed
    from bertsmith.folders import replace_directory
    from bertsmith.train.flops import parameters_of

    counts = head_counts(bert)
    if alone:
        means = mean_outputs(bert, bench.windows()) if mean else None
        table = one_by_one(bert, bench.cost, means)
    else:
        table = importance(bert, bench.material())
    if prune is None or out is None:
        rows = [
            {"layer": layer, "head": head, "importance": float(table[layer, head])}
            for layer, count in enumerate(counts)
            for head in range(count)
        ]
        return {"rows": sorted(rows, key=lambda row: -row["importance"])}
    removed = least(table, prune(sum(counts)), counts)
    before, size = bench.numbers(bert), parameters_of(bert.model)
    if keep_shapes:
        zeroed(bert, removed)
        smaller = bert
    else:
        smaller = pruned(bert, removed)
    replace_directory(out, smaller.save, overwrite)
    result = {"heads": removed, "layers": [], "with": before, "without": bench.numbers(smaller)}
    return result | {"out": str(out), "parameters": [size, parameters_of(smaller.model)]}


def parse_heads(text: str, counts: list[int]) -> list[tuple[int, int]]:
    """Parse heads such as 0.3,2.* (a layer, a point, a head or all)."""
    heads: dict[tuple[int, int], None] = {}
    for part in text.split(","):
        layer, point, head = part.strip().partition(".")
        shown = repr(part.strip()[:40])
        if not point:
            raise BertsmithError(f"--heads: {shown} is not like 0.3 or 2.*")
        number = whole_number(layer, f"--heads: the layer of {shown}", 0, len(counts) - 1)
        last = counts[number] - 1
        if head == "*":
            heads.update(dict.fromkeys((number, every) for every in range(last + 1)))
        else:
            heads[number, whole_number(head, f"--heads: the head of {shown}", 0, last)] = None
    return list(heads)


def _count(text: str) -> Callable[[int], int]:
    """A number of heads, or a percentage of all, as a function of how many there are."""
    digits, percent, rest = text.strip().partition("%")
    number = parse_whole(digits)
    if number is None or number < 0 or rest or (percent and number > 100):
        raise BertsmithError(
            f"--prune: {text[:40]!r} is not a number of heads, nor a share such as 25%"
        )
    return lambda total: round(total * number / 100) if percent else number


def _show(result: dict[str, Any]) -> None:
    if rows := result.get("rows"):
        typer.echo("heads as layer.head, from the most important to the least")
        for row in rows:
            bar = "█" * max(0, round(30 * row["importance"] / max(rows[0]["importance"], 1e-9)))
            typer.echo(f"{row['layer']:>3}.{row['head']:<3} {row['importance']:8.4f}  {bar}")
        return
    removed = [f"{layer}.{head}" for layer, head in result["heads"]]
    removed += [f"layer {layer}" for layer in result["layers"]]
    typer.echo(f"without {len(removed)}: {', '.join(removed)}")
    for name, before in result["with"].items():
        after = result["without"][name]
        typer.echo(f"{name} {before:.4f} → {after:.4f} ({after - before:+.4f})")
    if "out" in result:
        before, after = result["parameters"]
        typer.echo(f"{before:,} → {after:,} parameters, saved in {result['out']}")
