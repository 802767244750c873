"""One layer: attention and feed-forward, each with a residual path and a norm."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.batch import Layout
from bertsmith.kernels import Dropout, add_norm
from bertsmith.kernels.rows import by_rows
from bertsmith.model.attention import Attention, Context
from bertsmith.model.feedforward import FeedForward


class Block(nn.Module):
    """The parts of both kinds of block."""

    def __init__(
        self,
        attention: Attention,
        feedforward: FeedForward,
        norms: tuple[nn.Module, nn.Module],
        dropouts: tuple[float, float],
    ) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward
        self.attention_norm, self.feedforward_norm = norms
        self.attention_dropout, self.feedforward_dropout = map(Dropout, dropouts)


class PostNormBlock(Block):
    """Norm after each residual sum, as in BERT."""

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """(T, D) → (T, D)."""
        mixed = self.attention(x, context, queries)
        return by_rows(self.finish, x if queries is None else queries, mixed, into=mixed)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Everything after attention; rows are independent of each other."""
        _, x = add_norm(
            x, mixed, self.attention.output, self.attention_dropout, self.attention_norm
        )
        down, dropout = self.feedforward.down, self.feedforward_dropout
        return add_norm(x, self.feedforward.inner(x), down, dropout, self.feedforward_norm)[1]


class PreNormBlock(Block):
    """Norm before attention and feed-forward, as in ModernBERT; none on the residual path."""

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """(T, D) → (T, D)."""
        mixed = self.attention(x, context, queries, self.attention_norm)
        return by_rows(self.finish, x if queries is None else queries, mixed, into=mixed)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Everything after attention; rows are independent of each other."""
        x, normed = add_norm(
            x, mixed, self.attention.output, self.attention_dropout, self.feedforward_norm
        )
        return x + self.feedforward_dropout(self.feedforward(normed))


class ConvolutionBlock(nn.Module):
    """A block with a convolution over its input, which is added to its output."""

    def __init__(
        self, block: nn.Module, convolution: nn.Conv1d, finish: nn.Module, norm: nn.Module
    ) -> None:
        super().__init__()
        self.block, self.convolution, self.finish, self.norm = block, convolution, finish, norm

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """(T, D) → (T, D)."""
        near = self.finish(self.convolve(x, context.layout))
        return self.norm(near + self.block(x, context, queries))

    def convolve(self, x: Tensor, layout: Layout) -> Tensor:
        """Convolve each sequence alone: zeros stand between neighbours in one long row."""
        conv = self.convolution
        gap = conv.kernel_size[0] // 2
        place = torch.arange(len(x), device=x.device) + gap * (layout.owner + 1)
        row = x.new_zeros(len(x) + gap * len(layout.ends), x.shape[1])
        row = row.index_copy(0, place, x)
        return F.conv1d(row.T, conv.weight, conv.bias, groups=conv.groups).T[place - gap]
