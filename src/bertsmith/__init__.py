"""bertsmith: forge, fine-tune, look inside and serve a BERT of your own."""

__version__ = "0.1.0"
