"""Old pickled weights: read without running anything, and refused where they are damaged."""

from __future__ import annotations

import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.checkpoint import read
from checkpoint.folders import copy, outcome, refused, settings

WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def pickled(good: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Make a directory with a pytorch_model.bin that holds what is given."""

    def make(content: Any = None, **options: Any) -> Path:
        folder = copy(good["bert"], tmp_path / "pickled")
        stored = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        if callable(content):
            content = content(stored)
        torch.save(stored if content is None else content, folder / "pytorch_model.bin", **options)
        return folder

    return make


@pytest.mark.parametrize("modern", [True, False])
def test_pickles_of_tensors_are_read(
    modern: bool, good: dict[str, Path], pickled: Callable[..., Path]
) -> None:
    folder = pickled(_use_new_zipfile_serialization=modern)
    assert_same(read(folder), read(good["bert"]))


def assert_same(one: Any, other: Any) -> None:
    before, after = (dict(each.model.named_parameters()) for each in (one, other))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert one.report == other.report


@pytest.mark.parametrize("modern", [True, False])
def test_pickled_views_parameters_and_shared_tensors(
    modern: bool, good: dict[str, Path], pickled: Callable[..., Path]
) -> None:
    def spread(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = "bert.encoder.layer.0.intermediate.dense.weight"
        stored[name] = stored[name].T.contiguous().T  # another order in memory
        stored["bert.pooler.dense.weight"] = torch.nn.Parameter(stored["bert.pooler.dense.weight"])
        stored["cls.predictions.decoder.weight"] = stored[WORDS]
        return stored

    found = read(pickled(spread, _use_new_zipfile_serialization=modern))
    assert found.report.repeated == ("cls.predictions.decoder.weight",)
    for ours, theirs in zip(
        found.model.parameters(), read(good["bert"]).model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
        assert ours.is_contiguous()


def test_the_model_outlives_its_file(pickled: Callable[..., Path]) -> None:
    """Nothing of a model hangs on a file that others may change."""
    for folder, name in ((pickled(), "pytorch_model.bin"),):
        found = read(folder)
        before = [parameter.clone() for parameter in found.model.parameters()]
        weights = folder / name
        with weights.open("r+b") as file:
            file.write(b"\0" * weights.stat().st_size)
            file.truncate(10)
        assert all(map(torch.equal, before, found.model.parameters()))


def test_pickled_shards(good: dict[str, Path], pickled: Callable[..., Path]) -> None:
    folder = pickled()
    stored = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    places = {}
    for number in range(3):
        part = {name: stored[name] for name in sorted(stored)[number::3]}
        torch.save(part, folder / f"part-{number}.bin")
        places |= dict.fromkeys(part, f"part-{number}.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert_same(read(folder), read(good["bert"]))


class Evil:
    """A pickle that runs a command when it is read as pickles are."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["zip", "legacy", "plain"])
def test_pickles_run_nothing(how: str, pickled: Callable[..., Path], tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    def poison(stored: dict[str, Any]) -> dict[str, Any]:
        return {**stored, "extra": Evil(marker)}

    folder = pickled(poison, _use_new_zipfile_serialization=how == "zip")
    if how == "plain":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(marker)))
    message = refused(folder, "pytorch_model.bin")
    assert "weights_only" not in message  # no advice to switch the guard off
    assert not marker.exists()
    pickle.loads(pickle.dumps(Evil(marker)))
    assert marker.exists()  # the poison was real


NOT_WEIGHTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda stored: list(stored.values()),
    "a tensor": lambda stored: stored[WORDS],
    "a number": lambda stored: 5,
    "an empty dict": lambda stored: {},
    "a nested dict": lambda stored: {"weights": stored},
    "a dict of a dict": lambda stored: {"state_dict": {"state_dict": stored}},
    "no tensors": lambda stored: dict.fromkeys(stored, 1.0),
    "a module": lambda stored: torch.nn.Linear(2, 2),
    "other keys": lambda stored: dict(enumerate(stored.values())),
    "integers": lambda stored: {**stored, WORDS: stored[WORDS].to(torch.int8)},
    "sparse": lambda stored: {**stored, WORDS: stored[WORDS].to_sparse()},
    "no memory": lambda stored: {**stored, WORDS: stored[WORDS].to("meta")},
    "nested tensor": lambda stored: {
        **stored, WORDS: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    },
    "quantised": lambda stored: {
        **stored, WORDS: torch.quantize_per_tensor(stored[WORDS], 0.1, 0, torch.qint8)
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", NOT_WEIGHTS)
def test_pickles_of_other_things(case: str, pickled: Callable[..., Path]) -> None:
    refused(pickled(NOT_WEIGHTS[case]))


@pytest.mark.parametrize("modern", [True, False])
def test_pickled_tensors_that_claim_to_be_huge(modern: bool, pickled: Callable[..., Path]) -> None:
    """One number spread over 36 GB, and a config.json that asks for just that."""
    rows, wide = 1_000_000, 8
    for size in (rows, 1000 * rows):
        folder = pickled(
            lambda stored, size=size: {**stored, WORDS: torch.zeros(1).expand(size, wide)},
            _use_new_zipfile_serialization=modern,
        )
        settings(folder, vocab_size=min(size, 10_000_000))
        refused(folder)
        (folder / "config.json").unlink()
        (folder / "pytorch_model.bin").unlink()
        (folder / "bertsmith.json").unlink()
        folder.rmdir()


@pytest.mark.parametrize("modern", [True, False])
def test_truncated_pickles(modern: bool, pickled: Callable[..., Path]) -> None:
    folder = pickled(_use_new_zipfile_serialization=modern)
    weights = folder / "pytorch_model.bin"
    raw = weights.read_bytes()
    for size in (0, 1, 10, 100, len(raw) // 3, len(raw) // 2, len(raw) - 1):
        weights.write_bytes(raw[:size])
        refused(folder, "pytorch_model.bin")


@pytest.mark.parametrize("modern", [True, False])
def test_flipped_pickles(modern: bool, pickled: Callable[..., Path]) -> None:
    folder = pickled(_use_new_zipfile_serialization=modern)
    weights = folder / "pytorch_model.bin"
    raw = weights.read_bytes()
    draw = random.Random(0)
    for _ in range(150):
        flipped = bytearray(raw)
        for _ in range(draw.choice((1, 5, 100))):
            flipped[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        weights.write_bytes(flipped)
        outcome(folder)


def test_compressed_pickles(pickled: Callable[..., Path]) -> None:
    """The mapped reader would take compressed bytes for numbers; and they could be a bomb."""
    folder = pickled()
    weights = folder / "pytorch_model.bin"
    with zipfile.ZipFile(weights) as plain:
        content = {name: plain.read(name) for name in plain.namelist()}
    with zipfile.ZipFile(weights, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in content.items():
            packed.writestr(name, data)
    refused(folder, "compressed")
