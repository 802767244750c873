"""Ids of words and sentences are the ids of the whole line, for every kind of tokenizer."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from bertsmith.corpus.cuts import at_punctuation, at_spaces
from bertsmith.corpus.encode import LineEncoder, Words
from bertsmith.tokenizer import FAMILIES, Tokenizer
from slow.fuzz_tokenizers import DATA, OFFICIAL, random_texts, unpack
from tasks.words import LINES, tokenizer

SPACES = [" ", " ", " ", "  ", "", "\t", "\u3000", " \t", "\x1c"]  # between two sentences


def assert_same(given: Tokenizer | Backend, seed: int, count: int = 400) -> None:
    """Compare with the library's ids of whole lines; lines have one to five sentences."""
    backend = given.reader("text") if isinstance(given, Tokenizer) else given
    encode = LineEncoder(backend.to_str(), kept=300)
    backend.encode_special_tokens = True
    for turn in range(2):
        rng = random.Random(seed + turn)
        texts = [text.replace("\n", " ").strip() for text in random_texts(count, seed + turn)]
        texts += [" ".join(text.split()) for text in texts] + LINES.split("\n") + texts[:20]
        lines = [[text] for text in texts]
        texts = [text for text in texts if text]
        for _ in range(count):
            first, *more = rng.sample(texts, rng.randint(1, 5))
            lines.append([first, *(rng.choice(SPACES) + text for text in more)])
        ids, lengths = encode(lines)
        whole = np.add.reduceat(lengths, np.cumsum([0, *map(len, lines)])[:-1])
        found = np.split(ids, whole.cumsum()[:-1])
        wanted = backend.encode_batch(["".join(line) for line in lines], add_special_tokens=False)
        for line, one, other in zip(lines, found, wanted, strict=True):
            assert one.tolist() == other.ids, line


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
    ids, lengths = LineEncoder(given.reader("text").to_str())([[text] for text in texts])
    found = [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])]
    assert found == given.encode_ids(texts)
    assert any(given.id(content) in part for part in found), "the added token is used"


def test_what_is_not_known_to_be_safe_is_not_cut() -> None:
    plain = json.loads(tokenizer("bert").backend.to_str())
    assert at_spaces(plain)
    assert at_punctuation(plain)
    odd = {"type": "Replace", "pattern": {"Regex": "a b"}, "content": ""}
    assert at_spaces({**plain, "normalizer": odd}) is None
    assert at_spaces({**plain, "pre_tokenizer": None}) is None
    assert at_punctuation({**plain, "pre_tokenizer": {"type": "Whitespace"}}) is None
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


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("family", ["albert", "deberta-v2"])
def test_every_way_to_mark_words(family: str, scheme: str, alone: bool, stripped: bool) -> None:
    """Whether the first word of a text is marked, and white space is dropped before, or not."""
    definition = json.loads(tokenizer(family).backend.to_str())
    steps = definition["pre_tokenizer"]["pretokenizers"]
    steps[-1]["prepend_scheme"] = scheme
    if alone:
        definition["pre_tokenizer"] = steps[-1]
    if stripped:
        definition["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    assert_same(Backend.from_str(json.dumps(definition)), 33, 150)


@pytest.mark.parametrize("prefix", [False, True])
def test_every_way_to_begin_bytes(prefix: bool) -> None:
    """With or without a space before the first word, and with tokens for runs of spaces."""
    definition = json.loads(tokenizer("roberta").backend.to_str())
    definition["pre_tokenizer"]["add_prefix_space"] = prefix
    assert_same(Backend.from_str(json.dumps(definition)), 34, 150)
    more = [{**ADDED, "content": run, "single_word": False} for run in ("  ", "   ", "\t")]
    start = len(definition["model"]["vocab"])
    definition["added_tokens"] += [{"id": start + n, **one} for n, one in enumerate(more)]
    assert at_spaces(definition)
    assert_same(Backend.from_str(json.dumps(definition)), 35, 150)


def test_tokens_belong_to_the_sentence_in_which_they_begin() -> None:
    given = tokenizer("roberta")
    encode = LineEncoder(given.reader("text").to_str())
    for line in (["The river.", " The light."], ["The river.", "\tThe light."], ["The.", "light."]):
        ids, lengths = encode([line, ["The river."]])
        first, second, _ = (part.tolist() for part in np.split(ids, lengths.cumsum()[:-1]))
        assert given.decode(first) == line[0]
        assert given.decode(second) == line[1]
