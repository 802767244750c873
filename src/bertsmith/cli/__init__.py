"""The command line: `bertsmith VERB`, one short file a verb."""

from bertsmith.cli.app import main

__all__ = ["main"]
