"""Losses that compare all texts of a step: those of all its micro-batches, on all ranks.

With one micro-batch on each rank, ranks exchange vectors in the middle of its pass. With several,
gradients are cached (GradCache, Gao et al. 2021): a first pass computes the vectors of all without
a graph, the second learns from the gradients of the loss with respect to them.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertsmith.examples import Example
from bertsmith.objectives.contrastive import Compare, Contrastive, ContrastiveLoss, TextVectors
from bertsmith.train.distributed import GatherRows, Ranks

RandomStates = tuple[Tensor, Tensor | None]  # of the CPU and of the GPU


def random_states(device: torch.device) -> RandomStates:
    """The states of the random number generators, so that a second pass draws the same."""
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), cuda


def restore_random_states(states: RandomStates, device: torch.device) -> None:
    """Set the generators to states that they had before."""
    cpu, cuda = states
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda, device)


class Comparing:
    """How the texts of each micro-batch of a step are compared with all of the step."""

    def __init__(
        self,
        module: nn.Module,
        objective: Contrastive,
        ranks: Ranks,
        examples: Sequence[tuple[Example, bool]],
    ) -> None:
        """`examples` are those of the micro-batches, each active or without a text of this rank."""
        self.objective, self.ranks = objective, ranks
        self.active = [active for _, active in examples]
        self.random: list[RandomStates] = []
        self.losses: list[ContrastiveLoss] = []
        if len(examples) > 1:
            texts = []
            for example, _ in examples:
                self.random.append(random_states(ranks.device))
                with torch.no_grad():
                    texts.append(module(example, None))
            self.losses = self._compared(texts)

    def of(self, number: int) -> Compare:
        """The comparison of a micro-batch; its pass draws again what the first one drew."""
        if not self.losses:
            return lambda texts: self._compared([texts])[0]
        restore_random_states(self.random[number], self.ranks.device)
        return lambda texts: self.losses[number]

    def _compared(self, batches: Sequence[TextVectors]) -> list[ContrastiveLoss]:
        """The losses of this rank's texts among those of all ranks, and gradients for them."""
        sizes = [len(b.vectors) * active for b, active in zip(batches, self.active, strict=True)]
        own = [TextVectors(*(x[:n] for x in b)) for b, n in zip(batches, sizes, strict=True)]
        texts = TextVectors(*(torch.cat(columns).detach() for columns in zip(*own, strict=True)))
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
        gradients = gradient[first : first + sum(sizes)].split(sizes)
        return [
            ContrastiveLoss(*score, rows if len(rows) else torch.zeros_like(batch.vectors))
            for score, rows, batch in zip(scores, gradients, batches, strict=True)
        ]

    def _of_all_ranks(self, texts: TextVectors) -> tuple[TextVectors, int]:
        """The texts of all ranks, and the number of the first one of this rank."""
        count, rank = self.ranks.count, self.ranks.rank
        if count == 1:
            return texts, 0
        own = [float(len(texts.vectors) * (other == rank)) for other in range(count)]
        sizes = tuple(int(size) for size in self.ranks.sum(own))
        gathered = TextVectors(*(GatherRows.apply(column, sizes, rank) for column in texts))  # type: ignore[no-untyped-call]
        return gathered, sum(sizes[:rank])
