"""The lint: every kind of fault is found where it is, and good data has none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.check import CheckReport, Finding, Reader, check, open_reader, quick
from bertsmith.tasks.read import read_data

Rows = list[dict[str, Any]]
Lint = Callable[..., CheckReport]

GOOD: Rows = [{"text": f"text number {n} of many", "label": "ab"[n % 2]} for n in range(40)]
GOOD_DEV: Rows = [{"text": f"another text, {n}", "label": "ab"[n % 2]} for n in range(10)]


@pytest.fixture
def lint(tmp_path: Path) -> Lint:
    """Write splits to files, read them and check them."""

    def run(task: str | None = None, reader: Any = None, **splits: Rows) -> CheckReport:
        read = {}
        for name, rows in splits.items():
            path = tmp_path / f"{name}.jsonl"
            path.write_text("\n".join(map(json.dumps, rows)))
            read[name] = read_data(path, task)
        return check(read, reader)

    return run


def only(report: CheckReport, code: str) -> Finding:
    """The one finding of a kind; and it is about nothing else."""
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) == 1, [finding.line() for finding in report.findings]
    return found[0]


def lines(finding: Finding) -> list[int]:
    return [place.number for place in finding.where]


def test_good_data(lint: Lint) -> None:
    report = lint(train=GOOD, dev=GOOD_DEV)
    assert report.findings == []
    assert report.counts == {"train": {"a": 20, "b": 20}, "dev": {"a": 5, "b": 5}}
    assert (report.lengths["train"].unit, report.lengths["train"].longest) == ("words", 5)
    report.refuse()


def test_empty_texts(lint: Lint) -> None:
    finding = only(lint(train=[*GOOD, {"text": " ", "label": "a"}]), "empty-text")
    assert (finding.severity, finding.count, lines(finding)) == ("warning", 1, [41])
    nothing = [{"text": "", "label": label} for label in "ab"]
    assert only(lint(train=nothing), "empty-text").severity == "error"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("caf� noir", "replacement"),
        ("cafÃ© noir", "mojibake"),
        ("itâ€™s", "mojibake"),
        ("a\x00b", "control"),
        ("good.<br /><br />Bad", "markup"),
    ],
)
def test_broken_texts(text: str, code: str, lint: Lint) -> None:
    assert lines(only(lint(train=[*GOOD, {"text": text, "label": "a"}]), code)) == [41]


def test_proper_accents_are_not_broken(lint: Lint) -> None:
    fine = "Ça va, São Paulo à Âge â «Ö» naïve café x < y <3"
    assert lint(train=[*GOOD, {"text": fine, "label": "a"}]).findings == []


def test_missing_labels(lint: Lint) -> None:
    report = lint(train=[*GOOD, {"text": "x", "label": ""}], test=[{"text": "y", "label": -1}])
    assert lines(only(report, "missing-label")) == [41]
    assert only(report, "no-labels").severity == "note"
    assert report.errors == []
    dev = lint(train=GOOD, dev=[{"text": "y", "label": -1}])
    assert only(dev, "no-labels").severity == "error"


def test_one_class_only(lint: Lint) -> None:
    report = lint(train=[{"text": str(n), "label": "x"} for n in range(9)])
    assert only(report, "one-class").severity == "error"
    with pytest.raises(BertsmithError, match="line 1: train: every example is 'x'; training"):
        report.refuse()


def test_lopsided_and_rare(lint: Lint) -> None:
    rows = [{"text": str(n), "label": "x" if n else "y"} for n in range(30)]
    report = lint(train=rows)
    assert "96.7% of the examples are 'x'" in only(report, "lopsided").what
    assert lines(only(report, "rare-label")) == [1]
    assert report.errors == []


def test_labels_only_in_dev(lint: Lint) -> None:
    report = lint(train=GOOD, dev=[*GOOD_DEV, {"text": "z", "label": "c"}])
    finding = only(report, "unseen-label")
    assert (finding.severity, lines(finding)) == ("error", [11])
    with pytest.raises(BertsmithError, match=r"dev.jsonl, line 11: dev: 1 example with"):
        report.refuse()
    few = lint(train=GOOD, dev=[row for row in GOOD_DEV if row["label"] == "a"])
    assert only(few, "unasked-label").severity == "note"


def test_several_labels(lint: Lint) -> None:
    rows = [{"text": f"text {n}", "labels": ["a"] if n % 2 else ["a", "b"]} for n in range(20)]
    again = {"text": "text 1", "labels": ["a", "b"]}
    report = lint(train=[*rows, again], dev=[{"text": "x", "labels": ["a", "c"]}])
    assert report.counts["train"] == {"a": 21, "b": 11}
    assert lines(only(report, "unseen-label")) == [1]
    assert lines(only(report, "contradiction")) == [21]
    same = lint(train=[*rows, {"text": "text 0", "labels": ["b", "a"]}])  # in another order
    assert {finding.code for finding in same.findings} == {"duplicate"}


def test_spelling_of_labels(lint: Lint) -> None:
    rows = [
        {"text": str(n), "label": ["Good", "good", "bad", "-1", "+1", "1"][n % 6]}
        for n in range(60)
    ]
    assert "Good, good" in only(lint(train=rows), "label-spelling").what


@pytest.mark.parametrize("slip", ["techncal", "tehcnical", "techmical", "ttechnical"])
def test_misspelled_labels(slip: str, lint: Lint) -> None:
    labels = ["technical", "billing"] * 12 + [slip]
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    finding = only(lint(train=rows), "label-spelling")
    assert finding.what == f"possibly the same label: {slip} (1), technical"
    assert lines(finding) == [25]


@pytest.mark.parametrize(
    ("common", "other"),
    [
        *(("technical", name) for name in ("untechnical", "technical2", "teknikal", "tech")),
        *(("topic12", "topic21"), ("10001", "10010"), ("class_a", "class_b"), ("mood a", "mood b")),
    ],
)
def test_labels_that_are_only_similar(common: str, other: str, lint: Lint) -> None:
    labels = [common, "billing"] * 12 + [other]
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    assert "label-spelling" not in {finding.code for finding in lint(train=rows).findings}
    often = [{"text": f"text {n}", "label": ["typical", "atypical"][n % 2]} for n in range(30)]
    assert "label-spelling" not in {finding.code for finding in lint(train=often).findings}


def test_repeats_and_contradictions(lint: Lint) -> None:
    rows = [*GOOD, {**GOOD[0], "text": "Text  NUMBER 0 of many"}, {**GOOD[1], "label": "a"}]
    report = lint(train=rows)
    assert lines(only(report, "duplicate")) == [41, 42]
    assert lines(only(report, "contradiction")) == [42]


def test_leaks(lint: Lint) -> None:
    report = lint(train=GOOD, dev=[*GOOD_DEV, GOOD[3]], test=GOOD[:4])
    leaks = {finding.what: finding for finding in report.findings if finding.code == "leak"}
    assert [(f.severity, f.count) for f in leaks.values()] == [
        ("error", 4),  # all of test
        ("warning", 1),
        ("warning", 1),
    ]
    assert "test: 4 examples also in train (100.0%)" in leaks


def test_empty_texts_are_not_the_same_text(lint: Lint) -> None:
    rows = [{"text": text, "label": label} for text, label in [("", "a"), (" ", "b")]]
    report = lint(train=[*GOOD, *rows], dev=[*GOOD_DEV, *rows])
    assert {finding.code for finding in report.findings} == {"empty-text"}
    asked = {"id": "a", "question": "why?", "context": " ", "answers": []}
    report = lint(train=[asked], dev=[{**asked, "id": "b", "question": "how?"}])
    assert "passage-leak" not in {finding.code for finding in report.findings}


def test_passages_in_two_splits(lint: Lint) -> None:
    def asked(name: str, passage: str) -> dict[str, Any]:
        return {"id": name, "question": f"{name}?", "context": passage, "answers": "one"}

    train, dev = (
        [asked("a", "one two"), asked("b", "one")],
        [asked("c", "One two"), asked("d", "one 4")],
    )
    assert lines(only(lint(train=train, dev=dev), "passage-leak")) == [1]


def test_labels_in_their_texts(lint: Lint) -> None:
    rows = [
        {"text": f"{label}: number {n}", "label": label}
        for n in range(20)
        for label in ("sports", "politics")
    ]
    assert only(lint(train=rows), "label-in-text").count == 40
    fine = [{**row, "text": row["text"].partition(":")[2]} for row in rows]
    assert "label-in-text" not in {finding.code for finding in lint(train=fine).findings}


def test_scores(lint: Lint) -> None:
    train = [{"text": str(n), "score": n / 10} for n in range(10)]
    report = lint(
        "regression", train=train, dev=[{"text": "x", "score": 5}, {"text": "y", "score": 0.5}]
    )
    assert lines(only(report, "score-range")) == [1]
    flat = lint("regression", train=[{"text": str(n), "score": 2} for n in range(5)])
    assert only(flat, "one-score").severity == "error"


def test_choices(lint: Lint) -> None:
    rows = [{"ctx": f"p{n}", "endings": ["a", "b", f"c{n}"], "label": 2} for n in range(30)]
    rows += [{"ctx": "q", "endings": ["a", "a"], "label": 0}]
    report = lint(train=rows)
    assert "96.8% of the correct choices are number 3" in only(report, "choice-place").what
    assert lines(only(report, "same-choice")) == [31]
    assert only(report, "choice-count").severity == "note"


def test_broken_tags(tmp_path: Path) -> None:
    good = "Ada B-PER\nLovelace I-PER\nran O\n\n"
    (tmp_path / "a.conll").write_text(good * 20 + "the O\nUnited I-ORG\nNations I-ORG\n")
    report = check({"train": read_data(tmp_path / "a.conll")})
    finding = only(report, "broken-tags")
    assert (finding.severity, finding.count) == ("error", 1)
    assert lines(finding) == [82]  # the word, not the sentence
    assert "I-ORG after O: no entity of this type before it" in finding.what
    (tmp_path / "b.conll").write_text(good * 200 + "the O\nUnited I-ORG\n")
    assert only(check({"train": read_data(tmp_path / "b.conll")}), "broken-tags").severity == (
        "warning"
    )


def test_schemes_of_splits(tmp_path: Path, lint: Lint) -> None:
    (tmp_path / "a.conll").write_text("Ada B-PER\nLovelace I-PER\n")
    (tmp_path / "b.conll").write_text("Ada B-PER\nLovelace E-PER\n")
    (tmp_path / "c.conll").write_text("nobody O\n")
    train, other, empty = (read_data(tmp_path / f"{name}.conll") for name in "abc")
    finding = only(check({"train": train, "dev": other}), "schemes")
    assert (finding.severity, "train is bio, dev is iobes" in finding.what) == ("error", True)
    assert "schemes" not in {f.code for f in check({"train": train, "dev": empty}).findings}
    numbers = lint(train=[{"tokens": ["a", "b"], "ner_tags": [0, 1]}] * 5)
    assert "label names" in only(numbers, "numbered-tags").advice


def test_answers(lint: Lint) -> None:
    def asked(name: str, answer: str) -> dict[str, Any]:
        passage = f"one two {name}"
        return {"id": name[0], "question": f"{name}?", "context": passage, "answers": answer}

    report = lint(
        train=[asked("a", "one"), asked("b", "three"), asked("c", ""), asked("a2", "two")]
    )
    assert lines(only(report, "lost-answer")) == [2]
    assert lines(only(report, "same-id")) == [1, 4]
    assert "25.0%" in only(report, "no-answer").what


def test_files_of_two_tasks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "b.conll").write_text("a O\n")
    splits = {"train": read_data(tmp_path / "a.csv"), "dev": read_data(tmp_path / "b.conll")}
    with pytest.raises(BertsmithError, match=r"for different tasks: .* classification, .* tagging"):
        check(splits)
    with pytest.raises(BertsmithError, match="no training data"):
        check({"dev": splits["dev"]})


# ------------------------------------------------------------------ against a model


@pytest.fixture
def reader(model: Path) -> Any:
    return open_reader(model)


def test_lengths_in_tokens(lint: Lint, reader: Any) -> None:
    assert reader.limit == 64
    long = "the river " * 40
    rows = [*GOOD, {"text": long, "label": "a"}]
    report = lint(reader=reader, train=rows)
    finding = only(report, "long")
    assert (finding.severity, lines(finding)) == ("note", [41])
    seen = report.lengths["train"]
    ids = reader.tokenizer.encode(long).ids
    assert (seen.unit, seen.longest, seen.limit, seen.beyond) == ("tokens", len(ids), 64, 1)


def test_pairs_that_no_window_can_hold(lint: Lint, reader: Any) -> None:
    long = "the river " * 40
    rows = [{"sentence1": f"a {n}", "sentence2": "b", "label": n % 2} for n in range(20)]
    rows += [
        {"sentence1": "short", "sentence2": long, "label": 0},
        {"sentence1": long, "sentence2": "short", "label": 0},
    ]
    report = lint(reader=reader, train=rows)
    assert lines(only(report, "long")) == [21]  # and no example is said to be both
    assert lines(only(report, "too-long")) == [22]
    choices = [{"ctx": long, "endings": ["a", "b"], "label": 0}]
    assert only(lint(reader=reader, train=choices), "too-long").severity == "error"


def test_similar_texts_are_read_one_by_one(lint: Lint, reader: Any) -> None:
    half = "the river " * 20
    rows = [{"sentence1": f"{half}{n}", "sentence2": f"{n} {half}", "score": n} for n in range(5)]
    codes = {finding.code for finding in lint("similarity", reader, train=rows).findings}
    assert codes == set()
    assert only(lint("regression", reader, train=rows), "long").count == 5


def test_a_language_that_the_model_does_not_know(lint: Lint, reader: Any) -> None:
    rows = [{"text": f"{n} 東京は日本の首都です", "label": n % 2} for n in range(20)]
    assert only(lint(reader=reader, train=rows), "unknown-tokens").severity == "warning"


class Letters:
    """A tokenizer that knows short words, and letters."""

    size, unk_id = 5000, None

    def encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [
            [0] * sum(len(word) if len(word) > 5 else 1 for word in text.split()) for text in texts
        ]

    def special_count(self, pair: bool) -> int:
        return 2


def test_shattered_words(lint: Lint) -> None:
    reader = Reader(Letters(), 64)  # type: ignore[arg-type]
    known = [{"text": f"the cat sat {n}", "label": "ab"[n % 2]} for n in range(10)]
    assert lint(reader=reader, train=known).findings == []
    strange = [{"text": f"Donaudampfschiff {n} x y z", "label": "ab"[n % 2]} for n in range(10)]
    finding = only(lint(reader=reader, train=strange), "shattered-words")
    assert finding.what == (
        "train: 20% of the words are split into letters (4.0 tokens per word): Donaudampfschiff"
    )
    # What is between two spaces of a Chinese text is no word.
    chinese = [{"text": "我住在北京市朝阳区，天气很好。", "label": "ab"[n % 2]} for n in range(10)]
    rules = {one.code for one in lint(reader=reader, train=chinese).findings}
    assert "shattered-words" not in rules


GERMAN = (
    "Gestern haben wir lange auf den Zug gewartet, weil niemand wusste, wann er ankommen würde. "
    "Die Mannschaft konnte trotz vieler Versuche nicht mehr gewinnen und verlor deutlich. "
    "Wer sein Konto sperren möchte, sollte sofort anrufen und die geheime Nummer ändern lassen."
)
FRENCH = (
    "Nous avons longtemps attendu le train parce que personne ne savait quand il arriverait. "
    "Malgré plusieurs tentatives, cette équipe n'a jamais réussi à gagner pendant la saison. "
    "Pour bloquer votre carte bancaire, appelez immédiatement notre service et changez votre code."
)
GREEK = "Χθες περιμέναμε πολλή ώρα το τρένο επειδή κανείς δεν ήξερε πότε έρχεται στον σταθμό. " * 2
ENGLISH = (
    "yesterday we waited a long time for the train because nobody knew when it would arrive. "
    "lol that team couldn't win a single match this season, what a waste of everyone's money "
    "please tell me how to freeze my card, somebody changed the passcode without permission"
)


def test_a_language_that_is_not_in_the_vocabulary(lint: Lint) -> None:
    """English models warn of German, French and Greek, and of no kind of English."""
    reader = open_reader("bertsmith-small")
    for text in (GERMAN, FRENCH, GREEK):
        rows = [{"text": f"{text} {n}", "label": "ab"[n % 2]} for n in range(6)]
        finding = only(lint(reader=reader, train=rows), "wrong-language")
        assert finding.severity == "warning"
        assert "of the plain words are not in the model's vocabulary" in finding.what
        assert any(
            "wrong-language" in line or "language" in line
            for line in quick({"train": read_data(rows)}, reader)
        )
    rows = [{"text": f"{ENGLISH} {n}", "label": "ab"[n % 2]} for n in range(6)]
    assert "wrong-language" not in {one.code for one in lint(reader=reader, train=rows).findings}


class Multilingual:
    """A vocabulary of several alphabets, in which no word of a text is whole."""

    size, unk_id = 9000, None

    def __init__(self, *words: str) -> None:
        self.backend = self
        self.words = words

    def encode_ids(self, texts: list[str]) -> list[list[int]]:
        return [[0] * (len(text) // 2) for text in texts]

    def decode_batch(self, ids: list[list[int]]) -> list[str]:
        return [self.words[number % len(self.words)] for (number,) in ids]

    def special_count(self, pair: bool) -> int:
        return 2


def test_multilingual_vocabularies_do_not_warn(lint: Lint) -> None:
    rows = [{"text": f"{GERMAN} {n}", "label": "ab"[n % 2]} for n in range(6)]
    for words, expected in ((("und", "слово", "λέξη"), set()), (("and", "or"), {"wrong-language"})):
        reader = Reader(Multilingual(*words), 640)  # type: ignore[arg-type]
        codes = {one.code for one in lint(reader=reader, train=rows).findings}
        assert codes & {"wrong-language"} == expected


def test_scripts_without_spaces_are_judged_by_their_characters(lint: Lint) -> None:
    rows = [
        {"text": f"我住在北京市朝阳区，今天天气很好。{n}", "label": "ab"[n % 2]} for n in range(9)
    ]

    class Characters(Multilingual):
        def encode_ids(self, texts: list[str]) -> list[list[int]]:
            return [[0] * len(text) for text in texts]

    reader = Reader(Characters("我"), 64)  # type: ignore[arg-type]
    assert "wrong-language" not in {one.code for one in lint(reader=reader, train=rows).findings}
    assert only(lint(reader=open_reader("bertsmith-small"), train=rows), "wrong-language")


@pytest.mark.parametrize("missing", ["n/a", "N/A", "NULL", "#N/A"])
def test_a_label_that_says_there_is_none(missing: str, lint: Lint) -> None:
    """In any format; the names of classes may say otherwise."""
    rows = [{"text": f"a text {n}", "label": ("a", "b", missing)[n % 3]} for n in range(30)]
    dataset = read_data(rows)
    assert dataset.labels == ("a", "b")
    assert only(lint(train=rows), "missing-label").count == 10
    named = [{**row, "label": n % 3} for n, row in enumerate(rows)]
    assert read_data(named, label_names=("a", "b", missing)).labels == tuple(
        sorted(("a", "b", missing))
    )


def test_labels_that_may_say_there_is_none(lint: Lint) -> None:
    rows = [{"text": f"a text {n}", "label": ("a", "b", "None")[n % 3]} for n in range(30)]
    finding = only(lint(train=rows), "label-missing-value")
    assert (finding.severity, finding.count) == ("warning", 10)
    assert any(
        "'None', which is read as a class" in line for line in quick({"train": read_data(rows)})
    )


def test_imbalance_and_quick_warnings() -> None:
    rows = [(f"text number {n} of many", "b" if n % 23 == 0 else "ac"[n % 2]) for n in range(230)]
    dataset = read_data(rows)
    (line,) = quick({"train": dataset, "dev": None})
    assert line == (
        "train: 'a' has 11 times as many examples as 'b'; "
        "look at macro F1, or train with balanced class weights"
    )
    (first, *_) = quick({"train": dataset, "dev": dataset})
    assert first.startswith("error: ")
    assert "also in train" in first
    assert quick({}) == []
