"""`bertsmith importance`: which words a label or an answer depends on."""

from dataclasses import asdict
from functools import partial
from typing import Any

import typer

from bertsmith.cli import inspection, shared
from bertsmith.cli.declare import argument, option


def importance(
    model: shared.Model,
    text: str = argument(..., "A text, or a question."),
    text_b: str | None = argument(
        None, "The second text of a pair, or the passage with the answer."
    ),
    label: str | None = option(None, "Explain this label. Default: the predicted one."),
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Show which words a label or an answer depends on.

    Every word is masked in turn. Its importance is the decrease of the log probability of the
    prediction (for regression, of the number); a negative value means that it opposes it.
    """
    inspection.check_out(out)
    from rich.text import Text

    from bertsmith.analysis.importance import explained
    from bertsmith.analysis.pages import importance_page, summary

    bert = shared.open_model(model, **loading)
    result = explained(bert, text, text_b, label)
    texts = [text] if text_b is None else [text, text_b]

    def show() -> None:
        """Show the words with a bar each: solid for the prediction, shaded against it."""
        console = shared.console()
        typer.echo(summary(result))
        largest = max((abs(word.importance) for word in result.words), default=0.0) or 1.0
        for word in result.words:
            bar = ("█" if word.importance > 0 else "▒") * round(12 * abs(word.importance) / largest)
            line = f"{word.importance:+8.3f}  {bar:12}  {shared.clipped(word.text, 40)}"
            console.print(Text(line), no_wrap=True)

    page = partial(importance_page, texts, result, inspection.model_name(model))
    inspection.present(as_json, [asdict(result)], show, out, page)
    shared.notes(bert.ledger.lines())
