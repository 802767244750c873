"""Numbers about heads, on heads of which everything is known."""

import lzma
import math
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from analysis.conftest import KINDS, Small
from analysis.known import ITSELF, PREVIOUS, SEPARATOR, UNIFORM, known
from bertsmith import Bert
from bertsmith.analysis import heads as module
from bertsmith.analysis.heads import METRICS, HeadNumbers, measure, parsed, texts
from bertsmith.analysis.pages import heads_page
from bertsmith.errors import BertsmithError
from bertsmith.tasks.tagging.conll import Treebank, read_treebank

TEXT = "the river , the river flows ; flows ."


@pytest.fixture(scope="module")
def bert() -> Bert:
    return known()


def test_the_heads_are_what_they_are_meant_to_be(bert: Bert) -> None:
    maps = bert.attention(TEXT).maps()[0]
    length = maps.shape[-1]
    assert np.abs(maps[PREVIOUS, 1:, :-1] - np.eye(length - 1)).max() <= 1e-3
    assert np.abs(maps[SEPARATOR, :, -1] - 1).max() <= 1e-3
    assert np.abs(maps[UNIFORM] - 1 / length).max() <= 1e-6
    assert np.abs(maps[ITSELF] - np.eye(length)).max() <= 1e-3


def test_known_answers(bert: Bert) -> None:
    numbers = measure(bert, texts(bert, [TEXT]))
    metrics = {name: table[0] for name, table in numbers.metrics.items()}
    ids = bert.tokenizer.encode(TEXT).ids
    length, inner = len(ids), range(1, len(ids) - 1)
    assert metrics["previous"] == pytest.approx([1, 0, 1 / length, 0], abs=1e-3)
    assert metrics["next"] == pytest.approx([0, 0, 1 / length, 0], abs=1e-3)
    assert metrics["itself"] == pytest.approx([0, 0, 1 / length, 1], abs=1e-3)
    assert metrics["separator"] == pytest.approx([0, 1, 1 / length, 0], abs=1e-3)
    first = 1 / len(inner)  # before the first word stands [CLS]
    assert metrics["first"] == pytest.approx([first, 0, 1 / length, 0], abs=1e-3)
    assert metrics["entropy"] == pytest.approx([0, 0, math.log(length), 0], abs=2e-2)
    far = np.mean([[abs(i - j) for j in range(length)] for i in inner])
    to_end = np.mean([length - 1 - i for i in inner])
    assert metrics["distance"] == pytest.approx([1, to_end, far, 0], abs=2e-2)
    marks = [bert.tokenizer.id(mark) for mark in ",;."]
    after_mark = [i for i in inner if ids[i - 1] in marks]
    shares = [len(after_mark) / len(inner), 0, 3 / length]
    shares += [sum(ids[i] in marks for i in inner) / len(inner)]
    assert metrics["punctuation"] == pytest.approx(shares, abs=1e-3)
    repeated = [ids[1:-1].count(ids[i]) - 1 for i in inner]
    assert max(repeated) >= 1
    rows = [count for count in repeated if count]
    before = sum(ids[i] == ids[i - 1] for i in inner) / len(rows)
    assert metrics["same"] == pytest.approx([before, 0, np.mean(rows) / length, 0], abs=1e-3)
    assert numbers.strongest("previous", 1) == [(0, PREVIOUS, pytest.approx(1, abs=1e-3))]
    assert (numbers.inputs, numbers.tokens) == (1, length)
    assert [(row["layer"], row["head"]) for row in numbers.rows()] == [(0, n) for n in range(4)]


def test_means_weigh_every_token_alike(bert: Bert) -> None:
    """Two texts of different length, together and apart, in one batch or two."""
    pair = [TEXT, "the river flows ."]
    apart = [measure(bert, texts(bert, [text])) for text in pair]
    counts = [one.tokens - 2 for one in apart]
    both = measure(bert, texts(bert, pair))
    for name in ("entropy", "distance", "itself", "separator"):
        tables = [one.metrics[name] for one in apart]
        assert np.allclose(both.metrics[name], np.average(tables, 0, counts), atol=1e-5)


# The words of a line, each a word of the vocabulary; number of the head of each, from 1.
CHAIN = [("the", 0, "root"), ("river", 1, "det"), ("flows", 2, "nsubj"), (".", 3, "punct")]


def conllu(rows: list[tuple[str, int, str]]) -> list[str]:
    lines = [
        "\t".join([str(n), word, "_", "X", "_", "_", str(head), relation, "_", "_"])
        for n, (word, head, relation) in enumerate(rows, 1)
    ]
    return ["# a comment", *lines, ""]


def sentences(lines: list[str]) -> list[Treebank]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "file.conllu")
        path.write_text("\n".join(lines), "utf-8")
        return list(read_treebank(path))


def test_dependencies_of_a_chain(bert: Bert) -> None:
    """Each word hangs on the one before: the previous-token head finds all, one way only."""
    found = measure(bert, parsed(bert, sentences(conllu(CHAIN) * 3))).relations
    assert {name: one.count for name, one in found.items()} == {"det": 3, "nsubj": 3, "punct": 3}
    for one in found.values():
        assert (one.layer, one.head, one.accuracy) == (0, PREVIOUS, 1.0)
        assert one.direction == "dependent looks at head"
        assert (one.offset, one.baseline) == (-1, 1.0)
    assert found["nsubj"].table.shape == (2, 1, 4)
    assert found["nsubj"].table[1, 0, PREVIOUS] == 0.0


def test_dependencies_the_other_way(bert: Bert) -> None:
    """Each word hangs on the one behind it: the head looks at its dependent."""
    chain = [(".", 2, "punct"), ("the", 3, "det:def"), ("river", 4, "nsubj"), ("flows", 0, "root")]
    found = measure(bert, parsed(bert, sentences(conllu(chain)))).relations
    assert set(found) == {"punct", "det", "nsubj"}  # without subtypes, without the root
    for one in (found["det"], found["nsubj"]):
        assert (one.head, one.direction) == (PREVIOUS, "head looks at dependent")
        assert (one.accuracy, one.offset, one.baseline) == (1.0, 1, 1.0)


def test_attention_to_a_word_is_the_sum_over_its_tokens(small: Small) -> None:
    """Against a computation by hand, on words that are split."""
    bert = small()
    rows = [("unbelievable", 2, "amod"), ("question", 0, "root"), ("unpacking", 2, "acl")]
    (sentence,) = sentences(conllu(rows))
    (one,) = parsed(bert, [sentence])
    assert len(one.ids) > 5
    assert one.gold
    maps = bert.attention(sentence.text).maps()
    expected = np.zeros((2, *maps.shape[:2]))
    tokens = [[t for t, word in enumerate(one.words) if word == n] for n in range(3)]
    for layer in range(maps.shape[0]):
        for head in range(maps.shape[1]):
            one_map = maps[layer, head]
            between = np.array(
                [[one_map[np.ix_(i, j)].sum(1).mean() for j in tokens] for i in tokens]
            )
            np.fill_diagonal(between, -1)
            expected[0, layer, head] = between[0].argmax() == 1
            expected[1, layer, head] = between[:, 0].argmax() == 1
    table = measure(bert, [one]).relations["amod"].table
    assert np.array_equal(table, expected)
    assert 0 < expected.mean() < 1


@pytest.mark.parametrize("name", KINDS)
def test_every_family(name: str, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = small(name)
    monkeypatch.setattr(module, "MOST", 2000)  # several batches
    numbers = measure(bert, texts(bert, [TEXT, "Why do you keep bees?", "a"]))
    maps = bert.attention(TEXT).maps()
    assert numbers.metrics["entropy"].shape == maps.shape[:2]
    assert all(np.isfinite(table).all() for table in numbers.metrics.values())
    shares = [numbers.metrics[n] for n in METRICS if n not in ("entropy", "distance")]
    assert all((table >= 0).all() and (table <= 1).all() for table in shares)


def test_nothing_to_measure(bert: Bert) -> None:
    with pytest.raises(BertsmithError, match="no texts to measure the heads on"):
        measure(bert, [])


def test_long_sentences_are_counted(bert: Bert) -> None:
    rows = [("the", 0, "root")] + [("river", 1, "obj")] * 60
    assert parsed(bert, sentences(conllu(rows))) == []
    assert bert.ledger.counts["sentences longer than the model reads, left out"] == 1


def test_the_page_shows_every_number(bert: Bert) -> None:
    numbers = measure(bert, parsed(bert, sentences(conllu(CHAIN))))
    page = heads_page(numbers, "<b>model")
    assert "Attention heads of &lt;b&gt;model" in page
    assert page.count('<table class="heat"') == len(METRICS) + 3
    value = numbers.metrics["previous"][0, PREVIOUS]
    assert value == pytest.approx(1, abs=1e-3)
    assert re.search(r'<h2>previous</h2>.*?<td class="s9">1</td>', page, re.DOTALL)
    assert "<b>model" not in page


# ------------------------------------------------------------------ reading treebanks


def read(text: str) -> list[Treebank]:
    return sentences(text.split("\n"))


def row(key: str, form: str, head: str = "0", space: bool = True) -> str:
    misc = "_" if space else "SpaceAfter=No"
    return "\t".join([key, form, "_", "NOUN", "_", "_", head, "dep", "_", misc])


def test_words_stand_where_the_text_has_them() -> None:
    lines = [row("1", "Bees", space=False), row("2", ","), row("3", "bees", "1")]
    (found,) = read("\n".join(lines))
    assert found.text == "Bees, bees"
    assert found.words == ("Bees", ",", "bees")
    assert found.heads == (-1, -1, 0)


def test_words_that_are_written_as_one() -> None:
    lines = [row("1-2", "don't"), row("1", "do"), row("2", "n't", "1")]
    lines += [row("2.1", "unwritten"), row("3-4", "du"), row("3", "de", "1"), row("4", "le", "1")]
    (found,) = read("\n".join(lines))
    assert found.text == "don't de le"
    assert found.words == ("do", "n't", "de", "le")
    assert found.heads == (-1, 0, 0, 0)
    assert found.relations == ("dep",) * 4


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1\tBees", "line 1: 2 columns where CoNLL-U has 10"),
        (row("1", "Bees", "7"), "line 1: no word has the number '7'"),
    ],
)
def test_damaged_treebanks(text: str, fault: str) -> None:
    with pytest.raises(BertsmithError, match=fault):
        read(text)


def test_real_sentences(data: Path, small: Callable[..., Bert]) -> None:
    """Rebuilt texts are those that the treebank gives itself."""
    path = data / "ud_english_ewt" / "en_ewt-ud-dev.conllu.xz"
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        lines = [line.rstrip("\n") for line in stream]
    given = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
    found = list(read_treebank(path))
    assert len(found) == len(given) == 2001
    same = sum(
        " ".join(one.text.split()) == " ".join(text.split())
        for one, text in zip(found, given, strict=True)
    )
    assert same >= 0.99 * len(given)
    numbers: HeadNumbers = measure(small(), parsed(small(), found[:40]))
    assert numbers.relations["det"].count > 10
