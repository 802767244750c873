"""CoNLL and CoNLL-U: sentences, tags and texts in which every word has its place."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.examples import Tagged

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
call NN I-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
CONLLU = """# newdoc id = x
# text = I don't go du Nord.
1\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tgone\tgo\tVERB\t_\t_\t_\t_\t4:conj\t_
5-6\tdu\t_\t_\t_\t_\t_\t_\t_\t_
5\tde\tde\tADP\tIN\t_\t7\tcase\t_\t_
6\tle\tle\tDET\tDT\t_\t7\tdet\t_\t_
7\tNord\tNord\tPROPN\tNNP\t_\t4\tobl\t_\tSpaceAfter=No|Lang=fr
8\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_
"""


def stands(example: Tagged) -> bool:
    return all(
        example.text[start:end] == word
        for word, (start, end) in zip(example.words, example.offsets, strict=True)
    )


def test_conll_2003(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(CONLL_2003)
    found = read_data(tmp_path / "a.txt")
    assert (found.task, found.scheme) == ("tagging", "bio")
    assert found.columns == {"tokens": "word", "tags": "ner"}
    first, second = found.examples
    assert (first.text, first.tags) == ("EU rejects call", ("B-ORG", "O", "O"))
    assert second.offsets == ((0, 5), (6, 15))
    assert second.at(1).number == 8
    assert found.ledger.counts == {"-DOCSTART- lines, left out": 1}
    assert read_data(tmp_path / "a.txt", columns={"tags": "pos"}).labels == (*("NN", "NNP", "VBZ"),)
    assert read_data(tmp_path / "a.txt", columns={"tags": "2"}).scheme is None


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("cell", [" ", "\t"])
def test_layouts(cell: str, ending: str, tmp_path: Path) -> None:
    rows = ["# id 7 domain=en", f"no\xa0break{cell}B-X", f"#{cell}O", "  ", f"#tag{cell}I-X", ""]
    (tmp_path / "a.conll").write_bytes(ending.join(rows).encode())
    first, second = read_data(tmp_path / "a.conll").examples
    assert (first.words, second.words) == (("no\xa0break", "#"), ("#tag",))
    assert (first.where.number, second.where.number) == (2, 5)


def test_languages_before_words(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("en:Sioux\tB-ORG\nen::\tO\n")
    found = read_data(tmp_path / "a.conll")
    assert found.examples[0].words == ("Sioux", ":")
    assert found.ledger.counts.total() == 2
    (tmp_path / "b.conll").write_text("re:\tO\nre:invent\tO\n")
    assert read_data(tmp_path / "b.conll").examples[0].words == ("re:", "re:invent")


def test_iob1_becomes_bio(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ada I-PER\nBob B-PER\nran O\nParis I-LOC\nx I-PER\n")
    found = read_data(tmp_path / "a.conll")
    assert found.examples[0].tags == ("B-PER", "B-PER", "O", "B-LOC", "B-PER")
    assert found.scheme == "bio"
    assert "sentences converted from IOB1 to BIO" in found.ledger.counts


def test_conllu(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(CONLLU + "\n\n" + CONLLU)
    found = read_data(tmp_path / "a.conllu")
    one, two = found.examples
    assert one.text == "I don't go de le Nord."
    assert one.words == ("I", "do", "n't", "go", "de", "le", "Nord", ".")
    assert one.tags is not None
    assert one.tags[:3] == ("PRON", "AUX", "PART")
    assert stands(one)
    assert one.at(3).number == 7
    assert two.where.number == 18
    assert found.ledger.counts == {
        "empty nodes, left out": 2,
        "multiword tokens read as separate words": 2,
    }
    assert "IN" in read_data(tmp_path / "a.conllu", columns={"tags": "xpos"}).labels
    assert "obl" in read_data(tmp_path / "a.conllu", columns={"tags": "deprel"}).labels


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.conll", "Ada B-PER\nran\n", "a.conll, line 2: 1 column where the lines before have 2"),
        ("a.conll", "Ada B-PER\nran O O\n", "line 2: 3 columns where the lines before have 2"),
        ("a.txt", "Ada B-PER\n\nBob B-PER\nran\n", "a.txt, line 4: 1 column where the lines"),
        ("a.conll", "Ada\tB-PER\n\tO\n", "line 2: an empty word or tag"),
        ("a.conll", "Ada\nran\n", "line 1: a word and no tag"),
        ("a.conll", "\n \n\n-DOCSTART- O\n", "contains no examples"),
        ("a.conll", "", "a.conll is empty"),
        ("a.conll", b"Ada B-PER\ncaf\xe9 O\n", "line 2: the byte 0xe9 is not UTF-8"),
        ("a.conllu", "1\tI\tI\n", "a.conllu, line 1: 3 columns where CoNLL-U has 10"),
        ("a.conllu", "# text = x\n", "contains no examples"),
        ("a.conllu", "1-x\ta" + "\t_" * 8 + "\n", "line 1: '1-x' is not a word range"),
        ("a.conllu", "1.1\ta" + "\t_" * 8 + "\n", "line 1: a sentence without words"),
        ("a.conllu", "1\ta" + "\t_" * 8 + "\n", "its column upos is empty"),
    ],
)
def test_bad_files(name: str, content: str | bytes, fault: str, tmp_path: Path) -> None:
    raw = content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(BertsmithError) as caught:
        read_data(tmp_path / name)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("said", "fault"), [("9", "they are 1 to 4 or word, pos"), ("x", "'x'")])
def test_columns_that_are_not_there(said: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(CONLL_2003)
    with pytest.raises(BertsmithError, match=fault):
        read_data(tmp_path / "a.txt", columns={"tags": said})
    (tmp_path / "a.conllu").write_text(CONLLU)
    with pytest.raises(BertsmithError, match="known: lemma, upos"):
        read_data(tmp_path / "a.conllu", columns={"tags": said})
