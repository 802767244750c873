"""What can be exported as a page, what cannot, and how weights are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, normalizers, pre_tokenizers

from bertsmith.errors import BertsmithError
from bertsmith.explorer import explorer
from bertsmith.explorer.weights import GROUP, pack, quantise
from bertsmith.tokenizer import Tokenizer
from explorer.models import tiny


def test_int8_errs_by_half_a_step_at_most() -> None:
    values = np.random.default_rng(0).normal(size=(5, 2 * GROUP + 7)).astype(np.float32)
    values[2, :GROUP] = 0
    codes, scales = quantise(values)
    restored = codes * np.repeat(scales, GROUP, 1)[:, : values.shape[1]]
    assert codes.dtype == np.int8
    assert np.abs(restored - values).max() <= np.abs(values).max() / 254 + 1e-6
    assert not restored[2, :GROUP].any()


def test_shared_tensors_are_stored_once() -> None:
    table = torch.randn(6, 4)
    packed = pack({"a": table, "b": table, "bias": torch.ones(3)}, "float16")
    assert packed.entries["b"] == {"alias": "a"}
    assert len(packed.data) == 6 * 4 * 2 + 3 * 4
    assert packed.entries["bias"]["kind"] == "float32"


def test_broken_weights_are_refused() -> None:
    with pytest.raises(BertsmithError, match="not finite"):
        pack({"a": torch.full((2, 2), float("nan"))})
    with pytest.raises(BertsmithError, match="int8"):
        pack({}, "int4")


@pytest.mark.parametrize(
    ("part", "step", "message"),
    [
        ("pre_tokenizer", pre_tokenizers.Digits(), "pre-tokenizer Digits"),
        ("pre_tokenizer", pre_tokenizers.Punctuation("merged_with_next"), "MergedWithNext"),
        ("normalizer", normalizers.Nmt(), "normalizer Nmt"),
        ("normalizer", normalizers.Replace(Regex("(?i)a"), "b"), "regular expression"),
    ],
)
def test_unknown_tokenizers_are_refused(part: str, step: Any, message: str, tmp_path: Path) -> None:
    bert = tiny("bert")
    words = Tokenizer(bert.tokenizer.parts)
    backend = type(words.backend).from_str(words.backend.to_str())
    setattr(backend, part, step)
    bert.tokenizer = Tokenizer(words.parts._replace(backend=backend))
    with pytest.raises(BertsmithError, match=message) as refusal:
        explorer(bert, tmp_path / "page.html")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "page.html").exists()
