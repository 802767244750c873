"""Distillation: a teacher → a smaller or faster student; an encoder → static vectors.

bertsmith.distill("my-model", out="vectors", to="static")   # seconds, without data
"""

from bertsmith.distilling.result import DistillationResult
from bertsmith.distilling.run import distill
from bertsmith.distilling.static import to_static

__all__ = ["DistillationResult", "distill", "to_static"]
