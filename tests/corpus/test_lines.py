"""A prepared corpus holds the ids of whole lines, and no special token that a text spells."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import FAMILIES, Tokenizer
from corpus.texts import documents, write
from sampled import sampled
from slow.fuzz_tokenizers import DATA, unpack
from tasks.words import tokenizer

ENGLISH = [
    "The river flows through Prague. The light came!  Why do you keep bees?\tNobody could answer.",
    "In 1997 a storm tore the roof off. (The repairs took 3.5 years.) He played.Then he left.",
    "Dr. Miller (the one from Boston) played the violin. “Paris” is old.\u00a0Prices rose by 12 %.",
]
CHINESE = ["今天天气很好。我们去公园散步。他很高兴。", "你好！ 他来了吗？对。"]
JAPANESE = ["今日は天気がいい。公園へ行きましょう。彼は元気だ。"]
NAMES = ("[MASK]", "[SEP]", "[CLS]", "[PAD]", "[UNK]", "<mask>", "<s>", "</s>", "<pad>", "<unk>")


def row(folder: Path) -> list[int]:
    corpus = Corpus.open(folder)
    ids: list[int] = corpus.gather(np.array([0]), np.array([corpus.tokens])).tolist()
    return ids


def assert_lines(
    given: Tokenizer, plain: Backend, lines: list[str], language: str, at: Path
) -> None:
    """Compare id by id with the library's tokenizer, applied to each line."""
    at.mkdir(exist_ok=True)
    source = write(at / f"{language}.txt", [lines])
    made = prepare([source], given, at / language, held_out=0, workers=0, sentences=language)
    wanted = [
        number for line in lines for number in plain.encode(line, add_special_tokens=False).ids
    ]
    assert row(at / language) == wanted
    assert made.splits["train"].sentences > len(lines), "lines have several sentences"


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_line(family: str, tmp_path: Path) -> None:
    given = tokenizer(family)
    for lines, language in ((ENGLISH, "en"), (CHINESE, "zh"), (JAPANESE, "ja")):
        plain = Backend.from_str(given.backend.to_str())
        many = [line for document in documents(20) for line in document]
        assert_lines(given, plain, lines + many, language, tmp_path)


@pytest.mark.parametrize(
    "name", sampled(["roberta", "albert", "deberta-v3", "bert-chinese"], {"roberta", "albert"})
)
def test_ids_of_published_vocabularies(name: str, tmp_path: Path) -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there: point BERTSMITH_DATA at the folder of data sets")
    given = Tokenizer.load(unpack(name, tmp_path))
    plain = Backend.from_str(given.backend.to_str())
    assert_lines(given, plain, ENGLISH + CHINESE + JAPANESE, "en", tmp_path / "out")
    assert_lines(given, plain, ENGLISH + CHINESE + JAPANESE, "zh", tmp_path / "out")


def test_sentences_keep_their_space_and_their_borders(tmp_path: Path) -> None:
    given = tokenizer("roberta")
    source = write(tmp_path / "a.txt", [["The river. The light.", "The storm."]])
    prepare([source], given, tmp_path / "out", held_out=0, workers=0)
    corpus, ids = Corpus.open(tmp_path / "out"), row(tmp_path / "out")
    found = [given.decode(ids[start:end]) for start, end in pairwise(corpus.sentence_starts)]
    assert found == ["The river.", " The light.", "The storm."]


def test_long_sentences_are_cut_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.corpus.split.LONGEST_SENTENCE", 40)
    monkeypatch.setattr("bertsmith.corpus.workshop.LONGEST_LINE", 90)
    given = tokenizer("roberta")
    line = "The river flows " * 30 + "home."
    source = write(tmp_path / "a.txt", [[line]])
    made = prepare([source], given, tmp_path / "out", held_out=0, workers=0)
    assert row(tmp_path / "out") == given.encode_ids([line])[0]
    assert made.ledger["lines longer than 90 characters, cut"] == 1
    assert made.ledger["sentences longer than 40 characters, cut"] > 3


# ------------------------------------------------------------------ special tokens in a text


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_in_documents_are_text(family: str, tmp_path: Path) -> None:
    given = tokenizer(family)
    line = " ".join(f"The river {name} flows." for name in NAMES)
    source = write(tmp_path / "a.txt", [[line, "The light."]])
    made = prepare([source], given, tmp_path / "out", held_out=0, workers=0)
    found = set(row(tmp_path / "out"))
    assert not found & (given.special_ids - {given.unk_id})
    assert made.ledger["special tokens spelled in a text, read as text"] == 5
    first, second = given.encode_ids([line, "The light."])
    assert row(tmp_path / "out") == first + second


def test_markers_without_a_role_stay_tokens(tmp_path: Path) -> None:
    """Somebody added them to be spelled in texts, as the marks around an entity are."""
    tokenizer("bert").save(tmp_path / "words")
    path = tmp_path / "words" / "tokenizer.json"
    definition = json.loads(path.read_text("utf-8"))
    own = {"id": tokenizer("bert").size, "content": "[E1]", "special": True, "normalized": False}
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    definition["added_tokens"].append({**own, **flags})
    path.write_text(json.dumps(definition), "utf-8")
    source = write(tmp_path / "a.txt", [["the [E1] river [SEP] flows."]])
    prepare([source], tmp_path / "words", tmp_path / "out", held_out=0, workers=0)
    found = row(tmp_path / "out")
    given = Tokenizer.load(tmp_path / "words")
    assert given.id("[E1]") in found
    assert given.sep_id not in found


# ------------------------------------------------------------------ unknown tokens


def test_documents_of_unknown_tokens_only(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(10)
    source = write(tmp_path / "a.txt", [*given[:4], ["語 語。", "語"], *given[4:], ["語 the"]])
    made = prepare([source], words, tmp_path / "out", held_out=0, workers=0, duplicates="near")
    assert made.splits["train"].documents == 11
    assert made.ledger["documents of unknown tokens only, left out"] == 1
    plain = write(tmp_path / "b.txt", [*given, ["語 the"]])
    prepare([plain], words, tmp_path / "same", held_out=0, workers=0)
    assert row(tmp_path / "out") == row(tmp_path / "same")
    source = write(tmp_path / "c.txt", [["語 語"], ["語"]])
    with pytest.raises(
        BertsmithError, match=r"^no documents left to train on .* unknown tokens only"
    ):
        prepare([source], words, tmp_path / "none", held_out=0, workers=0)
