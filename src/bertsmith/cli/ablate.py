"""`bertsmith ablate`: what a model loses without some heads or layers; which to prune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bertsmith.cli import options as shared
from bertsmith.cli.attention import numbers
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.analysis.ablation import Material
    from bertsmith.tasks import LoadedModel
    from bertsmith.tasks.windows import Window


def ablate(
    model: shared.Model,
    file: Annotated[
        Path,
        typer.Argument(
            help="Texts, a line each; or a data file of the model's own task (--task labels).",
            show_default=False,
        ),
    ],
    heads: Annotated[
        str | None, typer.Option(help="Without these heads: 0.3,2.* (layer.head, * for all).")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Without these layers: 3,5-6.")] = None,
    mean: Annotated[
        bool, typer.Option(help="Replace heads and layers by their average, not by nothing.")
    ] = False,
    alone: Annotated[
        bool, typer.Option(help="Rank heads by the cost of each alone, not by gradient.")
    ] = False,
    prune: Annotated[
        str | None, typer.Option(help="Prune the least important: how many, or a share: 25%.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Save the pruned model there.")] = None,
    keep_shapes: Annotated[
        bool, typer.Option(help="Save zeros in place of pruned heads: transformers 5 opens it.")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(help="masked (words) or labels; default: what the model has a head for."),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many texts or examples.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Chooses what is masked.")] = 0,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Measure what a model loses without some heads or layers.

    With --heads or --layers: the loss, and the score on labels, without them. Otherwise all heads
    are ranked by how much depends on them; --prune then cuts the least important out.
    """
    if prune is not None and (heads or layers):
        raise BertsmithError("--prune chooses heads itself: leave out --heads and --layers")
    if (prune is None) != (out is None):
        raise BertsmithError("--prune and --out go together")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BertsmithError(f"{out}: is there already and not empty; use another")
    if task not in (None, "masked", "labels"):
        raise BertsmithError(f"--task is masked or labels, not {task!r}")
    if not file.exists():
        raise BertsmithError(f"{file}: is not there")
    bert = shared.open_model(model, device, dtype, family)
    if (task or ("masked" if "masked_lm" in bert.model.heads else "labels")) == "masked":
        lines = shared.read_texts(None, file, limit=limit, seed=seed)
        bench: Bench = _masked(bert, lines, seed)
    else:
        bench = _labels(bert, file, limit)
    if heads or layers:
        shown = _without(bert, bench, heads, layers, mean)
    else:
        shown = _ranked(bert, bench, alone, mean, prune, out, keep_shapes)
    if as_json:
        shared.print_json(shown.pop("rows", None) or [shown])
    else:
        _show(shown)
    shared.close(bert)


class Bench(NamedTuple):
    """What a model is measured on: numbers of a model, what it reads, one cost, one gradient."""

    numbers: Callable[[LoadedModel], dict[str, float]]  # the loss, or scores
    windows: Callable[[], Sequence[Window]]
    cost: Callable[[], float]  # the higher the worse
    material: Callable[[], Material]  # whose loss has a gradient


def _masked(bert: LoadedModel, lines: list[str], seed: int) -> Bench:
    from bertsmith.analysis.ablation import loss, masked_words

    material = masked_words(bert, lines, seed=seed)
    return Bench(
        lambda one: {"loss": loss(one, material)},
        lambda: material.windows,
        lambda: loss(bert, material),
        lambda: material,
    )


def _labels(bert: LoadedModel, file: Path, limit: int) -> Bench:
    from dataclasses import replace

    from bertsmith.analysis import scoring
    from bertsmith.data import read_data
    from bertsmith.tasks.registry import task_of

    task = task_of(bert)
    dataset = read_data(file, task.name)
    dataset = replace(dataset, examples=dataset.examples[:limit])
    metric = task.metrics(dataset)[0]
    return Bench(
        lambda one: scoring.scores(one, dataset),
        lambda: scoring.windows(bert, dataset),
        lambda: -scoring.scores(bert, dataset)[metric],
        lambda: scoring.material(bert, dataset),
    )


def _without(
    bert: LoadedModel, bench: Bench, heads: str | None, layers: str | None, mean: bool
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import ablated, mean_outputs
    from bertsmith.analysis.attention import head_counts

    gone = named(heads, head_counts(bert)) if heads else []
    skipped = numbers(layers, "--layers") or []
    before = bench.numbers(bert)
    means = mean_outputs(bert, bench.windows()) if mean else None
    with ablated(bert, gone, skipped, means):
        after = bench.numbers(bert)
    return {"heads": gone, "layers": skipped, "with": before, "without": after}


def _ranked(
    bert: LoadedModel,
    bench: Bench,
    alone: bool,
    mean: bool,
    prune: str | None,
    out: Path | None,
    keep_shapes: bool,
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import importance, mean_outputs, one_by_one
    from bertsmith.analysis.attention import head_counts
    from bertsmith.analysis.pruning import least, pruned, zeroed

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
    gone = least(table, _count(prune, sum(counts)), counts)
    before, size = bench.numbers(bert), _size(bert)
    smaller = bert
    if keep_shapes:
        zeroed(bert, gone)
    else:
        smaller = pruned(bert, gone)
    smaller.save(out)
    found = {"heads": gone, "layers": [], "with": before, "without": bench.numbers(smaller)}
    return {**found, "out": str(out), "parameters": [size, _size(smaller)]}


def named(given: str, counts: list[int]) -> list[tuple[int, int]]:
    """Heads as a person writes them: 0.3,2.* (a layer, a point, a head or all)."""
    found = []
    for part in given.split(","):
        layer, point, head = part.strip().partition(".")
        if not (point and layer.isdecimal() and (head == "*" or head.isdecimal())):
            raise BertsmithError(f"--heads: {part.strip()!r} is not like 0.3 or 2.*")
        number = int(layer)
        count = counts[number] if number < len(counts) else 1
        found += [(number, n) for n in (range(count) if head == "*" else [int(head)])]
    return found


def _count(given: str, total: int) -> int:
    """A number of heads, or a share of all."""
    share, percent, rest = given.strip().partition("%")
    if not share.isdecimal() or rest:
        raise BertsmithError(f"--prune: {given!r} is not a number of heads, nor a share like 25%")
    return round(total * int(share) / 100) if percent else int(share)


def _size(bert: LoadedModel) -> int:
    return sum(parameter.numel() for parameter in bert.model.parameters())


def _show(shown: dict[str, Any]) -> None:
    if rows := shown.get("rows"):
        typer.echo("heads as layer.head, from the most important to the least")
        for row in rows:
            bar = "█" * max(0, round(30 * row["importance"] / max(rows[0]["importance"], 1e-9)))
            typer.echo(f"{row['layer']:>3}.{row['head']:<3} {row['importance']:8.4f}  {bar}")
        return
    gone = [f"{layer}.{head}" for layer, head in shown["heads"]]
    gone += [f"layer {layer}" for layer in shown["layers"]]
    typer.echo(f"without {len(gone)}: {', '.join(gone)}")
    for name, before in shown["with"].items():
        after = shown["without"][name]
        typer.echo(f"{name} {before:.4f} → {after:.4f} ({after - before:+.4f})")
    if "out" in shown:
        before, after = shown["parameters"]
        typer.echo(f"{before:,} → {after:,} parameters, saved in {shown['out']}")
