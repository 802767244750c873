"""`bertsmith pretrain`, `plan`, `verify-resume`, `recipes`: training runs from recipes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option
from bertsmith.errors import BertsmithError

RecipeName = Annotated[
    str, typer.Argument(help="A recipe file, or the name of one that comes with bertsmith.")
]


Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the recipe: train.learning_rate=1e-3."),
]


From = Annotated[
    str | None,
    typer.Option("--from", help="Start from this model, with its architecture and vocabulary."),
]


Data = Annotated[
    list[str] | None,
    typer.Option(
        help="The corpus: a folder written by `bertsmith prepare`. Repeat it as FOLDER=WEIGHT to"
        " mix several."
    ),
]


def _changes(
    changes: list[str] | None, data: list[str] | None, start: str | None = None
) -> list[str]:
    from bertsmith.train.recipe import change, data_changes

    start_changes = [] if start is None else [change("model.start", start)]
    return [*(changes or []), *(data_changes(data) if data else []), *start_changes]


def pretrain(
    recipe: str | None = argument(
        None,
        "A recipe file, or the name of one that comes with bertsmith; with --branch that of"
        " the run.",
    ),
    out: Path = option(..., "The folder of the run."),
    data: Data = None,
    start: From = None,
    resume: bool = option(False, "Continue the run in --out."),
    branch: str | None = option(
        None,
        "Start from a checkpoint of another run, with its optimizer and counters.",
        metavar="RUN[@STEP]",
    ),
    cool_down: int | None = option(
        None, "With --branch: steps until the end, over which the learning rate falls to 0.", min=1
    ),
    changes: Set = None,
    seed: int | None = option(None, "Seed of all random draws: train.seed.", min=0),
    view: str | None = option(None, "Progress view: live, lines or none."),
    log: shared.Log = None,
    as_json: shared.Json = False,
) -> None:
    """Pre-train a model on a corpus with a recipe.

    Ctrl-C and SIGTERM save the state; --resume continues. With torchrun
    several processes train together.
    """
    from bertsmith.train import pretrain as train
    from bertsmith.train.watch import Notes

    summary = train(
        recipe,
        out,
        resume=resume,
        branch=branch,
        cool_down=cool_down,
        changes=_changes(changes, data, start) + ([] if seed is None else [f"train.seed={seed}"]),
        show=Notes if view == "none" else view,
        log=log or (),
    )
    shared.output(as_json, [summary], lambda: _show_run(summary))
    if not summary["finished"]:
        raise typer.Exit(128 + int(summary["signal"]))


def _show_run(summary: dict[str, Any]) -> None:
    values = dict(summary)
    for row in values.pop("corpora", ()):
        typer.echo(
            f"{row['path']:32} {row['share']:.2%} of the tokens (weight {row['weight']:.2%})"
        )
    for key, value in values.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        shown = f"{value:,}" if type(value) is int else shown
        typer.echo(f"{key:32} {shown}")


def plan(
    recipe: RecipeName,
    device: str = option("", "Device: cpu or cuda (measured), or h200, a100, ... (estimated)."),
    count: int = option(1, "Number of devices.", max=1_000_000),
    data: Data = None,
    start: From = None,
    vocabulary: int | None = option(
        None, "Size of the vocabulary; by default that of the corpus, or 30522."
    ),
    changes: Set = None,
    as_json: shared.Json = False,
) -> None:
    """Estimate time, memory and operations of a run."""
    from bertsmith.train import load_recipe
    from bertsmith.train import plan as estimate

    resolved = load_recipe(recipe, _changes(changes, data, start))
    result = estimate(resolved, vocabulary, device, count)
    if as_json:
        shared.print_json([result])
        return
    how = "measured here" if result["measured"] else "estimated"
    name = device or "this computer"
    memory = result["measured_memory_bytes"] or result["memory_bytes"]
    known = vocabulary is not None or result["corpora"] or start is not None
    fits = {None: "", True: ", which fits", False: ": lower train.micro_tokens"}[result["fits"]]
    words = f"a vocabulary of {result['vocabulary']:,}{'' if known else ' (assumed)'}"
    for label, text in (
        ("parameters", f"{result['parameters']:,} with {words}"),
        ("steps", f"{result['steps']:,}"),
        ("tokens", f"{result['tokens']:,}"),
        ("operations", f"{result['operations']:.2e}"),
        ("speed", f"{result['tokens_per_second']:,.0f} tokens/s on {count:,} × {name} ({how})"),
        ("time", _duration(result["hours"])),
        ("devices", _use(result, resolved.train.compile)),
        ("memory", f"{memory / 1e9:.1f} GB a device{fits}"),
    ):
        typer.echo(f"{label:12} {text}")
    for row in result["corpora"]:
        times = f"{row['epochs']:,.0f}" if row["epochs"] >= 10 else f"{row['epochs']:.2g}"
        shown = f"{row['share']:.1%} of the tokens, {times} times the text"
        typer.echo(f"{'corpus':12} {row['path']}: {shown}")
    if count > 1 and not result["measured"] and not resolved.train.minutes:
        with suppress(BertsmithError):  # half of an odd number may divide the work worse
            if estimate(resolved, vocabulary, device, count // 2)["hours"] <= result["hours"]:
                shared.note(f"{count:,} devices are no faster than {count // 2:,}")


def _use(result: dict[str, Any], compiled: bool) -> str:
    useful, waiting = result["devices_useful"], result["communication_share"]
    text = f"{useful:.0%} of their time computing on tokens"
    several = result["devices"] > 1
    text += f", {waiting:.0%} waiting for gradients" if several else ""
    if useful < 0.5:
        advice = ["raise train.batch_tokens"]
        advice += ["use fewer devices"] if several else ["raise train.micro_tokens"]
        advice += [] if compiled else ["set train.compile=true"]
        text += f" (to improve it: {' or '.join(advice)})"
    return text


def _duration(hours: float) -> str:
    if hours < 1 / 30:
        return f"{hours * 3600:.0f} seconds"
    if hours >= 72:
        return f"{hours / 24:,.1f} days"
    return f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:,.1f} hours"


def verify_resume(
    recipe: RecipeName,
    data: Data = None,
    steps: int = option(40, "Number of steps of the run.", min=2),
    kills: int = option(3, "Number of kills.", min=1),
    ranks: int = option(1, "Number of processes.", min=1),
    changes: Set = None,
    as_json: shared.Json = False,
) -> None:
    """Check that killed and resumed runs equal an uninterrupted one."""
    from bertsmith.train import load_recipe
    from bertsmith.train import verify_resume as verify

    say = (lambda message: None) if as_json else typer.echo
    resolved = load_recipe(recipe, _changes(changes, data))
    result = verify(resolved, steps=steps, kills=kills, ranks=ranks, say=say)
    if as_json:
        shared.print_json([result])
    elif result["equal"]:
        typer.echo(f"the same weights and the same log after {result['kills']} kills")
    if not result["equal"]:
        shared.note("the resumed run differs from the uninterrupted one")
        raise typer.Exit(1)


def recipes(
    name: str | None = argument(None, "The recipe to print."),
    changes: Set = None,
    as_json: shared.Json = False,
) -> None:
    """List the recipes that come with bertsmith, or print one."""
    from bertsmith.train import load_recipe, recipe_names

    if name is not None:
        recipe = load_recipe(name, changes or [])
        shared.output(as_json, [recipe.model_dump()], lambda: typer.echo(recipe.toml(), nl=False))
        return
    if changes:
        raise BertsmithError("--set needs a recipe")
    shared.print_list({recipe: load_recipe(recipe).about for recipe in recipe_names()}, 28, as_json)
