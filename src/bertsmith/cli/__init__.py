"""The command line: `bertsmith VERB`, one short file a verb."""

import os
import signal
from typing import Any


def main() -> None:
    """Run a verb. Ctrl-C is one line and exit status 130, also while modules are imported."""
    try:
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if ours:  # in a process that ignores it, or has plans of its own, it stays as it is
            signal.signal(signal.SIGINT, _leave)
        from bertsmith.cli.app import main as run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: Any) -> None:
    """End at once: an import that is interrupted half-way may raise anything."""
    os.write(2, b"bertsmith: interrupted\n")
    os._exit(130)


__all__ = ["main"]
