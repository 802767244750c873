"""`bertsmith senses`: the vectors of one word in many sentences, in groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import pages

if TYPE_CHECKING:
    from bertsmith.analysis.senses import Senses


def senses(
    model: shared.Model,
    word: Annotated[str, typer.Argument(help="A word.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Texts, a line each (or .jsonl).")],
    layer: Annotated[
        int | None, typer.Option(help="Depth: 0 is the embeddings; default: three quarters up.")
    ] = None,
    groups: Annotated[int | None, typer.Option(help="How many; default: as are clear.")] = None,
    limit: Annotated[int, typer.Option(help="How many occurrences at most.", min=2)] = 1000,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Lines of word, sentence, sentence, T or F, with tabs: is it one sense?"),
    ] = None,
    out: pages.Out = None,
    projector: Annotated[
        Path | None, typer.Option(help="Write files for TensorBoard's projector there.")
    ] = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Find the senses of a word by its vectors in many sentences."""
    pages.check(out)
    texts = shared.read_texts(None, file)
    told = None if pairs is None else shared.read_lines(pairs)
    from bertsmith.analysis.drawing import projector as export
    from bertsmith.analysis.drawing import senses_page
    from bertsmith.analysis.heatmap import save_page
    from bertsmith.analysis.senses import read_pairs, same_sense
    from bertsmith.analysis.senses import senses as look

    labelled = None if told is None else read_pairs(told, str(pairs))
    bert = shared.open_model(model, device, dtype, family)
    found = look(bert, word, texts, layer=layer, groups=groups, most=limit)
    scores = None if labelled is None else same_sense(bert, labelled)
    if out is not None:
        save_page(out, senses_page(found, Path(model).name or model, scores))
    if projector is not None:
        export(found, projector)
    if as_json:
        shared.print_json(
            {"text": place.text, "start": place.start, "end": place.end, "group": group}
            for place, group in zip(found.places, found.groups, strict=True)
        )
        shared.print_json([{"depth": found.layer, "alike": found.alike, "same_sense": scores}])
    else:
        _show(found, scores)
        for written in filter(None, (out, projector)):
            typer.echo(f"written to {written}")
    shared.close(bert)


def _show(found: Senses, scores: list[float] | None) -> None:
    from rich.text import Text

    console = shared.console()
    count = max(found.groups) + 1
    apart = f", apart by {found.silhouette:.2f}" if count > 1 else ": none that are clearly apart"
    typer.echo(
        f"{len(found.places):,} occurrences of {found.word!r} at depth {found.layer}, "
        f"{count} group{'s' * (count > 1)}{apart}"
    )
    for group in range(count):
        members = found.members(group)
        words = ", ".join(found.words(group))
        console.print(Text(f"\n{group + 1}. {len(members):,} occurrences: {words}", "bold"))
        for number in members[:4]:
            line = shared.clipped(found.places[number].around(), max(20, console.width - 4))
            console.print(Text(f"   {line}"), no_wrap=True)
    depths = "  ".join(f"{value:.2f}" for value in found.alike)
    typer.echo(f"\nmean cosine of two occurrences by depth: {depths}")
    typer.echo("in the input table the word has one vector: 1.00")
    if scores is not None:
        told = "  ".join(f"{score:.0%}" for score in scores)
        typer.echo(f"same sense told from the cosine, by depth: {told}")
