"""Decontamination: planted benchmark texts are found, and none that are not there."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.corpus import Corpus, Manifest, add, prepare
from bertsmith.corpus.overlap import WordNumbers, _ngram_hashes
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import WORDS, documents, files, write
from sampled import sampled

Texts = list[str]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choices(WORDS, k=length))


def runs(text: str, size: int) -> set[tuple[str, ...]]:
    """All runs of words, by the plainest of means."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[n : n + size]) for n in range(len(words) - size + 1)}


def test_exactly_the_documents_that_share_a_run_are_found(words: Tokenizer, tmp_path: Path) -> None:
    """Against a search with sets of words, with planted texts and texts that nearly are."""
    rng = random.Random(0)
    tests = [sentence(rng, rng.choice([3, 8, 10, 12, 13, 20, 40])) for _ in range(300)]
    given = documents(400, seed=1)
    for number, text in enumerate(tests[:120]):
        document = given[3 * number]
        planted = text.split()
        if number % 4 == 1 and len(planted) >= 13:  # one word less than is looked for
            start = rng.randrange(len(planted) - 11)
            planted = planted[start : start + 12]
        elif number % 4 == 2:  # a word in its middle is another
            planted[len(planted) // 2] = "zebra"
        elif number % 4 == 3:  # over two lines, with other case and punctuation
            planted = [word.upper() + rng.choice(["", ",", " --", "\n"]) for word in planted]
        document.insert(rng.randrange(len(document) + 1), "Well, " + " ".join(planted) + ".")
    given = [[line for text in one for line in text.split("\n")] for one in given]
    (tmp_path / "test.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(tests))
    )
    by_text = [runs(text, min(13, len(text.split()))) for text in tests if len(text.split()) >= 8]
    every = set().union(*by_text)
    sizes = sorted({len(run) for run in every})
    held = [set().union(*(runs(" ".join(one), size) for size in sizes)) & every for one in given]
    clean = [one for one, shared in zip(given, held, strict=True) if not shared]
    contained = sum(any(own & shared for shared in held) for own in by_text)
    assert 60 < contained < 120

    source = write(tmp_path / "source.txt", given)
    options: dict[str, Any] = {"held_out": 0, "piece_bytes": 9000, "workers": 0}
    found = prepare(
        [source], words, tmp_path / "out", decontaminate=tmp_path / "test.jsonl", **options
    )
    prepare([write(tmp_path / "clean.txt", clean)], words, tmp_path / "clean", **options)
    assert found.splits == Manifest.read(tmp_path / "clean").splits
    left, shared = len(given) - len(clean), "13 words in a row (or a whole text of fewer)"
    assert found.ledger[f"documents with {shared} of test.jsonl, left out"] == left
    assert found.ledger["texts of test.jsonl that documents contain"] == contained
    short = sum(len(text.split()) < 8 for text in tests)
    assert found.ledger["texts of test.jsonl too short to look for"] == short

    counted = prepare(
        [source], words, tmp_path / "counted", contaminated="count",
        decontaminate=[tmp_path / "test.jsonl"], **options,
    )  # fmt: skip
    assert counted.ledger[f"documents with {shared} of test.jsonl, kept"] == left
    assert counted.splits["train"].documents == len(given)


@pytest.mark.parametrize("workers", sampled([0, 1, 2], {2}))
def test_engines_agree_and_additions_are_searched_too(
    words: Tokenizer, tmp_path: Path, workers: int
) -> None:
    rng, given = random.Random(3), documents(200)
    tests = [sentence(rng, 20) for _ in range(10)]
    for number, text in enumerate(tests):
        given[10 * number].append(text)
    (tmp_path / "test.txt").write_text("\n".join(tests))
    first = write(tmp_path / "a.txt", given)
    second = write(tmp_path / "b.txt", [*documents(20, 5), [tests[0]]])
    options: dict[str, Any] = {"piece_bytes": 5000, "decontaminate": [str(tmp_path / "test.txt")]}
    prepare([first], words, tmp_path / "none", workers=0, **options)
    prepare([first], words, tmp_path / "some", workers=workers, **options)
    assert files(tmp_path / "some") == files(tmp_path / "none")
    added = add([second], tmp_path / "some", workers=workers)
    assert added.added == 20
    assert added.ledger["documents with 13 words in a row of test.txt, left out"] == 1
    (tmp_path / "test.txt").write_text("\n".join(tests[1:]))
    with pytest.raises(BertsmithError, match="started with other texts to look for"):
        prepare([first], words, tmp_path / "some", workers=0, **options)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.parquet", "a.txt"])
def test_texts_of_every_kind_of_file(words: Tokenizer, tmp_path: Path, name: str) -> None:
    rng = random.Random(1)
    text, other = sentence(rng, 9), sentence(rng, 15)
    if name == "a.parquet":
        import pyarrow
        from pyarrow import parquet

        table = {"n": [1, 2], "qa": [{"question": text}, {"question": other}]}
        parquet.write_table(pyarrow.table(table), tmp_path / name)
    else:
        rows = {
            "a.csv": f'label,text\n1,"{text}"\n0,"{other}"\n',
            "a.tsv": f"text\tlabel\n{text}\t1\n{other}\t0\n",
            "a.json": json.dumps({"data": [{"paragraphs": [{"context": text}, other]}]}),
            "a.jsonl": json.dumps({"t": [text]}) + "\n" + json.dumps(other) + "\n",
            "a.txt": f"{text}\n{other}\n",
        }
        (tmp_path / name).write_text(rows[name])
    source = write(tmp_path / "s.txt", [[text], [f"so {other} then"], [text[:-4]], ["a b c d"]])
    found = prepare(
        [source], words, tmp_path / "out", workers=0, held_out=0, decontaminate=tmp_path / name
    )
    assert Corpus.open(tmp_path / "out").documents == 2
    assert found.ledger[f"texts of {name} that documents contain"] == 2


def test_runs_are_hashed_by_their_words_alone() -> None:
    """Equal runs have equal hashes wherever they are; others differ, also in another order."""
    draw, numbers = random.Random(2), WordNumbers()
    row = [draw.choice("abcdefg") for _ in range(3000)]
    words = numbers.of(" ".join(row))
    for size in (5, 13):
        keys, checks = _ngram_hashes(words, size)
        grams = [tuple(row[n : n + size]) for n in range(len(row) - size + 1)]
        assert len(set(keys.tolist())) == len(set(checks.tolist())) == len(set(grams))
        later, _ = _ngram_hashes(words[1000:], size)
        assert (later == keys[1000:]).all()
    assert len(_ngram_hashes(words[:3], 5)[0]) == 0
    thai, same = numbers.of("ภาษาไทย ok"), numbers.of("ภ า ษ า ไ ท ย OK!")
    assert (thai == same).all()
    assert np.unique(thai).size == 7


def test_mistakes(words: Tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", documents(5))

    def fault(name: str, content: bytes, **options: Any) -> str:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BertsmithError) as caught:
            prepare([source], words, tmp_path / "out", decontaminate=tmp_path / name, **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out" / "plan.json").exists()
        return str(caught.value)

    assert "no text of 8 words to look for" in fault("t.txt", b"one two three\n")
    assert "t.json: cannot be read" in fault("t.json", b"{")
    assert "not UTF-8" in fault("t.csv", b"caf\xe9 and so on\n")
    assert "t.parquet: cannot be read" in fault("t.parquet", b"no")
    assert "overlap must be from 5 to 100" in fault("t.txt", b"x", overlap=2)
    assert "contaminated can be remove or count" in fault("t.txt", b"x", contaminated="keep")
    with pytest.raises(BertsmithError, match=r"none\.txt"):
        prepare([source], words, tmp_path / "out", decontaminate=tmp_path / "none.txt")
