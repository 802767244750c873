"""Log lines with time and level; as JSON also with what is known about a request."""

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
    """Write log lines to standard error: the server's, and warnings of its libraries."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    LOG.setLevel(logging.INFO)
