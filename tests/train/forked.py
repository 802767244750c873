"""Processes that are forked from one in which everything is imported, one for each rank."""

import os
import socket
import sys
import traceback
from collections.abc import Callable


def forked(world: int, work: Callable[[int], int | None]) -> list[int]:
    """Call `work` with the rank in each of `world` processes; returns their exit statuses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            status = 1
            try:
                status = work(rank) or 0
            except BaseException:  # noqa: BLE001 - a child must end here
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
