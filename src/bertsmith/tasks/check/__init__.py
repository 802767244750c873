"""A lint of data files: what would ruin training, or make a score better than it is."""

from bertsmith.tasks.check.check import check, quick
from bertsmith.tasks.check.findings import Finding, Lengths, Report
from bertsmith.tasks.check.lengths import Reader, open_reader

__all__ = ["Finding", "Lengths", "Reader", "Report", "check", "open_reader", "quick"]
