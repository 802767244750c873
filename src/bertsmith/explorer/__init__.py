"""The explorer: a model with its tokenizer and its inference as one HTML file."""

from bertsmith.explorer.page import ExplorerPage, explorer

__all__ = ["ExplorerPage", "explorer"]
