"""Give malformed data files to every verb that reads data, within limits of time and memory.

    python tests/slow/attack_data.py --out benchmarks/results/attack.json

Files of every format are cut, flipped, repeated, compressed to bombs, or filled with absurd
numbers, keys, lines and nesting. `check`, `predict`, `evaluate` and `embed` read each of them.
Every run must end in time with exit status 0, 1 (findings of `check`) or 2 and one line that says
why, and hold no more memory than allowed. Each is a process of its own, forked from this one.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import pyarrow
import torch
from pyarrow import parquet

import bertsmith.data.check
import bertsmith.tasks.stream  # noqa: F401 - imported before the first fork
from bertsmith.cli import main

torch.set_num_threads(1)
SECONDS = 60  # of processor time, for a file and a verb
MEMORY = 2 << 30  # bytes beyond what the imports take
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


def run(words: list[str], home: Path) -> tuple[int, str]:
    """Run a verb in this (forked) process's child; its exit status and standard error."""
    errors = home / "errors.txt"
    pid = os.fork()
    if not pid:
        os.chdir(home)
        with Path(os.devnull).open("r+b", 0) as nothing, errors.open("wb") as said:
            os.dup2(nothing.fileno(), 0)
            os.dup2(nothing.fileno(), 1)
            os.dup2(said.fileno(), 2)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(SECONDS * 10)
        sys.argv = ["bertsmith", *words]
        status = 1
        try:
            main()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        except BaseException:  # noqa: BLE001 - whatever it is, it is a fault of ours
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, state = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(state), errors.read_text("utf-8", "replace")


def fault(verb: str, status: int, said: str) -> str:
    """What is wrong about how a run ended; empty where nothing is."""
    lines = [line for line in said.splitlines() if not line.startswith("note: ")]
    if "Traceback" in said:
        return "traceback"
    if status not in ((0, 1, 2) if verb == "check" else (0, 2)):
        return f"status {status}"
    if status == 2 and not (lines and lines[-1].startswith("bertsmith: ")):
        return "no line that says why"
    if status == 2 and len(lines[-1]) > 1000:
        return "a line of more than 1,000 characters"
    return ""


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
        status, said = run(words.split(), home)
        assert status == 0, (words, said)


def warm(home: Path) -> None:
    """Run every verb in this process once, so that those forked from it have all modules."""
    os.chdir(home)
    for words in VERBS.values():
        sys.argv = ["bertsmith", *words.replace("FILE", "labels.jsonl").split()]
        nothing = io.StringIO()
        with suppress(SystemExit), redirect_stdout(nothing), redirect_stderr(nothing):
            main()


def attack() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--kind", choices=["mutated", "crafted"], help="by default both")
    parser.add_argument("--out", type=Path, help="where to store the counts")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        prepare_home(home)
        warm(home)
        for kind, generate in (("mutated", mutations(Random(0))), ("crafted", crafted())):
            for name, content in generate if options.kind in (None, kind) else ():
                if options.only not in name:
                    continue
                (home / name).write_bytes(content)
                counts["files"] += 1
                print(name, end="\r", flush=True)
                for verb, words in VERBS.items():
                    (home / "out.npy").unlink(missing_ok=True)
                    status, said = run([name if w == "FILE" else w for w in words.split()], home)
                    counts["runs"] += 1
                    statuses[f"status_{status}"] += 1
                    wrong = fault(verb, status, said)
                    if not wrong and any(one.suffix == ".part" for one in home.iterdir()):
                        wrong = "left a temporary file"
                    counts["faults"] += bool(wrong)
                    if wrong:
                        print(f"{verb} {name}: {wrong}: {said.strip()[-400:]}", flush=True)
                (home / name).unlink()
    print(dict(counts), dict(sorted(statuses.items())))
    if options.out:
        stored = json.loads(options.out.read_text()) if options.out.is_file() else {}
        limits = {"memory_gib": MEMORY >> 30, "processor_seconds": SECONDS}
        stored["data"] = {**counts, **dict(sorted(statuses.items())), **limits}
        options.out.write_text(json.dumps(stored, indent=1) + "\n")
    sys.exit(counts["faults"] > 0)


if __name__ == "__main__":
    attack()
