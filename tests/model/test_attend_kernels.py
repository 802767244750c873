"""Which attention kernel is chosen, and how it is called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bertsmith.batch import Layout
from bertsmith.kernels import ragged, short
from bertsmith.model import Scores, attend
from bertsmith.model.attend import choose
from model.tensors import HEADS, SCALE, qkv, relative


@pytest.mark.parametrize(
    ("device", "dtype", "window", "bias", "most", "width", "expected"),
    [
        ("cuda", torch.float16, None, False, 512, 64, "varlen"),
        ("cuda", torch.bfloat16, 64, False, 129, 64, "varlen"),
        ("cuda", torch.bfloat16, None, False, 128, 64, "short"),
        ("cuda", torch.float16, 64, False, 7, 32, "short"),
        ("cuda", torch.float16, None, False, 128, 24, "varlen"),  # no tile is so wide
        ("cuda", torch.float16, None, False, 0, 64, "varlen"),  # of any length
        ("cuda", torch.bfloat16, None, True, 128, 64, "relative"),
        ("cuda", torch.float16, None, True, 0, 32, "relative"),
        ("cuda", torch.bfloat16, None, True, 128, 24, "grouped"),
        ("cuda", torch.bfloat16, None, True, 128, 128, "grouped"),  # too wide
        ("cuda", torch.float32, None, True, 128, 64, "grouped"),
        ("cuda", torch.float32, None, False, 128, 64, "grouped"),
        ("cpu", torch.bfloat16, None, False, 128, 64, "runs"),
        ("cpu", torch.float32, 64, False, 512, 64, "runs"),
        ("cpu", torch.float32, None, True, 512, 64, "runs"),
        ("cuda", torch.float16, None, False, 512, 26, "grouped"),  # a small TinyBERT's heads
        ("cuda", torch.float16, None, False, 512, 512, "grouped"),
        ("mps", torch.float16, None, False, 128, 64, "grouped"),  # a GPU that has neither kernel
        ("xpu", torch.bfloat16, 64, False, 512, 64, "grouped"),
        ("mps", torch.float32, None, True, 128, 64, "grouped"),
    ],
)
def test_the_kernel_is_chosen_by_device_dtype_and_length(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    dtype: torch.dtype,
    window: int | None,
    bias: bool,
    most: int,
    width: int,
    expected: str,
) -> None:
    monkeypatch.setattr(short, "TRITON", True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    shape = (10, HEADS, width)
    query: Any = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=shape)
    scores = Scores(1.0, window, relative(Layout.of([2])) if bias else None)
    assert choose(query, scores, most) == expected
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    older = expected if device == "cpu" else "grouped"  # a T4 has none of the kernels
    assert choose(query, scores, most) == older
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(short, "TRITON", False)
    without = {"short": "varlen", "relative": "grouped"}
    assert choose(query, scores, most) == without.get(expected, expected)


def test_full_rows_have_a_kernel_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    query: Any = SimpleNamespace(
        device=torch.device("cuda"), dtype=torch.bfloat16, shape=(1024, HEADS, 64)
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert choose(query, Scores(1.0), 512, full=True) == "full"
    assert choose(query, Scores(1.0, 600), 512, full=True) == "full"
    assert choose(query, Scores(1.0, 64), 512, full=True) == "varlen"
    assert choose(query, Scores(1.0), 512) == "varlen"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert choose(query, Scores(1.0), 512, full=True) == "varlen"


def test_full_rows_are_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: torch's other kernels take the place of cuDNN's."""

    def attended(q: Tensor, k: Tensor, v: Tensor, *how: Any, scale: float) -> tuple[Tensor]:
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return (sdpa(q, k, v, is_causal=how[3], scale=scale),)

    operators = SimpleNamespace(_scaled_dot_product_cudnn_attention=attended)
    library = SimpleNamespace(ops=SimpleNamespace(aten=operators))
    monkeypatch.setattr(ragged, "torch", library)
    layout = Layout.of([6] * 4, most=6)
    assert layout.full
    rows = [torch.randn(24, HEADS, 16) for _ in range(3)]
    for scores in (Scores(0.3), Scores(0.3, causal=True), Scores(0.3, 5)):
        found = attend(*rows, layout, scores, kernel="full")
        torch.testing.assert_close(found, attend(*rows, layout, scores, kernel="reference"))
    with pytest.raises(ValueError, match="no windows"):
        attend(*rows, layout, Scores(0.3, 2), kernel="full")


def test_an_unknown_kernel_is_refused() -> None:
    layout = Layout.of([3])
    with pytest.raises(KeyError, match="flash"):
        attend(*qkv(layout), layout, Scores(1.0), kernel="flash")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch's ragged kernel, which no CPU has, is called with; it doubles the queries."""
    seen: list[dict[str, Any]] = []
    names = ["cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "debug"]

    def fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        seen.append(dict(zip(names, rest, strict=True)) | options)
        return query * 2, None

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", fake)
    return seen


def test_varlen_is_called_with_boundaries(calls: list[dict[str, Any]]) -> None:
    layout = Layout.of([4, 9, 2])
    query, key, value = qkv(layout)
    out = attend(query, key, value, layout, Scores(SCALE), 0.25, kernel="varlen")
    assert torch.equal(out, query * 2)
    (call,) = calls
    assert call["cum_seq_q"].tolist() == call["cum_seq_k"].tolist() == [0, 4, 13, 15]
    assert call["cum_seq_q"].dtype == torch.int32
    assert (call["max_q"], call["max_k"], call["scale"]) == (9, 9, SCALE)
    assert (call["dropout_p"], call["is_causal"], call["debug"]) == (0.25, False, False)
    assert "window_size_left" not in call


def test_varlen_gets_a_window_where_one_matters(calls: list[dict[str, Any]]) -> None:
    layout = Layout.of([4, 9, 2])
    for window in (3, 7, 8):
        attend(*qkv(layout), layout, Scores(SCALE, window), kernel="varlen")
    attend(*qkv(layout), layout, Scores(SCALE, 3, causal=True), kernel="varlen")
    sides = [(call.get("window_size_left"), call.get("window_size_right")) for call in calls]
    assert sides == [(3, 3), (7, 7), (None, None), (3, 0)]
    assert [call["is_causal"] for call in calls] == [False, False, False, True]


def test_varlen_refuses_what_it_cannot_do() -> None:
    layout = Layout.of([4])
    with pytest.raises(ValueError, match="computes a relative bias"):
        attend(*qkv(layout), layout, Scores(1.0, bias=relative(layout)), kernel="varlen")


def test_this_torch_takes_what_we_pass() -> None:
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[3:10] == [
        "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask",
    ]  # fmt: skip
    assert {"scale", "window_size_left", "window_size_right"} <= set(names)
