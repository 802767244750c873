"""The report of a run: one HTML file that needs nothing else, and no network."""

from bertsmith.finetune.report.page import write_evaluation, write_report

__all__ = ["write_evaluation", "write_report"]
