"""Tagging schemes: read as seqeval reads them, converted without loss, faults found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES, Tokens

from bertsmith.errors import BertsmithError
from bertsmith.metrics.schemes import (
    SCHEMES,
    Chunk,
    chunks,
    convert,
    detect,
    faults,
    spell,
    strict_chunks,
)

TYPES = ["PER", "LOC", "a-b"]
STRICT = {"bio": ("BI", IOB2), "iobes": ("BIES", IOBES), "bilou": ("BILU", BILOU)}


def tags(marks: str) -> st.SearchStrategy[list[str]]:
    tag = st.builds("{}-{}".format, st.sampled_from(marks), st.sampled_from(TYPES))
    return st.lists(st.just("O") | tag, max_size=12)


@st.composite
def entities(draw: st.DrawFn) -> tuple[list[Chunk], int]:
    """Entities that do not overlap, in a sentence of some length."""
    found, place = [], 0
    for _ in range(draw(st.integers(0, 4))):
        start = place + draw(st.integers(0, 2))
        place = start + draw(st.integers(1, 3))
        found.append(Chunk(draw(st.sampled_from(TYPES)), start, place))
    return found, place + draw(st.integers(0, 2))


@given(tags("BIES"))
@settings(max_examples=300, deadline=None)
def test_goodwill_is_seqevals(spelled: list[str]) -> None:
    expected = [Chunk(kind, first, last + 1) for kind, first, last in get_entities(spelled)]
    assert chunks(spelled) == expected


@pytest.mark.parametrize("scheme", STRICT)
def test_strictness_is_seqevals(scheme: str) -> None:
    marks, reference = STRICT[scheme]

    @given(tags(marks))
    @settings(max_examples=150, deadline=None)
    def run(spelled: list[str]) -> None:
        found = Tokens(spelled, reference).entities
        assert strict_chunks(spelled, scheme) == [Chunk(e.tag, e.start, e.end) for e in found]

    run()


@given(entities(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
@settings(max_examples=300, deadline=None)
def test_conversion_keeps_entities(made: tuple[list[Chunk], int], first: str, second: str) -> None:
    found, length = made
    spelled = spell(found, length, first)
    assert chunks(spelled) == found
    assert list(faults(spelled, first)) == []
    assert chunks(convert(spelled, second)) == found
    assert convert(convert(spelled, second), first) == spelled


@given(entities())
def test_tags_without_a_type(made: tuple[list[Chunk], int]) -> None:
    found = [chunk._replace(type="_") for chunk in made[0]]
    spelled = spell(found, made[1], "bio")
    assert set(spelled) <= {"B", "I", "O"}
    assert chunks(spelled) == found


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["B-X", "I-X", "O"]], "bio"),
        ([["I-X", "I-X", "B-X"]], "iob1"),
        ([["I-X", "O"], ["I-X"]], "iob1"),
        ([["B-X", "O"], ["I-X"]], "bio"),  # with a mistake
        ([["B-X", "E-X"]], "iobes"),
        ([["S-X", "O"]], "iobes"),
        ([["U-X", "O"]], "bilou"),
        ([["B-X", "L-X"]], "bilou"),
        ([["B", "I", "O"]], "bio"),
        ([["O", "O"]], None),
        ([["NOUN", "O"]], None),
        ([["0", "1"]], None),
        ([], None),
    ],
)
def test_schemes_are_told_apart(sentences: list[list[str]], scheme: str | None) -> None:
    assert detect(sentences) == scheme


@pytest.mark.parametrize(
    ("scheme", "spelled", "places"),
    [
        ("bio", ["I-X", "O", "B-X", "I-Y", "I-Y"], [0, 3]),
        ("bio", ["O", "I-X"], [1]),
        ("iob1", ["B-X", "I-X", "B-X", "B-Y"], [0, 3]),
        ("iobes", ["B-X", "O", "E-X", "I-X"], [0, 2, 3, 3]),
        ("iobes", ["B-X", "I-X"], [1]),
        ("bilou", ["B-X", "U-X", "L-X"], [0, 2]),
        ("bio", ["S-X"], [0]),
    ],
)
def test_faults_are_found(scheme: str, spelled: list[str], places: list[int]) -> None:
    assert [place for place, _ in faults(spelled, scheme)] == places


def test_mistakes() -> None:
    with pytest.raises(BertsmithError, match="overlap at word 1"):
        spell([Chunk("X", 0, 2), Chunk("Y", 1, 3)], 3, "bio")
    with pytest.raises(BertsmithError, match="unknown scheme 'iox'"):
        spell([Chunk("X", 0, 2)], 3, "iox")
