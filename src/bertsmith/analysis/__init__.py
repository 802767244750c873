"""Inspect an encoder: attention, heads, ablation and word senses, as numbers and pages."""

from bertsmith.analysis.attention import AttentionView, attention
from bertsmith.analysis.page import AttentionPage
from bertsmith.analysis.weights import AttentionWeights

__all__ = ["AttentionPage", "AttentionView", "AttentionWeights", "attention"]
