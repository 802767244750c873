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
