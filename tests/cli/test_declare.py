"""Options that derive from settings, and options that verbs share."""

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import pytest

import bertsmith as bs
from bertsmith.cli.declare import option, options_of, verb
from bertsmith.compare import compare
from bertsmith.corpus import prepare
from bertsmith.errors import BertsmithError
from bertsmith.finetuning import RunSettings
from bertsmith.settings import declared, picked, setting
from bertsmith.settings.comparing import ComparisonSettings
from bertsmith.settings.corpus import CorpusSettings as CorpusSettings
from bertsmith.settings.corpus import EngineSettings
from bertsmith.settings.distilling import DistillationSettings
from bertsmith.settings.finetuning import FinetuningSettings, TrialSettings
from bertsmith.settings.search import IndexSettings, SearchSettings
from cli.conftest import Run


@dataclass(frozen=True)
class Baking:
    """Settings of an oven."""

    heat: int = setting(180, "Degrees.", ge=50, le=300)
    kind: Literal["bread", "cake"] = setting("bread", "What is baked.", usual="by the flour")
    fan: bool = setting(False, "Blow.", option="--with-fan")
    steam: bool = setting(False, "Add steam.")
    oven: object = None  # not an option


def test_an_option_is_what_the_setting_is() -> None:
    options = options_of(Baking)
    assert list(options) == ["heat", "kind", "fan", "steam"]
    kind, heat = options["heat"]
    assert (kind, heat.default, heat.help, heat.min, heat.max) == (int, 180, "Degrees.", 50, 300)
    assert options["fan"][1].param_decls == ("--with-fan",)
    assert options["steam"][1].param_decls == ("--steam",)


def test_an_optional_one_is_none_and_says_its_default() -> None:
    options = options_of(Baking, "kind", "heat", "steam", optional=True)
    assert [one.default for _, one in options.values()] == [None] * 3
    assert options["kind"][1].help == "What is baked [default: by the flour]."
    assert options["heat"][1].help == "Degrees [default: 180]."
    assert options["steam"][1].help == "Add steam."


def test_shared_options_come_together() -> None:
    seen: list[Any] = []

    shared = options_of(Baking, "heat", "steam")

    @verb
    def bake(name: str, baking: Any = shared, loaves: int = option(2, "How many.")) -> None:
        seen.append((name, baking, loaves))

    bake(name="rye", heat=180, steam=True, loaves=2)
    assert seen == [("rye", {"heat": 180, "steam": True}, 2)]
    assert list(signature(bake).parameters) == ["name", "heat", "steam", "loaves"]


def test_every_setting_is_declared_once(run: Run) -> None:
    names = [*declared(FinetuningSettings)]
    assert list(RunSettings.model_fields) == names
    assert set(names) <= {*signature(bs.finetune).parameters}
    assert {*declared(CorpusSettings)} <= {*signature(prepare).parameters}
    shown = " ".join(run("finetune", "--help").out.split())
    for one in declared(FinetuningSettings).values():
        assert one.metadata["description"].removesuffix(".") in shown


@pytest.mark.parametrize(
    ("function", "settings", "verb"),
    [
        (bs.distill, DistillationSettings, ["distill"]),
        (bs.finetune, TrialSettings, ["finetune"]),
        (bs.Index.create, IndexSettings, ["index", "build"]),
        (bs.Index.search, SearchSettings, ["search"]),
        (compare, ComparisonSettings, ["compare"]),
        (prepare, EngineSettings, ["prepare"]),
    ],
)
def test_a_function_and_its_command_take_the_same(
    function: Any, settings: type, verb: list[str], run: Run
) -> None:
    assert {*declared(settings)} <= {*signature(function).parameters}
    shown = " ".join(run(*verb, "--help").out.split())
    for one in declared(settings).values():
        assert " ".join(one.metadata["description"].split()) in shown


def test_settings_are_picked_and_checked() -> None:
    given = {"heat": 200, "kind": "cake", "name": "rye"}
    assert picked(Baking, given) == Baking(heat=200, kind="cake")
    assert given == {"name": "rye"}
    with pytest.raises(BertsmithError, match="kind must be bread or cake, not 'pie'"):
        picked(Baking, {"kind": "pie"})
    with pytest.raises(BertsmithError, match="heat is 500, not a number from 50 to 300"):
        picked(Baking, {"heat": 500})


def test_mistakes_name_the_option_on_the_command_line(
    model: Path, tmp_path: Path, shell: Run
) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    words = ("prepare", tmp_path / "a.txt", "--tokenizer", model, "--out", tmp_path / "out")
    shown = shell(*words, "--held-out", "1")
    assert shown.status == 2
    assert shown.err == "bertsmith: --held-out must be at least 0 and less than 1, not 1.0\n"
    with pytest.raises(BertsmithError, match="held_out must be at least 0"):
        prepare([tmp_path / "a.txt"], model, tmp_path / "out", held_out=1)
