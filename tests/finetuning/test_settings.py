"""Settings: checked one by one, and refused where a task does not use them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith import BertsmithError
from bertsmith.finetuning.settings import RunSettings, check_seeds, settings_for
from bertsmith.tasks.registry import TASKS


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 7}, "learning_rate should be less than or equal to 1, not 7"),
        ({"learning_rate": math.inf}, "learning_rate should be a finite number, not inf"),
        ({"learning_rate": math.nan}, "learning_rate should be a finite number, not nan"),
        ({"learning_rate": "fast"}, "learning_rate should be a valid number, not 'fast'"),
        ({"epochs": 2.5}, "epochs should be a valid integer, not 2.5"),
        ({"epochs": True}, "epochs should be a valid integer, not True"),
        ({"epochs": 10**50}, "epochs should be less than or equal to 10000"),
        ({"epoch": 3}, r"unknown setting 'epoch'; did you mean epochs\?"),
        ({"qqqq": 3}, "unknown setting 'qqqq'; known: learning_rate, optimizer"),
        ({"dtype": "x"}, "dtype should be 'float32', 'bfloat16' or 'float16', not 'x'"),
        ({"freeze": "²"}, "freeze should be none, embedding, encoder or a number of layers"),
        ({"matrix_learning_rate": 0.1}, "matrix_learning_rate is for the optimizer muon"),
    ],
)
def test_bad_values_are_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BertsmithError, match=message) as error:
        settings_for("classification", **values)
    assert "\n" not in str(error.value)


def test_options_that_a_task_ignores_are_errors() -> None:
    used = {"class_weights": "balanced", "focal": 2.0, "smoothing": 0.1, "temperature": 0.1}
    for name, value in used.items():
        for task in TASKS:
            if name in TASKS[task].options:
                assert getattr(settings_for(task, **{name: value}), name) == value
            else:
                with pytest.raises(BertsmithError, match=f"{name} has no effect on {task}; it is"):
                    settings_for(task, **{name: value})
    assert settings_for("regression", smoothing=0.0).smoothing == 0  # changes nothing


def test_values_of_numpy_and_numbers_of_layers() -> None:
    settings = settings_for("classification", epochs=np.int64(2), warmup=np.float32(0.5), freeze=4)
    assert (settings.epochs, settings.warmup, settings.freeze) == (2, 0.5, "4")
    assert settings.changed(seed=3).seed == 3
    with pytest.raises(BertsmithError, match="seed"):
        settings.changed(seed=-1)
    with pytest.raises(BertsmithError, match="seeds must be from 1 to 1000"):
        check_seeds(0)


@given(
    st.sampled_from(sorted(RunSettings.model_fields)),
    st.one_of(
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.none(),
        st.booleans(),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
    ),
)
def test_any_value_is_taken_or_refused_in_a_line(name: str, value: Any) -> None:
    try:
        settings = settings_for("classification", **{name: value})
    except BertsmithError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    for number in settings.model_dump().values():
        assert not isinstance(number, float) or math.isfinite(number)
