"""Model directories that are damaged, renamed, oversized, of wrong types, or bombs."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slow.attacks.forked import Limits, Tally, run

LIMITS = Limits(seconds=20, memory=1 << 30)
BAD_VALUES: list[Any] = [None, -1, 0, 10**9, 10**30, 1e308, "x", "1", [], {}, [1], True, 0.5]
CONFIG_KEYS = [
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "hidden_act",
    "pad_token_id",
    "hidden_dropout_prob",
    "id2label",
    "num_labels",
    "architectures",
    "pruned_heads",
    "tie_word_embeddings",
    "position_embedding_type",
    "is_decoder",
    "initializer_range",
]
TOKENIZER_KEYS = ["version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor"]
TOKENIZER_KEYS += ["decoder", "model", "truncation", "padding"]
BAD_TEXTS = [
    "",
    " ",
    "{",
    "[]",
    "null",
    "3",
    '"x"',
    "{}",
    "\ufeff{}",
    "[" * 100_000,
    '{"a": 1' * 5000,
]
BAD_TEXTS += [
    '{"a": 1, "a": 2}',
    '{"a": ' + "9" * 10_000 + "}",
    '{"a": NaN}',
    "\x00" * 50,
    "x" * 1000,
]


def attack(home: Path, match: str) -> Tally:
    """Let `embed` or `predict` open every directory."""
    good, tally = _good_model(home / "good"), Tally()
    folder = home / "model"
    for name, change in _damages():
        if match in name:
            shutil.copytree(good, folder)
            change(folder)
            words = ["embed", str(folder), "a text of words", "--json"]
            if name.startswith("heads"):
                words = ["predict", str(folder), "a text of words"]
            tally.add(name, run(words, home, LIMITS, one_line=True))
            shutil.rmtree(folder)
    return tally


def _good_model(folder: Path) -> Path:
    from bertsmith import create
    from bertsmith.checkpoint import Sentence, save
    from tasks.words import tokenizer

    words = tokenizer("bert")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model = create(
        "bert-tiny",
        heads=("masked_lm", "classify"),
        vocab_size=words.size,
        max_position_embeddings=64,
        **small,
    )
    save(folder, model, words, Sentence())
    return folder


Change = Callable[[Path], None]


def _damages() -> Iterator[tuple[str, Change]]:
    yield "nothing", lambda folder: None
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json"):
        yield from _texts(name)
    for name in ("bertsmith.json", "special_tokens_map.json", "sentence_bert_config.json"):
        yield from _texts(name)
    yield from _texts("1_Pooling/config.json")
    yield from _texts("config_sentence_transformers.json")
    for key in CONFIG_KEYS:
        for value in BAD_VALUES:
            yield f"config.json: {key} = {value!r}", _setting("config.json", key, value)
    for key in TOKENIZER_KEYS:
        for value in BAD_VALUES[:9]:
            yield f"tokenizer.json: {key} = {value!r}", _setting("tokenizer.json", key, value)
    yield from _bytes_of("model.safetensors", 40)
    yield from _bytes_of("tokenizer.json", 25)
    yield from _bytes_of("config.json", 15)
    yield from _weights()
    yield from _pickles()
    yield from _bombs()
    yield from _odd_files()


def _texts(name: str) -> Iterator[tuple[str, Change]]:
    for text in [*BAD_TEXTS, "[" + "1," * 5_000_000 + "1]"]:
        yield f"{name} is {text[:20]!r}", lambda folder, text=text: _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")


def _setting(name: str, key: str, value: Any) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        content[key] = value
        (folder / name).write_text(json.dumps(content))

    return change


def _bytes_of(name: str, count: int) -> Iterator[tuple[str, Change]]:
    """Cut at random places, and random bits flipped."""
    for seed in range(count):

        def change(folder: Path, seed: int = seed) -> None:
            draw = random.Random(seed)
            data = bytearray((folder / name).read_bytes())
            if seed % 2:
                del data[draw.randrange(len(data)) :]
            else:
                for _ in range(draw.choice((1, 10, 200))):
                    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(data)

        yield f"{name} damaged ({seed})", change


def _tensors(edit: Callable[[dict[str, Any]], Any]) -> Change:
    def change(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        tensors = edit(tensors) or tensors
        save_file(tensors, folder / "model.safetensors")

    return change


def _weights() -> Iterator[tuple[str, Change]]:
    import torch

    words = "bert.embeddings.word_embeddings.weight"
    for value in ("nan", "inf", "-inf"):
        yield (
            f"weights {value}",
            _tensors(lambda all, v=value: all | {words: torch.full_like(all[words], float(v))}),
        )
    for dtype in (torch.int8, torch.int64, torch.bool, torch.float64, torch.float8_e4m3fn):
        yield (
            f"weights {dtype}",
            _tensors(lambda all, d=dtype: {n: t.to(d) for n, t in all.items()}),
        )
    for prefix in ("module.", "backbone.", "model.bert.", "roberta.", "\x1b[31m", "x" * 10_000):
        yield (
            f"weights {prefix[:9]!r}",
            _tensors(lambda all, p=prefix: {p + name: tensor for name, tensor in all.items()}),
        )
    for count in (1, 5, 20):
        yield (
            f"{count} tensors missing",
            _tensors(lambda all, c=count: {name: all[name] for name in sorted(all)[c:]}),
        )
    yield "one odd tensor name", _tensors(lambda all: all | {"\x1b[2J\x07\n": torch.zeros(1)})
    yield "one long row", _tensors(lambda all: all | {words: torch.zeros(1, 10**6)})
    yield "no axes", _tensors(lambda all: all | {words: torch.tensor(1.0)})
    for length in (0, 1, 2**40, 2**63, 2**64 - 1):
        yield (
            f"header of {length}",
            lambda folder, n=length: (folder / "model.safetensors").write_bytes(
                n.to_bytes(8, "little") + b"{}"
            ),
        )
    yield (
        "Git LFS",
        lambda folder: _write(
            folder / "model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 1\n"
        ),
    )
    for index in ({}, {"weight_map": {}}, {"weight_map": {"a": "../x"}}, {"weight_map": {"a": 3}}):

        def indexed(folder: Path, index: Any = index) -> None:
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))

        yield f"index {index}", indexed


def _pickles() -> Iterator[tuple[str, Change]]:
    from checkpoint.test_pickles import PICKLES, archive, older

    for name, pickled in PICKLES.items():
        for make in (archive, older):

            def change(folder: Path, pickled: bytes = pickled, make: Any = make) -> None:
                (folder / "model.safetensors").unlink()
                make(folder / "pytorch_model.bin", pickled)

            yield f"pickle, {make.__name__}: {name}", change
    for trailing in (0, 100, 70_000):

        def deflated(folder: Path, trailing: int = trailing) -> None:
            import zipfile

            (folder / "model.safetensors").unlink()
            path = folder / "pytorch_model.bin"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
                packed.writestr("archive/data.pkl", b"\x80\x02}.")
                packed.writestr("archive/data/0", bytes(200 << 20))
            path.write_bytes(path.read_bytes() + bytes(trailing))

        yield f"a deflated zip and {trailing} bytes", deflated


def _bombs() -> Iterator[tuple[str, Change]]:
    from tokenizer.test_foreign import BOMBS

    for name, make in BOMBS.items():

        def change(folder: Path, make: Any = make) -> None:
            content = json.loads((folder / "tokenizer.json").read_text())
            for key, value in make().items():
                if key == "model":
                    content[key] |= value
                else:
                    content[key] = value
            (folder / "tokenizer.json").write_text(json.dumps(content))

        yield f"tokenizer: {name}", change
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    for ids in ({"[UNK]": 0, "a": 10**9}, {"[UNK]": 0, "a": 0}, {"[UNK]": 0, "a": -1}, {}):
        content = {**model, "max_input_chars_per_word": 100, "vocab": ids}
        yield f"vocabulary {ids}", _setting("tokenizer.json", "model", content)
    many = [{"id": 9, "content": f"t{n}", "special": False, "normalized": True, "lstrip": False,
             "rstrip": False, "single_word": False} for n in range(20_000)]  # fmt: skip
    yield "20,000 added tokens", _setting("tokenizer.json", "added_tokens", many)
    for length in (0, -5, 10**30, 1.5, "x", None, [], True):
        yield (
            f"model_max_length {length}",
            _setting("tokenizer_config.json", "model_max_length", length),
        )
    prompts = {"prompts": {"a": "x" * (1 << 19)}, "default_prompt_name": "a"}
    yield (
        "a long prompt",
        lambda folder: _write(folder / "config_sentence_transformers.json", json.dumps(prompts)),
    )


def _odd_files() -> Iterator[tuple[str, Change]]:
    for name in ("config.json", "model.safetensors", "tokenizer.json", "modules.json"):
        yield f"{name} missing", lambda folder, name=name: (folder / name).unlink()

        def replaced(folder: Path, kind: str, name: str = name) -> None:
            path = folder / name
            path.unlink()
            if kind == "folder":
                path.mkdir()
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "link to itself":
                path.symlink_to(name)
            else:
                path.symlink_to("/dev/zero")

        for kind in ("folder", "pipe", "link to itself", "link to /dev/zero"):
            yield f"{name} is a {kind}", lambda folder, kind=kind, r=replaced: r(folder, kind)
    yield "heads: labels of one name", _setting("config.json", "id2label", {"0": "A", "1": "A"})
    yield "heads: labels of odd keys", _setting("config.json", "id2label", {"²": "A", "x": "B"})
    yield (
        "heads: escape codes",
        _setting("config.json", "id2label", {"0": "\x1b[2J", "1": "\x1b]0;x\x07"}),
    )
