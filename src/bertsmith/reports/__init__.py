"""What is written about a model: the report, its baseline, the model card."""
