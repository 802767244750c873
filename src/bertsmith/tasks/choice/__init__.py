"""One of several choices for a prompt."""
