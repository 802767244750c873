"""The output folder of the demo: recognized by demo.json, cleared before a run."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import write_json
from bertsmith.foreign import read_table

MARK = "demo.json"  # by which a folder is known
MADE_BY = "bertsmith demo"
MADE = ["text.txt", "vocabulary", "corpus", "beginning", "pretraining", "model", "areas", "names"]
MADE += ["classifier", "tagger", "attention.html", "senses.html", "film.html", "index.html"]


def check(out: Path, text: Path | None) -> None:
    """Refuse, before anything is done, a folder of somebody else, and text that is not there."""
    if out.exists() and not out.is_dir():
        raise BertsmithError(f"{setting_name('out')}: {out} is a file; name a folder")
    own = (read_table(out / MARK) or {}).get("made_by") == MADE_BY
    if out.is_dir() and any(out.iterdir()) and not own:
        raise BertsmithError(
            f"{out}: not empty, and not made by this command; choose another {setting_name('out')}"
        )
    if text is not None and not text.is_dir():
        raise BertsmithError(
            f"{text}: no such folder; {setting_name('text')} needs a folder with text files"
        )


def begin(out: Path) -> None:
    """Make the folder, or clear what an earlier run made in it."""
    out.mkdir(parents=True, exist_ok=True)
    write_mark(out, {"finished": False})
    for path in (out / name for name in MADE):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_mark(out: Path, content: Mapping[str, Any]) -> None:
    """Say whose folder this is, and what came of the run."""
    write_json(out / MARK, {"made_by": MADE_BY, **content})
