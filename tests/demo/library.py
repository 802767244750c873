"""A small library for tests of the demo: modules whose docstrings are made of few words."""

from pathlib import Path

THINGS = {
    "http": ["request", "server", "header", "cookie", "client", "proxy"],
    "tkinter": ["window", "button", "canvas", "menu", "widget", "colour"],
    "json": ["string", "text", "decoder", "pattern", "letter", "document"],
}
VERBS = ["Return", "Open", "Close", "Check", "Copy", "Replace", "Find", "Count"]


def write_library(folder: Path) -> Path:
    """Three packages of four modules each, with a docstring for each verb and thing."""
    for package, things in THINGS.items():
        for part in range(4):
            lines = [f'"""The {package} package, part {part}: about {", ".join(things)}."""', ""]
            for number, thing in enumerate(things):
                for place, verb in enumerate(VERBS):
                    lines += [
                        f"def f{number}_{place}(self, {thing}_name, size):",
                        f'    """{verb} the {thing} that is called {thing}_name in part {part}.',
                        "",
                        f"    The size of the {thing} is given by size or it is None. The test",
                        f"    of it can test each {thing} before.",
                        "",
                        "    >>> f(1)",
                        '    """',
                        "",
                    ]
            path = folder / package / f"part{part}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines), "utf-8")
    return folder
