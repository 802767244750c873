"""Training objectives: (model, example) → loss terms, each a sum with a count.

Objectives live outside the model and combine freely with every family. To add one: write its
file with a class as `Objective` describes, and list it in OBJECTIVES.
"""

from collections.abc import Callable

from bertsmith.objectives.contrastive import Contrastive
from bertsmith.objectives.distilled import (
    TAUGHT,
    CosineStates,
    DistillationObjective,
    Relations,
    SoftTargets,
    Teacher,
    check_teacher,
)
from bertsmith.objectives.masked import FollowingTokens, MaskedTokens
from bertsmith.objectives.multi import MultiObjective
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective
from bertsmith.objectives.pairs import NextSentence, SentenceOrder
from bertsmith.objectives.replaced import ReplacedTokens, generator_config

CLASSES = (MaskedTokens, NextSentence, SentenceOrder, ReplacedTokens, FollowingTokens, Contrastive)
OBJECTIVES: dict[str, Callable[..., Objective]] = {
    objective.name: objective for objective in (*CLASSES, SoftTargets, CosineStates, Relations)
}

__all__ = ["OBJECTIVES", "TAUGHT", "Contrastive", "CosineStates", "DistillationObjective"]
__all__ += ["EncoderPass", "FollowingTokens", "LossTerm", "MaskedTokens", "MultiObjective"]
__all__ += ["NextSentence", "Objective", "Relations", "ReplacedTokens", "SentenceOrder"]
__all__ += ["SoftTargets", "Teacher", "check_teacher", "generator_config"]
