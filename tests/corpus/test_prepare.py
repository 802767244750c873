"""What goes into the shards: every sentence of every document, once, as its tokenizer has it."""

from __future__ import annotations

import json
import lzma
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencex

from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import Document, as_text, documents, files, pack, shards, write
from slow.fuzz_tokenizers import unpack

PACKED = ["", ".gz", ".xz", ".zst"]


def stored(folder: Path, split: str = "train") -> list[list[list[int]]]:
    """The ids of every sentence of every document."""
    corpus = Corpus.open(folder, split, check=True)
    starts, ends = corpus.sentence_starts, corpus.document_sentences
    row = corpus.gather(np.array([0]), np.array([corpus.tokens])).tolist()
    return [
        [row[starts[s] : starts[s + 1]] for s in range(first, last)]
        for first, last in pairwise(ends)
    ]


def expected(given: list[Document], words: Tokenizer) -> list[list[list[int]]]:
    """The same by the simplest means."""
    split = [
        [part.strip() for line in document for part in sentencex.segment("en", line)]
        for document in given
    ]
    return [words.encode_ids(sentences) for sentences in split]


def test_every_sentence_is_stored_once_and_in_order(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(50)
    source = write(tmp_path / "a.txt", given)
    made = prepare([source], words, tmp_path / "out", held_out=0, workers=0, piece_bytes=3000)
    found = stored(tmp_path / "out")
    assert found == expected(given, words)
    assert made.splits["train"].documents == 50
    assert made.splits["train"].sentences == sum(map(len, found))
    assert made.splits["train"].tokens == sum(len(s) for d in found for s in d)
    assert made.ledger["documents read"] == 50


@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
@pytest.mark.parametrize("packed", PACKED)
def test_kinds_of_files(kind: str, packed: str, words: Tokenizer, tmp_path: Path) -> None:
    given = documents(30)
    source = write(tmp_path / f"a{kind}{packed}", given)
    prepare([source], words, tmp_path / "out", held_out=0, workers=0, piece_bytes=2000)
    assert stored(tmp_path / "out") == expected(given, words)


def test_parquet(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(600)
    source = write(tmp_path / "a.parquet", given)
    prepare([source], words, tmp_path / "out", held_out=0, workers=0, piece_bytes=20_000)
    assert stored(tmp_path / "out") == expected(given, words)


def test_folders_are_read_in_order_of_names(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(40)
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    write(folder / "a.txt.xz", given[:10])
    write(folder / "b.jsonl.gz", given[10:20])
    write(folder / "deep" / "a.parquet", given[20:30])
    write(folder / "z.txt", given[30:])
    (folder / "notes.html").write_text("not a document")
    (folder / ".hidden" / "a.txt").write_text("not seen")
    made = prepare(folder, words, tmp_path / "out", held_out=0, workers=0)
    assert stored(tmp_path / "out") == expected(given, words)
    assert made.ledger["files of other kinds, left out"] == 1
    assert json.loads((tmp_path / "out" / "ledger.json").read_text()) == made.ledger


def test_a_file_is_one_document(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(6)
    (tmp_path / "in").mkdir()
    for name, part in {"a.txt": given[:2], "b.md.gz": given[2:4], "c.jsonl": given[4:]}.items():
        write(tmp_path / "in" / name, part)
    prepare(tmp_path / "in", words, tmp_path / "out", held_out=0, workers=0, documents="files")
    joined = [given[0] + given[1], given[2] + given[3], *given[4:]]
    assert stored(tmp_path / "out") == expected(joined, words)
    with pytest.raises(BertsmithError, match="started with documents files, not blank-lines"):
        prepare(tmp_path / "in", words, tmp_path / "out", held_out=0, workers=0)
    with pytest.raises(BertsmithError, match="documents can be blank-lines or files, not 'lines'"):
        prepare(tmp_path / "in", words, tmp_path / "other", documents="lines")


def test_a_folder_of_an_older_version_is_taken_as_it_is(words: Tokenizer, tmp_path: Path) -> None:
    source, out = write(tmp_path / "a.txt", documents(6)), tmp_path / "out"
    prepare([source], words, out, held_out=0, workers=0)
    plan = json.loads((out / "plan.json").read_text())
    del plan["settings"]["documents"]
    (out / "plan.json").write_text(json.dumps(plan))
    assert prepare([source], words, out, held_out=0, workers=0).splits["train"].documents == 6


def test_line_ends_marks_and_blank_lines(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(8)
    text = "\ufeff\r\n \r\n" + as_text(given).replace("\n\n", "\n \t\n\n\n").replace("\n", "\r\n")
    (tmp_path / "a").write_bytes(text.encode())
    prepare([tmp_path / "a"], words, tmp_path / "out", held_out=0, workers=0, piece_bytes=300)
    assert stored(tmp_path / "out") == expected(given, words)


def test_lines_as_sentences(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(9)
    source = write(tmp_path / "a.txt", given)
    prepare([source], words, tmp_path / "out", held_out=0, workers=0, sentences="lines")
    assert stored(tmp_path / "out") == [words.encode_ids(document) for document in given]


def test_other_fields_and_nothing_in_them(words: Tokenizer, tmp_path: Path) -> None:
    rows = [{"body": "One two."}, {"body": None}, {"body": " \n "}, {"body": "Half \ud800 pair."}]
    source = tmp_path / "a.jsonl"
    source.write_text("\n\n".join(map(json.dumps, rows)))
    made = prepare([source], words, tmp_path / "out", held_out=0, workers=0, text_field="body")
    assert made.splits["train"].documents == 2
    assert made.ledger["records without a text (null), left out"] == 1
    assert made.ledger["empty documents, left out"] == 1
    assert made.ledger["documents with halves of surrogate pairs, replaced"] == 1


def test_sentences_without_a_token_are_left_out(words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The river.\n\x01\x02\nThe town.\n\n\x03\n\nThe hall.\n")
    made = prepare([tmp_path / "a.txt"], words, tmp_path / "out", held_out=0, workers=0)
    assert [len(document) for document in stored(tmp_path / "out")] == [2, 1]
    assert made.ledger["sentences without a token, left out"] == 2
    assert made.ledger["documents without a token, left out"] == 1


def test_unknown_tokens_are_counted(words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The 漢 river 漢字.\n")
    made = prepare([tmp_path / "a.txt"], words, tmp_path / "out", held_out=0, workers=0)
    assert made.ledger["unknown tokens"] == 3


def test_large_vocabularies_are_stored_in_four_bytes(words: Tokenizer, tmp_path: Path) -> None:
    words.save(tmp_path / "many")
    content = json.loads((tmp_path / "many" / "tokenizer.json").read_text("utf-8"))
    content["model"]["vocab"] |= {f"zz{n}": n for n in range(words.size, 70_000)}
    (tmp_path / "many" / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    (tmp_path / "a.txt").write_text("The river zz69999.\n")
    prepare([tmp_path / "a.txt"], tmp_path / "many", tmp_path / "out", held_out=0, workers=0)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.manifest.dtype == "<u4"
    assert 69_999 in corpus.gather(np.array([0]), np.array([corpus.tokens]))


def test_real_text(data: Path, tmp_path: Path) -> None:
    """Two megabytes of Wikipedia with the official vocabulary, sentence by sentence."""
    official = Tokenizer.load(unpack("bert-uncased", tmp_path))
    with lzma.open(data / "corpus_enwiki_extract" / "corpus_enwiki_extract-002.txt.xz") as stream:
        text = stream.read(2_000_000).decode("utf-8", errors="ignore")
    (tmp_path / "a.txt").write_text(text, "utf-8")
    prepare([tmp_path / "a.txt"], official, tmp_path / "out", held_out=0, workers=2)
    given = [part.split("\n") for part in text.split("\n\n")]
    assert stored(tmp_path / "out") == expected(given, official)


# ------------------------------------------------------------------ filters and repair


def test_lengths(words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join("a" * n for n in (3, 4, 5, 6, 7)))
    made = prepare(
        [tmp_path / "a.txt"],
        words,
        tmp_path / "out",
        held_out=0,
        workers=0,
        min_length=4,
        max_length=6,
    )
    assert made.splits["train"].documents == 3
    assert made.ledger["documents shorter than 4 characters, left out"] == 1
    assert made.ledger["documents longer than 6 characters, left out"] == 1


def test_languages(words: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    english = "The old lighthouse keeper writes a letter to his daughter every Sunday."
    french = "Le vieux gardien du phare écrit une lettre à sa fille tous les dimanches."
    (tmp_path / "a.txt").write_text(f"{english}\n\n{french}\n\n{english}\n", "utf-8")
    for language, count in (("en", 2), ("fr", 1)):
        out = tmp_path / language
        made = prepare([tmp_path / "a.txt"], words, out, held_out=0, workers=0, language=language)
        assert made.splits["train"].documents == count
        assert made.ledger[f"documents not in the language {language}, left out"] == 3 - count


def test_repair(words: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("ftfy")
    (tmp_path / "a.txt").write_text("The mayor of KrakÃ³w.\n\nThe river.\n", "utf-8")
    out = tmp_path / "out"
    made = prepare([tmp_path / "a.txt"], words, out, held_out=0, workers=0, repair=True)
    assert stored(tmp_path / "out")[0] == words.encode_ids(["The mayor of Kraków."])
    assert made.ledger["documents whose Unicode was repaired"] == 1


# ------------------------------------------------------------------ the same whoever does it


def test_workers_and_pieces_change_nothing(words: Tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", documents(300))
    options = {"held_out": 0.1, "shard_tokens": 3000, "duplicates": "exact"}
    for workers in (0, 1, 3):
        out = tmp_path / str(workers)
        prepare([source], words, out, workers=workers, piece_bytes=4000, **options)
    whole = files(tmp_path / "0")
    assert len([name for name in whole if "tokens-" in name]) > 5
    assert files(tmp_path / "1") == whole
    assert files(tmp_path / "3") == whole
    prepare([source], words, tmp_path / "large", workers=0, **options)
    assert shards(tmp_path / "large") == shards(tmp_path / "0")


def test_held_out_documents_depend_on_their_text_alone(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(200)
    for name, order in (("a", given), ("b", given[::-1] + given[:50])):
        source = write(tmp_path / f"{name}.txt", order)
        prepare([source], words, tmp_path / name, held_out=0.3, workers=0)
    held, trained = (
        [{repr(d) for d in stored(tmp_path / n, split)} for n in "ab"]
        for split in ("held_out", "train")
    )
    assert held[0] == held[1]
    assert trained[0] == trained[1]
    assert not held[0] & trained[0]
    assert 30 < len(held[0]) < 90
    prepare([tmp_path / "a.txt"], words, tmp_path / "c", held_out=0.3, workers=0, seed=1)
    assert {repr(d) for d in stored(tmp_path / "c", "held_out")} != held[0]
    prepare([tmp_path / "a.txt"], words, tmp_path / "d", held_out=0.1, workers=0)
    assert {repr(d) for d in stored(tmp_path / "d", "held_out")} < held[0]


# ------------------------------------------------------------------ whatever the size


def test_a_document_larger_than_pieces_and_lines_of_any_length(
    words: Tokenizer, tmp_path: Path
) -> None:
    line = "the river flows through the town. " * 3000
    unbroken = "x" * 200_000
    (tmp_path / "a.txt").write_text(f"{line}\n{unbroken}\n{line}\n\nThe end.\n")
    made = prepare(
        [tmp_path / "a.txt"], words, tmp_path / "out", held_out=0, workers=0, piece_bytes=5000
    )
    assert made.splits["train"].documents == 2
    assert made.ledger["sentences longer than 65,536 characters, cut"] >= 1
    sizes = [[len(sentence) for sentence in document] for document in stored(tmp_path / "out")]
    assert sizes[1] == [len(words.encode_ids(["The end."])[0])]
    whole = 2 * len(words.encode_ids([line])[0])
    assert sum(sizes[0]) == whole + 1, "and an unknown token for the word of x"


def test_several_frames_and_streams_in_one_file(words: Tokenizer, tmp_path: Path) -> None:
    given = documents(20)
    halves = as_text(given[:10]) + "\n", as_text(given[10:])
    for suffix in PACKED[1:]:
        source = tmp_path / f"a.txt{suffix}"
        source.write_bytes(b"".join(pack(suffix, half.encode()) for half in halves))
        prepare([source], words, tmp_path / suffix, held_out=0, workers=0)
        assert stored(tmp_path / suffix) == expected(given, words)


def test_lines_that_sentencex_fails_on(
    words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has fallen over wide spaces in real text: then plain ones stand in for them."""
    real = sentencex.segment

    def fragile(language: str, text: str) -> list[str]:
        if "\xa0" in text or "Kraków" in text:
            raise BaseException("a panic")  # as Rust's are
        return list(real(language, text))

    monkeypatch.setattr(sentencex, "segment", fragile)
    lines = "The\xa0river flows. The town sleeps.\nIn Kraków. The end.\nThe hall. The roof.\n"
    (tmp_path / "a.txt").write_text(lines, "utf-8")
    made = prepare([tmp_path / "a.txt"], words, tmp_path / "out", held_out=0, workers=0)
    texts = ["The\xa0river flows.", "The town sleeps.", "In Kraków. The end."]
    assert stored(tmp_path / "out") == [words.encode_ids([*texts, "The hall.", "The roof."])]
    assert made.ledger["lines that sentencex failed on, kept as one sentence"] == 1
