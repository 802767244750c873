"""Malformed data files: cut, flipped, repeated, compressed to bombs, with absurd numbers and keys.

`check`, `predict`, `evaluate` and `embed` read each of them.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pyarrow
from pyarrow import parquet

from slow.attacks.forked import Tally, run

VERBS = {
    "check": "check FILE",
    "predict": "predict classifier FILE --out out.jsonl",
    "evaluate": "evaluate classifier FILE --draws 20",
    "embed": "embed classifier --file FILE --out out.npy",
}
LINES = ["the old river flows past the town", "bees and storms come", "a violin in the town"] * 4
ROWS = [{"text": f"{line} {n}", "label": "ab"[n % 2]} for n, line in enumerate(LINES)]
CELL = "\t_" * 8


def seeds() -> dict[str, bytes]:
    """A good file of each format."""
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    passages = [
        {"context": row["text"], "qas": [{"id": str(n), "question": "what", "answers": []}]}
        for n, row in enumerate(ROWS)
    ]
    words = [" ".join(line.split()[:3]) for line in LINES]
    conll = "\n".join("".join(f"{word} O\n" for word in line.split()) for line in words)
    tree = [f"{n}\t{word}{CELL}" for n, word in enumerate(words[0].split(), 1)]
    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), stream)
    return {
        "a.csv": ("text,label\n" + "".join(f'"{r["text"]}",{r["label"]}\n' for r in ROWS)).encode(),
        "a.tsv": ("text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS)).encode(),
        "a.jsonl": lines.encode(),
        "a.json": json.dumps(ROWS).encode(),
        "squad.json": json.dumps({"data": [{"title": "t", "paragraphs": passages}]}).encode(),
        "a.txt": "\n".join(LINES).encode(),
        "a.conll": conll.encode(),
        "a.conllu": ("\n".join(tree) + "\n\n").encode() * 3,
        "a.parquet": stream.getvalue(),
    }


def mutations(random: Random) -> Iterator[tuple[str, bytes]]:
    """Every good file cut, flipped, doubled and compressed badly."""
    for name, content in seeds().items():
        yield name, content
        for share in (0.0, 0.1, 0.5, 0.9):
            yield f"cut{share}-{name}", content[: int(share * len(content))]
        for number in range(6):
            flipped = bytearray(content)
            for _ in range(1 + number * 4):
                flipped[random.randrange(len(flipped))] = random.randrange(256)
            yield f"flipped{number}-{name}", bytes(flipped)
        yield f"twice-{name}", content + content
        yield f"nulls-{name}", content.replace(b"e", b"\0")
        yield f"wide-{name}", b"\xff\xfe" + content
        yield f"returns-{name}", content.replace(b"\n", b"\r")
        yield f"cut-{name}.gz", gzip.compress(content)[:-6]
        yield f"bad-{name}.xz", lzma.compress(content)[:30] + b"\xff" * 40
        yield f"none-{name}.zst", content
        yield f"packed-{name}.gz", gzip.compress(content)


def crafted() -> Iterator[tuple[str, bytes]]:
    """Files that were made to do harm."""
    big, row = b"x" * (40 << 20), '{"text": "a", "label": %s}\n'
    yield "line.txt", big
    yield "line.jsonl", b'{"text": "' + big + b'"}'
    yield "cell.csv", b"text,label\n" + big + b",a\n"
    yield "quote.csv", b'text,label\n"' + b"line\n" * (8 << 20)
    yield "quotes.tsv", b'text\tlabel\n"' + b'a\t"\n' * 5_000
    yield "bomb.csv.gz", gzip.compress(b"text,label\n" + b"a" * (1 << 30), 9)
    yield "bomb.json.gz", gzip.compress(b"[" + b'{"a": 1},' * (80 << 20), 9)
    yield "bomb.jsonl.xz", lzma.compress(b"\n" * (300 << 20))
    yield "deep.json", b"[" * 5_000_000
    yield "deep.jsonl", b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    yield "deep.csv", b"tokens,ner_tags\n" + b"[" * 50_000 + b"," + b"(" * 50_000 + b"\n"
    yield "columns.csv", b",".join(b"c%d" % n for n in range(200_000)) + b"\n"
    yield "columns.jsonl", json.dumps({f"c{n}": n for n in range(200_000)}).encode()
    yield "names.csv", b",".join([b"text"] * 50_000) + b"\n"
    yield "keys.jsonl", b'{"text": "a", "text": "b"}\n'
    yield "keys-many.jsonl", b"{" + b",".join(b'"a": 1' for _ in range(300_000)) + b"}"
    numbers = ["NaN", "Infinity", "1e999", "9" * 5000, "-0", "[]", "{}", "null", '"\\u00b2"']
    numbers += ['"' + "9" * 5000 + '"', "true", '"1e308"', "1" + "0" * 400, '"\\ud800"', "[[1]]"]
    for n, number in enumerate(numbers):
        yield f"number{n}.jsonl", (row % number * 3).encode()
        answer = f'{{"text": ["a"], "answer_start": [{number}]}}'
        question = f'{{"question": "q", "context": "a b", "answers": {answer}}}\n'
        yield f"start{n}.jsonl", question.encode()
        yield f"span{n}.jsonl", f'{{"text": "a b", "entities": [[{number}, 1, "X"]]}}'.encode()
        yield f"id{n}.jsonl", f'{{"id": {number}, "text": "a", "label": "a"}}'.encode()
        yield f"text{n}.jsonl", f'{{"text": {number}, "label": "a"}}'.encode()
        yield (
            f"choice{n}.jsonl",
            (f'{{"prompt": "p", "choices": {number}, "label": {number}}}'.encode()),
        )
    for number in ("1-1000000000", "1-", "-1", "\u00b2-3", "9" * 5000 + "-1", "3-1", "1.1", "x"):
        yield f"range{number[:6]}.conllu", f"{number}\ta{CELL}\n1\tb{CELL}\n".encode()
    yield "long.conll", b"a O\n" * 1_000_000
    yield "ranges.conllu", (f"1-9\ta{CELL}\n".encode()) * 60_000
    yield "widths.conll", b"".join(b"a" + b" b" * (n % 50) + b"\n" for n in range(9000))
    yield "surrogates.jsonl", b'{"id": "\\ud800", "text": "\\udfff", "label": "a"}'
    yield "cp1252.csv", "text,label\ncafé,a\n".encode("cp1252")
    yield "utf16.csv", "text,label\ncafé,a\n".encode("utf-16")
    yield "utf32.csv", "text,label\ncafé,a\n".encode("utf-32")
    yield "odd.csv", "text,label\n".encode("utf-16")[:-1]
    yield "sep.csv", b"sep=\n"
    yield "sep2.csv", b'sep="\ntext"label\n'
    yield "empty.csv", b"\n\n\n"
    yield "header.csv", b"text,label\n"
    yield "commas.csv", b"," * 100_000
    yield "blank.jsonl", b"\n" * 1_000_000
    yield "labels.csv", b"text,label\n" + b"".join(b"t%d,l%d\n" % (n, n) for n in range(3_000))
    yield "same.csv", b"text,label\n" + b"a,a\n" * 3_000
    yield "regex.csv", b"text,label\n" + b"(" * 5000 + b",a\n" + b"\\" * 5000 + b",b\n"
    yield "escapes.csv", b"text,\x1b[31mlabel\n\x1b]0;x\x07,a\n"
    stream = io.BytesIO()
    arrays = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=["text", "text"]), stream)
    yield "names.parquet", stream.getvalue()
    stream = io.BytesIO()
    late = pyarrow.array([2**62] * 3, pyarrow.timestamp("us"))
    deep = {b"huggingface": b"[" * 1_000_000}
    table = pyarrow.table({"text": ["a", "b", "c"], "label": ["a", "b", "a"], "at": late})
    parquet.write_table(table.replace_schema_metadata(deep), stream)
    yield "times.parquet", stream.getvalue()


def prepare_home(home: Path) -> None:
    """A tiny classifier."""
    (home / "text.txt").write_text("\n".join(LINES) + "\n")
    (home / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (home / "documents.txt").write_text("\n\n".join(f"{line}\n{line}" for line in LINES))
    steps = [
        "tokenizer train text.txt --size 60 --out words",
        "prepare documents.txt --tokenizer words --out shards --workers 1 --held-out 0.1",
        "pretrain tiny-bert --data shards --out finished --view none --set train.steps=2 "
        "--set data.length=16 --set train.batch_tokens=256 --set train.micro_tokens=256",
        "finetune finished/model labels.jsonl --out classifier --epochs 1 --hold-out 0",
    ]
    for words in steps:
        outcome = run(words.split(), home)
        assert outcome.kind == "ok", (words, outcome)


def attack(home: Path, match: str) -> Tally:
    """Let every verb that reads data read every file."""
    prepare_home(home)
    tally = Tally()
    for name, content in chain(mutations(Random(0)), crafted()):
        if match not in name:
            continue
        (home / name).write_bytes(content)
        for verb, words in VERBS.items():
            (home / "out.npy").unlink(missing_ok=True)
            allowed = (0, 1, 2) if verb == "check" else (0, 2)  # 1: it has findings
            line = [name if word == "FILE" else word for word in words.split()]
            outcome = run(line, home, allowed=allowed)
            left = [one for one in home.iterdir() if one.suffix == ".part"]
            if left and not outcome.bad:  # one that was killed cannot tidy up
                outcome = outcome._replace(kind="left a temporary file")
            for one in left:
                one.unlink()
            tally.add(f"{verb} {name}", outcome)
        (home / name).unlink()
    return tally
