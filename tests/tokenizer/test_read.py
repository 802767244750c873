"""Published files in every format, and what happens to broken and hostile ones."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import FORMATS, Tokenizer, read
from slow.fuzz_tokenizers import random_texts

Trained = Callable[[str], Tokenizer]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *[("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3)],
    *[("[MASK]", 0.0, 3), ("(", 0.0, 4), ("▁", -2.0, 1), ("▁the", -3.0, 1), ("a", -4.0, 1)],
]


# ------------------------------------------------------------------ writing small files


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def chunk(number: int, data: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def sentencepiece_file(
    pieces: list[tuple[str, float, int]] = PIECES, algorithm: int = 1, charsmap: bytes = b""
) -> bytes:
    """Return a SentencePiece model as protobuf."""
    out = b""
    for text, score, kind in pieces:
        fields = chunk(1, text.encode()) + b"\x15" + struct.pack("<f", score)
        out += chunk(1, fields + b"\x18" + varint(kind))
    out += chunk(2, chunk(1, b"input.txt") + b"\x18" + varint(algorithm))
    return out + chunk(3, chunk(1, b"identity") + (chunk(2, charsmap) if charsmap else b""))


def write(folder: Path, **files: object) -> Path:
    """Write files into a folder, by names with _ for a dot; objects as JSON."""
    for name, content in files.items():
        data = content if isinstance(content, bytes | str) else json.dumps(content)
        data = data.encode() if isinstance(data, str) else data
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_bytes(data)
    return folder


def refused(path: Path, **options: str) -> str:
    """Return the one line that a tokenizer is refused with, which names the file or folder."""
    started = time.perf_counter()
    with pytest.raises(BertsmithError) as caught:
        Tokenizer.load(path, **options)
    assert time.perf_counter() - started < 5
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    assert path.name in message
    return message


# ------------------------------------------------------------------ formats


def test_vocab_txt(tmp_path: Path) -> None:
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "the", "##m", "fox"]))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.tokens("The FOX them") == ["the", "fox", "the", "##m"]
    assert (tokenizer.kind, tokenizer.family, tokenizer.size) == ("wordpiece", "bert", 8)
    assert tokenizer.lowercase
    assert Tokenizer.load(tmp_path / "vocab.txt").vocabulary() == tokenizer.vocabulary()
    write(tmp_path, tokenizer_config_json={"do_lower_case": False, "model_max_length": 128})
    cased = Tokenizer.load(tmp_path)
    assert cased.tokens("The the") == ["[UNK]", "the"]
    assert (cased.lowercase, cased.max_length) == (False, 128)


def test_special_tokens_in_lower_case(tmp_path: Path) -> None:
    write(tmp_path, vocab_txt="\n".join(["[PAD]", "[unk]", "[cls]", "[sep]", "[mask]", "the"]))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the [MASK] zebra", spelled="mask").ids == [2, 5, 4, 1, 3]
    assert tokenizer.token(4) == "[MASK]"


def test_a_vocabulary_without_mask_and_padding(tmp_path: Path) -> None:
    write(tmp_path, vocab_txt="[UNK]\n[CLS]\n[SEP]\nthe\n")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.mask_id, tokenizer.mask_token, tokenizer.pad_id) == (None, None, None)
    assert tokenizer.size == 4  # nothing is added that a model has no row for


def test_repeated_lines_of_a_vocabulary(tmp_path: Path) -> None:
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "the", "the", "fox"]))
    tokenizer = Tokenizer.load(tmp_path)  # as in transformers, the last of them counts
    assert (tokenizer.id("the"), tokenizer.id("fox"), tokenizer.size) == (6, 7, 8)
    with pytest.raises(BertsmithError, match="no token has the id 5"):
        tokenizer.token(5)


def test_sentencepiece(tmp_path: Path) -> None:
    write(tmp_path, spiece_model=sentencepiece_file())
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.kind, tokenizer.family, tokenizer.size) == ("unigram", "albert", 9)
    assert tokenizer.tokens("The (a") == ["▁the", "(", "▁", "a"]
    assert tokenizer.encode("the", "a").segments == [0, 0, 0, 1, 1, 1]  # ▁ and a
    for name in ("spm.model", "other.model"):
        (tmp_path / name).write_bytes(sentencepiece_file())
        assert Tokenizer.load(tmp_path / name).encode("The (a") == tokenizer.encode("The (a")


def test_a_family_by_its_special_tokens(tmp_path: Path) -> None:
    names = {"<pad>": "[PAD]", "<unk>": "[UNK]"}
    pieces = [(names.get(t, t), s, k) for t, s, k in PIECES if t != "[MASK]"]
    write(tmp_path, spm_model=sentencepiece_file(pieces))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.family, tokenizer.mask_id, tokenizer.size) == ("deberta-v2", 8, 9)


def test_tokenizer_json_comes_first_and_the_config_has_the_last_word(
    trained: Trained, tmp_path: Path
) -> None:
    trained("bert").save(tmp_path)
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "only"]))
    assert Tokenizer.load(tmp_path).size == trained("bert").size
    assert Tokenizer.load(tmp_path / "vocab.txt").size == 6
    write(tmp_path, tokenizer_config_json={"do_lower_case": False})
    assert not Tokenizer.load(tmp_path).lowercase


def test_cuts_and_padding_are_switched_off(trained: Trained, tmp_path: Path) -> None:
    trained("bert").save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    write(tmp_path, tokenizer_json=content)
    tokenizer = Tokenizer.load(tmp_path)
    assert len(tokenizer.encode("the " * 30)) == 32
    assert len(tokenizer.encode("the")) == 3


@pytest.mark.parametrize(
    ("config", "model_type", "segments"),
    [
        ({}, "bert", True),
        ({}, "distilbert", False),
        ({}, "unheard-of", True),
        ({"tokenizer_class": "DistilBertTokenizerFast"}, None, False),
        ({"tokenizer_class": "ElectraTokenizer"}, None, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, None, False),
        ({"model_input_names": ["input_ids", "attention_mask"]}, "bert", True),
    ],
)
def test_who_says_whether_there_are_segments(
    tmp_path: Path, config: dict, model_type: str | None, segments: bool
) -> None:
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "a"]), tokenizer_config_json=config)
    if model_type:
        write(tmp_path, config_json={"model_type": model_type})
    assert any(Tokenizer.load(tmp_path).encode("a", "a").segments) == segments
    assert not any(Tokenizer.load(tmp_path, family="distilbert").encode("a", "a").segments)


def test_special_tokens_by_other_names(tmp_path: Path) -> None:
    vocabulary = "\n".join(["<p>", "<u>", "<c>", "<e>", "<m>", "the", "Ġnew"])
    mask = {"content": "<m>", "lstrip": True, "rstrip": False, "normalized": False}
    names = {"pad_token": "<p>", "unk_token": "<u>", "cls_token": "<c>", "sep_token": "<e>"}
    write(tmp_path, vocab_txt=vocabulary, special_tokens_map_json=names | {"mask_token": mask})
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the <m> x", spelled="mask").ids == [2, 5, 4, 1, 3]
    assert (tokenizer.mask_token, tokenizer.pad_id) == ("<m>", 0)
    offsets = tokenizer.encode("the <m>", spelled="mask").offsets
    assert offsets[2] == (3, 7)  # with the space, as lstrip asks


def test_added_tokens(tmp_path: Path) -> None:
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "the"]), added_tokens_json={"new": 6, "x y": 7})
    assert Tokenizer.load(tmp_path).encode("the new x y").ids == [2, 5, 6, 7, 3]
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    decoder = {"6": {"content": "<e1>", "special": True} | flags}
    write(tmp_path, tokenizer_config_json={"added_tokens_decoder": decoder})
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the <e1>").ids == [2, 5, 6, 3]
    assert 6 in tokenizer.special_ids
    write(tmp_path, tokenizer_config_json={}, added_tokens_json={"new": 60})
    assert "'new' gets the id 6, but the files beside say 60" in refused(tmp_path / "vocab.txt")


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"\xff\xfe\x00", b"{", b"[]", b"null", b"\0" * 99]
)
@pytest.mark.parametrize("name", FORMATS)
def test_files_that_hold_something_else(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "merges.txt").write_bytes(content)
    refused(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        {"vocab": {}},
        {"model": {"type": "WordPiece", "vocab": {}, "unk_token": "[UNK]"}},
        {"model": {"type": "WordPiece", "vocab": {"a": -1}, "unk_token": "[UNK]"}},
        {"model": {"type": "WordPiece", "vocab": {"a": 2**40}, "unk_token": "[UNK]"}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}},
        {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 7}},
        {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None}},
        {"model": {"type": "Unigram", "vocab": []}},
        {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}},
        {"model": {"type": "Other", "vocab": {}}},
        {"model": []},
    ],
    ids=str,
)
def test_hostile_tokenizer_json(tmp_path: Path, content: dict) -> None:
    write(tmp_path, tokenizer_json={"version": "1.0", "added_tokens": []} | content)
    refused(tmp_path / "tokenizer.json")


def test_json_nested_beyond_reason(tmp_path: Path) -> None:
    write(tmp_path, tokenizer_json='{"model":' * 100_000)
    refused(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    write(tmp_path, vocab_txt="\n".join(SPECIAL), tokenizer_config_json="[" * 100_000)
    with pytest.raises(BertsmithError, match=r"_config.json: not valid JSON \(nested too"):
        Tokenizer.load(tmp_path)


def test_a_file_larger_than_any_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LARGEST_FILE", 10)
    write(tmp_path, vocab_txt="\n".join(SPECIAL))
    assert "more than any tokenizer" in refused(tmp_path / "vocab.txt")


@pytest.mark.parametrize("missing", ["[UNK]", "[CLS]", "[SEP]"])
def test_a_vocabulary_without_what_it_needs(tmp_path: Path, missing: str) -> None:
    write(tmp_path, vocab_txt="\n".join(token for token in SPECIAL if token != missing))
    assert missing in refused(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    "vocabulary",
    [
        {"<s>": 0, "</s>": -1},
        {"<s>": 0, "</s>": 0},
        {"<s>": "zero", "</s>": 1},
        {"<s>": 0, "</s>": 1.5},
        {"<s>": 0, "</s>": 4_000_000_000},
        {"<s>": 0},
        ["<s>", "</s>"],
    ],
    ids=str,
)
def test_hostile_vocab_json(tmp_path: Path, vocabulary: object) -> None:
    write(tmp_path, vocab_json=vocabulary, merges_txt="#version: 0.2\n")
    refused(tmp_path / "vocab.json")


@pytest.mark.parametrize("merges", ["a b c\n", "one\n", "a q\n", "\xff"])
def test_hostile_merges(tmp_path: Path, merges: str) -> None:
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5}
    write(tmp_path, vocab_json=vocabulary, merges_txt=merges.encode("latin-1"))
    refused(tmp_path / "vocab.json")
    (tmp_path / "merges.txt").unlink()
    assert "merges.txt" in refused(tmp_path / "vocab.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (sentencepiece_file(algorithm=2), "of kind BPE"),
        (sentencepiece_file(algorithm=99), "only unigram"),
        (sentencepiece_file([*PIECES, PIECES[-1]]), "occurs twice"),
        (sentencepiece_file([*PIECES, ("", -1.0, 1)]), "empty piece"),
        (sentencepiece_file() + chunk(1, b"") * 1000, "empty piece"),  # the first one is refused
        (sentencepiece_file([*PIECES, ("x", float("nan"), 1)]), "score"),
        (sentencepiece_file([*PIECES, ("x", float("inf"), 1)]), "score"),
        (sentencepiece_file([*PIECES, ("x", 0.0, 2)]), "2 unknown pieces"),
        (sentencepiece_file(PIECES[2:]), "0 unknown pieces"),
        (sentencepiece_file(PIECES[:2]), r"no \[CLS\]"),
        (sentencepiece_file(charsmap=b"\xff\xff\xff\x7f" + b"x" * 20), "charsmap"),
        (sentencepiece_file(charsmap=b"\x04\0\0\0abcdefg\0"), "index out of bounds"),
        (varint(1 << 3 | 2) + b"\xff" * 9 + b"\x01" + b"x", "cut short"),
        (varint(1 << 3 | 2) + b"\xff" * 40, "cut short"),
        (chunk(1, chunk(1, b"\xff\xfe")), "not UTF-8"),
        (chunk(1, chunk(2, b"12345")), "score"),
        (chunk(1, b"\x08\x05"), "a number where bytes should be"),
        (b"\x0bx", "shape 3"),
    ],
)
def test_hostile_sentencepiece(tmp_path: Path, data: bytes, message: str) -> None:
    write(tmp_path, spiece_model=data)
    refused(tmp_path / "spiece.model")
    with pytest.raises(BertsmithError, match=message):
        Tokenizer.load(tmp_path)


def test_a_panic_leaves_no_report_on_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, spiece_model=sentencepiece_file(charsmap=b"\x04\0\0\0abcdefg\0"))
    refused(tmp_path / "spiece.model")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"do_lower_case": "yes"}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"6": {"content": 3}}}),
        ("added_tokens.json", {"new": "many"}),
        ("added_tokens.json", {"new": None}),
        ("config.json", [1, 2]),
        ("special_tokens_map.json", "text"),
    ],
)
def test_hostile_files_beside_the_vocabulary(tmp_path: Path, name: str, content: object) -> None:
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, "the"]))
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(BertsmithError):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("length", [None, 0, -5, "many", 1e30, 10**30, True, [512]])
def test_lengths_that_mean_none(tmp_path: Path, length: object) -> None:
    config = {"model_max_length": length}
    write(tmp_path, vocab_txt="\n".join(SPECIAL), tokenizer_config_json=config)
    assert Tokenizer.load(tmp_path).max_length is None


def test_nothing_to_read(tmp_path: Path) -> None:
    assert "holds no tokenizer: none of tokenizer.json, vocab.txt" in refused(tmp_path)
    assert "does not exist" in refused(tmp_path / "missing")
    (tmp_path / "weights.bin").write_bytes(b"something")
    assert "its name is none of" in refused(tmp_path / "weights.bin")
    write(tmp_path, vocab_txt="\n".join(SPECIAL))
    with pytest.raises(BertsmithError, match="unknown family 'gpt'; known: bert"):
        Tokenizer.load(tmp_path, family="gpt")


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Return a file cut short, or with some bytes changed, or both."""
    data = bytearray(whole[: rng.choice([len(whole), rng.randrange(1, len(whole))])])
    for _ in range(rng.randint(1, 2)):
        data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), ord(rng.choice("1a{\n"))])
    return bytes(data)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "spiece.model", "vocab.json"])
def test_damaged_files_are_refused_or_work(trained: Trained, tmp_path: Path, name: str) -> None:
    write(tmp_path, tokenizer_json=trained("albert").backend.to_str())
    bytes_ = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6}
    write(tmp_path, vocab_json=bytes_, merges_txt="#version: 0.2\na b\n")
    write(tmp_path, vocab_txt="\n".join([*SPECIAL, *"abcdefghijklmnopqrstuvwxyz"]))
    write(tmp_path, spiece_model=sentencepiece_file())
    whole, rng, messages = (tmp_path / name).read_bytes(), random.Random(5), []
    for number in range(150):
        (tmp_path / name).write_bytes(damaged(whole, rng))
        try:
            Tokenizer.load(tmp_path / name).encode_many(random_texts(3, number))
        except BertsmithError as error:
            messages.append(str(error))
    assert 0 < len(messages) < 150
    assert not [message for message in messages if "\n" in message or len(message) > 500]


def test_no_more_tokens_are_promised_than_the_model_reads(tmp_path: Path) -> None:
    vocabulary = "\n".join([*SPECIAL, "the"])
    write(tmp_path, vocab_txt=vocabulary, tokenizer_config_json={"model_max_length": 128})
    tokenizer = Tokenizer.load(tmp_path)
    for longest, promised in ((64, 64), (512, 128), (None, 128)):
        tokenizer.save(tmp_path / "saved", longest=longest)
        assert Tokenizer.load(tmp_path / "saved").max_length == promised
