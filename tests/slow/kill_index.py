"""Kill `index` at random moments, damage its files: old or new state whole, damage named.

    python tests/slow/kill_index.py --kills 100 --damages 200

A child process updates an index of changing files and is killed (SIGKILL, or SIGINT every fifth
time). Afterwards each file must be in the index as it was before or as it is now, as a whole, with
a vector for every passage; one more update must equal an index built afresh. Then copies of the
index are damaged: a bit flipped, a file cut short or removed, another model. A search must return
what it returned before, or name the damage; after a flipped bit, `check` may name it instead.
Vectors are hashed words, so that a round takes milliseconds: what is tried are transactions, not
the model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bertsmith.errors import BertsmithError
from bertsmith.search import update
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.index import Index
from bertsmith.search.store import Store
from search.conftest import HashedWords

QUERIES = ("alpha beta", "word7 word8 gamma", '"line 3"', "zeta")
MODES = ("keywords", "vectors", "hybrid")


class Slow(HashedWords):
    """Takes its time, so that signals arrive while a transaction is open."""

    def embed(self, texts: Any) -> Any:
        time.sleep(0.004)
        return super().embed(texts)


def content(rng: random.Random) -> str:
    words = ["alpha", "beta", "gamma", "zeta", *(f"word{n}" for n in range(40))]
    count = rng.randint(1, 30)
    return "\n\n".join(f"line {n} {' '.join(rng.choices(words, k=30))}." for n in range(count))


def change(folder: Path, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        path = folder / f"file{rng.randint(0, 40)}.txt"
        if path.exists() and rng.random() < 0.25:
            path.unlink()
        else:
            path.write_text(content(rng))


def disk(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.iterdir()}


def indexed(root: Path) -> dict[str, str]:
    """Every file as the index has it, put together from its passages; vectors must be complete."""
    store = Store.open(root)
    assert store.count() == store.count("vectors"), "a passage has no vector"
    rows = store.database.execute("SELECT id FROM passages ORDER BY id").fetchall()
    texts: dict[str, list[str]] = {}
    done: dict[str, int] = {}
    for one in store.passages([row[0] for row in rows]):
        start = max(one.start, done.get(one.file, 0))
        texts.setdefault(one.file, []).append(one.text[start - one.start :])
        done[one.file] = one.end
    store.close()
    return {name: "".join("".join(parts).split()) for name, parts in texts.items()}


def flat(texts: dict[str, str]) -> dict[str, str]:
    return {name: "".join(text.split()) for name, text in texts.items()}


def answers(root: Path, encoder: HashedWords, top: int = 20) -> list[Any]:
    """Texts and scores: which of several equal passages is listed depends on the stored order."""
    index = Index(root, model=encoder)
    keys = [
        [(h.text, round(h.score, 5)) for h in index.search(query, top, mode=mode)]
        for query in QUERIES
        for mode in MODES
    ]
    index.close()
    return keys


def kills(count: int, place: Path, rng: random.Random) -> Counter[str]:
    folder, root = place / "documents", place / "index"
    folder.mkdir()
    settings = BuildSettings(encoder=Slow(), passage_size=200)
    update.COMMIT_PASSAGES = 40  # several transactions in each update
    change(folder, rng)
    update_folders(root, [folder], settings)
    usual = 0.5  # seconds that an update takes, measured again now and then
    outcome: Counter[str] = Counter()
    for number in range(count):
        before = indexed(root)
        change(folder, rng)
        now = flat(disk(folder))
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                update_folders(root, [folder], settings)
            except KeyboardInterrupt:
                os._exit(130)
            except BertsmithError as error:
                print(error, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        time.sleep(rng.uniform(0, 1.2 * usual))
        os.kill(child, signal.SIGINT if number % 5 == 4 else signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) in (0, 130), status
        state = indexed(root)
        for name in {*before, *state, *now}:
            assert state.get(name) in (before.get(name), now.get(name)), f"{name} is neither"
        answers(root, settings.encoder)
        whole = "new" if state == now else "old" if state == before else "between, by whole files"
        outcome[whole if before != now else "nothing changed"] += 1
        if number % 4 == 0:
            begin = time.perf_counter()
            update_folders(root, [folder], settings)
            if state != now:
                usual = time.perf_counter() - begin
            assert indexed(root) == now
    update_folders(root, [folder], settings)
    fresh = place / "fresh"
    update_folders(fresh, [folder], settings)
    for old, new in zip(
        *(answers(one, settings.encoder, 5000) for one in (root, fresh)), strict=True
    ):
        scores = dict(new)
        assert {text for text, _ in old} == set(scores)
        assert all(abs(scores[text] - score) < 1e-3 for text, score in old)
    shutil.rmtree(fresh)
    return outcome


def check(right: bool, message: str) -> None:
    assert right, message


def damages(count: int, place: Path, rng: random.Random) -> Counter[str]:
    root, copy = place / "index", place / "copy"
    want = answers(root, HashedWords())
    outcome: Counter[str] = Counter()
    for number in range(count):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        files = [
            p for p in copy.rglob("*") if p.is_file() and p.stat().st_size and p.name != ".lock"
        ]
        path = rng.choice(sorted(files))
        how = ("flipped", "truncated", "missing", "model")[number % 4]
        encoder = HashedWords("another model" if how == "model" else "hashed words")
        if how == "flipped":
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        elif how == "truncated":
            os.truncate(path, rng.randrange(path.stat().st_size))
        elif how == "missing":
            path.unlink()
        try:
            result = answers(copy, encoder)
            if how == "flipped" and result != want:
                Index(copy, model=encoder).check()
        except BertsmithError as error:
            check(str(copy) in str(error), str(error))
            outcome[f"{how}: named"] += 1
            if path.suffix == ".npy" and how != "model":
                update_folders(copy, [], BuildSettings(encoder=HashedWords()))
                assert answers(copy, HashedWords()) == want
                outcome["segments rebuilt"] += 1
            continue
        assert how != "model"
        assert result == want, f"{path.name} {how}: another result"
        outcome[f"{how}: same results (a file that decides none)"] += 1
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        killed = kills(options.kills, place, rng)  # with none, it only builds the index
        print(dict(killed), flush=True)
        damaged = damages(options.damages, place, rng)
        print(dict(damaged))
    if options.out:
        report = json.loads(options.out.read_text()) if options.out.exists() else {}
        report |= {"command": "python tests/slow/kill_index.py", "machine": platform.platform()}
        if options.kills:
            counts = {"count": options.kills, "state afterwards": dict(killed), "wrong": 0}
            report["kills"] = {**counts, "seed": options.seed}
        if options.damages:
            counts = {"count": options.damages, "outcome": dict(damaged), "wrong": 0}
            report["damages"] = {**counts, "seed": options.seed}
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
