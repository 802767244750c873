"""Runs that begin at once: a process in which everything is imported forks one for each rank.

It reads orders as lines of JSON, and answers each with how its ranks ended. The second rank is
always late, so that it finds on disk what the first wrote meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first step of an optimizer would import it
import torch.distributed.fsdp
from forked import forked
from safetensors.torch import save_file

from bertsmith.distilling import distill
from bertsmith.examples import Loader
from bertsmith.examples.loader import StepRequest
from bertsmith.finetuning import finetune
from bertsmith.train import Recipe, load_recipe, pretrain
from bertsmith.train.building import built, examples_of, open_corpus
from bertsmith.train.distributed import Ranks
from bertsmith.train.loop import Trainer
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision
from bertsmith.train.step import MicroBatch, TrainingStep

torch.set_num_threads(1)


def obeyed(order: dict[str, Any]) -> int:
    """What one rank does; returns how it ended."""
    os.environ["LOCAL_WORLD_SIZE"] = str(min(2, order["ranks"]))  # four are as if on two machines
    if verb := order.get("verb"):
        {"finetune": finetune, "distill": distill}[verb](*order["given"], **order["settings"])
        return 0
    recipe = load_recipe(order["recipe"])
    if micro_tokens := order.get("gradients"):
        store_gradients(recipe, Path(order["out"]), micro_tokens)
        return 0
    done = pretrain(recipe, order["out"], resume=order["resume"], show="none")
    return 0 if done["finished"] else 3


def store_gradients(recipe: Recipe, out: Path, micro_tokens: int) -> None:
    """The gradients of one step, in the recipe's precision, as the first rank sees them."""
    device = torch.device("cpu")
    ranks = Ranks(device)
    with ranks.process_group():
        corpus = open_corpus(recipe)
        torch.manual_seed(0)
        parts = built(recipe, corpus.tokenizer)
        learner = parts.learner.eval()
        precision = Precision.of(recipe.train.precision, device)
        module = ranks.wrap(learner, recipe.train.parallel, precision)
        examples = examples_of(recipe, corpus, 32, parts.checkpoint.config.segments)
        request = StepRequest(examples, 2048, micro_tokens, 64)
        loaded = Loader(lambda step: request, rank=ranks.rank, ranks=ranks.count, workers=0).next()
        assert loaded is not None
        own: Counter[str] = Counter()
        for example, active in zip(loaded.examples, loaded.active, strict=True):
            own.update({name: n * active for name, n in learner.counts(example).items()})
        counts = dict(zip(own, ranks.sum([float(one) for one in own.values()]), strict=True))
        optimizer = optimizer_for(learner, recipe.train)
        step = TrainingStep(module, optimizer, ranks, objectives=learner.objectives)
        pairs = zip(loaded.examples, loaded.active, strict=True)
        step._gradients([MicroBatch((example, counts), active) for example, active in pairs])
        found = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
        full = ranks.gather(found)
        if ranks.first:
            save_file(full, out)


def late(self: Trainer, punctual: Any = Trainer.run) -> bool:
    time.sleep(0.3 * int(os.environ["RANK"]))
    return bool(punctual(self))


Trainer.run = late  # type: ignore[method-assign]
for line in sys.stdin:
    order = json.loads(line)
    print(json.dumps(forked(order["ranks"], lambda rank, order=order: obeyed(order))), flush=True)
