"""`bertsmith search`: passages of an index with file, line and score."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, flag, option, options_of
from bertsmith.errors import BertsmithError, printable
from bertsmith.numbers import real_number
from bertsmith.settings.search import SearchSettings

if TYPE_CHECKING:
    from bertsmith.search import FoundAnswer, Hit


LONGEST = 400  # characters of a passage that are shown


INDEX = argument(..., "A folder that bertsmith index wrote.", metavar="INDEX")


MOVED = option(None, "New location of the index's model, if it was moved.")


BEST_GRADE = option(None, "The best grade, if lower grades are better: 1 for Cranfield's file.")


def search(
    index: Path = INDEX,
    query: str | None = argument(None, 'Words, "exact phrases" and beginnings of words (begin*).'),
    top: int = option(10, "Number of results.", min=1, max=10_000),
    keywords: bool = flag("--keywords", "Rank by keywords alone."),
    vectors: bool = flag("--vectors", "Rank by vectors alone."),
    ranking: Any = options_of(SearchSettings),
    answer: str | None = option(
        None, "Extract answers from the passages with this question-answering model."
    ),
    page: bool = flag("--page", "Open a search page in the browser until Ctrl-C."),
    port: int = option(0, "Port of the page; 0: any free port.", min=0),
    model: str | None = MOVED,
    device: shared.Device = None,
    dtype: shared.Dtype = None,
    as_json: shared.Json = False,
) -> None:
    """Search an index by keywords and vectors combined.

    Results are passages with their file and line. --json prints one object for each hit.
    """
    from bertsmith.search import Index

    if keywords and vectors:
        raise BertsmithError("--keywords and --vectors exclude each other; hybrid is the default")
    if page:
        _serve(index, port, model=model, device=device, dtype=dtype)
        return
    if query is None or not query.strip():
        raise BertsmithError("no query: give one after the index, or --page")
    mode = "keywords" if keywords else "vectors" if vectors else "hybrid"
    with Index.open(index, model=model, device=device, dtype=dtype) as opened:
        reranker = opened.reranker(ranking["rerank"] or None)
        pair = parse_weights(ranking["weights"]) or opened.weights
        mode = mode if opened.about["model"] or vectors else "keywords"
        scale = scale_of(mode, pair, ranking["fusion"]) if reranker is None else reranker.scale
        ranking |= {"weights": pair, "rerank": reranker}
        hits = opened.search(query, top, mode=mode, **ranking)
    extracted: list[FoundAnswer] = []
    if answer:
        from bertsmith.search import answers

        extracted = answers(answer, query, hits, device=device)
    rows = [{"answer": span.to_dict()} for span in extracted] + [hit.to_dict() for hit in hits]
    shared.output(as_json, rows, lambda: show(hits, scale, extracted))


def _serve(index: Path, port: int, **loading: str | None) -> None:
    import webbrowser

    from bertsmith.search import Index
    from bertsmith.search.page import server

    with Index.open(index, **loading) as opened, server(opened, port) as running:
        address = f"http://127.0.0.1:{running.server_port}/"
        shared.note(f"search page at {address}; stop with Ctrl-C")
        webbrowser.open(address)
        running.serve_forever()


def parse_weights(text: str | None) -> tuple[float, float] | None:
    """Two numbers, not both 0; None: the defaults."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != 2:
        raise BertsmithError(f"--weights must be two numbers such as 1,0.5, not {text[:40]!r}")
    first, second = (real_number(number, "--weights", 0.0, 1e6) for number in numbers)
    if not first and not second:
        raise BertsmithError("--weights: one of the two must be above 0")
    return first, second


def difference(row: Mapping[str, Any], metric: str = "") -> str:
    """The difference of two scores with its 95% interval."""
    unit = f" {metric}" if metric else ""
    return f"{row['difference']:+.4f}{unit} (95%: {row['low']:+.4f} to {row['high']:+.4f})"


def scale_of(mode: str, weights: tuple[float, float], fusion: str) -> str:
    """What the score of a hit is."""
    if mode == "keywords":
        return "BM25 of the query's words; higher is better"
    if mode == "vectors":
        return "cosine similarity of query and passage, at most 1"
    first, second = (f"{weight:g}" for weight in weights)
    if fusion == "rrf":
        return f"{first} / (60 + rank by keywords) + {second} / (60 + rank by vectors)"
    return f"{first} × BM25 + {second} × cosine similarity, each scaled to 0–1 within this search"


def show(hits: list[Hit], scale: str, extracted: Sequence[FoundAnswer] = ()) -> None:
    """Print answers, then hits with the words that match in bold, and what their scores are."""
    from rich.text import Text

    for span in extracted:
        text, place = _one_line(span.text).strip(), printable(_near(span))
        typer.echo(f"answer: {text}  (confidence {span.score:.2f}, {place})")
    console = shared.console()
    if not hits:
        typer.echo("nothing matches")
        return
    for number, hit in enumerate(hits, 1):
        above = " > ".join(dict.fromkeys(part for part in (hit.title, hit.heading) if part))
        if hit.heading.startswith(hit.title):
            above = hit.heading or hit.title
        line = Text(f"{number}. ")
        line.append(printable(_near(hit)), style="bold cyan")
        line.append(f"  {hit.score:.3f}", style="dim")
        if hit.document:
            line.append(f"  {shared.clipped(hit.document, 60)}", style="dim")
        console.print(line, soft_wrap=True)
        if above:
            console.print(Text(f"   {shared.clipped(above, 120)}", style="italic"), soft_wrap=True)
        console.print(_excerpt(hit, Text("   ")), soft_wrap=True)
        console.print()
    console.print(Text(f"score: {scale}", style="dim"), soft_wrap=True)


def _near(hit: Hit | FoundAnswer) -> str:
    """The place of a hit or answer, relative to the current folder where that is shorter."""
    return hit.place.removeprefix(f"{Path.cwd()}{os.sep}")


def _excerpt(hit: Hit, line: Any) -> Any:
    """The sentences of a passage that match best, on one line, matches in bold."""
    place, end = hit.excerpt(LONGEST)
    line.append("… " if place > hit.body_start else "")
    for low, high in hit.highlights:
        if place <= low and high <= end:
            line.append(_one_line(hit.text[place:low]))
            line.append(_one_line(hit.text[low:high]), style="bold yellow")
            place = high
    line.append(_one_line(hit.text[place:end]))
    line.append(" …" if end < len(hit.text) else "")
    return line


def _one_line(text: str) -> str:
    """A text without line feeds and control characters."""
    return re.sub(" +", " ", "".join(c if c.isprintable() else " " for c in text))
