"""Labels of words, and entities: the tokens' labels are those of `transformers`."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import NFKC

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.spans import trimmed
from bertsmith.tasks.tagging.task import Entity, entities, words
from tasks.models import STEMS, Maker, save, tokenizer

BIO = {"id2label": dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))}
IOBES = {"id2label": dict(enumerate(["O", "B-X", "I-X", "E-X", "S-X", "S-Y"]))}
PLAIN = {"id2label": dict(enumerate(["NOUN", "VERB", "PUNCT"]))}
TEXTS = [
    "Anna Karlsson lives in Uppsala, Sweden (near Kraków).",
    "",
    "   ",
    "  Dr. Miller\tplayed in New-York!  ",
    "e\u0301te\u0301 😀 👍🏽 in Zu\u0308rich.",
    "שלום עולם، مرحبا!",
    "a\0b [SEP] [CLS]",
    "...",
]


@pytest.mark.parametrize("family", STEMS)
def test_words_have_the_label_of_their_first_token(family: str, made: Maker) -> None:
    model = made(family, "ForTokenClassification", **BIO)
    labels = [*BIO["id2label"].values()]
    for text, found in zip(TEXTS, model.ours.tag(TEXTS, words=True), strict=True):
        with torch.no_grad():  # of our ids: transformers reads special tokens in a text
            ids = torch.tensor([model.ours.tokenizer.encode(text).ids])
            scores = model.theirs(input_ids=ids).logits[0].softmax(-1)
        encoding = model.ours.tokenizer.encode(text, special=False)
        for word, (token, *span) in zip(found, words(text, encoding), strict=True):
            assert word.text == text[word.start : word.end] == text[slice(*span)] != ""
            expected = scores[1 + token]
            assert word.label == labels[int(expected.argmax())]
            assert word.score == pytest.approx(float(expected.max()), abs=1e-4)
        ends = [0, *(word.end for word in found)]
        assert all(word.start >= end for word, end in zip(found, ends, strict=False))


@pytest.mark.parametrize("family", STEMS)
@pytest.mark.parametrize("text", TEXTS[:1] + TEXTS[3:4])
def test_words_are_the_same_in_every_family(family: str, text: str) -> None:
    expected = {
        TEXTS[0]: "Anna Karlsson lives in Uppsala , Sweden ( near Kraków ) .",
        TEXTS[3]: "Dr . Miller played in New-York !",
    }[text].split()
    spans = list(words(text, tokenizer(family).encode(text, special=False)))
    found = [text[start:end] for _, start, end in spans]
    if family in ("albert", "deberta-v2"):  # these part at spaces
        assert found == expected
    else:  # these part at punctuation too: New - York
        assert "".join(found) == "".join(expected)
        assert [word for word in expected if word.isalnum()] == [
            word for word in found if word.isalnum() and word not in ("New", "York")
        ]


@pytest.mark.parametrize("family", STEMS)
def test_a_word_begins_with_its_first_token(family: str) -> None:
    """Also where that is a mere space: it is the token that taggers are trained on."""
    text = "x (zq… zq)"
    encoding = tokenizer(family).encode(text, special=False)
    firsts = {text[start:end]: token for token, start, end in words(text, encoding)}
    last = max(token for token, number in enumerate(encoding.words) if number is not None)
    assert firsts[")"] == last
    before = encoding.words.index(encoding.words[firsts["("]])
    assert firsts["("] == before, "the first token of what the tokenizer calls a word"
    spaced = [token for token, start, _ in words(text, encoding) if start == text.rindex("z")]
    assert spaced == [encoding.words.index(encoding.words[spaced[0]])]


def test_tokens_that_share_a_character_are_one_word() -> None:
    text = "in 👍🏽."  # albert's ▁ has no character of its own and claims the next one
    encoding = tokenizer("albert").encode(text, special=False)
    assert encoding.offsets[-3:] == [(3, 4), (3, 5), (5, 6)]
    assert [text[start:end] for _, start, end in words(text, encoding)] == ["in", "👍🏽", "."]
    words_of = copy.deepcopy(tokenizer("bert"))
    words_of.backend.normalizer = NFKC()  # which makes three words of "…"
    text = "a…b ½"
    encoding = words_of.encode(text, special=False)
    assert encoding.offsets.count((1, 2)) == 3
    assert [text[start:end] for _, start, end in words(text, encoding)] == ["a", "…", "b", "½"]


@pytest.mark.parametrize("family", STEMS)
@given(text=st.text(st.sampled_from("aé e\u0301.,(-)😀👍🏽\u200d\n\t شل语"), max_size=25))
@settings(max_examples=60, deadline=None)
def test_words_never_overlap_and_leave_out_no_letter(family: str, text: str) -> None:
    spans = list(words(text, tokenizer(family).encode(text, special=False)))
    done = 0
    for _, start, end in spans:
        assert done <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        assert set(text[done:start]) <= set(" \n\t\u0301\u200d")
        done = end
    assert set(text[done:]) <= set(" \n\t\u0301\u200d")


def test_entities_of_bio_labels(made: Maker) -> None:
    model = made("bert", "ForTokenClassification", **BIO)
    for text, found in zip(TEXTS, model.ours.tag(TEXTS), strict=True):
        alone = entities(text, model.ours.tag(text, words=True)) if text else []
        for one, other in zip(found, alone, strict=True):  # in a batch sums are rounded differently
            assert one.score == pytest.approx(other.score, abs=1e-6)
            assert replace(one, score=0.0) == replace(other, score=0.0)
        assert all(entity.label in ("PER", "LOC") for entity in found)
        assert all(entity.text == text[entity.start : entity.end] for entity in found)


def labelled(text: str, labels: str) -> list[Entity]:
    """Words with labels, for example "Anna/B-PER sings/O"."""
    found, place = [], 0
    for word, label in zip(text.split(), labels.split(), strict=True):
        place = text.index(word, place)
        found.append(Entity(label, word, place, place + len(word), 0.5))
        place += len(word)
    return found


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O O O", []),
        ("B-A I-A O B-A", [("A", "w x"), ("A", "z")]),
        ("B-A B-A I-A I-B", [("A", "w"), ("A", "x y"), ("B", "z")]),
        ("I-A I-A O I-B", [("A", "w x"), ("B", "z")]),
        ("O I-A B-A I-A", [("A", "x"), ("A", "y z")]),
        ("B-A I-A E-A S-A", [("A", "w x y"), ("A", "z")]),
        ("S-A S-A E-A E-A", [("A", "w"), ("A", "x"), ("A", "y"), ("A", "z")]),
        ("B-A L-A U-B I-B", [("A", "w x"), ("B", "y"), ("B", "z")]),
        ("B-A-B I-A-B I-A O", [("A-B", "w x"), ("A", "y")]),
        ("B-A O I-A O", [("A", "w"), ("A", "y")]),
    ],
)
def test_schemes_of_labels(labels: str, expected: list[tuple[str, str]]) -> None:
    text = "w x y z"
    found = entities(text, labelled(text, labels))
    assert [(entity.label, entity.text) for entity in found] == expected
    assert all(text[entity.start : entity.end] == entity.text for entity in found)
    assert all(entity.score == 0.5 for entity in found)


def test_labels_without_a_scheme_give_words(made: Maker) -> None:
    bert = made("roberta", "ForTokenClassification", **PLAIN).ours
    assert bert.tag(TEXTS[0]) == bert.tag(TEXTS[0], words=True) != []
    assert {word.label for word in bert.tag(TEXTS[0])} <= {"NOUN", "VERB", "PUNCT"}
    bert = made("roberta", "ForTokenClassification", **IOBES).ours
    assert {entity.label for entity in bert.tag(TEXTS[0])} <= {"X", "Y"}


# ------------------------------------------------------------------ spans for a reader


class Finder(torch.nn.Module):
    """A head that says I-LOC of chosen token ids, and O of all others."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__()
        self.ids = torch.tensor(ids)

    def forward(self, hidden: Any, batch: Batch, rows: Any = None) -> torch.Tensor:
        wanted = torch.isin(batch.ids, self.ids)
        scores = torch.zeros(len(batch.ids), 5)
        scores[wanted, 4] = scores[~wanted, 0] = 9.0
        return scores


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("family", STEMS)
def test_entities_are_what_a_reader_would_mark(family: str, form: Any, tmp_path: Path) -> None:
    bert = save(tmp_path, family, "ForTokenClassification", **BIO).ours
    word = normalize(form, "Kraków")
    text = normalize(form, "Kraków, (Kraków) 😀\tKraków...  Kraków!?\n")
    known = bert.tokenizer.encode_ids([word, f" {word}", f"({word}", "()😀.,!?", " ("])
    bert.model.heads["tag"] = Finder([*{*known[0], *known[1], *known[2]} - {*known[3], *known[4]}])
    found = bert.tag(text)
    assert [entity.text for entity in found] == [word] * 4
    assert all(text[entity.start : entity.end] == word for entity in found)
    assert all(entity.label == "LOC" for entity in found)


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ("a b c", (1, 3), "b"),
        (" ab ", (0, 4), "ab"),
        ("e\u0301a", (0, 1), "e\u0301"),
        ("e\u0301a", (1, 3), "a"),
        ("a\u0301", (1, 2), ""),
        ("  ", (0, 2), ""),
        ("", (0, 0), ""),
        ("👍\ufe0f x", (0, 1), "👍\ufe0f"),
        ("\0\u200da\u200f", (0, 4), "a"),
    ],
)
def test_trimming(text: str, span: tuple[int, int], expected: str) -> None:
    start, end = trimmed(text, *span)
    assert text[start:end] == expected


# ------------------------------------------------------------------ long texts


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_a_long_text_has_a_label_for_every_word(family: str, made: Maker) -> None:
    model = made(family, "ForTokenClassification", **BIO)
    bert = model.ours
    text = " ".join(f"river{number} flows," for number in range(400))
    before = bert.ledger.counts["long texts read in windows"]
    found = bert.tag(["short", text], words=True)[1]
    assert bert.ledger.counts["long texts read in windows"] == before + 1
    encoding = bert.tokenizer.encode(text, special=False)
    assert [(w.start, w.end) for w in found] == [(s, e) for _, s, e in words(text, encoding)]
    assert "".join(word.text for word in found) == text.replace(" ", "")
    # Far from any seam the label is what the window's own scores say.
    window = bert.windower().single(0, encoding.ids)[1]
    with torch.no_grad():
        scores = model.theirs(torch.tensor([window.ids])).logits[0].softmax(-1)
    middle = (window.tokens.start + window.tokens.stop) // 2
    starts = {token: n for n, (token, _, _) in enumerate(words(text, encoding))}
    checked = [token for token in range(middle - 10, middle + 10) if token in starts]
    assert checked
    for token in checked:
        expected = scores[window.first + token - window.tokens.start]
        assert found[starts[token]].score == pytest.approx(float(expected.max()), abs=1e-4)


def test_windows_change_nothing_for_a_text_that_fits(made: Maker) -> None:
    bert = made("bert", "ForTokenClassification", **BIO).ours
    text = "The river flows. " * 20
    assert len(bert.windower().single(0, bert.tokenizer.encode(text).ids)) == 1
    assert bert.tag(text, words=True) == bert.tag([text, "x"], words=True)[0]


@pytest.mark.parametrize("texts", [5, None, {"a": "b"}, [1], ["a", None], b"a", "\udfff"])
def test_bad_inputs(texts: Any, made: Maker) -> None:
    bert = made("bert", "ForTokenClassification", **BIO).ours
    with pytest.raises(BertsmithError):
        bert.tag(texts)
    assert bert.tag([]) == []
    assert bert.tag("") == []
