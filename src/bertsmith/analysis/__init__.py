"""Looking inside an encoder: attention, heads, ablation, word senses → numbers and pages."""

from bertsmith.analysis.attention import AttentionView, attention
from bertsmith.analysis.page import AttentionPage
from bertsmith.analysis.weights import Weights

__all__ = ["AttentionPage", "AttentionView", "Weights", "attention"]
