"""Learned vocabularies: layout, determinism, streams, and refusals."""

from __future__ import annotations

import gzip
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bertsmith
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import FAMILIES, KINDS, Tokenizer, train
from bertsmith.tokenizer.families import BERT, PipelineSettings
from bertsmith.tokenizer.train import count_words, read_lines

Trained = Callable[[str], Tokenizer]

LAYOUT = {  # (pad, unk, cls, sep, mask); -1 is the last id
    "bert": (0, 1, 2, 3, 4),
    "distilbert": (0, 1, 2, 3, 4),
    "electra": (0, 1, 2, 3, 4),
    "roberta": (1, 3, 0, 2, -1),
    "albert": (0, 1, 2, 3, 4),
    "deberta": (0, 3, 1, 2, -1),
    "deberta-v2": (0, 3, 1, 2, -1),
    "modernbert": (-2, -5, -4, -3, -1),
    "mpnet": (1, 3, 0, 2, -1),
    "nomic_bert": (0, 1, 2, 3, 4),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_lie_where_the_family_expects_them(trained: Trained, family: str) -> None:
    tokenizer = trained(family)
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    size = tokenizer.size
    assert (*ids, tokenizer.mask_id) == tuple(place % size for place in LAYOUT[family])
    assert sorted(tokenizer.vocabulary().values()) == list(range(size))
    assert (tokenizer.kind, tokenizer.family) == (FAMILIES[family].kind, family)
    assert tokenizer.lowercase == FAMILIES[family].lowercase
    assert tokenizer.special_ids == {place % size for place in LAYOUT[family]}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_size_is_what_was_asked_for(corpus: Path, family: str) -> None:
    size = {"wordpiece": 180, "bpe": 300, "unigram": 120}[FAMILIES[family].kind]
    options = {"size": size, "family": family, "alphabet": 50}
    assert train([corpus], FAMILIES[family].kind, **options).size == size


def test_frequent_words_become_tokens(trained: Trained) -> None:
    assert trained("bert").tokens("The of and") == ["the", "of", "and"]
    assert trained("roberta").tokens("x the of and")[1:] == ["Ġthe", "Ġof", "Ġand"]
    assert trained("albert").tokens("The is in") == ["▁the", "▁is", "▁in"]
    assert trained("deberta-v2").tokens("the is in") == ["▁the", "▁is", "▁in"]


@pytest.mark.parametrize("kind", KINDS)
def test_cased_or_not(corpus: Path, kind: str) -> None:
    for lowercase in (True, False):
        tokenizer = train([corpus], kind, size=600, lowercase=lowercase, alphabet=60)
        assert tokenizer.lowercase == lowercase
        assert (tokenizer.tokens("Time") == tokenizer.tokens("time")) == lowercase


@pytest.mark.parametrize("kind", KINDS)
def test_any_family_can_have_any_kind(corpus: Path, kind: str) -> None:
    for family in FAMILIES:
        tokenizer = train([corpus], kind, size=600, family=family, alphabet=60)
        assert (tokenizer.kind, tokenizer.family) == (kind, family)
        assert tokenizer.mask_token == FAMILIES[family].tokens["mask"]
        assert tokenizer.encode("a", "b").segments[-1] == FAMILIES[family].segments


LEARN = """
import sys, hashlib
from bertsmith.tokenizer import train
for kind in ("wordpiece", "bpe", "unigram"):
    learned = train([sys.argv[1]], kind, size=600, alphabet=60).backend.to_str()
    print(hashlib.sha256(learned.encode()).hexdigest())
"""


def test_the_same_text_gives_the_same_vocabulary(corpus: Path) -> None:
    source = Path(bertsmith.__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", LEARN, str(corpus)]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        for _ in range(3)
    ]
    assert len(runs[0].split()) == 3
    assert runs[0] == runs[1] == runs[2]


def test_files_are_read_one_after_the_other(corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_bytes()
    middle = text.index(b"\n", len(text) // 2) + 1
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(text[:middle])
    with lzma.open(tmp_path / "b.txt.xz", "wb") as file:
        file.write(text[middle:])
    parts = train([tmp_path / "a.txt.gz", str(tmp_path / "b.txt.xz")], "bpe", size=400)
    assert parts.vocabulary() == train([corpus], "bpe", size=400).vocabulary()


def test_words_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = BERT.pipeline(PipelineSettings(lowercase=True))
    text = ["Hello, hello world.", "héllo  worlds"] * 10
    whole = count_words(text, pipeline)
    assert whole == {"hello": 30, ",": 10, "world": 10, ".": 10, "worlds": 10}
    monkeypatch.setitem(count_words.__globals__, "MANY_CHUNKS", 1)
    assert count_words(text, pipeline) == whole


def test_lines_longer_than_memory_are_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("\ufeffone\r\ntwo é漢😀" + "é漢😀" * 50 + "\nlast", "utf-8")
    whole = list(read_lines([tmp_path / "text"]))
    assert whole == ["one", "two é漢😀" + "é漢😀" * 50, "last"]
    monkeypatch.setattr(sys.modules["bertsmith.tokenizer.train"], "LONGEST_LINE", 7)
    assert "".join(read_lines([tmp_path / "text"])) == "".join(whole)


def test_special_tokens_in_the_text_are_not_learned(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the [MASK] of [MASK] <mask>\n" * 100)
    for family in ("deberta-v2", "roberta", "bert"):
        kind = FAMILIES[family].kind
        tokenizer = train([tmp_path / "text"], kind, size=300, family=family)
        ids = tokenizer.encode(f"x {tokenizer.mask_token}", spelled="mask").ids
        assert ids[-2] == tokenizer.mask_id
        assert sorted(tokenizer.vocabulary().values()) == list(range(tokenizer.size))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("wordpiece", 20, "a vocabulary of 20 tokens is too small: 5 special tokens and"),
        ("bpe", 200, "5 special tokens and 256 bytes need 261"),
        ("unigram", 10, "a vocabulary of 10 tokens is too small"),
        ("letters", 1000, "unknown kind 'letters'"),
    ],
)
def test_what_cannot_be_learned(corpus: Path, kind: str, size: int, message: str) -> None:
    with pytest.raises(BertsmithError, match=message):
        train([corpus], kind, size=size)


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_size_that_is_not_too_small_works(corpus: Path, kind: str) -> None:
    with pytest.raises(BertsmithError) as caught:
        train([corpus], kind, size=1, alphabet=30)
    needed = int(str(caught.value).split()[-1])
    assert train([corpus], kind, size=needed, alphabet=30).size <= needed


def test_unknown_family(corpus: Path) -> None:
    with pytest.raises(BertsmithError, match="unknown family 'gpt'"):
        train([corpus], "bpe", size=400, family="gpt")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_no_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text").write_bytes(content)
    for kind in KINDS:
        with pytest.raises(BertsmithError, match="no text"):
            train([tmp_path / "text"], kind, size=1000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text", b"fine\nbad \xff byte\n", "text, line 2: the byte 0xff is not UTF-8"),
        ("text", b"fine\ncut \xe6\xbc", "text, line 2: the byte 0xe6 is not UTF-8"),
        ("text", "half \ud800".encode("utf-8", "surrogatepass"), "line 1: the byte 0xed is not"),
        ("text.gz", b"no gzip at all", "text.gz: cannot be read"),
        ("text.gz", gzip.compress(b"text " * 100, mtime=0)[:-12], "text.gz: cannot be read"),
        ("text.xz", b"no xz at all", "text.xz: cannot be read"),
        ("text.xz", lzma.compress(b"text " * 100)[:-12], "text.xz: cannot be read"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertsmithError, match=message) as caught:
        train([tmp_path / name], "wordpiece", size=1000)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="missing: cannot be read"):
        train([tmp_path / "missing"], "wordpiece", size=1000)
    with pytest.raises(BertsmithError, match="cannot be read"):
        train([tmp_path], "wordpiece", size=1000)
