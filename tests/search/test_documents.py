"""Readers and passages: text, lines, headings and encodings of every kind of file."""

import io
import lzma
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.search import documents
from bertsmith.search.documents import ParsedDocument, read_documents
from bertsmith.search.passages import Chunking, cut


def read(path: Path) -> list[ParsedDocument]:
    return list(read_documents(path, Ledger()))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "Grüße aus 東京"),
        ("utf-8-sig", "Grüße"),
        ("utf-16", "Grüße aus 東京"),
        ("utf-16-le", "Plain words of some length, and more of them."),
        ("cp1252", "Füße und Äpfel sind groß, sagte der Müller zur Köchin am Abend."),
        ("cp1251", "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 4),
        ("shift_jis", "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。" * 4),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, text: str) -> None:
    if encoding not in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le"):
        pytest.importorskip("charset_normalizer")
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert read(tmp_path / "a.txt")[0].text == text


def test_markdown(tmp_path: Path) -> None:
    text = "Intro\n\n# One\n\ntext\n\n```\n# no heading\n```\n\n## Two\n\nmore\n\nThree\n=====\n\n"
    text += "last\n"
    (tmp_path / "a.md").write_text(text)
    [document] = read(tmp_path / "a.md")
    passages = list(cut(document, Chunking()))
    assert [one.heading for one in passages] == ["", "One", "One > Two", "Three"]
    assert [one.line for one in passages] == [1, 3, 11, 15]


def test_html(tmp_path: Path) -> None:
    page = (
        "<title>A &amp; B</title><style>x{}</style>\n<h1>Head</h1>\n<p>One\n two <b>three</b>.</p>"
    )
    page += "\n<script>var a = '<p>no</p>'</script><ul><li>four<li>five</ul>"
    (tmp_path / "a.html").write_text(page)
    [document] = read(tmp_path / "a.html")
    assert document.title == "A & B"
    assert "One two three." in document.text
    assert "no" not in document.text
    assert document.line_at(document.text.index("One")) == 3
    assert [one.heading for one in cut(document, Chunking())] == ["Head"]


def test_a_notebook_that_is_damaged(tmp_path: Path) -> None:
    for cells in ("[{}]", '[{"source": "text"}]', '[{"source": 1}]', "[1]", "1"):
        (tmp_path / "x.ipynb").write_text(f'{{"cells": {cells}}}')
        with pytest.raises(BertsmithError, match=r"x\.ipynb: not a notebook that can be read"):
            list(read_documents(tmp_path / "x.ipynb", Ledger()))


def test_pages_of_a_pdf(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf")
    generic = pytest.importorskip("pypdf.generic")
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    names = {generic.NameObject(key): generic.NameObject(name) for key, name in font.items()}
    writer = pypdf.PdfWriter()
    for text in ("Whales live in the sea.", "Cats do not."):
        page = writer.add_blank_page(300, 100)
        fonts = {generic.NameObject("/F1"): generic.DictionaryObject(names)}
        resources = {generic.NameObject("/Font"): generic.DictionaryObject(fonts)}
        page[generic.NameObject("/Resources")] = generic.DictionaryObject(resources)
        content = generic.DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 10 50 Td ({text}) Tj ET".encode())
        page[generic.NameObject("/Contents")] = content
    with (tmp_path / "a.pdf").open("wb") as stream:
        writer.write(stream)
    [document] = read(tmp_path / "a.pdf")
    assert document.text.split("\n\n")[:2] == ["Whales live in the sea.", "Cats do not."]
    assert (document.unit, document.line_at(document.text.index("Cats"))) == ("page", 2)


def test_pdf_and_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pypdf = pytest.importorskip("pypdf")
    docx = pytest.importorskip("docx")
    word = docx.Document()
    word.add_heading("Chapter", 1)
    word.add_paragraph("Whales live in the sea.")
    word.add_table(1, 2).rows[0].cells[1].text = "a cell"
    word.save(tmp_path / "a.docx")
    [document] = read(tmp_path / "a.docx")
    assert document.headings == [(0, 1, "Chapter")]
    assert "Whales live" in document.text
    assert "a cell" in document.text
    assert document.line_at(document.text.index("Whales")) == 2
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    stream = io.BytesIO()
    writer.write(stream)
    (tmp_path / "scan.pdf").write_bytes(stream.getvalue())
    with pytest.raises(BertsmithError, match="a PDF without text"):
        read(tmp_path / "scan.pdf")
    for name in ("broken.pdf", "broken.docx"):
        (tmp_path / name).write_bytes(b"%PDF-1.4 nonsense")
        with pytest.raises(BertsmithError, match=f"{name}: not a (PDF|Word document)"):
            read(tmp_path / name)
    assert not caplog.records  # a note names the file; pypdf's own warnings do not


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,title,text\n7,T,"two\nlines"\n8,,x\n')
    (tmp_path / "b.csv").write_text("name,age,city\nAnn,3,Rome\nBob,4,Bonn\n")
    (tmp_path / "c.jsonl").write_text('{"_id": 1, "text": "half \\ud800 pair"}\n\n{"text": "b"}\n')
    first, second = read(tmp_path / "a.csv")
    assert (first.id, first.title, first.text, first.line) == ("7", "T", "two\nlines", 2)
    assert (second.id, second.line, second.line_at(0)) == ("8", 4, 4)
    people = read(tmp_path / "b.csv")
    assert (people[0].title, people[0].text) == ("Ann", "age: 3\ncity: Rome")
    records = read(tmp_path / "c.jsonl")
    assert [(one.id, one.line) for one in records] == [("1", 1), ("", 3)]
    assert records[0].text == "half \ufffd pair"


def test_compressed_and_smart(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "c.all.xz", "wt") as stream:
        stream.write(".I 1\n.T\nfirst\n.A\nx\n.W\nbody of\none\n.I 2\n.T\nsecond\n.W\nbody two\n")
    one, two = read(tmp_path / "c.all.xz")
    assert (one.id, one.title, one.text, one.line) == ("1", "first", "body of\none", 7)
    assert (two.id, two.text, two.line) == ("2", "body two", 13)


def test_large_texts_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LARGEST_WHOLE", 500)
    monkeypatch.setattr(documents, "PORTION", 200)
    text = "".join(f"line {number}\n{'' if number % 5 else chr(10)}" for number in range(200))
    (tmp_path / "a.txt").write_text(text)
    parts = read(tmp_path / "a.txt")
    assert len(parts) > 5
    for part in parts:
        assert text[part.offset : part.offset + len(part.text)] == part.text
        assert text.count("\n", 0, part.offset) == part.line - 1
    assert "".join(part.text for part in parts) == text


TEXTS = st.text(st.sampled_from("ab .。\n\t!?é東") | st.characters(codec="utf-8"), max_size=400)


@given(TEXTS, st.integers(50, 120), st.integers(0, 25))
def test_no_character_is_lost(text: str, size: int, overlap: int) -> None:
    passages = list(cut(ParsedDocument(text), Chunking(size, overlap)))
    covered: set[int] = set()
    for one in passages:
        assert one.text == text[one.start : one.end]
        assert 0 < len(one.text) <= size
        assert one.line == 1 + text.count("\n", 0, one.start)
        covered.update(range(one.start, one.end))
    assert all(char.isspace() for place, char in enumerate(text) if place not in covered)
    assert passages == sorted(passages, key=lambda one: one.start)


def test_passages_overlap_at_sentences() -> None:
    text = " ".join(f"This is sentence number {number}." for number in range(40))
    passages = list(cut(ParsedDocument(text), Chunking(200, 60)))
    for one, two in pairwise(passages):
        assert one.text.endswith(".")
        assert two.text.startswith("This")
        assert 0 < one.end - two.start <= 60


def test_wrapped_prose_is_cut_at_sentences() -> None:
    """Lines that go on in lower case are one sentence; a list of words is cut at lines."""
    text = "The first sentence is wrapped\nin the middle of it. The second one\nis wrapped too."
    parts = [passage.text for passage in cut(ParsedDocument(text), Chunking(60, 0))]
    assert [part.split("\n")[0] for part in parts] == [
        "The first sentence is wrapped",
        "The second one",
    ]
    words = "\n".join(f"word{number}" for number in range(40))
    for passage in cut(ParsedDocument(words), Chunking(60, 0)):
        assert set(passage.text.split("\n")) <= set(words.split("\n"))


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("# Book\n\n## One\n\nfirst\n\n## Two\n\nsecond\n", ["Book > One", "Book > Two"]),
        ("Book\n====\n\n# Part\n\n### Deep\n\ntext\n", ["Part > Deep"]),
        ("# Empty\n\n# Full\n\ntext\n\n# Last\n", ["Full"]),
        ("intro\n\n# A #\n\n", [""]),
        ("# Only\n\n## Headings\n", ["Only > Headings"]),
    ],
)
def test_no_passage_is_only_a_heading(tmp_path: Path, text: str, passages: list[str]) -> None:
    (tmp_path / "a.md").write_text(text)
    [document] = read(tmp_path / "a.md")
    cuts = list(cut(document, Chunking()))
    assert [one.heading for one in cuts] == passages
    kept = "".join("".join(one.text for one in cuts).split())
    assert kept == "".join(text.split())


def test_a_heading_stays_with_a_long_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Heading\n\n" + "word " * 19 + "end.\n")
    for one in cut(read(tmp_path / "a.md")[0], Chunking(100, 0)):
        assert "word" in one.text
        assert len(one.text) <= 100


def test_a_title_above_each_page_of_a_book(tmp_path: Path) -> None:
    page = "<title>T</title><h1>The Book</h1><div> </div><main><h1>Chapter</h1><p>Text.</p></main>"
    (tmp_path / "a.html").write_text(page)
    [passage] = cut(read(tmp_path / "a.html")[0], Chunking())
    assert passage.text == "The Book\n\nChapter\n\nText."


def test_passages_do_not_cross_pages() -> None:
    pages = ["First page.\n\n", "Second page.\n\n", "Third page.\n\n"]
    document = ParsedDocument("".join(pages), unit="page", lines=[(0, 1), (13, 2), (27, 3)])
    passages = [(one.text, one.line) for one in cut(document, Chunking())]
    assert passages == [("First page.", 1), ("Second page.", 2), ("Third page.", 3)]
