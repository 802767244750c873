"""int8: close to float32 in every family, stored and read again, proved on data or refused."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

import bertsmith as bs
from bertsmith import Bert, BertsmithError
from bertsmith.cpu import int8_weights, program
from bertsmith.cpu.int8 import even_layers
from bertsmith.cpu.program import fits_program, to_int8
from bertsmith.infer.opening import pangrams
from bertsmith.kernels import dequantize_weight, quantize_rows, quantize_weight
from bertsmith.kernels import int8 as engines
from cpu.texts import TEXTS
from serve.live import serving, tiny
from tasks.models import STEMS, Maker
from tasks.words import tokenizer

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


SMALLER: dict[str, dict[str, int]] = {
    "albert-base-v2": {**SIZES, "num_hidden_layers": 3, "embedding_size": 32},
    "distilbert-base-uncased": {"dim": 64, "hidden_dim": 128, "n_heads": 4, "n_layers": 2},
    "electra-small": {**SIZES, "num_hidden_layers": 2, "embedding_size": 32},
}


def cosines(a: Bert, b: Bert) -> np.ndarray:
    x, y = (one.embed(TEXTS, normalise=True) for one in (a, b))
    return (x * y).sum(1)


# ------------------------------------------------------------------ arithmetic


def test_quantized_weights_are_rounded_to_themselves() -> None:
    weight = torch.randn(64, 48) * torch.logspace(-6, 3, 64)[:, None]
    values, scale = quantize_weight(weight)
    again, scale_again = quantize_weight(values * scale[:, None])
    assert torch.equal(values, again)
    assert torch.equal(scale, scale_again)


def test_rows_of_zeros_stay_zeros() -> None:
    values, scale = quantize_rows(torch.zeros(2, 8))
    assert not values.any()
    assert (scale > 0).all()


def test_blocks_of_columns_have_scales_of_their_own() -> None:
    weight = torch.randn(8, 128)
    weight[:, 0] = 500
    values, scale = quantize_weight(weight, 2)
    assert scale.shape == (8, 2)
    change = (dequantize_weight(values, scale) - weight)[:, 64:].abs().max()
    assert change <= weight[:, 64:].abs().max() / 127
    assert torch.equal(values, quantize_weight(dequantize_weight(values, scale), 2)[0])


@pytest.mark.parametrize("name", engines.ENGINES)
def test_engines_are_exact(name: str) -> None:
    engine = engines.ENGINES[name]()
    weight = torch.randint(-127, 128, (40, 24), dtype=torch.int8)
    rows = torch.randint(-127, 128, (9, 24), dtype=torch.int8)
    with torch.inference_mode():
        product = engine.multiply(rows, engine.pack(weight))
    assert torch.equal(product.long(), rows.long() @ weight.long().T)


@pytest.fixture
def one_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """A machine with this engine alone."""

    def only(make: Any) -> None:
        monkeypatch.setattr(engines, "ENGINES", {"library": make})
        engines.int8_engine.cache_clear()

    yield only
    engines.int8_engine.cache_clear()


def test_without_an_engine_float32_multiplies_the_same_values(one_engine: Any) -> None:
    def missing() -> engines.Engine:
        raise ImportError("No module named 'library'")

    one_engine(missing)
    engine = engines.int8_engine().engine
    assert engine.name == "float32"
    weight = torch.randint(-127, 128, (40, 24), dtype=torch.int8)
    rows = torch.randint(-127, 128, (9, 24), dtype=torch.int8)
    product = engine.multiply(rows, engine.pack(weight))
    assert torch.equal(product.long(), rows.long() @ weight.long().T)


def test_an_engine_that_saturates_is_not_used(one_engine: Any) -> None:
    def saturating() -> engines.Engine:
        def multiply(rows: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
            return torch._int_mm(rows, packed).clamp(-32768, 32767)

        return engines.Engine("saturating", torch.Tensor.t, multiply)

    one_engine(saturating)
    assert engines.int8_engine().engine.name == "float32"


@pytest.mark.parametrize(("speeds", "chosen"), [((1.1, 1.3), "second"), ((1.6, 9.0), "first")])
def test_engines_are_chosen_by_measurement(
    speeds: tuple[float, float], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest; but where the first is fast, no other is tried."""
    pretend(monkeypatch, dict(zip(("first", "second"), speeds, strict=True)))
    assert engines.int8_engine().engine.name == chosen
    engines.int8_engine.cache_clear()


def test_engines_slower_than_float32_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"first": 0.4, "second": 0.7})
    assert engines.int8_engine().engine.name == "float32"
    engines.int8_engine.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, speeds: dict[str, float]) -> None:
    """A machine on which engines have these speeds, relative to float32."""

    def make(name: str) -> Any:
        return lambda: engines.Engine(name, torch.Tensor.t, torch._int_mm)

    monkeypatch.setattr(engines, "ENGINES", {name: make(name) for name in speeds})
    monkeypatch.setattr(
        engines, "_measured", lambda one: engines.EngineChoice(one, speeds[one.name])
    )
    engines.int8_engine.cache_clear()


def test_cpus_whose_signed_products_saturate_get_unsigned_weights(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ONNX Runtime does on x86 without VNNI instructions."""
    signed = bs.load(plain, dtype="int8").embed(TEXTS[:5])
    monkeypatch.setattr(program, "_is_exact", lambda kind, rows: kind == "uint8")
    program.exact_weights.cache_clear()
    bert = bs.load(plain, dtype="int8")
    assert np.allclose(bert.embed(TEXTS[:5]), signed, atol=1e-5)
    [(_, graph)] = bert.model.encoder.program.sessions.values()  # type: ignore[union-attr]
    kinds = {one.data_type for name, one in graph.values.items() if "weight" in name}
    assert kinds == {TensorProto.UINT8}
    monkeypatch.setattr(program, "_is_exact", lambda kind, rows: False)
    program.exact_weights.cache_clear()
    with pytest.raises(BertsmithError, match="not exact on this CPU; use float32"):
        bs.load(plain, dtype="int8")
    program.exact_weights.cache_clear()


def test_missing_onnxruntime_is_one_line(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(BertsmithError, match=r"int8 needs ONNX Runtime: pip install"):
        bs.load(plain, dtype="int8")


# ------------------------------------------------------------------ every family


@pytest.mark.parametrize("family", STEMS)
def test_every_family_is_close_to_float32(family: str, made: Maker) -> None:
    folder = made(family, "ForMaskedLM").folder
    check_close(folder, ["The cat sat.", "A dog barked at it for a long time.", "Go"])


@pytest.mark.parametrize("preset", SMALLER)
def test_other_families_too(preset: str, tmp_path: Path) -> None:
    words = tokenizer("albert" if "albert" in preset else "bert")
    made = bs.create(preset, vocab_size=words.size, **SMALLER[preset])
    Bert(made, words).save(tmp_path / "m")
    check_close(tmp_path / "m", TEXTS[::9])


def check_close(folder: Path, texts: list[str]) -> None:
    exact, int8 = (bs.load(folder, dtype=dtype, device="cpu") for dtype in ("float32", "int8"))
    x, y = (one.embed(texts, normalise=True) for one in (exact, int8))
    assert (x * y).sum(1).min() > 0.99
    alone = np.concatenate([int8.embed([text], normalise=True) for text in texts])
    assert (y * alone).sum(1).min() > 0.999
    assert int8_weights(int8.model)


def test_the_graph_agrees_with_torch_modules() -> None:
    bert = tiny()
    to_int8(bert.model)
    assert fits_program(bert.model.encoder)
    vectors = bert.embed(TEXTS)
    bert.model.encoder.program = None  # the same int8 weights, one torch module after the other
    assert np.abs(vectors - bert.embed(TEXTS)).max() < 0.1 * np.abs(vectors).max()


def test_changed_weights_change_the_results() -> None:
    bert = tiny()
    to_int8(bert.model)
    before = bert.embed(TEXTS[:3])
    with torch.no_grad():
        bert.model.encoder.blocks[0].attention.output.weight.mul_(-1)  # type: ignore[union-attr]
    assert np.abs(before - bert.embed(TEXTS[:3])).max() > 0.01


def test_single_texts_in_float32_change_to_the_graph(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are frequent; changed weights, hooks and other batches go back to torch."""
    bert = bs.load(plain, dtype="float32")
    few: Any = bert.model.encoder.program
    exact = bert.embed(TEXTS[0])
    for _ in range(program.OFTEN):
        bert.embed(TEXTS[0])
    for thread in threading.enumerate():
        if thread.name == few.thread_name:
            thread.join()
    assert few.sessions
    ran: list[int] = []
    compute = few._run
    monkeypatch.setattr(few, "_run", lambda x, seen: (ran.append(1), compute(x, seen))[1])
    assert np.allclose(bert.embed(TEXTS[0]), exact, atol=1e-5)
    assert len(ran) == 1
    bert.embed(["one", "and two or three"])
    layer: Any = bert.model.encoder.blocks[0].feedforward.down  # type: ignore[union-attr]
    called: list[int] = []
    hook = layer.register_forward_hook(lambda *_: called.append(1))
    assert np.allclose(bert.embed(TEXTS[0]), exact, atol=1e-5)
    assert called == [1]
    hook.remove()
    with torch.no_grad():
        layer.weight.mul_(-1)
    assert np.abs(bert.embed(TEXTS[0]) - exact).max() > 0.01
    assert len(ran) == 1
    assert not few.sessions


def test_a_layer_that_was_replaced_changes_the_results() -> None:
    bert = tiny()
    to_int8(bert.model)
    before = bert.embed(TEXTS[0])
    feedforward: Any = bert.model.encoder.blocks[0].feedforward  # type: ignore[union-attr]
    feedforward.down = torch.nn.Linear(feedforward.down.in_features, feedforward.down.out_features)
    assert np.abs(before - bert.embed(TEXTS[0])).max() > 0.01


def test_tokens_share_a_scale_only_where_inputs_are_even() -> None:
    class Spike(torch.nn.GELU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([1000 * super().forward(x[:1]), super().forward(x[1:])])

    bert = tiny()
    even = even_layers(bert.model, pangrams(bert))
    assert "encoder.blocks.0.attention.qkv" in even
    block: Any = bert.model.encoder.blocks[0]
    block.feedforward.activation = Spike()
    spoiled = even_layers(bert.model, pangrams(bert))
    assert "encoder.blocks.0.feedforward.down" not in spoiled
    assert "encoder.blocks.0.attention.qkv" in spoiled


def test_static_tables(tmp_path: Path) -> None:
    exact, int8 = (bs.load("bertsmith-embed", dtype=one) for one in ("float32", "int8"))
    texts = ["A cat sat on the mat.", "The bank raised its rates.", "Go home"]
    x, y = (one.embed(texts, normalise=True) for one in (exact, int8))
    assert (x * y).sum(1).min() > 0.995  # it has columns of outliers
    int8.save(tmp_path / "out")
    size = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert size < 1.1 * sum(one.numel() for one in exact.model.parameters())
    assert np.allclose(bs.load(tmp_path / "out").embed(texts), int8.embed(texts), atol=1e-5)


def test_other_uses_of_an_int8_model(plain: Path) -> None:
    int8 = bs.load(plain, dtype="int8")
    assert int8.attention(TEXTS[0]) is not None
    assert len(int8.states(TEXTS[:2], depth=[0, 1])) == 2
    assert int8.classify(TEXTS[:2])


def test_the_canary_measures_the_drift() -> None:
    exact, int8 = tiny(), tiny()
    to_int8(int8.model)
    from bertsmith.serve import ServingSettings

    with serving({"m": int8}, ServingSettings(canary=2), originals={"m": exact}) as client:
        for text in TEXTS[:6]:
            assert client.post("/embed", json={"inputs": text}).status_code == 200
        said = client.get("/metrics").text
    assert 'bertsmith_canary_drift_count{model="m"} 3.0' in said
    total = next(one for one in said.splitlines() if one.startswith("bertsmith_canary_drift_sum"))
    assert 0 < float(total.split()[-1]) < 0.3
