"""A use that is registered, and nothing else, has a route, a method and a form."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_a_use_that_is_only_registered() -> None:
    command = [sys.executable, HERE / "counting.py"]
    places = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, env=places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_forms_say_what_is_a_list_and_which_method_asks() -> None:
    from bertsmith.serve.playground import forms
    from bertsmith.tasks.registry import USES

    found = {one["verb"]: one for one in forms(USES.values())}
    assert found["rank"]["method"] == "rerank"
    assert found["choose-label"]["method"] == "choose_label"
    lists = {one["name"]: one["list"] for verb in found for one in found[verb]["fields"]}
    assert lists == lists | {"labels": True, "passages": True, "inputs": False, "query": False}
