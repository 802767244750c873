"""`bertsmith compare`: variants under one budget, or published sizes without training."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, flag, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.settings.comparing import ComparisonSettings


def compare(
    spec: str | None = argument(None, "A spec file, or the name of one that comes with bertsmith."),
    out: Path | None = option(
        None, "The folder of the comparison; an unfinished one is continued."
    ),
    data: Path | None = option(None, "The corpus: a folder written by `bertsmith prepare`."),
    changes: list[str] | None = option(
        None, "Change a key of the spec: budget.tokens=1000000.", "--set"
    ),
    own: Any = options_of(ComparisonSettings),
    static: bool = flag("--static", "Compare published sizes without training."),
    size: list[str] | None = option(None, "With --static: show this size; repeatable."),
    speed: bool = option(True, "With --static: measure speed on this machine."),
    int8: bool = flag("--int8", "With --static: measure speed in int8, on the CPU."),
    html: Path | None = option(None, "With --static: write a page."),
    device: shared.Device = None,
    list_specs: bool = flag("--list", "List the specs that come with bertsmith."),
    print_spec: str | None = option(None, "Print a spec as a template for your own.", "--print"),
    as_json: shared.Json = False,
) -> None:
    """Train, fine-tune and score variants under one budget.

    All results are in one report. The same command continues an interrupted comparison; finished
    parts are never run again.
    """
    if sum([list_specs, print_spec is not None, static, spec is not None]) != 1:
        raise BertsmithError("compare needs one of SPEC, --static, --list and --print NAME")
    if not static and (size or html or int8 or not speed):
        raise BertsmithError("--size, --int8, --html and --no-speed are for --static")
    if int8 and (device or "cpu") != "cpu":
        raise BertsmithError("--int8 is for a CPU; leave out --device")
    if list_specs:
        from bertsmith.compare.spec import load_spec, spec_names

        shared.print_list({name: load_spec(name).about for name in spec_names()}, 24, as_json)
    elif print_spec is not None:
        from bertsmith.compare.spec import SPECS, load_spec, spec_names

        template = load_spec(print_spec)
        file = SPECS / f"{print_spec}.toml"
        text = file.read_text("utf-8") if print_spec in spec_names() else template.toml()
        rows = [template.model_dump()]
        shared.output(as_json, rows, lambda: typer.echo(text, nl=False))
    elif static:
        _static(size or [], speed, html, device or "cpu", as_json, int8)
    else:
        assert spec is not None
        if out is None:
            raise BertsmithError("compare needs --out FOLDER for its parts and its report")
        _run(spec, out, changes or [], {"corpus": data, "device": device}, own, as_json)


def _static(
    sizes: list[str], speed: bool, html: Path | None, device: str, as_json: bool, int8: bool
) -> None:
    inspection.check_out(html)
    from bertsmith.compare import static
    from bertsmith.files import write_text

    for name in sizes:
        static.count_preset(name)  # unknown ones are found before anything is measured
    rows = []
    for counts in static.compare_presets(sizes, speed=speed, device=device, int8=int8):
        rows.append(counts)
        if as_json:
            shared.print_json([asdict(counts)])
    if not as_json:
        tasks.show_table(static.HEADINGS, static.static_rows(rows))
    if html is not None:
        write_text(html, static.static_page(rows, device))
        if not as_json:
            inspection.written(html)


def _run(
    name: str,
    out: Path,
    changes: list[str],
    keys: dict[str, Path | str | None],
    own: dict[str, Any],
    as_json: bool,
) -> None:
    inspection.check_folder(out)
    from bertsmith.compare import compare as run
    from bertsmith.compare import load_spec
    from bertsmith.train.recipe import change

    changes += [change(key, str(value)) for key, value in keys.items() if value is not None]
    spec = load_spec(name, changes)
    with shared.interruptible(f"the same command continues {out}"):
        results = run(spec, out, say=partial(typer.echo, err=True), **own)

    def show() -> None:
        for line in results["summary"]:
            typer.echo(line)
        if missing := len(results["missing"]):
            shared.note(f"{missing} parts are missing: results are of finished ones")
        typer.echo(f"report in {out / 'report.html'}, numbers in {out / 'results.json'}")

    shared.output(as_json, [results], show)
