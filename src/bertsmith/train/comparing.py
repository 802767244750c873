"""Losses that compare all texts of a step: those of all its micro-batches, on all ranks.

With one micro-batch on each rank, ranks exchange vectors in the middle of its pass. With several,
gradients are cached (GradCache, Gao et al. 2021): a first pass computes the vectors of all without
a graph, the second learns from the gradients of the loss with respect to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertsmith.examples import Example
from bertsmith.objectives.contrastive import Compare, Compared, Contrastive, Texts
from bertsmith.train.distributed import GatherRows, Ranks


class Draws(NamedTuple):
    """The state of a device's random numbers, so that a second pass draws the same."""

    cpu: Tensor
    cuda: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> Draws:
        """The state as it is."""
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), cuda)

    def restore(self, device: torch.device) -> None:
        """Go back to it."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, device)


class Comparing:
    """How the texts of each micro-batch of a step are compared with all of the step."""

    def __init__(
        self,
        module: nn.Module,
        objective: Contrastive,
        ranks: Ranks,
        examples: Sequence[Example],
        active: Sequence[bool],
    ) -> None:
        """Micro-batches that are not active have no text of this rank: they are left out."""
        self.objective, self.ranks, self.active = objective, ranks, active
        self.draws: list[Draws] = []
        self.found: list[Compared] = []
        if len(examples) > 1:
            parts = []
            for example in examples:
                self.draws.append(Draws.now(ranks.device))
                with torch.no_grad():
                    parts.append(module(example, None))
            self.found = self._compared(parts)

    def of(self, number: int) -> Compare:
        """The comparison of a micro-batch; its pass draws again what the first one drew."""
        if not self.found:
            return lambda texts: self._compared([texts])[0]
        self.draws[number].restore(self.ranks.device)
        return lambda texts: self.found[number]

    def _compared(self, parts: Sequence[Texts]) -> list[Compared]:
        """The losses of this rank's texts among those of all ranks, and gradients for them."""
        sizes = [len(one.vectors) * own for one, own in zip(parts, self.active, strict=True)]
        kept = [Texts(*(x[:n] for x in one)) for one, n in zip(parts, sizes, strict=True)]
        texts = Texts(*(torch.cat(columns).detach() for columns in zip(*kept, strict=True)))
        texts, first = self._of_all_ranks(texts)
        texts = texts._replace(vectors=texts.vectors.requires_grad_())
        gradient = torch.zeros_like(texts.vectors)
        scores: list[tuple[Tensor, Tensor]] = []
        begin = first
        for size in sizes:
            with torch.enable_grad():
                loss, correct = self.objective.losses(texts, begin, begin + size)
                gradient += torch.autograd.grad(loss, texts.vectors)[0]
            scores.append((loss.detach(), correct))
            begin += size
        if self.ranks.count > 1:  # other ranks have the losses of other anchors
            dist.all_reduce(gradient)
        own = gradient[first : first + sum(sizes)].split(sizes)
        return [
            Compared(*score, found if len(found) else torch.zeros_like(part.vectors))
            for score, found, part in zip(scores, own, parts, strict=True)
        ]

    def _of_all_ranks(self, texts: Texts) -> tuple[Texts, int]:
        """The texts of all ranks, and the number of the first one of this rank."""
        count, rank = self.ranks.count, self.ranks.rank
        if count == 1:
            return texts, 0
        own = [float(len(texts.vectors) * (other == rank)) for other in range(count)]
        sizes = tuple(int(size) for size in self.ranks.sum(own))
        every = Texts(*(GatherRows.apply(one, sizes, rank) for one in texts))  # type: ignore[no-untyped-call]
        return every, sum(sizes[:rank])
