"""The explorer: a model, its tokenizer and its inference code as one HTML file; films of runs."""

from bertsmith.explorer.film import MEGABYTES, film
from bertsmith.explorer.page import explorer, training_page

__all__ = ["MEGABYTES", "explorer", "film", "training_page"]
