"""A lint of data files: what would ruin training, or make a score better than it is."""

from bertsmith.data.check.check import check, quick
from bertsmith.data.check.findings import Finding, Lengths, Report
from bertsmith.data.check.lengths import Reader, open_reader

__all__ = ["Finding", "Lengths", "Reader", "Report", "check", "open_reader", "quick"]
