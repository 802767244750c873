"""Ids of kept words are the ids of the sentence, for every kind of tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from bertsmith.corpus.cuts import at_punctuation, at_spaces, between
from bertsmith.corpus.encode import Words, encoder
from bertsmith.tokenizer import FAMILIES, Tokenizer
from slow.fuzz_tokenizers import DATA, OFFICIAL, random_texts, unpack
from tasks.words import LINES, tokenizer


def assert_same(given: Tokenizer, seed: int, count: int = 400) -> None:
    encode = encoder(given.backend.to_str(), kept=300)
    for turn in range(2):
        texts = [text.strip() for text in random_texts(count, seed + turn)]
        texts += [" ".join(text.split()) for text in texts] + LINES.split("\n") + texts[:20]
        ids, lengths = encode(texts)
        wanted = given.encode_ids(texts)
        found = np.split(ids, lengths.cumsum()[:-1])
        for text, one, other in zip(texts, found, wanted, strict=True):
            assert one.tolist() == other, text


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_vocabularies(name: str, tmp_path: Path) -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there: point BERTSMITH_DATA at the folder of data sets")
    given = Tokenizer.load(unpack(name, tmp_path))
    assert at_spaces(json.loads(given.backend.to_str())), "words are kept for it"
    assert_same(given, 31)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    assert_same(tokenizer(family), 32)


ADDED = {"special": False, "normalized": True, "lstrip": False, "rstrip": False}


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta-v2"])
@pytest.mark.parametrize("change", [{"rstrip": True}, {"lstrip": True}, {"single_word": True}, {}])
@pytest.mark.parametrize("content", ["New York", "the", "C++", "(", "River"])
def test_added_tokens(family: str, change: dict[str, bool], content: str, tmp_path: Path) -> None:
    """Whatever tokens were added, and however they are looked for."""
    tokenizer(family).save(tmp_path)
    definition = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    own = {"id": tokenizer(family).size, "content": content, "single_word": False}
    definition["added_tokens"].append({**ADDED, **own, **change})
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    given = Tokenizer.load(tmp_path)
    texts = ["new york, c++ the river (new york)", "The C++ (River) New York", "a(b river,x the."]
    ids, lengths = encoder(given.backend.to_str())(texts)
    found = [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])]
    assert found == given.encode_ids(texts)
    assert any(given.id(content) in part for part in found), "the added token is used"


def test_what_is_not_known_to_be_safe_is_not_cut() -> None:
    plain = json.loads(tokenizer("bert").backend.to_str())
    assert at_spaces(plain)
    assert at_punctuation(plain)
    assert between(plain)
    odd = {"type": "Replace", "pattern": {"Regex": "a b"}, "content": ""}
    assert at_spaces({**plain, "normalizer": odd}) is None
    assert at_spaces({**plain, "pre_tokenizer": None}) is None
    assert at_punctuation({**plain, "pre_tokenizer": {"type": "Whitespace"}}) is None
    assert between({**plain, "added_tokens": []}) is None
    bytes_of = json.loads(tokenizer("roberta").backend.to_str())
    assert at_spaces(bytes_of)
    dropping = {**bytes_of["model"], "dropout": 0.1}
    assert at_spaces({**bytes_of, "model": dropping}) is None


def test_only_so_many_words_are_kept() -> None:
    asked: list[list[str]] = []

    def new(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        asked.append(list(texts))
        lengths = np.array([len(text) for text in texts])
        return np.array([ord(c) for text in texts for c in text], np.uint32), lengths

    words = Words(new, kept=3)
    for texts in (["a", "bb", "a", ""], ["dd", "bb", "e", "e"], ["e", "a", "dd"], []):
        ids, lengths = words(texts)
        assert "".join(map(chr, ids)) == "".join(texts)
        assert lengths.tolist() == [len(text) for text in texts]
        assert len(words.numbers) <= 3
    assert asked == [["a", "bb", ""], ["dd", "e"], ["e", "dd"]]


def test_a_word_that_gives_the_mark_without_holding_it() -> None:
    definition = json.loads(tokenizer("bert").backend.to_str())
    mark = between(definition)
    assert mark
    definition["model"]["vocab"]["river"] = mark.id
    backend = Backend.from_str(json.dumps(definition))
    texts = ["the river flows", "river"]
    wanted = [one.ids for one in backend.encode_batch(texts, add_special_tokens=False)]
    ids, _ = encoder(json.dumps(definition))(texts)
    assert ids.tolist() == [number for ids in wanted for number in ids]
    assert mark.id in ids
