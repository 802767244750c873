"""`bertsmith senses`: groups of the occurrences of a word."""

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared
from bertsmith.cli.declare import argument, option


def senses(
    model: shared.Model,
    word: str = argument(..., "A word."),
    file: Path = argument(..., "A file of texts."),
    depth: int | None = option(
        None,
        "Depth of the states: 0 is the output of the embeddings, k that of block k. "
        "Default: three quarters of the blocks.",
    ),
    groups: int | None = option(
        None, "Number of groups. Default: the one with the best silhouette score.", min=1
    ),
    limit: int = option(1000, "Use a random sample of at most this many occurrences.", min=2),
    seed: inspection.Seed = 0,
    pairs: Path | None = option(
        None,
        "Measure accuracy on this file of word, sentence, sentence, T or F (the same "
        "sense?), separated by tabs.",
    ),
    out: inspection.Out = None,
    projector: Path | None = option(
        None, "Write files for TensorBoard's projector to this folder."
    ),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Group the occurrences of a word by their vectors.

    Occurrences with one sense have similar vectors, so that groups often are senses.
    """
    inspection.check_out(out)
    inspection.check_folder(projector)
    texts = shared.read_texts(None, file)
    from rich.text import Text

    from bertsmith.analysis.pages import senses_page
    from bertsmith.analysis.senses import projector as export
    from bertsmith.analysis.senses import read_pairs, same_sense
    from bertsmith.analysis.senses import senses as look
    from bertsmith.data.streams import Stream

    labelled = None
    if pairs is not None:
        labelled = read_pairs([line for _, line in Stream(pairs).numbered()], str(pairs))
    bert = shared.open_model(model, **loading)
    result = look(bert, word, texts, depth=depth, groups=groups, most=limit, seed=seed)
    accuracies = None if labelled is None else same_sense(bert, labelled)
    if projector is not None:
        export(result, projector)
    occurrences = (
        {"text": place.text, "start": place.start, "end": place.end, "group": group}
        for place, group in zip(result.places, result.groups, strict=True)
    )
    summary = {"depth": result.depth, "cosines": result.alike, "accuracies": accuracies}

    def show() -> None:
        console = shared.console()
        count = max(result.groups) + 1
        apart = f"silhouette score {result.silhouette:.2f}" if count > 1 else "no clear groups"
        typer.echo(
            f"{len(result.places):,} occurrences of {result.word!r} at depth {result.depth}, "
            f"{count} group{'s' * (count > 1)} ({apart})"
        )
        for group in range(count):
            members = result.members(group)
            words = ", ".join(result.words(group))
            console.print(Text(f"\n{group + 1}. {len(members):,} occurrences: {words}", "bold"))
            for number in members[:4]:
                line = shared.clipped(result.places[number].around(), max(20, console.width - 4))
                console.print(Text(f"   {line}"), no_wrap=True)
        depths = "  ".join(f"{value:.2f}" for value in result.alike)
        typer.echo(f"\nmean cosine of two occurrences at depths 0, 1, ...: {depths}")
        if accuracies is not None:
            shown = "  ".join(f"{accuracy:.0%}" for accuracy in accuracies)
            typer.echo(f"accuracy on the pairs at depths 0, 1, ...: {shown}")

    page = partial(senses_page, result, inspection.model_name(model), accuracies)
    inspection.present(as_json, chain(occurrences, [summary]), show, out, page)
    if not as_json:
        inspection.written(projector)
    shared.notes(bert.ledger.lines())
