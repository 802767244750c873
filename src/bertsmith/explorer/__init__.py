"""The explorer: a model, its tokenizer and its inference code as one HTML file."""

from bertsmith.explorer.page import ExplorerPage, explorer

__all__ = ["ExplorerPage", "explorer"]
