"""Pre-training runs: read from their folders, as a page, and side by side."""

from bertsmith.pages.runs.compare import RunComparison, compare_runs
from bertsmith.pages.runs.page import report_page, write_report
from bertsmith.pages.runs.run import PretrainingRun, read_run

__all__ = ["PretrainingRun", "RunComparison", "compare_runs", "read_run"]
__all__ += ["report_page", "write_report"]
