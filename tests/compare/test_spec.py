"""Specs: those that come with the package are sound, bad ones are one line."""

from pathlib import Path

import pytest

from bertsmith.compare.budget import cost_of, with_steps
from bertsmith.compare.spec import SPECS, checked_spec, load_spec, spec_names
from bertsmith.errors import BertsmithError
from bertsmith.train import load_recipe


class Sized:
    """A tokenizer without words."""

    pad_id = cls_id = sep_id = None
    size = 600


@pytest.mark.parametrize("name", spec_names())
def test_specs_of_the_package_are_sound(name: str) -> None:
    spec = load_spec(name)
    assert spec.about
    assert name in ("family", "bert-ablations", "masking-rate", "size-ladder", "cramming") or (
        name == "static-to-contextual"
    )
    for variant in spec.variants:
        recipe = spec.recipe(variant)
        assert recipe is not None
        assert not recipe.train.ramp_from  # every step has the same number of tokens
        for kind in set(spec.budget.kinds()) - {"minutes"}:
            cost = cost_of(recipe, Sized(), kind, getattr(spec.budget, kind), variant)
            trained = with_steps(recipe, cost, seed=3)
            assert trained.train.steps == cost.steps
            assert trained.train.seed == 3
            assert cost.steps % 4 == 0
    assert checked_spec(load_spec(name).model_dump(), name) == spec


def test_family_has_all_eight() -> None:
    spec = load_spec("family")
    sizes = {spec.recipe(name).model.size for name in spec.variants}  # type: ignore[union-attr]
    assert len(spec.variants) == len(sizes) == 8


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (["budget.tokens=0"], "no budget"),
        (["budgte.tokens=1"], "unknown key budgte; did you mean budget"),
        (["variants.bert.recpie='x'"], "variants.bert.recpie; did you mean variants.bert.recipe"),
        (["variants.bert.model='x'"], "one of recipe, model and static, not recipe and model"),
        (["variants.new.settings={}"], "variants.new needs one of .* has none"),
        (["variants.new.static='bret'"], "no variant 'bret' .* did you mean bert"),
        (["variants.a b.recipe='tiny-bert'"], "a name has letters"),
        (["variants={}"], "no variants"),
        (["finetune.at=[0.3]"], "finetune.at: should be some of"),
        (["finetune.learning_rates=[]"], "finetune.learning_rates"),
        (["tasks.sst2.trian=3"], "did you mean tasks.sst2.train"),
        (["seeds=0"], "seeds"),
        (["variants={m={model='x'}}", "tasks={}"], "compared on tasks"),
    ],
)
def test_bad_specs_are_one_line(changes: list[str], fault: str) -> None:
    with pytest.raises(BertsmithError, match=fault) as error:
        load_spec("family", changes)
    assert "\n" not in str(error.value)


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="did you mean family"):
        load_spec("famly")
    with pytest.raises(BertsmithError, match="did you mean tiny-bert"):
        load_spec("family", ["variants.bert.recipe='tiny-bret'"]).recipe("bert")
    with pytest.raises(BertsmithError, match=r"variant bert: unknown key train.stepz"):
        load_spec("family", ["variants.bert.settings.train.stepz=1"]).recipe("bert")
    own = tmp_path / "own.toml"
    own.write_text((SPECS / "family.toml").read_text("utf-8").replace("[budget]", "[budget"))
    with pytest.raises(BertsmithError, match="not TOML"):
        load_spec(own)


def test_a_budget_buys_steps() -> None:
    recipe = load_recipe("tiny-bert")  # 4,096 tokens a step
    tokens = cost_of(recipe, Sized(), "tokens", 100_000, "x")
    assert (tokens.steps, tokens.tokens) == (24, 24 * 4096)
    flops = cost_of(recipe, Sized(), "flops", tokens.flops * 2, "x")
    assert flops.steps == 48
    assert flops.flops == pytest.approx(2 * tokens.flops)
    for kind in ("tokens", "flops"):
        with pytest.raises(BertsmithError, match="less than 4 steps; it needs at least"):
            cost_of(recipe, Sized(), kind, 100, "x")


def test_stages_keep_their_proportions() -> None:
    recipe = load_recipe("tiny-electra")  # 400 steps of 900 with short sequences
    cost = cost_of(recipe, Sized(), "tokens", 4096 * 90, "x")
    trained = with_steps(recipe, cost, 0)
    assert [stage.steps for stage in trained.stages] == [39, 0]
    assert trained.evaluate.every == 22


def test_a_warm_up_in_steps_keeps_its_proportion() -> None:
    recipe = load_recipe("tiny-bert", ["train.steps=600", "train.warmup=60"])
    cost = cost_of(recipe, Sized(), "tokens", 4096 * 40, "x")
    assert with_steps(recipe, cost, 0).train.warmup == pytest.approx(0.1)
    clock = load_recipe("tiny-bert", ["train.steps=0", "train.minutes=5", "train.warmup=60"])
    with pytest.raises(BertsmithError, match=r"a budget of 40 steps: train\.warmup is 60 steps"):
        with_steps(clock, cost, 0)
