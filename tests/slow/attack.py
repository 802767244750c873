"""The attack as a whole: hostile inputs, full disks, two writers, kills; counts in one file.

    python tests/slow/attack.py                                  # all sections, an hour or more
    python tests/slow/attack.py --only full_disks --match embed

Every case runs the real program in a forked process with limits on time and memory. It must end
well, or with one line and exit status 2. Counts go to benchmarks/results/attack.json, a key for
each section; whatever must not happen is listed there and printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads cannot be forked safely
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

from slow.attacks import data_files, full_disks, model_directories, two_writers  # noqa: E402
from slow.attacks.forked import Tally, import_everything  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "attack.json"
SECTIONS: dict[str, Callable[[Path, str], Tally]] = {
    "model_directories": model_directories.attack,
    "data_files": data_files.attack,
    "full_disks": full_disks.attack,
    "two_writers": two_writers.attack,
}
KILLS = ["--kills", "60", "--ranks", "1", "2"]


def kills() -> dict[str, Any]:
    """Runs of pre-training that are killed by three signals (kill_runs.py)."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "kills.json"
        script = Path(__file__).with_name("kill_runs.py")
        subprocess.run([sys.executable, script, *KILLS, "--out", counts], check=True)
        return json.loads(counts.read_text())


def main() -> int:
    """Run the sections and write the counts; exit status 1 where something bad happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[*SECTIONS, "kills"], action="append")
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    sections = options.only or [*SECTIONS, "kills"]
    if len(sections) > 1:  # each in a process without threads, from which others can be forked
        command = [sys.executable, __file__, "--match", options.match, "--json", options.json]
        ended = [subprocess.run([*command, "--only", one]).returncode for one in sections]
        return max(ended)
    (section,) = sections
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    results["machine"] = platform.machine()
    if section == "kills":
        results["kills"] = kills()
    else:
        import_everything()
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            home.mkdir()
            results[section] = SECTIONS[section](home, options.match).content()
    bad = results[section].get("bad", [])
    print(section, {k: v for k, v in results[section].items() if k != "bad"}, flush=True)
    if not options.match:
        from bertsmith.files import write_json

        write_json(options.json, results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
