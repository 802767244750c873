"""A lint of data files: what would ruin training, or make a score better than it is."""

from bertsmith.tasks.check.check import check, quick
from bertsmith.tasks.check.findings import CheckReport, Finding, Lengths
from bertsmith.tasks.check.lengths import Reader, open_reader

__all__ = ["CheckReport", "Finding", "Lengths", "Reader", "check", "open_reader", "quick"]
