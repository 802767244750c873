"""What a model is asked to learn: (model, example) → loss terms, each a sum over a count.

Objectives live outside the model and combine freely with every family. To add one: write its
file with a class as `Objective` describes, and list it in OBJECTIVES.
"""

from collections.abc import Callable

from bertsmith.objectives.following import FollowingTokens
from bertsmith.objectives.masked import MaskedTokens
from bertsmith.objectives.objective import LossTerm, Objective, View
from bertsmith.objectives.pairs import NextSentence, SentenceOrder
from bertsmith.objectives.replaced import ReplacedTokens, generator_config
from bertsmith.objectives.together import Together

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    objective.name: objective
    for objective in (MaskedTokens, NextSentence, SentenceOrder, ReplacedTokens, FollowingTokens)
}

__all__ = ["OBJECTIVES", "FollowingTokens", "LossTerm", "MaskedTokens", "NextSentence"]
__all__ += ["Objective", "ReplacedTokens", "SentenceOrder", "Together", "View", "generator_config"]
