"""A loaded model at work: windows, batches, hidden states, explanations. Knows no task."""
