"""`bertsmith pretrain`, `plan`, `verify-resume`, `recipes`: training runs from recipes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.cli import options as shared
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


def _changes(changes: list[str] | None, data: Path | None, start: str | None = None) -> list[str]:
    from bertsmith.train.recipe import change

    paths = {"data.corpus": data, "model.start": start}
    set_by_option = [change(key, str(path)) for key, path in paths.items() if path is not None]
    return [*(changes or []), *set_by_option]


def pretrain(
    recipe: RecipeName,
    out: Path = option(..., "The folder of the run."),
    data: shared.Corpus = None,
    start: From = None,
    resume: bool = option(False, "Continue the run in --out."),
    changes: Set = None,
    view: str | None = option(None, "Progress view: live, lines or none."),
    tensorboard: bool = option(False, "Also write TensorBoard event files."),
    as_json: shared.Json = False,
) -> None:
    """Pre-train a model on a corpus with a recipe.

    Ctrl-C and SIGTERM save the state; --resume continues. With torchrun
    several processes train together.
    """
    from bertsmith.train import load_recipe
    from bertsmith.train import pretrain as train
    from bertsmith.train.watch import Notes

    made = load_recipe(recipe, _changes(changes, data, start))
    show = Notes if view == "none" else view
    found = train(made, out, resume=resume, show=show, tensorboard=tensorboard)
    shared.output(as_json, [found], lambda: _show_run(found))
    if not found["finished"]:
        raise typer.Exit(128 + int(found["signal"]))


def _show_run(found: dict[str, Any]) -> None:
    for key, value in found.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else shown
        typer.echo(f"{key:32} {shown}")


def plan(
    recipe: RecipeName,
    device: str = option("", "Device: cpu or cuda (measured), or h200, a100, ... (estimated)."),
    count: int = option(1, "Number of devices.", max=1_000_000),
    data: shared.Corpus = None,
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
    known = vocabulary is not None or data is not None or start is not None
    words = f"a vocabulary of {result['vocabulary']:,}{'' if known else ' (assumed)'}"
    for label, text in (
        ("parameters", f"{result['parameters']:,} with {words}"),
        ("steps", f"{result['steps']:,}"),
        ("tokens", f"{result['tokens']:,}"),
        ("operations", f"{result['operations']:.2e}"),
        ("speed", f"{result['tokens_per_second']:,.0f} tokens/s on {count:,} × {name} ({how})"),
        ("time", _duration(result["hours"])),
        ("devices", _use(result, resolved.train.compile)),
        ("memory", f"{memory / 1e9:.1f} GB a device" + _fits(result["fits"])),
    ):
        typer.echo(f"{label:12} {text}")
    if count > 1 and not result["measured"] and not resolved.train.minutes:
        with suppress(BertsmithError):  # half of an odd number may divide the work worse
            if estimate(resolved, vocabulary, device, count // 2)["hours"] <= result["hours"]:
                shared.note(f"{count:,} devices are no faster than {count // 2:,}")


def _use(result: dict[str, Any], compiled: bool) -> str:
    """How well the devices are used, and what would use them better."""
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


def _fits(fits: bool | None) -> str:
    return "" if fits is None else (", which fits" if fits else ": lower train.micro_tokens")


def verify_resume(
    recipe: RecipeName,
    data: shared.Corpus = None,
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
    made = load_recipe(recipe, _changes(changes, data))
    found = verify(made, steps=steps, kills=kills, ranks=ranks, say=say)
    if as_json:
        shared.print_json([found])
    elif found["equal"]:
        typer.echo(f"the same weights and the same log after {found['kills']} kills")
    if not found["equal"]:
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
        made = load_recipe(name, changes or [])
        shared.output(as_json, [made.model_dump()], lambda: typer.echo(made.toml(), nl=False))
        return
    if changes:
        raise BertsmithError("--set needs a recipe")
    shared.print_list({one: load_recipe(one).about for one in recipe_names()}, 28, as_json)
