"""The rows of a benchmark: one number a task."""

import pytest

from bertsmith.finetuning.benchmarks import BenchmarkRow, by_task
from bertsmith.metrics import over_seeds


def test_one_number_a_task() -> None:
    """As GLUE has it: the mean of a task's metrics and files; here of medians over seeds."""
    rows = [
        BenchmarkRow(
            "mrpc", {"accuracy": over_seeds([0.7, 0.8, 0.1]), "f1": over_seeds([0.9, 0.8, 0.2])}
        ),
        BenchmarkRow("mnli", {"accuracy": over_seeds([0.6, 0.4])}),
        BenchmarkRow("mnli (2nd file)", {"accuracy": over_seeds([0.7])}),
        BenchmarkRow("rte", note="absent"),
    ]
    assert rows[0].mean == pytest.approx(0.75)
    assert by_task(rows) == pytest.approx({"mrpc": 0.75, "mnli": 0.6})
