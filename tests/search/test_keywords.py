"""What a query means: keywords, prefixes, phrases, scripts without spaces, filters."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.index import Index
from search.conftest import HashedWords
from search.finding import names


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ('"eat fish"', "cats.md"),
        ("mornin*", "birds.html"),
        ("東京", "cities.csv"),
        ("都", "cities.csv"),
        ("runs", "dogs.txt"),  # a stem
        ('"cat.HAPPY"', "code.py"),
        ("yellow", "fruit.jsonl"),
    ],
)
def test_keyword_queries(index: Index, query: str, first: str) -> None:
    assert names(index.search(query, mode="keywords"))[0] == first


def test_a_prefix_that_has_a_stem_of_its_own(index: Index) -> None:
    index.add([{"id": "garden", "text": "Ladybirds eat aphids."}])
    hit = index.search("lady*", mode="keywords")[0]  # the stem of lady is ladi
    assert hit.document == "garden"
    assert [hit.text[a:b] for a, b in hit.highlights] == ["Ladybirds"]


def test_a_prefix_finds_no_other_words(index: Index) -> None:
    index.add([{"id": "car", "text": "Gasoline is sold here."}, {"id": "gate", "text": "A gate."}])
    assert [hit.document for hit in index.search("gas*", mode="keywords")] == ["car"]  # stem: ga
    assert index.search("gass*", mode="keywords") == []


@pytest.mark.parametrize("query", ["café*", "cafe*", "mülle*", "mull*"])
def test_a_prefix_with_an_accent(index: Index, query: str) -> None:
    index.add([{"id": "a", "text": "Café Müller"}, {"id": "b", "text": "cafeteria of a mullet"}])
    assert {hit.document for hit in index.search(query, mode="keywords")} == {"a", "b"}


def test_a_prefix_of_many_words_stands_for_the_most_frequent(index: Index) -> None:
    rare = [f"busa{a}{b}" for a in "bcdfghkl" for b in "bcdfghkl"]
    index.add([{"id": "rare", "text": " ".join(rare)}])
    index.add([{"id": f"often{n}", "text": f"busy {n}"} for n in range(2)])
    found = {hit.document for hit in index.search("bus*", mode="keywords")}
    assert found == {"rare", "often0", "often1"}


def test_a_phrase_must_match(index: Index) -> None:
    assert index.search('"fish eat"') == []
    assert names(index.search('"eat fish" birds')) == ["cats.md"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"서울 시내"', ["ko"]),
        ('"서울 시내에서"', ["ko"]),
        ('"시내에서 큰 축제"', ["ko"]),
        ('"서울  시내" 축제', ["ko"]),
        ('"울 시"', ["ko"]),  # a phrase may begin and end within words
        ('"시내 서울"', []),
        ('"서울 내에서"', []),
        ('"큰"', ["ko"]),
        ('"東京 タワー"', ["ja"]),
        ('"東京 tower"', ["mixed"]),
        ('"tower 東京"', []),
        ('"東京"', ["ja", "mixed"]),
        ('"東"', ["ja", "mixed"]),
        ('"1000円"', ["ja"]),
        ('"ジョン・スミス"', ["ja"]),
        ('"你好，世界"', ["zh"]),
        ('"你好，世界。"', ["zh"]),
        ('"：你好"', ["zh"]),
        ('"世界。这"', ["zh"]),
        ('"世界。一"', []),
        ('"คนไทย ที่"', ["th"]),
        ('"new タワー"', []),
    ],
)
@pytest.mark.parametrize("mode", ["keywords", "hybrid"])
def test_phrases_of_scripts_without_spaces(
    index: Index, query: str, found: list[str], mode: str
) -> None:
    texts = {
        "ko": "오늘 서울 시내에서 큰 축제가 열렸다. 서울의 밤.",
        "ja": "東京 タワーに登った。価格は1000円です。ジョン・スミスの本。",
        "mixed": "東京 tower is tall; tower, then 京東",
        "zh": "他说：你好，世界。这是一个测试。",
        "th": "คนไทย ที่กรุงเทพ",
    }
    index.add([{"id": name, "text": text} for name, text in texts.items()])
    assert sorted(hit.document for hit in index.search(query, mode=mode, files="*")) == sorted(
        ["t1", *found] if query in ('"東京"', '"東"') else found
    )


def test_a_mixed_phrase_is_highlighted(index: Index) -> None:
    index.add([{"id": "mixed", "text": "The 東京 tower is tall"}])
    hit = index.search('"東京 tower"', mode="keywords")[0]
    assert [hit.text[a:b] for a, b in hit.highlights] == ["東京", "tower"]


@pytest.mark.parametrize(
    ("query", "spans"),
    [
        ("950", ["950"]),
        ("950만", ["950만"]),
        ('"950만 명"', ["950만", "명"]),
        ("GPU", ["GPU"]),
        ('"GPT-4는"', ["GPT", "4는"]),
    ],
)
def test_numbers_beside_scripts_without_spaces_are_highlighted(
    query: str, spans: list[str], index: Index
) -> None:
    index.add([{"id": "k", "text": "서울에 950만 명이 산다. GPU로 GPT-4는 계산한다."}])
    hit = next(hit for hit in index.search(query, mode="keywords") if hit.document == "k")
    assert [hit.text[a:b] for a, b in hit.highlights] == spans


def test_scripts_without_spaces_are_highlighted(index: Index) -> None:
    hit = index.search("日本の首都", mode="keywords")[0]
    assert [hit.text[a:b] for a, b in hit.highlights] == ["日本の首都"]


ODD = st.text(st.one_of(st.sampled_from('"*()^:-+{}[]~\\ \0\n,.AND OR NEAR'), st.characters()))


@given(ODD)
def test_no_query_is_a_traceback(shared_index: Index, query: str) -> None:
    for mode in ("keywords", "hybrid"):
        shared_index.search(query, mode=mode)


@pytest.fixture(scope="module")
def shared_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    place = tmp_path_factory.mktemp("shared")
    (place / "a.txt").write_text("near the AND gate, or not", "utf-8")
    encoder = HashedWords()
    update_folders(place / "index", [place / "a.txt"], BuildSettings(encoder=encoder))
    return Index(place / "index", model=encoder)


@pytest.mark.parametrize("query", ["", "  \n", "x " * 5000, "word" * 2500, "東" * 10_000])
def test_blank_and_long_queries(index: Index, query: str) -> None:
    hits = index.search(query)
    assert not query.strip() or hits


def test_filters(index: Index, folder: Path) -> None:
    os.utime(folder / "dogs.txt", (1, 1_000_000_000))  # 2001
    index.update()
    assert set(names(index.search("cats dogs birds", files="*.md"))) == {"cats.md"}
    assert set(names(index.search("cats dogs", kinds=["text", "code"]))) == {"dogs.txt", "code.py"}
    assert set(names(index.search("dogs cats", before="2001-12-31"))) == {"dogs.txt"}
    assert "dogs.txt" not in names(index.search("dogs cats", after="2002-01-01"))
    with pytest.raises(BertsmithError, match=r"unknown kind 'pfd'.*did you mean pdf"):
        index.search("x", kinds="pfd")
    with pytest.raises(BertsmithError, match="after is 'soon', not a date"):
        index.search("x", after="soon")


def test_excerpts_begin_with_sentences(index: Index) -> None:
    """What is shown begins with the sentence that matches best, below the passage's heading."""
    filler = "Nothing of interest is said here. " * 20
    index.add([{"id": "long", "text": f"# Zoo\n\n{filler}\nThe okapi sleeps well. {filler}"}])
    hit = index.search("okapi", mode="keywords")[0]
    start, end = hit.excerpt(100)
    assert hit.text[start:end].startswith("The okapi sleeps well. Nothing")
    assert hit.text[start:end].endswith("said here.")
    index.add([{"id": "endless", "text": "word " * 200 + "quagga " + "word " * 30}])
    hit = index.search("quagga", mode="keywords")[0]
    assert "quagga" in hit.text[slice(*hit.excerpt(100))]
    fish = index.search("fish", mode="keywords")[0]
    assert fish.text[slice(*fish.excerpt())] == "Cats eat fish and mice."


def test_words_that_are_everywhere_are_not_highlighted(index: Index) -> None:
    index.add([f"Number {number} and some more text" for number in range(1000)])
    hit = index.search("number 17 and", mode="keywords")[0]
    assert [hit.text[a:b] for a, b in hit.highlights] == ["17"]


def test_words_like_the_are_not_highlighted(index: Index) -> None:
    index.add([{"id": "ship", "text": "The captain of the ship is on the deck, and it is cold."}])

    def marked(query: str) -> list[str]:
        hit = next(h for h in index.search(query, mode="keywords") if h.document == "ship")
        return [hit.text[a:b] for a, b in hit.highlights]

    assert marked("Where is the captain of the ship?") == ["captain", "ship"]
    assert marked('"the ship" and "on the deck"') == ["the ship", "on the deck"]
    assert marked("it is") == ["is", "it", "is"]  # a query of nothing else


def test_words_of_most_passages_are_not_highlighted(index: Index) -> None:
    index.add([f"Das Boot und das Meer {number}" for number in range(30)])
    hit = index.search("das Meer 17 und", mode="keywords")[0]
    assert [hit.text[a:b] for a, b in hit.highlights] == ["17"]
