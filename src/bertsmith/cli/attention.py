"""`bertsmith attention`: a page that shows the attention weights of a text."""

from pathlib import Path
from typing import Any, Literal

import typer

from bertsmith.cli import inspection, shared
from bertsmith.cli.declare import argument, flag, option
from bertsmith.errors import BertsmithError


def attention(
    model: shared.Model,
    text: str | None = argument(None, "A text."),
    text_b: str | None = argument(None, "A second text, read together with the first."),
    out: Path = option(
        Path("attention.html"), "Write a page (.html) or arrays (.npz) to this file."
    ),
    file: Path | None = option(None, "Read the text from this file."),
    layers: str | None = option(None, "Show only these layers, counted from 0, as in 0,3 or 4-7."),
    heads: str | None = option(None, "Show only these heads, counted from 0, as in 0,3 or 4-7."),
    tokens: str | None = option(
        None, "Of a long text, show these tokens one by one, as in 100-300."
    ),
    against: inspection.Against = None,
    other_text: str | None = option(None, "Show another text beside the first."),
    importance: bool = flag(
        "--importance", "Underline the words that the label or answer depends on."
    ),
    view: Literal["text", "lines", "matrix", "heads"] | None = option(
        None, "The view to open with [default: lines; matrix for a long text]."
    ),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Write a page that shows the attention weights of a text.

    One file that needs no network: the text colored by attention, lines between tokens, a matrix
    to zoom into, and a grid of all heads. A .npz file holds the weights as arrays.
    """
    if (text is None) == (file is None):
        raise BertsmithError("give either a text or --file")
    inspection.check_out(out, (*inspection.PAGES, ".npz"))
    chosen = {
        "layers": inspection.numbers(layers, "--layers"),
        "heads": inspection.numbers(heads, "--heads"),
    }
    token_numbers = inspection.numbers(tokens, "--tokens")
    if text is None:
        text = "\n".join(shared.read_texts(None, file))
    if not text.strip():
        raise BertsmithError("the text is empty")
    from bertsmith.analysis import AttentionPage
    from bertsmith.analysis import attention as look

    names = [model] if against is None else [model, against]
    berts = [shared.open_model(name, **loading) for name in names]
    pairs = [(text, text_b), *([] if other_text is None else [(other_text, None)])]
    views = [
        look(bert, first, second, name=inspection.model_name(name), importance=importance, **chosen)
        for bert, name in zip(berts, names, strict=True)
        for first, second in pairs
    ]
    shown = range(token_numbers[0], token_numbers[-1] + 1) if token_numbers else None
    AttentionPage(tuple(views), shown, view or "").save(out)
    rows: list[dict[str, Any]] = [
        {"model": v.name, "tokens": len(v), "layers": len(v.layers), "heads": len(v.heads)}
        for v in views
    ]
    size = out.stat().st_size

    def show() -> None:
        for row in rows:
            counts = f"{row['layers']} layers, {row['heads']} heads"
            typer.echo(f"{row['model']}: {row['tokens']:,} tokens, {counts}")
        how = "read it with numpy.load" if out.suffix == ".npz" else "open it in a browser"
        typer.echo(f"written to {out}, {size / 1e6:.2f} MB; {how}")

    shared.output(as_json, [{"out": str(out), "bytes": size, "views": rows}], show)
