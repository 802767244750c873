"""Any number of labels for a text."""
