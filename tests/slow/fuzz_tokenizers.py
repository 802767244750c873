"""Compare our tokenizers with transformers' on random text in the official vocabularies.

    python tests/slow/fuzz_tokenizers.py --strings 100000 --seed 0 --json out.json

Every string is encoded alone and as one of a pair, decoded again, and compared in ids, offsets,
segments, sources and words. The suite uses the same functions on fewer strings.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BERTSMITH_DATA", ROOT.parent / "shared" / "data")) / "bert_reference"


@dataclass(frozen=True)
class Official:
    """An official vocabulary: where it lies, what it is called when published, who reads it."""

    source: str
    file: str
    reader: str  # transformers' class
    config: dict[str, Any] = field(default_factory=dict)


CASED = {"do_lower_case": False}
OFFICIAL = {
    "bert-uncased": Official("bert-base-uncased-vocab.txt", "vocab.txt", "BertTokenizer"),
    "bert-cased": Official("bert-base-cased-vocab.txt", "vocab.txt", "BertTokenizer", CASED),
    "bert-multilingual": Official(
        "bert-base-multilingual-cased-vocab.txt", "vocab.txt", "BertTokenizer", CASED
    ),
    "bert-chinese": Official("bert-base-chinese-vocab.txt", "vocab.txt", "BertTokenizer"),
    "roberta": Official("roberta-base-tokenizer.json", "tokenizer.json", "RobertaTokenizer"),
    "albert": Official("albert-base-v2-spiece.model", "spiece.model", "AlbertTokenizer"),
    "deberta-v3": Official("deberta-v3-spm.model", "spm.model", "DebertaV2Tokenizer"),
}


def unpack(name: str, folder: Path) -> Path:
    """Write an official vocabulary as a directory that `Tokenizer.load` opens."""
    official, target = OFFICIAL[name], folder / name
    target.mkdir(parents=True, exist_ok=True)
    data = lzma.decompress((DATA / f"{official.source}.xz").read_bytes())
    (target / official.file).write_bytes(data)
    if official.config:
        (target / "tokenizer_config.json").write_text(json.dumps(official.config))
    return target


def reference(name: str, folder: Path) -> Any:
    """Open an official vocabulary with transformers."""
    import transformers

    source = unpack(name, folder / "for-transformers")
    if (source / "vocab.txt").is_file():
        # This copy of the uncased vocabulary spells [UNK], [CLS], [SEP] and [MASK] in lower
        # case, which transformers does not recognise; the published file has upper case.
        lines = (source / "vocab.txt").read_text("utf-8").split("\n")
        special = {"[unk]", "[cls]", "[sep]", "[mask]"}
        lines = [line.upper() if line in special else line for line in lines]
        (source / "vocab.txt").write_text("\n".join(lines), "utf-8")
    return getattr(transformers, OFFICIAL[name].reader).from_pretrained(source)


# ------------------------------------------------------------------ random text

SAMPLE = """the of and in to a is was for as on with by he that at from his it an were are which
this also be had first one their its after new who they two her she been other when time during
there into school more years over only year most world city some where between later three state
such then national used made known under many university united while part season team unwanted
running embeddings tokenization Don't can't it's we'll I'm they've o'clock U.S.A. e.g. Ph.D. C++
Straße café naïve Zürich Ångström façade jalapeño Łódź İstanbul ısı ŒUVRE encyclopædia Ελλάδα
σοφίας ΣΊΣΥΦΟΣ Москва ёлка Україна ქართული Հայերեն שלום עולם مرحبا بالعالم فارسی हिन्दी বাংলা
தமிழ் ไทยภาษา ລາວ မြန်မာ ភាសា አማርኛ 中文 漢字 日本語 ひらがな カタカナ ｶﾀｶﾅ 한국어 조선말 tiếng Việt
ﬁne ﬂow ﬃ ½ ² ™ № ℃ Ⅷ ① ㎏ ㍿ ﷺ … — – “quoted” ‘single’ «guillemets» ``quoted'' 1,234.56 2010,
1999. 3.14159 100% $5.00 €12 £7 ¥900 10:30 2024-01-31 user@example.com https://example.com/a?b=c
#hashtag @user snake_case camelCase x=y+z; {"key":[1,2]} <b>bold</b> \\n \\u0041 a/b c:\\dir"""

SPECIAL = """[MASK] [CLS] [SEP] [PAD] [UNK] <mask> <s> </s> <pad> <unk> [mask] [unk] <MASK>
[UNUSED1] [unused1] ▁ ▁the ##ing Ġthe <0x0A> <|endoftext|> [MASK][MASK] x[MASK]y a<mask>b"""
WORDS, LITERALS = SAMPLE.split(), SPECIAL.split()

SPACES = [*" \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029"]
SPACES += [*"\u202f\u205f\u3000\u200b\u200c\u200d\u2060\ufeff", "  ", "\r\n", "\n\n", " \t "]
CONTROLS = [*map(chr, range(32)), "\x7f", "\x80", "\x9f", "\xad", "\u200e", "\u202e", "\ufffd"]
CONTROLS += ["\ufffe", "\uffff", "\ue000", "\U000e0001", "\U0010ffff", "\U000f0000", "\0"]
MARKS = [*map(chr, range(0x300, 0x370)), *"\u0591\u05bc\u064b\u0651\u093c\u094d\u0e31\u20dd\u3099"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇬🇷", "❤️", "☕", "1️⃣", "🧑🏿‍🚀", "✌🏻", "🤷‍♀️"]
BLOCKS = [
    (0x20, 0x7F), (0xA0, 0x250), (0x250, 0x300), (0x370, 0x590), (0x590, 0x800), (0x900, 0xE00),
    (0xE00, 0x1100), (0x1100, 0x1200), (0x1200, 0x1800), (0x1E00, 0x2000), (0x2000, 0x2C00),
    (0x2E80, 0x3100), (0x3100, 0x3400), (0x4E00, 0xA000), (0xAC00, 0xD7B0), (0xF900, 0x10000),
    (0x10000, 0x11000), (0x1D400, 0x1D800), (0x1F000, 0x1FB00), (0x20000, 0x2FA20), (0, 0x110000),
]  # fmt: skip


def _character(rng: random.Random) -> str:
    while True:
        code = rng.randrange(*rng.choice(BLOCKS))
        if not 0xD800 <= code < 0xE000:  # half a surrogate pair is no text
            return chr(code)


def _fragment(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        word = rng.choice(WORDS)
        return rng.choice([word, word, word.upper(), word.title(), word + rng.choice(".,!?'\"-)")])
    if kind < 0.65:
        return "".join(_character(rng) for _ in range(rng.randint(1, 8)))
    if kind < 0.75:
        return "".join(rng.choice(WORDS)[:3] + rng.choice(MARKS) for _ in range(rng.randint(1, 4)))
    if kind < 0.80:
        return rng.choice(LITERALS)
    if kind < 0.85:
        return rng.choice(EMOJI)
    if kind < 0.90:
        return rng.choice(CONTROLS) * rng.randint(1, 2)
    if kind < 0.92:  # around 100 characters, beyond which WordPiece gives up
        return rng.choice(["a", "é", "漢", "x1", "-", "😀"]) * rng.randint(48, 130)
    if kind < 0.97:
        return "".join(rng.choice("0123456789.,-/:") for _ in range(rng.randint(1, 12)))
    return "".join(rng.choice("`'\"()[]<>▁–£€") for _ in range(rng.randint(1, 4)))


def random_text(rng: random.Random) -> str:
    """Return a text of words, scripts, marks, spaces and surprises; now and then an empty one."""
    parts: list[str] = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 13])):
        parts.append(_fragment(rng))
        parts.append(rng.choice([" ", " ", " ", "", rng.choice(SPACES)]))
    if rng.random() < 0.7 and parts:
        parts.pop()  # the last space
    return "".join(parts)


def random_texts(count: int, seed: int) -> list[str]:
    """Return the same texts for the same seed."""
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(count)]


# ------------------------------------------------------------------ comparison


def mismatches(
    ours: Tokenizer, theirs: Any, texts: Sequence[str], pairs: Sequence[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (what differs, the text) for each difference."""
    encoded = ours.encode_many(texts, pairs, spelled="tokens")
    wanted = theirs(
        list(texts),
        None if pairs is None else list(pairs),
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    segments = ours.parts.segments
    decoded = theirs.batch_decode(wanted["input_ids"], skip_special_tokens=True)
    decoded_all = theirs.batch_decode(wanted["input_ids"], skip_special_tokens=False)
    for row, encoding in enumerate(encoded):
        text = texts[row] if pairs is None else f"{texts[row]} ||| {pairs[row]}"
        ids = wanted["input_ids"][row]
        zeros = [0] * len(ids)
        checks = {
            "ids": (encoding.ids, ids),
            "offsets": (encoding.offsets, wanted["offset_mapping"][row]),
            "segments": (encoding.segments, wanted["token_type_ids"][row] if segments else zeros),
            "sources": (encoding.sources, wanted.sequence_ids(row)),
            "words": (encoding.words, wanted.word_ids(row)),
            "decoded": (ours.decode(ids), decoded[row]),
            "decoded with special tokens": (ours.decode(ids, skip_special=False), decoded_all[row]),
        }
        yield from ((what, text) for what, (mine, other) in checks.items() if mine != other)


def main() -> int:
    """Run the comparison and print a table; the exit status is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strings", type=int, default=100_000, help="for each vocabulary")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=OFFICIAL, help="a single vocabulary")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"{DATA} is not there: point BERTSMITH_DATA at the folder of data sets")

    results = []
    print(
        f"{'vocabulary':20}{'strings':>10}{'tokens':>12}{'unknown':>10}{'mismatches':>12}{'s':>7}"
    )
    for name in [options.only] if options.only else OFFICIAL:
        started = time.perf_counter()
        found: Counter[str] = Counter()
        examples: list[tuple[str, str]] = []
        tokens = unknown = 0
        with tempfile.TemporaryDirectory() as folder:
            ours = Tokenizer.load(unpack(name, Path(folder)))
            theirs = reference(name, Path(folder))
            for start in range(0, options.strings, 2000):
                texts = random_texts(min(2000, options.strings - start), options.seed + start)
                pairs = texts[1:] + texts[:1]
                differ = [*mismatches(ours, theirs, texts), *mismatches(ours, theirs, texts, pairs)]
                found.update(what for what, _ in differ)
                examples += differ[: 20 - len(examples)]
                encoded = ours.encode_ids(texts)
                tokens += sum(map(len, encoded))
                unknown += sum(ids.count(ours.unk_id) for ids in encoded)
        seconds = round(time.perf_counter() - started, 1)
        print(
            f"{name:20}{options.strings:10,}{tokens:12,}{unknown:10,}{found.total():12,}{seconds:7}"
        )
        for what, text in examples:
            print(f"    {what}: {text!r}")
        row = {"vocabulary": name, "strings": options.strings, "tokens": tokens}
        results.append(row | {"unknown": unknown, "mismatches": dict(found), "seconds": seconds})
    if options.json:
        document = {"seed": options.seed, "results": results}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return int(any(result["mismatches"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
