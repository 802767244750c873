"""`bertsmith attention`: a page that shows what a model attends to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.errors import BertsmithError

VIEWS = ("text", "lines", "matrix", "heads")
Numbers = Annotated[str | None, typer.Option(help="Which, as 0,3 or 4-7; default: all.")]


def attention(
    model: shared.Model,
    text: Annotated[str | None, typer.Argument(help="A text.", show_default=False)] = None,
    text_b: Annotated[
        str | None, typer.Argument(help="A second text, read with the first.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Write a page (.html) or arrays (.npz).")] = Path(
        "attention.html"
    ),
    file: Annotated[Path | None, typer.Option(help="Read the text from a file.")] = None,
    layers: Numbers = None,
    heads: Numbers = None,
    tokens: Annotated[
        str | None, typer.Option(help="Of a long text, show these one by one: 100-300.")
    ] = None,
    versus: Annotated[str | None, typer.Option(help="Another text, side by side.")] = None,
    versus_model: Annotated[str | None, typer.Option(help="Another model, side by side.")] = None,
    importance: Annotated[
        bool, typer.Option(help="Underline words that the model's label or answer depends on.")
    ] = False,
    view: Annotated[str, typer.Option(help="Open with: text, lines, matrix or heads.")] = "text",
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Write a page that shows what a model attends to.

    One file, no network: the text coloured by attention, lines between tokens, a matrix to zoom
    into, a grid of all heads; what a token looks at and who looks at it.
    """
    if (text is None) == (file is None):
        raise BertsmithError("give a text, or --file; not both, not neither")
    if view not in VIEWS:
        raise BertsmithError(f"--view is one of {', '.join(VIEWS)}, not {view!r}")
    if out.suffix not in (".html", ".htm", ".npz"):
        raise BertsmithError(f"{out}: write to a .html or a .npz file")
    chosen = {"layers": numbers(layers, "--layers"), "heads": numbers(heads, "--heads")}
    stretch = numbers(tokens, "--tokens")
    if text is None:
        text = "\n".join(shared.read_texts(None, file))
    if not text.strip():
        raise BertsmithError("there is nothing in the text to attend to")
    from bertsmith.analysis import AttentionPage
    from bertsmith.analysis import attention as look

    names = [model] if versus_model is None else [model, versus_model]
    berts = [shared.open_model(name, device, dtype, family) for name in names]
    labels = [Path(name).name or name for name in names]
    views = [
        look(bert, given, pair, name=label, importance=importance, **chosen)
        for bert, label in zip(berts, labels, strict=True)
        for given, pair in (
            [(text, text_b)] if versus is None else [(text, text_b), (versus, None)]
        )
    ]
    shown = None if stretch is None else range(stretch[0], stretch[-1] + 1)
    AttentionPage(tuple(views), shown, view).save(out)
    size = out.stat().st_size
    if as_json:
        rows = [
            {"model": v.name, "tokens": len(v), "layers": len(v.layers), "heads": len(v.heads)}
            for v in views
        ]
        shared.print_json([{"out": str(out), "bytes": size, "views": rows}])
        return
    for one in views:
        made_of = f"{len(one.layers)} layers, {len(one.heads)} heads"
        typer.echo(f"{one.name}: {len(one):,} tokens, {made_of}")
    typer.echo(f"written to {out}, {size / 1e6:.2f} MB; open it in a browser")


def numbers(given: str | None, option: str) -> list[int] | None:
    """Whole numbers as a person writes them: 0,3,5-7."""
    if given is None:
        return None
    found: list[int] = []
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise BertsmithError(f"{option}: {given!r} is not a list such as 0,3,5-7")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise BertsmithError(f"{option}: {given!r} names nothing")
    return found
