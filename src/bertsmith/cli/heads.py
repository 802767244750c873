"""`bertsmith heads`: statistics of every attention head."""
