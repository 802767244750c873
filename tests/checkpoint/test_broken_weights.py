"""Weights that are damaged, that lie, or that would run code: one line each, soon."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.checkpoint import read
from checkpoint.folders import header, outcome, refused, settings, tensors

WORDS = "bert.embeddings.word_embeddings.weight"


def test_truncated_anywhere(bert: Path) -> None:
    weights = bert / "model.safetensors"
    raw = weights.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    near = [0, 1, 7, 8, 9, 8 + length - 1, 8 + length, 8 + length + 1, len(raw) - 1]
    for size in {*near, *range(0, len(raw), len(raw) // 50)}:
        weights.write_bytes(raw[:size])
        refused(bert, "model.safetensors")


def test_more_than_the_header_says(bert: Path) -> None:
    weights = bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    refused(bert, "model.safetensors")


def test_flipped_bytes(bert: Path) -> None:
    """Damage to the header is refused or harmless; damage to the values is not ours to see."""
    weights = bert / "model.safetensors"
    raw = weights.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    draw = random.Random(0)
    survived = 0
    for _ in range(600):
        flipped = bytearray(raw)
        for _ in range(draw.choice((1, 1, 1, 3, 20))):
            flipped[draw.randrange(8 + length)] ^= 1 << draw.randrange(8)
        weights.write_bytes(flipped)
        survived += not outcome(bert)
    assert survived < 100


@pytest.mark.parametrize(
    "length", [0, 1, 2**20, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 100_000_001]
)
def test_header_length_lies(bert: Path, length: int) -> None:
    weights = bert / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", length) + weights.read_bytes()[8:])
    refused(bert, "model.safetensors")


def change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content[WORDS].update(fields)


HEADERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "overlapping": change(data_offsets=[4, 4 + 23 * 8 * 4]),
    "out of range": change(data_offsets=[10**9, 10**9 + 23 * 8 * 4]),
    "backwards": change(data_offsets=[23 * 8 * 4, 0]),
    "negative offsets": change(data_offsets=[-4, 23 * 8 * 4 - 4]),
    "too few offsets": change(data_offsets=[0]),
    "offsets of text": change(data_offsets=["0", "736"]),
    "another shape": change(shape=[23, 9]),
    "negative shape": change(shape=[-23, -8]),
    "overflowing shape": change(shape=[2**32, 2**32, 23, 8]),
    "huge shape": change(shape=[2**62, 8]),
    "fractional shape": change(shape=[23.0, 8]),
    "deep shape": change(shape=[1] * 100_000),
    "unknown dtype": change(dtype="F31"),
    "no dtype": change(dtype=None),
    "a tensor that is a number": lambda content: content.update({WORDS: 5}),
    "metadata that is a list": lambda content: content.update(__metadata__=[1]),
    "no tensors": lambda content: content.clear(),
    "ten thousand of one place": lambda content: content.update(
        {f"x{number}": content[WORDS] for number in range(10_000)}
    ),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_lie(case: str, bert: Path) -> None:
    header(bert, HEADERS[case])
    refused(bert)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"{" * 5000, b'{"a":' * 5000]
)
def test_header_is_not_what_it_should_be(text: bytes, bert: Path) -> None:
    data = struct.pack("<Q", len(text)) + text
    (bert / "model.safetensors").write_bytes(data)
    refused(bert, "model.safetensors")


def test_header_with_too_many_tensors(bert: Path) -> None:
    def fill(content: dict[str, Any]) -> None:
        end = max(entry["data_offsets"][1] for key, entry in content.items() if key[0] != "_")
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        content.update({f"x{number}": empty for number in range(200_000)})

    header(bert, fill)
    refused(bert, "200,", seconds=10)


def test_no_tensors(bert: Path) -> None:
    save_file({}, bert / "model.safetensors")
    refused(bert, "no tensors")


def test_wrong_shapes(bert: Path) -> None:
    name = "bert.encoder.layer.1.attention.self.key.weight"
    tensors(bert, lambda stored: stored.update({name: torch.zeros(8, 9)}))
    message = refused(bert, "model.safetensors")
    assert f"{name} has shape [8, 9], but config.json asks for [8, 8]" in message


def test_wrong_vocabulary_size(bert: Path) -> None:
    settings(bert, vocab_size=24)
    assert f"{WORDS} has shape [23, 8], but config.json asks for [24, 8]" in refused(bert)


def test_missing_tensors_are_named(bert: Path) -> None:
    gone = "bert.encoder.layer.1.output.dense.bias"
    tensors(bert, lambda stored: stored.pop(gone))
    assert "1 tensors" in refused(bert, gone)
    tensors(bert, lambda stored: [stored.pop(name) for name in list(stored) if "layer.0" in name])
    assert "more" in refused(bert, "bert.encoder.layer.0.")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool])
def test_weights_that_are_not_real_numbers(dtype: torch.dtype, bert: Path) -> None:
    tensors(bert, lambda stored: stored.update({WORDS: stored[WORDS].to(dtype)}))
    refused(bert, WORDS)


def test_eight_bit_floats_need_scales_we_do_not_know(bert: Path) -> None:
    tensors(bert, lambda stored: stored.update({WORDS: stored[WORDS].to(torch.float8_e4m3fn)}))
    refused(bert, "float8")


# ------------------------------------------------------------------ where there is no model


def test_no_directory(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no such directory")
    refused(tmp_path / ("x" * 5000))
    refused(Path("a\0b"))


def test_a_file_is_no_directory(bert: Path) -> None:
    refused(bert / "config.json", "no such directory")


def test_no_weights(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    refused(bert, "model.safetensors")
    (bert / "model.safetensors").mkdir()
    refused(bert, "model.safetensors")


def test_a_link_to_nothing(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "model.safetensors").symlink_to("gone")
    refused(bert)
    (bert / "config.json").unlink()
    (bert / "config.json").symlink_to("config.json")
    refused(bert, "config.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "."])
def test_no_permission(name: str, bert: Path) -> None:
    (bert / name).chmod(0)
    try:
        refused(bert)
    finally:
        (bert / name).chmod(0o700)


# ------------------------------------------------------------------ several files


def split(folder: Path, **index: Any) -> Path:
    """Spread the weights over two files, with an index as given."""
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(stored)
    half = len(names) // 2
    for file, part in (("a.safetensors", names[:half]), ("b.safetensors", names[half:])):
        save_file({name: stored[name] for name in part}, folder / file)
    places = {
        name: f"{'a' if place < half else 'b'}.safetensors" for place, name in enumerate(names)
    }
    content = {"weight_map": {**places, **index}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))
    return folder


def test_shards_are_read(good: dict[str, Path], bert: Path) -> None:
    whole, parts = read(good["bert"]), read(split(bert))
    assert parts.report == whole.report
    for before, after in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(before, after)


def test_a_tensor_the_index_forgets_is_not_lost(bert: Path) -> None:
    split(bert)
    save_file({"extra": torch.zeros(1)}, bert / "c.safetensors")
    index = bert / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["bert.embeddings.LayerNorm.weight"]
    index.write_text(json.dumps(content))
    assert read(bert).report.unused == ()


@pytest.mark.parametrize(
    "file",
    ["../model.safetensors", "/etc/passwd", "a\0b", "..", ".", "", "sub/x.safetensors", "gone",
     "a.safetensors/", "x" * 5000, "new\nline", 5, None, ["a.safetensors"], {"a": 1}, True],
)  # fmt: skip
def test_index_names_files_that_it_must_not(file: Any, bert: Path) -> None:
    (bert.parent / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes())
    split(bert, **{WORDS: file})
    refused(bert)


def test_index_names_a_directory(bert: Path) -> None:
    (bert / "folder.safetensors").mkdir()
    refused(split(bert, **{WORDS: "folder.safetensors"}), "folder.safetensors")


def test_index_lists_what_is_not_there(bert: Path) -> None:
    refused(split(bert, ghost="a.safetensors"), "'ghost'")
    refused(split_again(bert, "new\nline"), "new\\nline")


def split_again(folder: Path, name: str) -> Path:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: "a.safetensors"}}))
    return folder


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_index_is_not_an_index(content: str, bert: Path) -> None:
    split(bert)
    (bert / "model.safetensors.index.json").write_text(content)
    refused(bert, "model.safetensors.index.json")


def test_a_shard_is_missing_or_broken(bert: Path) -> None:
    split(bert)
    shard = bert / "b.safetensors"
    shard.write_bytes(shard.read_bytes()[:-5])
    refused(bert, "b.safetensors")
    shard.unlink()
    refused(bert, "b.safetensors")


def test_links_as_in_the_hub_cache(bert: Path, tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, name in enumerate(("config.json", "model.safetensors")):
        (bert / name).rename(blobs / str(number))
        (bert / name).symlink_to(f"../blobs/{number}")
    assert read(bert).report.unused == ()
