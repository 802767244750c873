"""Two processes that write to one output: one result is whole, the other is refused with a line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slow.attacks.forked import Outcome, Tally, run
from slow.attacks.full_disks import VERBS, content, prepare_home

TIMES = 3


def attack(home: Path, match: str) -> Tally:
    """Start every verb that writes twice at once, several times."""
    prepare_home(home)
    tally = Tally()
    for verb, (out, words) in VERBS.items():
        if match in verb:
            for time in range(TIMES):
                tally.add(f"{verb} twice ({time + 1})", twice(words, out, home))
    return tally


def twice(words: str, out: str, home: Path) -> Outcome:
    """Two runs at once; afterwards the output equals that of a run alone."""
    results = home / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    line = words.replace("OUT", f"results/{out}").split()
    other = os.fork()
    if other == 0:
        away = home.parent / "other"
        away.mkdir(exist_ok=True)
        link = away / "home"
        if not link.exists():
            link.symlink_to(home)
        first = run(line, link)
        os._exit(("ok", "refused").index(first.kind) if not first.bad else 9)
    mine = run(line, home)
    theirs = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
    if mine.bad:
        return mine
    kinds = {mine.kind, ("ok", "refused", "bad")[min(theirs, 2)]}
    if "bad" in kinds or "ok" not in kinds:
        return mine._replace(kind="neither ended well")
    left = content(results)
    if not left or any(name.endswith(".part") for name in left):
        return mine._replace(kind="left a temporary file, or nothing")
    return mine
