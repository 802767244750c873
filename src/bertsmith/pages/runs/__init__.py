"""What a run came to: read from its folder, as a page, and beside other runs."""

from bertsmith.pages.runs.compare import Comparison, compare_runs
from bertsmith.pages.runs.page import report_page, write_report
from bertsmith.pages.runs.run import Run, read_run

__all__ = ["Comparison", "Run", "compare_runs", "read_run", "report_page", "write_report"]
