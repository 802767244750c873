"""`bertsmith ablate`: what a model loses without some heads or layers; which to prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli.attention import numbers
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.analysis.ablation import Material
    from bertsmith.tasks import Bert


def ablate(
    model: shared.Model,
    file: Annotated[
        Path,
        typer.Argument(
            help="Texts, a line each; for --task classify with a tab and a label behind each.",
            show_default=False,
        ),
    ],
    heads: Annotated[
        str | None, typer.Option(help="Without these heads: 0.3,2.* (layer.head, * for all).")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Without these layers: 3,5-6.")] = None,
    mean: Annotated[
        bool, typer.Option(help="Replace heads by their average, not by nothing.")
    ] = False,
    alone: Annotated[
        bool, typer.Option(help="Rank heads by the loss without each alone, not by gradient.")
    ] = False,
    prune: Annotated[
        str | None, typer.Option(help="Prune the least important: how many, or a share: 25%.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Save the pruned model there.")] = None,
    keep_shapes: Annotated[
        bool, typer.Option(help="Save zeros in place of pruned heads: transformers 5 opens it.")
    ] = False,
    task: Annotated[str, typer.Option(help="masked or classify.")] = "masked",
    limit: Annotated[int, typer.Option(help="How many texts.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Chooses what is masked.")] = 0,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Measure what a model loses without some heads or layers.

    With --heads or --layers: the loss without them. Otherwise all heads are ranked by how much
    the loss depends on them; --prune then cuts the least important out.
    """
    if prune is not None and (heads or layers):
        raise BertsmithError("--prune chooses heads itself: leave out --heads and --layers")
    if (prune is None) != (out is None):
        raise BertsmithError("--prune and --out go together")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BertsmithError(f"{out}: is there already and not empty; use another")
    if task not in ("masked", "classify"):
        raise BertsmithError(f"--task is masked or classify, not {task!r}")
    lines = [line for line in shared.read_texts(None, file) if line.strip()][:limit]
    bert = shared.open_model(model, device, dtype, family)
    material = _material(bert, lines, task, seed, file)
    if heads or layers:
        shown = _without(bert, material, heads, layers, mean)
    else:
        shown = _ranked(bert, material, alone, mean, prune, out, keep_shapes)
    if as_json:
        shared.print_json(shown.pop("rows", None) or [shown])
    else:
        _show(shown)
    shared.close(bert)


def _material(bert: Bert, lines: list[str], task: str, seed: int, file: Path) -> Material:
    from bertsmith.analysis.ablation import labelled, masked_words

    if task == "masked":
        return masked_words(bert, lines, seed=seed)
    pairs = [line.rpartition("\t") for line in lines]
    for number, (text, tab, _) in enumerate(pairs, 1):
        if not tab or not text:
            raise BertsmithError(f"{file}, text {number}: no tab and label behind it")
    return labelled(bert, [text for text, _, _ in pairs], [label.strip() for *_, label in pairs])


def _without(
    bert: Bert, material: Material, heads: str | None, layers: str | None, mean: bool
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import ablated, loss, mean_outputs, shape

    gone = named(heads, shape(bert)) if heads else []
    skipped = numbers(layers, "--layers") or []
    before = loss(bert, material)
    means = mean_outputs(bert, material.windows) if mean else None
    with ablated(bert, gone, skipped, means):
        after = loss(bert, material)
    return {"loss": before, "without": after, "heads": gone, "layers": skipped}


def _ranked(
    bert: Bert,
    material: Material,
    alone: bool,
    mean: bool,
    prune: str | None,
    out: Path | None,
    keep_shapes: bool,
) -> dict[str, Any]:
    from bertsmith.analysis.ablation import importance, loss, one_by_one, shape
    from bertsmith.analysis.pruning import least, pruned, zeroed

    counts = shape(bert)
    table = one_by_one(bert, material, mean=mean) if alone else importance(bert, material)
    if prune is None or out is None:
        rows = [
            {"layer": layer, "head": head, "importance": float(table[layer, head])}
            for layer, count in enumerate(counts)
            for head in range(count)
        ]
        return {"rows": sorted(rows, key=lambda row: -row["importance"])}
    gone = least(table, _count(prune, sum(counts)), counts)
    before, size = loss(bert, material), _size(bert)
    smaller = bert
    if keep_shapes:
        zeroed(bert, gone)
    else:
        smaller = pruned(bert, gone)
    smaller.save(out)
    found = {"loss": before, "without": loss(smaller, material), "heads": gone, "layers": []}
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


def _size(bert: Bert) -> int:
    return sum(parameter.numel() for parameter in bert.model.parameters())


def _show(shown: dict[str, Any]) -> None:
    if rows := shown.get("rows"):
        typer.echo("heads as layer.head, from the most important to the least")
        for row in rows:
            bar = "█" * max(0, round(30 * row["importance"] / max(rows[0]["importance"], 1e-9)))
            typer.echo(f"{row['layer']:>3}.{row['head']:<3} {row['importance']:8.4f}  {bar}")
        return
    change = shown["without"] - shown["loss"]
    gone = [f"{layer}.{head}" for layer, head in shown["heads"]]
    gone += [f"layer {layer}" for layer in shown["layers"]]
    typer.echo(f"without {len(gone)}: {', '.join(gone)}")
    typer.echo(f"loss {shown['loss']:.4f} → {shown['without']:.4f} ({change:+.4f})")
    if "out" in shown:
        before, after = shown["parameters"]
        typer.echo(f"{before:,} → {after:,} parameters, saved in {shown['out']}")
