"""Real data sets: counts as their providers give them, and texts in which gold stands."""

import lzma
import re
from pathlib import Path

import pytest

from bertsmith.tasks.glue import GLUE, glue_folders, read_glue
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.examples import Tagged


def stated(folder: Path, file: str, unit: str = "rows") -> int:
    """The count that a folder's PROVENANCE.md gives for a file."""
    page = (folder / "PROVENANCE.md").read_text("utf-8")
    found = re.search(rf"^\| {re.escape(file)} \|[^|]*?(\d+) {unit}", page, re.MULTILINE)
    assert found, f"{folder.name}: no {unit} of {file}"
    return int(found[1])


@pytest.mark.parametrize(
    ("task", "split", "labels"),
    [
        *[
            (task, split, 2)
            for task in ("cola", "sst2", "mrpc", "rte")
            for split in ("train", "dev")
            if (task, split) != ("sst2", "train")
        ],
        pytest.param("sst2", "train", 2, marks=pytest.mark.slow),
        ("qnli", "dev", 2),
        ("stsb", "train", 0),
        ("stsb", "dev", 0),
        *[(task, "test", 0) for task in ("cola", "sst2", "mrpc", "rte", "qnli", "stsb")],
    ],
)
def test_glue(task: str, split: str, labels: int, data: Path) -> None:
    folder = glue_folders(data)[task]
    found = read_glue(folder, task, split)
    file = "train_rebuilt.tsv.xz" if (task, split) == ("mrpc", "train") else f"{split}.tsv.xz"
    assert len(found) == stated(folder, file)
    assert found.ledger.counts == {}
    assert len(found.labels) == labels
    assert len(found.gold()) == (0 if split == "test" else len(found))
    assert all(text.strip() for one in found.examples for text in one.texts)
    assert found.task == GLUE[task].task
    # And without being told which benchmark it is:
    if split != "test":
        guessed = read_data(found.path)
        assert guessed.examples == found.examples


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.slow), "valid"])
def test_conll_2003(split: str, data: Path) -> None:
    folder = data / "conll2003_en"
    found = read_data(folder / f"{split}.txt.xz")
    assert len(found) == stated(folder, f"{split}.txt.xz", "sentences")
    assert sum(len(one.words) for one in found.examples) == stated(
        folder, f"{split}.txt.xz", "tokens"
    )
    documents = stated(folder, f"{split}.txt.xz", "documents")
    assert found.ledger.counts == {"-DOCSTART- lines, left out": documents}
    assert (found.scheme, len(found.labels)) == ("bio", 9)


@pytest.mark.parametrize(
    "name",
    [
        "ud_english_ewt/en_ewt-ud-dev",
        "ud_french_sequoia/fr_sequoia-ud-dev",
        "ud_french_sequoia/fr_sequoia-ud-train",
        "ud_greek_gdt/el_gdt-ud-test",
    ],
)
def test_treebanks(name: str, data: Path) -> None:
    path = data / f"{name}.conllu.xz"
    found = read_data(path)
    assert len(found) == stated(path.parent, path.name, "sentences")
    words = sum(len(one.words) for one in found.examples)
    assert words == stated(path.parent, path.name, "words")
    assert all(map(stands, found.examples))
    # The treebank's own text is ours, but where a token stands for other words.
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        texts = re.findall(r"^# text = (.*)$", stream.read(), re.MULTILINE)
    other = found.ledger.counts["multiword tokens read as separate words"]
    same = sum(
        one.text == " ".join(text.split()) for one, text in zip(found.examples, texts, strict=True)
    )
    assert same >= len(found) - other - 0.01 * len(found)
    assert same > 0.5 * len(found)


def stands(example: Tagged) -> bool:
    places = zip(example.words, example.offsets, strict=True)
    return all(example.text[start:end] == word for word, (start, end) in places)


@pytest.mark.parametrize("language", ["en", "de", "fr", "nl"])
def test_wikiann(language: str, data: Path) -> None:
    file = f"{language}_dev.conll.xz"
    found = read_data(data / "wikiann" / file)
    assert len(found) == stated(data / "wikiann", file, "sentences")
    assert found.scheme == "bio"
    assert not any(one.words[0].startswith(f"{language}:") for one in found.examples)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad(version: str, data: Path) -> None:
    file = f"dev-v{version}.json.xz"
    found = read_data(data / "squad_dev" / file)
    page = (data / "squad_dev" / "PROVENANCE.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {file}"))
    counts = {key: int(count) for key, count in re.findall(r"(\w+) (\d+)[,|\s]", row)}
    assert len(found) == counts["questions"]
    assert len({one.passage for one in found.examples}) == pytest.approx(
        counts["paragraphs"], abs=5
    )
    assert sum(len(one.answers or ()) for one in found.examples) == counts["answers"]
    assert sum(one.impossible for one in found.examples) == counts["impossible"]
    assert len({one.id for one in found.examples}) == len(found)
    assert found.ledger.counts == {}
    for one in found.examples:
        for span in one.answers or ():
            assert one.passage[span.start : span.end] == span.text


@pytest.mark.parametrize("language", ["en", "ar", "hi"])
def test_xquad(language: str, data: Path) -> None:
    file = f"xquad.{language}.json.xz"
    found = read_data(data / "xquad" / file)
    assert len(found) == stated(data / "xquad", file, "questions")
    assert found.ledger.counts == {}


def test_subjqa(data: Path) -> None:
    found = read_data(data / "subjqa" / "books__dev.csv.xz")
    repeated = found.ledger.counts["rows that repeat a question: their answers were added"]
    assert len(found) + repeated == stated(data / "subjqa", "books__dev.csv.xz")
    assert len({one.id for one in found.examples}) == len(found)
    lost = [one for one in found.examples for span in one.answers or () if span.start < 0]
    assert len(lost) <= 2
    assert any(one.impossible for one in found.examples)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_openbookqa(split: str, data: Path) -> None:
    file = f"{split}.tsv.xz"
    found = read_data(data / "openbookqa" / file)
    assert found.task == "choice"
    assert len(found) == stated(data / "openbookqa", file, "lines") - 1  # its header
    assert sum(len(one.options) == 4 for one in found.examples) >= len(found) - 1
    assert len(found.gold()) == len(found)


def test_intents_and_topics(data: Path) -> None:
    found = read_data(data / "banking77" / "train.csv.xz")
    assert (len(found), len(found.labels)) == (10_003, 77)  # some rows hold several lines
    columns = {"text": "3", "label": "1"}
    topics = read_data(data / "ag_news_partial" / "test.csv.xz", columns=columns)
    assert len(topics) == stated(data / "ag_news_partial", "test.csv.xz", "lines")
    assert topics.labels == ("1", "2", "3", "4")
    slice_of_train = read_data(data / "ag_news_partial" / "alps_dev.tsv.xz")
    assert slice_of_train.labels == ("Business", "Sci/Tech", "Sports", "World")


def test_reviews(data: Path) -> None:
    found = read_data(data / "imdb_sample" / "train.jsonl.xz")
    assert (len(found), found.labels) == (5000, ("0", "1"))
