"""Rewrite docs/reference.md: every command with its arguments and options, as they are declared."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli.app import SECTIONS, app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
# Commands that are described on the page of another.
PAGES = {
    **dict.fromkeys(("recipes", "verify-resume"), "pretrain.md"),
    **dict.fromkeys(("glue", "squad", "conll"), "benchmarks.md"),
    "plan": "pretrain.md#plan",
    "index": "search.md#index",
    "evaluate-search": "search.md#evaluate-search",
}
BEGIN = (
    "# Commands\n\n"
    "Every command has `--help`, and `--json` for machines. Exit status 0 is success, 1 a negative "
    "result (such as a\nfinding of `check`), 2 a mistake, which is explained in one line. For "
    "Python see [From Python](python.md) and the\n[API](api/bertsmith.md); for problems, "
    "[Troubleshooting](troubleshooting.md). All options are [below](#options)."
)


def lines() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="bertsmith")
    yield BEGIN
    for section, names in SECTIONS.items():
        yield from (f"\n## {section}", "", "| command | |", "| --- | --- |")
        for name in names:
            about = plain(group.get_command(context, name).get_short_help_str(200))
            yield f"| [`{name}`]({PAGES.get(name, f'{name}.md')}) | {about} |"
    yield "\n## Options"
    for name in (name for names in SECTIONS.values() for name in names):
        yield from options(group.get_command(context, name), name, context)


def options(command: Any, name: str, parent: typer.Context) -> Iterator[str]:
    """The arguments and options of a command, or of each command of a group."""
    context = typer.Context(command, info_name=name, parent=parent)
    if hasattr(command, "commands"):
        for inner, one in command.commands.items():
            yield from options(one, f"{name} {inner}", context)
        return
    yield from (f"\n### {name}", "", "| option | |", "| --- | --- |")
    for one in command.get_params(context):
        record = one.get_help_record(context)
        if record is None or one.name == "help":
            continue
        written = record[0].replace(" range>", ">").replace("|", "/")
        if one.param_type_name == "argument":
            written = written.partition(" ")[0].upper()
        yield f"| `{written}` | {plain(record[1])} |"


def plain(text: str) -> str:
    """Help as Markdown in a cell of a table."""
    text = re.sub(r"(<\w+>)", r"`\1`", " ".join(text.split()))
    return text.replace("|", "/").replace("*", r"\*")


def page() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
