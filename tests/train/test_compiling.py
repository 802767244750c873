"""What is compiled, and that one graph fits all batches."""

import math
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

from bertsmith import kernels
from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.examples import Example
from bertsmith.kernels import runs_relative, short
from bertsmith.model import Encoder
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.train import compiling
from bertsmith.train.compiling import compile_rows
from bertsmith.train.precision import Precision

BERT = {
    "model_type": "bert",
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
DEBERTA = {**BERT, "model_type": "deberta-v2", "relative_attention": True, "pos_att_type": ["p2c"]}
DEBERTA_V1 = {**DEBERTA, "model_type": "deberta", "pos_att_type": ["c2p", "p2c"]}
DEBERTA_V3 = {
    **DEBERTA,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
}
CONVOLUTION = {**DEBERTA_V3, "conv_kernel_size": 3, "conv_act": "gelu"}
MODERNBERT = {**BERT, "model_type": "modernbert", "pad_token_id": 0, "max_position_embeddings": 64}


def together(settings: dict[str, Any]) -> MultiObjective:
    return MultiObjective(create(settings, seed=0).model.train(), [MaskedTokens()], {})


def compiled_in(module: torch.nn.Module) -> set[str]:
    names = {"run", "combine", "forward", "finish", "place", "score"}
    return {name for part in module.modules() for name in names if name in vars(part)} - {"score"}


@pytest.mark.parametrize(
    ("settings", "device", "whole", "expected"),
    [
        (BERT, True, True, {"run", "combine"}),
        (BERT, True, False, {"forward"}),
        (BERT, False, True, {"finish"}),
        (MODERNBERT, True, True, {"run", "combine"}),
        (MODERNBERT, False, True, {"finish", "place"}),
        (DEBERTA, True, True, {"run", "combine"}),
        (DEBERTA, True, False, {"forward"}),
        (DEBERTA, False, True, {"finish"}),
        ({**DEBERTA, "num_attention_heads": 4}, True, True, {"finish", "combine"}),  # heads 8 wide
    ],
)
def test_as_much_is_compiled_as_depends_on_no_lengths(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    device: bool,
    whole: bool,
    expected: set[str],
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(compiling, "_is_there", lambda module: device)
    monkeypatch.setattr(compiling, "runs_relative", lambda width, _: device and width == 16)
    learner = together(settings)
    compile_rows(learner, whole=whole)
    assert compiled_in(learner) == expected


@pytest.mark.parametrize("settings", [BERT, DEBERTA])
def test_float32_needs_the_lengths(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(compiling, "_is_there", lambda module: True)
    monkeypatch.setattr(compiling, "runs_relative", lambda *_: True)
    learner = together(settings)
    compile_rows(learner, half=False)
    assert compiled_in(learner) == {"finish", "combine"}


@pytest.mark.parametrize(
    ("triton", "capability", "device", "width", "expected"),
    [
        (True, (8, 0), "cuda", 16, True),
        (True, (9, 0), "cuda", 64, True),
        (True, (7, 5), "cuda", 64, False),
        (False, (9, 0), "cuda", 64, False),
        (True, (9, 0), "cpu", 64, False),
        (True, (9, 0), "cuda", 128, False),
    ],
)
def test_where_the_kernel_for_relative_positions_runs(
    monkeypatch: pytest.MonkeyPatch,
    triton: bool,
    capability: tuple[int, int],
    device: str,
    width: int,
    expected: bool,
) -> None:
    monkeypatch.setattr(short, "TRITON", triton)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert runs_relative(width, torch.device(device)) is expected
    traced = torch.compile(
        lambda x: x + 1 if runs_relative(width, torch.device(device)) else x - 1,
        backend="eager",
        fullgraph=True,
    )
    torch._dynamo.reset()
    assert float(traced(torch.zeros(()))) == (1.0 if expected else -1.0)


class Untold(tuple[int, ...]):
    """Lengths that nobody may look at."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("a graph must not depend on lengths")

    __len__ = __iter__ = __getitem__ = _refuse


def example(*lengths: int, tokens: int = 96, most: int = 32) -> Example:
    sizes = [*lengths, tokens - sum(lengths)]
    ids = torch.randint(5, 100, (tokens,), generator=torch.Generator().manual_seed(len(sizes)))
    layout = replace(Layout.of(sizes, most=most), lengths=Untold(sizes))
    batch = Batch(ids, torch.zeros_like(ids), layout)
    rows = torch.arange(0, tokens, 7)
    return Example(batch, rows, ids[rows], None, len(sizes), tokens)


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for CPUs")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(BERT, id="bert", marks=pytest.mark.slow),
        pytest.param(MODERNBERT, id="modernbert"),
    ],
)
def test_one_graph_fits_batches_of_any_lengths(settings: dict[str, Any]) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")
    learner = together(settings)
    learner.model.use_kernel("short")
    examples = [example(10, 20, 30, 20), example(7, 7, 7, 30, 30), example(*[12] * 7)]
    expected = [learner(one, learner.counts(one))[0] for one in examples]
    graphs = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    encoder: Encoder = learner.model.encoder
    torch._dynamo.reset()
    encoder.run = torch.compile(encoder.run, backend=count, fullgraph=True)  # type: ignore[method-assign]
    for one, loss in zip(examples, expected, strict=True):
        assert learner(one, learner.counts(one))[0].item() == loss.item()
    assert len(graphs) == 1


class PlainBands:
    """The programs of `kernels.bands` in torch. Gradients are stand-ins: only their path counts."""

    @staticmethod
    def forward(
        parts: Any, bands: Any, out: Any, sums: Any, seed: Any, ends: Any, *how: Any
    ) -> None:
        side, scale = bands[0].shape[-1] // 2, how[3]
        for begin, end in pairwise(ends.tolist()):
            rows = slice(begin, end)
            q, k, v = (x[rows].transpose(0, 1).float() for x in parts)
            place = torch.arange(end - begin)
            distance = place[:, None] - place + side
            scores = q @ k.mT * scale / math.log(2)
            if bands[0] is not None:
                scores = scores + bands[0][:, rows].float().gather(2, distance.expand_as(scores))
            if bands[1] is not None:
                met = bands[1][:, rows].float().gather(2, distance.expand_as(scores))
                scores = scores + met.mT
            total = scores.mul(math.log(2)).logsumexp(-1)
            sums[:, rows] = total / math.log(2)
            mixed = (scores * math.log(2) - total[..., None]).exp() @ v
            out[rows] = mixed.transpose(0, 1).to(out.dtype)

    @staticmethod
    def backward(parts: Any, bands: Any, joint: Any, *_: Any) -> Any:
        joint.copy_(parts[3][:, None].expand_as(joint))
        size = parts[3].abs().mean()
        return [None if band is None else band * size for band in bands]

    @staticmethod
    def by_distance(steps: Any, rows: Any) -> Any:
        return torch.einsum("htw,thd->whd", steps.float(), rows.float()).to(rows.dtype)


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        (DEBERTA_V3, torch.float32),
        *(
            pytest.param(settings, dtype, marks=pytest.mark.slow)
            for settings in (DEBERTA_V1, DEBERTA_V3, CONVOLUTION)
            for dtype in (torch.float32, torch.float16)
            if (settings, dtype) != (DEBERTA_V3, torch.float32)
        ),
    ],
)
def test_relative_positions_are_one_graph(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """The values and gradients of eager steps; a stage of longer sequences is one graph more."""
    monkeypatch.setitem(sys.modules, "bertsmith.kernels.bands", PlainBands)
    monkeypatch.setattr(kernels, "bands", PlainBands, raising=False)
    monkeypatch.setattr(kernels.relative, "TURNED", 0)
    learner = together({**settings, "num_hidden_layers": 2})
    learner.model.use_kernel("relative")
    module = Precision(dtype).wrap(learner)
    examples = [example(10, 20, 30, 20), example(7, 7, 7, 30, 29), example(20, 21, 22, 23)]
    longer = [example(40, 50, most=64), example(60, 10, 20, most=64)]

    def results(one: Example) -> list[torch.Tensor]:
        loss = module(one, learner.counts(one))[0]
        learner.zero_grad()
        loss.backward()
        grads = [weight.grad for weight in learner.parameters() if weight.grad is not None]
        return [loss.detach(), *(grad.clone() for grad in grads)]

    expected = [results(one) for one in (*examples, *longer)]
    graphs = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return aot_eager(graph, inputs)

    encoder: Encoder = learner.model.encoder
    torch._dynamo.reset()
    encoder.run = torch.compile(encoder.run, backend=count, fullgraph=True)  # type: ignore[method-assign]
    found = [results(one) for one in examples]
    assert len(graphs) == 1
    found += [results(one) for one in longer]
    assert len(graphs) == 2
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
