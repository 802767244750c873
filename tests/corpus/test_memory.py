"""Memory does not grow with the corpus, nor with the length of a line."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertsmith.tokenizer import Tokenizer
from corpus.texts import as_text, documents

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is read from /proc"
)
CALL = """
import json, sys
from bertsmith.corpus import prepare
made = prepare(sys.argv[3:], sys.argv[1], sys.argv[2], workers=2, duplicates="exact", held_out=0)
print(json.dumps([made.splits["train"].tokens, made.splits["train"].documents]))
"""


def resident(root: int) -> int:
    """The resident bytes of a process and of all below it."""
    total, waiting = 0, [root]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            total += int((process / "statm").read_text().split()[1]) * resource.getpagesize()
            for thread in (process / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError):  # it has just ended
            continue
    return total


def peak(words: Path, out: Path, *sources: Path) -> tuple[int, list[int]]:
    """The most memory that `prepare` held, and how many tokens and documents it found."""
    command = [sys.executable, "-c", CALL, str(words), str(out), *map(str, sources)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    most = 0
    while process.poll() is None:
        most = max(most, resident(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    assert process.stdout
    return most, json.loads(process.stdout.read())


@pytest.fixture(scope="module")
def saved(words: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    words.save(folder)
    return folder


@pytest.mark.slow
def test_eight_times_the_corpus_needs_no_more(saved: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text((as_text(documents(4000)) + "\n") * 15)
    assert source.stat().st_size > 20e6
    one, (tokens, first) = peak(saved, tmp_path / "one", source)
    eight, (more, kept) = peak(saved, tmp_path / "eight", *[source] * 8)
    assert (more, kept) == (tokens, first), "all repeated documents are left out"
    # Runs of the same input differ by some 60 MB; holding all of it would need 175 MB more.
    assert eight < one * 1.1 + 60e6
    assert eight < 700e6


@pytest.mark.slow
@pytest.mark.parametrize("text", ["the river flows. ", "the river ", "rivers"])
def test_a_line_of_fifty_megabytes(text: str, saved: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text(f"First line.\n{text * (50_000_000 // len(text))}\n\nThe end.\n")
    most, (tokens, kept) = peak(saved, tmp_path / "out", source)
    assert kept == 2
    assert tokens > 50  # at least one for each cut line of a million characters
    assert most < 1.2e9
