"""Label 200 texts by keyboard in two tabs while browser and server are killed: none is lost.

    python tests/slow/kill_labelling.py --labels 200 --kills 10 --servers 4

Chromium (every process of it) and `bertsmith label` get SIGKILL at random moments, also in the few
milliseconds between a key and the answer of the server. At the end every text must have exactly one
label, the one whose key was pressed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import sync_playwright

from label.killing import run


def main() -> None:
    """Run and print what happened; exit with status 1 if a label was lost, doubled or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("labels", 200), ("kills", 10), ("servers", 4), ("port", 8096)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        found = run(playwright, Path(folder), given.port, given.labels, given.kills, given.servers)
    print(json.dumps(asdict(found), indent=2))
    sys.exit(bool(found.lost or found.doubled or found.wrong or found.labels != given.labels))


if __name__ == "__main__":
    main()
