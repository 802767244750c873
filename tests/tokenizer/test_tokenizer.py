"""Encoding, decoding, building and saving, on small trained tokenizers of every family."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import FAMILIES, Encoding, Tokenizer
from slow.fuzz_tokenizers import random_texts

Trained = Callable[[str], Tokenizer]
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

SURPRISES = {
    "empty": "",
    "spaces": " \t\n\u3000 ",
    "nul": "a\0b\0",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 1️⃣",
    "right to left": "שלום עולم مرحبا",
    "long word": "a" * 5000,
    "unassigned": "\U000e0fff\uffff\U0010ffff",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SURPRISES)
def test_surprising_texts(trained: Trained, family: str, name: str) -> None:
    tokenizer, text = trained(family), SURPRISES[name]
    encoding = tokenizer.encode(text)
    assert encoding.ids[0] == tokenizer.cls_id
    assert encoding.ids[-1] == tokenizer.sep_id
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert isinstance(tokenizer.decode(encoding.ids), str)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_a_megabyte_of_text(trained: Trained, family: str) -> None:
    text = "The time of the world. " * 45_000
    encoding = trained(family).encode(text)
    assert len(encoding) > 180_000  # nothing was cut
    assert encoding.offsets[-2][1] >= len(text) - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_only_special_tokens(trained: Trained, family: str) -> None:
    tokenizer = trained(family)
    text = f"{tokenizer.cls_token}{tokenizer.mask_token} {tokenizer.sep_token}"
    ids = tokenizer.encode(text, special=False, spelled="tokens").ids
    assert set(ids) >= {tokenizer.cls_id, tokenizer.mask_id, tokenizer.sep_id}
    assert tokenizer.decode(ids).strip() == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_and_segments(trained: Trained, family: str) -> None:
    tokenizer = trained(family)
    a, b = tokenizer.encode_ids(["the world", "over a city"])
    pair = tokenizer.encode("the world", "over a city")
    between = [tokenizer.sep_id] * (tokenizer.special_count(pair=True) - 2)
    assert pair.ids == [tokenizer.cls_id, *a, *between, *b, tokenizer.sep_id]
    assert [number for number, source in zip(pair.ids, pair.sources, strict=True) if source] == b
    expected = [0] * (1 + len(a) + len(between)) + [1] * (len(b) + 1)
    assert pair.segments == (expected if FAMILIES[family].segments else [0] * len(pair))
    assert len(between) == (2 if family in ("roberta", "mpnet") else 1)
    assert tokenizer.encode("the world", "over a city", special=False).ids == a + b


@pytest.mark.parametrize("family", FAMILIES)
def test_build_gives_what_encode_gives(trained: Trained, family: str) -> None:
    tokenizer = trained(family)
    texts = [text for text in random_texts(60, 31) if text.strip()]
    for first, second in pairwise(texts):
        a, b = tokenizer.encode_ids([first, second])
        single, pair = tokenizer.encode(first), tokenizer.encode(first, second)
        assert tokenizer.build(a) == (single.ids, single.segments)
        assert tokenizer.build(a, b) == (pair.ids, pair.segments)
        assert len(single) == len(a) + tokenizer.special_count()
        assert len(pair) == len(a) + len(b) + tokenizer.special_count(pair=True)
    assert tokenizer.build([], []) == (
        tokenizer.encode("", "").ids,
        tokenizer.encode("", "").segments,
    )


def test_many_are_encoded_as_one_by_one(trained: Trained) -> None:
    tokenizer, texts = trained("bert"), random_texts(50, 32)
    assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many([]) == []
    whole = tokenizer.encode_many(texts, special=False)
    assert tokenizer.encode_ids(texts) == [encoding.ids for encoding in whole]


def test_an_encoding_knows_offsets_words_and_sources(trained: Trained) -> None:
    encoding = trained("bert").encode("The world", "is")
    assert encoding == Encoding(
        ids=encoding.ids,
        segments=[0, 0, 0, 0, 1, 1],
        offsets=[(0, 0), (0, 3), (4, 9), (0, 0), (0, 2), (0, 0)],
        sources=[None, 0, 0, None, 1, None],
        words=[None, 0, 1, None, 0, None],
    )
    assert len(encoding) == 6


def test_explain(trained: Trained) -> None:
    tokenizer = trained("bert")
    split = tokenizer.explain("The worlds \U000f0000!")
    pieces, unknown = split.pieces, split.unknown
    assert [piece.text for piece in pieces[:3]] == ["The", "world", "s"]
    assert [piece.token for piece in pieces[:3]] == ["the", "world", "##s"]
    assert all(tokenizer.id(piece.token) == piece.id for piece in pieces)
    assert unknown == sum(piece.id == tokenizer.unk_id for piece in pieces) >= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pickled_tokenizer_is_the_same(trained: Trained, family: str) -> None:
    tokenizer, texts = trained(family), random_texts(50, 33)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode_many(texts) == tokenizer.encode_many(texts)
    assert (again.mask_id, again.size, again.family) == (tokenizer.mask_id, tokenizer.size, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_tokenizer_is_the_same(trained: Trained, tmp_path: Path, family: str) -> None:
    tokenizer, texts = trained(family), random_texts(50, 34)
    tokenizer.save(tmp_path / "new" / "folder")
    again = Tokenizer.load(tmp_path / "new" / "folder")
    assert again.encode_many(texts, texts[::-1]) == tokenizer.encode_many(texts, texts[::-1])
    assert again.vocabulary() == tokenizer.vocabulary()
    assert again.parts.tokens == tokenizer.parts.tokens
    assert again.special_ids == tokenizer.special_ids
    assert again.lowercase == tokenizer.lowercase
    assert Tokenizer.load(tmp_path / "new" / "folder", family=family).family == family


def test_saving_where_one_cannot(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BertsmithError, match="cannot be saved"):
        trained("bert").save(tmp_path / "file")


def test_max_length_is_saved(trained: Trained, tmp_path: Path) -> None:
    tokenizer = pickle.loads(pickle.dumps(trained("bert")))
    tokenizer.max_length = 77
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).max_length == 77


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        (
            ["fine", "ab\ud800c"],
            None,
            r"text 1 has half of a surrogate pair \(U\+D800\) at char.* 2",
        ),
        (["fine"], ["\udfff"], "second text 0 has half of a surrogate pair"),
        (["fine", None], None, "text 1 is a NoneType, not a string"),
        ([("a", "b")], None, "text 0 is a tuple, not a string"),
        ([b"bytes"], None, "text 0 is a bytes, not a string"),
        ("one text", None, "expected a list of texts"),
        (["a", "b"], ["c"], "2 texts but 1 second text"),
    ],
)
def test_texts_that_are_refused(trained: Trained, texts: list, pairs: list, message: str) -> None:
    with pytest.raises(BertsmithError, match=message) as caught:
        trained("bert").encode_many(texts, pairs)
    assert "\n" not in str(caught.value)


def test_surrogates_are_refused_everywhere(trained: Trained) -> None:
    tokenizer = trained("roberta")
    for refuse in (tokenizer.encode, tokenizer.tokens, tokenizer.explain, tokenizer.id):
        with pytest.raises(BertsmithError):
            refuse("x\udc80")


@pytest.mark.parametrize("number", [-1, 700, 10**12])
def test_ids_that_do_not_exist(trained: Trained, number: int) -> None:
    tokenizer = trained("bert")
    with pytest.raises(BertsmithError, match=f"no token has the id {number}"):
        tokenizer.decode([1, number])
    with pytest.raises(BertsmithError, match=f"no token has the id {number}"):
        tokenizer.token(number)


# ------------------------------------------------------------------ properties


@examples
@given(text=st.text(max_size=60))
def test_offsets_lie_inside_the_text(trained: Trained, text: str) -> None:
    for family in ("bert", "roberta", "albert", "deberta", "deberta-v2", "modernbert"):
        encoding = trained(family).encode(text, special=False)
        assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
        assert len({len(encoding.ids), len(encoding.offsets), len(encoding.words)}) == 1


@examples
@given(text=st.text(max_size=60))
def test_a_wordpiece_is_its_characters_normalised(trained: Trained, text: str) -> None:
    tokenizer = trained("bert")
    for piece in tokenizer.explain(text).pieces:
        if piece.id not in tokenizer.special_ids:
            normal = tokenizer.backend.normalizer.normalize_str(piece.text)
            assert "".join(normal.split()) == piece.token.removeprefix("##")


@examples
@given(text=st.text(max_size=80))
def test_byte_level_loses_nothing(trained: Trained, text: str) -> None:
    tokenizer = trained("roberta")
    ids = tokenizer.encode(text, special=False).ids
    assert tokenizer.decode(ids, skip_special=False) == text
    assert tokenizer.unk_id not in ids


@examples
@given(words=st.lists(st.sampled_from(["the", "world", "city", "school", "running"]), max_size=9))
def test_plain_words_come_back(trained: Trained, words: list[str]) -> None:
    for family in FAMILIES:
        tokenizer = trained(family)
        assert tokenizer.decode(tokenizer.encode(" ".join(words)).ids).strip() == " ".join(words)
