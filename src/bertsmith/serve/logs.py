"""Log lines: plain, or JSON with the time, the level and what is known about a request."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

LOG = logging.getLogger("bertsmith.serve")


class JsonLines(logging.Formatter):
    """One JSON object a line; a record's `entry` is part of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry | getattr(record, "entry", {}), ensure_ascii=False)


def log_to_stderr(*, as_json: bool) -> None:
    """Write the server's log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(message)s"))
    LOG.handlers = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
