"""What is compiled, and that one graph fits all batches."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import create
from bertsmith.examples import Example
from bertsmith.model import Encoder
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.train import compiling
from bertsmith.train.compiling import compile_rows

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
MODERNBERT = {**BERT, "model_type": "modernbert", "pad_token_id": 0, "max_position_embeddings": 64}


def together(settings: dict[str, Any]) -> MultiObjective:
    return MultiObjective(create(settings, seed=0).model.train(), [MaskedTokens()], {})


def compiled_in(module: torch.nn.Module) -> set[str]:
    names = {"run", "forward", "finish", "place", "score"}
    return {name for part in module.modules() for name in names if name in vars(part)} - {"score"}


@pytest.mark.parametrize(
    ("settings", "device", "whole", "expected"),
    [
        (BERT, True, True, {"run"}),
        (BERT, True, False, {"forward"}),
        (BERT, False, True, {"finish"}),
        (MODERNBERT, True, True, {"run"}),
        (MODERNBERT, False, True, {"finish", "place"}),
        (DEBERTA, True, True, {"finish"}),
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
    learner = together(settings)
    compile_rows(learner, whole=whole)
    assert compiled_in(learner) == expected


class Untold(tuple[int, ...]):
    """Lengths that nobody may look at."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("a graph must not depend on lengths")

    __len__ = __iter__ = __getitem__ = _refuse


def example(*lengths: int, tokens: int = 96) -> Example:
    sizes = [*lengths, tokens - sum(lengths)]
    ids = torch.randint(5, 100, (tokens,), generator=torch.Generator().manual_seed(len(sizes)))
    layout = replace(Layout.of(sizes, most=32), lengths=Untold(sizes))
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
