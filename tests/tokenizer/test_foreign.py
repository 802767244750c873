"""Tokenizers of other alphabets, files that contradict themselves, files without bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from bertsmith.tokenizer.limits import check_definition
from slow.fuzz_tokenizers import random_texts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROTEIN = "LAGVSERTIDPKQNFYMHWCXBUZO"


def backend(letters: str, kind: str, unknown: bool = True) -> Backend:
    """A tokenizer of single letters with BERT's template."""
    special = [token for token in SPECIAL if unknown or token != "[UNK]"]
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    if kind == "bpe":
        made = Backend(models.BPE(vocabulary, [], unk_token="[UNK]" if unknown else None))
    else:
        made = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.add_tokens([AddedToken(token, special=True) for token in special])
    marks = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
    )
    return made


def saved(folder: Path, made: Backend, **changes: Any) -> Path:
    """A directory with this tokenizer.json."""
    content = json.loads(made.to_str())
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(name), dict):
            content[name] |= value
        else:
            content[name] = value
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


# ------------------------------------------------------------------ other alphabets


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize("letters", [PROTEIN, "ACGTN", "αβγ"])
def test_vocabularies_without_the_letter_a(kind: str, letters: str, tmp_path: Path) -> None:
    made = Tokenizer.load(saved(tmp_path, backend(letters, kind, unknown=kind == "wordpiece")))
    cls, sep = made.cls_id, made.sep_id
    assert made.build([7, 8]) == ([cls, 7, 8, sep], [0, 0, 0, 0])
    assert made.build([7], [8]) == ([cls, 7, sep, 8, sep], [0, 0, 0, 1, 1])
    text = letters[:3]
    assert made.build(made.encode_ids([text])[0])[0] == made.encode(text).ids
    both = made.build(*(made.encode_ids([text])[0] for _ in "ab"))
    assert both == (made.encode(text, text).ids, made.encode(text, text).segments)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_templates_are_what_the_library_does(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`build` puts around ids what the library puts around text, for any template."""
    marks = st.lists(st.sampled_from(["[CLS]", "[SEP]", "[MASK]"]), max_size=3)
    segment = st.sampled_from(["", ":0", ":1"])

    def slots(texts: list[str]) -> str:
        words: list[str] = []
        for text in texts:
            words += [mark + data.draw(segment) for mark in data.draw(marks)]
            words.append(text + data.draw(segment))
        return " ".join(words + [mark + data.draw(segment) for mark in data.draw(marks)])

    made = backend("ACGT", "wordpiece")
    made.post_processor = processors.TemplateProcessing(
        single=slots(["$A"]),
        pair=slots(["$A", "$B"]),
        special_tokens=[(token, number) for number, token in enumerate(SPECIAL)],
    )
    loaded = Tokenizer.load(saved(tmp_path_factory.mktemp("made"), made))
    one, two = loaded.encode_ids(["ACGT", "GG"])
    whole = loaded.encode("ACGT", "GG")
    assert loaded.build(one)[0] == loaded.encode("ACGT").ids
    assert loaded.build(one, two) == (whole.ids, whole.segments)


@pytest.mark.parametrize(
    ("single", "fault"),
    [
        ("[CLS] [SEP]", "does not hold each text exactly once"),
        ("$A [SEP] $A", "does not hold each text exactly once"),
        ("[CLS] $A:7 [SEP]", "numbers segments beyond 1"),
    ],
)
def test_templates_that_lose_the_text(single: str, fault: str, tmp_path: Path) -> None:
    made = backend("ACGT", "wordpiece")
    made.post_processor = processors.TemplateProcessing(
        single=single, pair="$A $B", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(BertsmithError, match=fault):
        Tokenizer.load(saved(tmp_path, made))


# ------------------------------------------------------------------ contradictions


def test_dropout_is_not_used(tmp_path: Path) -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, "a", "b", "ab"])}
    made = backend("ab", "bpe")
    made.model = models.BPE(vocabulary, [("a", "b")], unk_token="[UNK]", dropout=0.5)
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    loaded = Tokenizer.load(saved(tmp_path, made))
    assert {tuple(ids) for ids in loaded.encode_ids(["ab"] * 100)} == {(7,)}
    assert len(loaded.notes) == 1
    assert "dropout is not used" in loaded.notes[0]
    loaded.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").notes == ()


def test_repeated_lines_of_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "b", "a", "c"]))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode_ids(["a c"]) == [[7, 8]]
    (note,) = loaded.notes
    assert "1 tokens occur more than once" in note
    assert note.endswith("'a'")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "vocab.json"])
def test_repeated_keys(name: str, tmp_path: Path) -> None:
    saved(tmp_path, backend("ACGT", "wordpiece"))
    path = tmp_path / name
    text = path.read_text() if path.exists() else '{"A": 5}'
    path.write_text(
        text.replace('"A": 5', '"A": 5, "A": 6')
        if name != "tokenizer_config.json"
        else '{"do_lower_case": true, "do_lower_case": false}'
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    source = path if name == "vocab.json" else tmp_path
    with pytest.raises(BertsmithError, match=rf"{name}: not valid JSON .*occurs twice"):
        Tokenizer.load(source)


# ------------------------------------------------------------------ without bounds


def doubling(count: int, pattern: dict[str, str]) -> dict[str, Any]:
    """A normalizer that doubles letters so many times."""
    steps = [{"type": "Replace", "pattern": pattern, "content": "AA"}] * count
    return {"type": "Sequence", "normalizers": steps}


BOMBS: dict[str, Callable[[], dict[str, Any]]] = {
    "doubling": lambda: {"normalizer": doubling(40, {"String": "A"})},
    "doubling by expression": lambda: {"normalizer": doubling(40, {"Regex": ""})},
    "doubling, nested": lambda: {
        "normalizer": {"type": "Sequence", "normalizers": [doubling(9, {"String": "A"})] * 4}
    },
    "a long insert": lambda: {"normalizer": {"type": "Prepend", "prepend": "A" * 1_000_000}},
    "many steps": lambda: {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 10_000}
    },
    "a long template": lambda: {"post_processor": template(10_000, 1)},
    "long special tokens": lambda: {"post_processor": template(1, 10_000)},
    **{
        f"the pattern {pattern}": lambda pattern=pattern: {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
        }
        for pattern in (r"(a+)+$", r"(?:a|aa)+$", r"((a*))*b", r"(a{1,}){2,}", r"(?:\p{L}+ ?)*$")
    },
    "long words": lambda: {"model": {"max_input_chars_per_word": 10**9}},
}


def template(slots: int, ids: int) -> dict[str, Any]:
    """A post-processor of this many special tokens, each of so many ids."""
    mark = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    special = {"id": "[CLS]", "ids": [2] * ids, "tokens": ["[CLS]"] * ids}
    return {
        "type": "TemplateProcessing",
        "single": [mark] * slots + texts[:1],
        "pair": [mark] * slots + texts,
        "special_tokens": {"[CLS]": special},
    }


@pytest.mark.parametrize("name", BOMBS)
def test_work_without_bounds_is_refused(name: str, tmp_path: Path) -> None:
    saved(tmp_path, backend("ACGT", "wordpiece"), **BOMBS[name]())
    with pytest.raises(BertsmithError, match="cannot be used as a tokenizer: "):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "pattern",
    [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"\s{2,}|[\n\r\t]",
        r"(?:[ab]c)+",
        r"\(a+\)+",
        r"[(a+)]+",
    ],
)
def test_patterns_of_published_tokenizers_are_fine(pattern: str) -> None:
    check_definition({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}}})


# ------------------------------------------------------------------ SentencePiece


def test_deberta_reads_what_sentencepiece_reads(official: Callable[[str], Path]) -> None:
    """Ids equal the library's own, with the normalization and byte fallback of the file."""
    library = pytest.importorskip("sentencepiece")
    folder = official("deberta-v3")
    theirs = library.SentencePieceProcessor(str(folder / "spm.model"))
    ours = Tokenizer.load(folder)
    texts = ["½ cup™ of ﬁne\u00a0coffee", "ＡＢＣ①② ﷺ ǅ ～", "\u3000x\u3000y\u200b", "\ufeffabc"]
    texts += [
        "a\tb\n c\r\nd",
        "  two  spaces  ",
        "e\u0301 ㎏ Å",
        "\x07 a\xadb 🜂",
        "a<0x0A>b",
        "한국 \u1112\u1161\u11ab",
        "",
    ]
    letters = [chr(code) for code in range(0x21, 0x3000) if chr(code).isprintable()]
    texts += [f"x{letter}y" for letter in letters if letter != "\u0344"]
    assert ours.encode_ids(texts) == theirs.encode(texts)
    assert ours.unk_id not in {number for ids in ours.encode_ids(texts) for number in ids}
    assert ours.decode(ours.encode("½ 🜂").ids) == "1⁄2 🜂"
    # Accents on characters that the rules replace, and of an unusual order, are exceptions.
    random = [text for text in random_texts(800, 19) if "[" not in text and "<" not in text]
    equal = [a == b for a, b in zip(ours.encode_ids(random), theirs.encode(random), strict=True)]
    assert sum(equal) / len(equal) > 0.9
