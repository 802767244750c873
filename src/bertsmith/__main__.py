"""`python -m bertsmith`."""

from bertsmith.cli import main

main()
