"""How relevant passages are to a query: one score for each pair, from a cross-encoder."""
