"""Runs that begin at once: a process in which everything is imported forks one for each rank.

It reads orders as lines of JSON, and answers each with how its ranks ended. The second rank is
always late, so that it finds on disk what the first wrote meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from typing import Any

import torch
import torch._dynamo  # the first step of an optimizer would import it
import torch.distributed.fsdp

from bertsmith.train import load_recipe, pretrain
from bertsmith.train.loop import Trainer

torch.set_num_threads(1)


def run(order: dict[str, Any]) -> list[int]:
    """Train by an order; returns how each rank ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(order["ranks"]):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(order["ranks"])}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            status = 1
            try:
                recipe = load_recipe(order["recipe"])
                done = pretrain(recipe, order["out"], resume=order["resume"], show="none")
                status = 0 if done["finished"] else 3
            except BaseException:  # noqa: BLE001 - a child must end here
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def late(self: Trainer, punctual: Any = Trainer.run) -> bool:
    time.sleep(int(os.environ["RANK"]))
    return bool(punctual(self))


Trainer.run = late  # type: ignore[method-assign]
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
