"""Distillation from a frozen teacher: soft targets, directions of states, attention relations."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Layout
from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Config, Model
from bertsmith.model.attention import NO_NORM
from bertsmith.model.block import Block, ConvolutionBlock, PreNormBlock
from bertsmith.objectives.masked import MaskedTokens
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective


class Teacher:
    """A frozen model that reads the student's batches; not an `nn.Module`, so never trained.

    It is on the device and in the precision of the student's states. The pass over one batch is
    shared by all objectives.
    """

    def __init__(
        self, model: Model, *, temperature: float = 2.0, layer: int = 0, relation_heads: int = 0
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.temperature, self.relation_heads = temperature, relation_heads
        self.depth = (layer or len(model.encoder.plan)) - 1  # layer of the relations
        self.last: EncoderPass | None = None

    @torch.no_grad()
    def read(self, student: EncoderPass) -> EncoderPass:
        """Return the teacher's pass over the student's batch."""
        if self.last is None or self.last.batch is not student.batch:
            states = student.hidden.last
            self.model.to(device=states.device, dtype=states.dtype)
            self.last = EncoderPass(self.model, student.example, states=student.states)
            self.last.hidden  # noqa: B018 - computed here, without gradients
        return self.last


class DistillationObjective(Objective):
    """An objective with a teacher."""

    def __init__(self, teacher: Teacher) -> None:
        super().__init__()
        self.teacher = teacher

    def counts(self, example: Example) -> dict[str, int]:
        """Every token counts, padding excluded."""
        return {self.name: example.tokens}


class SoftTargets(DistillationObjective):
    """The teacher's probabilities at masked tokens, at a temperature (DistilBERT)."""

    name = "soft_targets"
    kind = "masked_lm"
    head = staticmethod(MaskedTokens.head)
    counts = Objective.counts  # of masked tokens

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The divergence from the teacher; "correct" counts tokens with the same prediction."""
        student = encoder_pass.head(self.kind, example.rows).float()
        with torch.no_grad():
            goal = self.teacher.read(encoder_pass).head(self.kind, example.rows).float()
        size = min(student.shape[1], goal.shape[1])  # without padding of the vocabulary
        student, goal = student[:, :size], goal[:, :size]
        loss = soft_cross_entropy(student, goal, self.teacher.temperature).sum()
        return [LossTerm(self.name, loss, (student.argmax(-1) == goal.argmax(-1)).sum())]


class CosineStates(DistillationObjective):
    """Cosine loss between final states of student and teacher (DistilBERT)."""

    name = "cosine"

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """One minus the cosine of each token; its "accuracy" is the mean cosine."""
        goal = self.teacher.read(encoder_pass).hidden.last[: example.tokens].float()
        own = encoder_pass.hidden.last[: example.tokens].float()
        near = F.cosine_similarity(own, goal, dim=-1)
        return [LossTerm(self.name, (1 - near).sum(), near.detach().sum())]


class Relations(DistillationObjective):
    """Self-attention relations of queries, keys and values in one layer (MiniLM-v2).

    Widths and numbers of heads may differ: vectors are split into `relation_heads` parts. The
    student's last layer learns from the teacher's chosen one.
    """

    name = "relations"
    reads_states = True

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The divergence of softmax(x xᵀ / √d), summed over queries, keys and values.

        "Correct" counts tokens whose most similar token is the teacher's, averaged over heads.
        """
        heads, layout = self.teacher.relation_heads, example.batch.layout
        student = projections(encoder_pass, len(encoder_pass.model.encoder.plan) - 1, heads)
        with torch.no_grad():
            goal = projections(self.teacher.read(encoder_pass), self.teacher.depth, heads)
        losses, same = [], []
        for own, other in zip(student, goal, strict=True):
            parts = (relations(x[: example.tokens], layout) for x in (own, other))
            for near, far in zip(*parts, strict=True):
                both = F.kl_div(near, far, reduction="none", log_target=True).sum(-1)
                losses.append(both.sum() / heads)
                same.append((near.argmax(-1) == far.argmax(-1)).sum() / (3 * heads))
        return [LossTerm(self.name, torch.stack(losses).sum(), torch.stack(same).sum())]


TAUGHT = frozenset({SoftTargets.name, CosineStates.name, Relations.name})  # need a teacher


def projections(encoder_pass: EncoderPass, depth: int, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values of one layer, each cut into `heads` parts (T, heads, d)."""
    encoder = encoder_pass.model.encoder
    block = encoder.blocks[encoder.plan[depth][0]]
    inner = block.block if isinstance(block, ConvolutionBlock) else block
    assert isinstance(inner, Block)
    norm = inner.attention_norm if isinstance(inner, PreNormBlock) else NO_NORM
    joint = inner.attention.project(encoder_pass.before(depth), norm)  # (T, 3, H, d)
    return joint.flatten(2).unflatten(2, (heads, -1)).unbind(1)


def relations(vectors: Tensor, layout: Layout) -> Iterator[Tensor]:
    """Log-softmax of token similarities: (T, h, d) → (count, h, n, n) parts.

    Sequences beyond the last row of `vectors` are padding.
    """
    for row, count, length in layout.runs:
        count = min(count, (len(vectors) - row) // length)
        if count <= 0:
            return
        part = vectors[row : row + count * length].float().unflatten(0, (count, length))
        part = part.transpose(1, 2)  # (count, h, n, d)
        yield (part @ part.mT / part.shape[-1] ** 0.5).log_softmax(-1)


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Cross entropy with a teacher's probabilities at a temperature: two (M, C) → (M,).

    Times the temperature squared, so that gradients have the same size at every temperature
    (Hinton et al. 2015); minus the teacher's entropy, so that the minimum is 0.
    """
    goal = (teacher / temperature).log_softmax(-1)
    logs = (student / temperature).log_softmax(-1)
    return F.kl_div(logs, goal, reduction="none", log_target=True).sum(-1) * temperature**2


def check_teacher(
    teacher: Config, student: Config, objectives: set[str], layer: int, relation_heads: int
) -> int:
    """Raise an error if a teacher does not fit the objectives; returns the relation heads."""
    if SoftTargets.name in objectives and "masked_lm" not in teacher.heads:
        raise BertsmithError("the teacher has no masked-LM head: soft_targets needs one")
    if CosineStates.name in objectives and teacher.width != student.width:
        raise BertsmithError(
            f"the objective cosine needs models of one width: the teacher is {teacher.width} wide,"
            f" the student {student.width}; relations takes any"
        )
    if layer > len(teacher.plan):
        raise BertsmithError(f"teacher.layer is {layer}, but it has {len(teacher.plan)} layers")
    heads = relation_heads or teacher.attention_heads
    widths = [config.attention_heads * config.per_head for config in (teacher, student)]
    if Relations.name in objectives and any(width % heads for width in widths):
        raise BertsmithError(
            f"{heads} relation heads do not divide the widths {widths[0]} of the teacher and"
            f" {widths[1]} of the student: set teacher.relation_heads"
        )
    return heads
