import json
from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from cli.conftest import Run

TEXT = "the river runs past the old mill and the mill stands by the river\n" * 20


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    return tmp_path / "a.txt"


def state(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", ["train", "extend"])
def test_a_model_directory_is_not_overwritten(verb: str, run: Run, text: Path, model: Path) -> None:
    words = ["tokenizer", verb, *([model] if verb == "extend" else []), text, "--out", model]
    before = state(model)
    with pytest.raises(BertsmithError, match="not empty"):
        run(*words)
    assert state(model) == before
    if verb == "train":
        with pytest.raises(BertsmithError, match="a model directory"):
            run(*words, "--overwrite")
        assert state(model) == before


def test_overwrite_replaces_a_tokenizer(run: Run, text: Path, tmp_path: Path) -> None:
    words = ["tokenizer", "train", text, "--size", "60", "--out", tmp_path / "out"]
    assert run(*words).status == 0
    with pytest.raises(BertsmithError, match="not empty; name another folder"):
        run(*words)
    assert run(*words, "--overwrite").status == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(BertsmithError, match=r"notes.txt is another file"):
        run(*words, "--overwrite")
    assert Tokenizer.load(tmp_path / "out").size <= 60


def test_extend_writes_a_new_directory(run: Run, text: Path, model: Path, tmp_path: Path) -> None:
    words = ["tokenizer", "extend", model, text, "--add", "2", "--out", tmp_path / "out"]
    assert run(*words).status == 0
    with pytest.raises(BertsmithError, match="not empty"):
        run(*words)
    assert run(*words, "--overwrite").status == 0
    text.write_text(TEXT + "मिल्ल नदी " * 20)
    more = run(*words, "--add", "1000", "--overwrite")
    assert "words of unknown characters, which cannot be added: 2" in more.err
    assert "1,000 were asked for" in more.err
    text.write_text("")
    with pytest.raises(BertsmithError, match="no text to take words from"):
        run(*words, "--overwrite")


@pytest.mark.parametrize("verb", ["train", "extend"])
def test_a_name_that_cannot_be_written_is_found_first(
    verb: str, run: Run, model: Path, tmp_path: Path
) -> None:
    words = ["tokenizer", verb, *([model] if verb == "extend" else []), tmp_path / "missing.txt"]
    with pytest.raises(BertsmithError, match=r"cannot be written .*File name too long"):
        run(*words, "--out", tmp_path / ("x" * 300))


def test_train_reads_what_prepare_reads(run: Run, text: Path, tmp_path: Path) -> None:
    """The words of jsonl and parquet files, not their keys and escapes."""
    rows = [{"body": f"{line} \u00e9t\u00e9", "other": "zebra"} for line in TEXT.splitlines()]
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(row["body"] for row in rows))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    learned = []
    for file in (plain, tmp_path / "a.jsonl", tmp_path / "a.parquet"):
        out = tmp_path / f"out-{file.name}"
        words = ["tokenizer", "train", file, "--size", "90", "--text-field", "body", "--out", out]
        assert run(*words).status == 0
        learned.append(Tokenizer.load(out).vocabulary())
    assert learned[0] == learned[1] == learned[2]
    assert not any("body" in token or "z" in token for token in learned[0])


@pytest.mark.parametrize("size", ["999999999", "0", "-5", "1e3", "9" * 400])
def test_absurd_sizes_are_refused(size: str, run: Run, text: Path, tmp_path: Path) -> None:
    assert run("tokenizer", "train", text, "--size", size, "--out", tmp_path / "out").status == 2
    assert not (tmp_path / "out").exists()
