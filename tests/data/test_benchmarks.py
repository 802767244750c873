"""GLUE in its official layout, with the quirks of its files."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.glue import GLUE, glue_folders, read_glue

HEADERS = {
    "sst2": ("SST-2", "sentence\tlabel", 'it is "fine\t1'),
    "mrpc": ("MRPC", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\t" one\ttwo'),
    "stsb": ("STS-B", "index\tgenre\tsentence1\tsentence2\tscore", "0\tx\tone\ttwo\t3.800"),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\tone\ttwo\t0"),
    "mnli": ("MNLI", "index\tsentence1\tsentence2\tlabel1\tgold_label", "0\tone\ttwo\tx\tneutral"),
    "qnli": ("QNLI", "index\tquestion\tsentence\tlabel", "0\tone\ttwo\tentailment"),
    "rte": ("RTE", "index\tsentence1\tsentence2\tlabel", "0\tone\ttwo\tentailment"),
    "wnli": ("WNLI", "index\tsentence1\tsentence2\tlabel", "0\tone\ttwo\t1"),
}


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    for folder, header, row in HEADERS.values():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.tsv").write_text(f"{header}\n{row}\nragged\n", "utf-8")
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("gj04\t0\t*\tHim ran.\n")
    (tmp_path / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tHe ran.\n")
    return tmp_path


def test_every_task_is_found(glue: Path) -> None:
    assert set(glue_folders(glue)) == set(GLUE)


@pytest.mark.parametrize("task", HEADERS)
def test_the_official_layout(task: str, glue: Path) -> None:
    found = read_glue(glue_folders(glue)[task], task, "train")
    assert len(found) == 1
    assert found.ledger.lines() == ["rows with a wrong number of columns, left out: 1"]
    one = found.examples[0]
    row = HEADERS[task][2].split("\t")
    assert set(one.texts) <= set(row)  # quotes and all
    assert len(one.texts) == (1 if task == "sst2" else 2)
    if task == "stsb":
        assert one.score == 3.8
    else:
        assert one.label in row


def test_cola_has_no_header(glue: Path) -> None:
    one = read_glue(glue / "CoLA", "cola", "train").examples[0]
    assert (one.text, one.label) == ("Him ran.", "0")
    hidden = read_glue(glue / "CoLA", "cola", "test").examples[0]
    assert (hidden.text, hidden.label) == ("He ran.", None)


def test_mistakes(glue: Path) -> None:
    with pytest.raises(BertsmithError, match=r"there is no dev.tsv in it"):
        read_glue(glue / "CoLA", "cola", "dev")
    with pytest.raises(BertsmithError, match="unknown GLUE task 'squad'"):
        read_glue(glue / "CoLA", "squad", "dev")
    with pytest.raises(BertsmithError, match="no such folder"):
        glue_folders(glue / "nowhere")
