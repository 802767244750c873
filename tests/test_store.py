"""Work that is continued: the same plan or none, parts that are whole or not there, one process."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.store import WorkFolder, append_line, differences, fingerprint, flat

PLAN = {"model": "a1", "settings": {"epochs": 3, "rates": [1e-3]}, "files": [{"path": "a", "n": 1}]}
SENTENCES = {"model": "the model changed since", "files": lambda old, new: f"{len(new)} files now"}
HOLD = """
import sys
from bertsmith.store import WorkFolder
with WorkFolder(sys.argv[1]).held():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    work = WorkFolder(tmp_path / "new" / "work")
    assert not work.begun()
    assert not work.occupied()
    work.begin(PLAN)
    assert work.begun()
    assert work.occupied()
    return work


def refusal(work: WorkFolder, plan: dict[str, Any], **more: Any) -> str:
    with pytest.raises(BertsmithError) as caught:
        work.demand_same(plan, "remove it", SENTENCES, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{work.path}: ")


def test_the_same_plan_is_continued(work: WorkFolder) -> None:
    work.demand_same(PLAN, "remove it")
    settings = {"epochs": 3, "rates": (1e-3,)}  # tuples are lists on the disk
    work.demand_same(PLAN | {"settings": settings}, "remove it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"epochs": 4, "rates": [1e-3]}}, "it was started with epochs 3, not 4"),
        ({"settings": {"epochs": 3}}, "it was started with rates [0.001], not None"),
        ({"settings": {"epochs": 3, "rates": []}}, "it was started with rates [0.001], not []"),
        ({"seed": 1}, "it was started with seed None, not 1"),
        ({"model": "b2"}, "the model changed since"),
        ({"model": {"name": "b2"}}, "the model changed since"),
        ({"files": []}, "0 files now"),
        ({"files": [{"path": "a", "n": 2}]}, "1 files now"),
        ({"model": "b2", "settings": {}}, "the model changed since"),  # the first of several
    ],
)
def test_another_plan_is_refused(work: WorkFolder, change: dict[str, Any], message: str) -> None:
    assert refusal(work, PLAN | change) == f"{message}; remove it"
    work.demand_same(PLAN, "")  # nothing was changed


def test_settings_that_older_plans_lack_have_their_defaults(work: WorkFolder) -> None:
    defaults = {"settings": {"epochs": 1, "seed": 0}}
    newer = PLAN | {"settings": {"epochs": 3, "rates": [1e-3], "seed": 0}}
    work.demand_same(newer, "", defaults=defaults)
    newer["settings"]["seed"] = 2
    message = refusal(work, newer, defaults=defaults)
    assert message == "it was started with seed 0, not 2; remove it"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff{}", b"[" * 100_000])
def test_a_damaged_plan_is_one_line(work: WorkFolder, content: bytes) -> None:
    work.plan.write_bytes(content)
    with pytest.raises(BertsmithError, match=r"plan\.json is damaged; remove the folder") as caught:
        work.demand_same(PLAN, "")
    assert "\n" not in str(caught.value)


def test_hidden_files_and_other_folders_are_no_work(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path)
    (tmp_path / ".lock").write_text("")
    assert not work.occupied()
    (tmp_path / "thesis.txt").write_text("mine")
    assert work.occupied()
    assert not work.begun()
    work.plan.mkdir()
    assert not work.begun()
    with pytest.raises(BertsmithError, match="cannot be written"):
        WorkFolder(tmp_path / ("n" * 300)).begin(PLAN)


def test_parts_are_kept_until_the_work_is_removed(work: WorkFolder) -> None:
    assert work.finished("a/one") is None
    work.finish("a/one", {"score": 0.5, "losses": [1.0, math.nan], "text": "é\ud800"})
    stored = work.finished("a/one", score=float, losses=list)
    assert stored is not None
    assert math.isnan(stored["losses"][1])
    assert stored["text"] == "é\ud800"
    work.finish("a/one", {"score": 1.0})
    assert work.finished("a/one") == {"score": 1.0}
    work.remove()
    assert not work.path.exists()
    work.remove()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "not valid JSON"),
        ('{"score": 1', "not valid JSON"),
        ("[]", "expected a JSON dict"),
        ("{}", "not the result of a part; remove it"),
        ('{"score": "x"}', "not the result of a part; remove it"),
    ],
)
def test_damaged_parts_are_named(work: WorkFolder, content: str, fault: str) -> None:
    work.file("one").write_text(content)
    with pytest.raises(BertsmithError, match=rf"one\.json: {fault}"):
        work.finished("one", score=float)


def test_a_write_that_stops_leaves_the_former_result(
    work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    work.finish("one", {"score": 1.0})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            work.finish("one", {"score": 2.0})
    assert work.finished("one") == {"score": 1.0}
    assert sorted(path.name for path in work.path.iterdir()) == ["one.json", "plan.json"]


def test_what_killed_writers_left_is_removed(work: WorkFolder) -> None:
    (work.path / ".one.json-0123456789ab.part").write_text("{")
    (work.path / ".profile").write_text("mine")
    with work.held():
        names = {path.name for path in work.path.iterdir()} - {".lock"}
    assert names == {"plan.json", ".profile"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks")
def test_two_processes_cannot_hold_one_folder(work: WorkFolder) -> None:
    command = [sys.executable, "-c", HOLD, str(work.path)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdout
    assert first.stdout.readline() == b"held\n"
    with pytest.raises(BertsmithError, match="another bertsmith process"), work.held():
        pass
    first.kill()  # the lock ends with its process
    first.wait()
    with work.held():
        work.finish("one", {})


def test_lines_are_added_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [append_line(path, {"step": step}, flush=step % 2 == 0) for step in range(3)]
    assert path.read_bytes() == b"".join(lines) == b'{"step": 0}\n{"step": 1}\n{"step": 2}\n'
    with pytest.raises(BertsmithError, match="cannot be written"):
        append_line(tmp_path, {})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_line_that_finds_no_room_is_an_error() -> None:
    with pytest.raises(BertsmithError, match="/dev/full: cannot be written"):
        append_line(Path("/dev/full"), {"step": 1})


def test_several_processes_share_a_file_of_lines(tmp_path: Path) -> None:
    add = (
        "import sys; from pathlib import Path; from bertsmith.store import append_line\n"
        "for n in range(200): append_line(Path(sys.argv[1]), {'who': sys.argv[2] * 3000, 'n': n})"
    )
    path = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", add, str(path), who]) for who in "ab"]
    assert [one.wait() for one in writers] == [0, 0]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for who in "ab":
        assert [row["n"] for row in rows if row["who"][0] == who] == list(range(200))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES), st.dictionaries(st.text(max_size=5), VALUES))
def test_differences_of_any_tables(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert differences(before, before) == []
    found = differences(before, now)
    assert bool(found) == bool(differences(now, before))
    assert all(old != new for _, old, new in found)
    assert fingerprint(before) == fingerprint(dict(reversed(before.items())))


def test_names_of_nested_settings() -> None:
    table = {"train": {"steps": 3}, "stages": [{"length": 8}, {"length": 16}], "about": "x"}
    assert flat(table) == {"train.steps": 3, "stages 1.length": 8, "stages 2.length": 16} | {
        "about": "x"
    }
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint([Path("a")]) == fingerprint(["a"])
