"""`python -m bertsmith.cli`."""

from bertsmith.cli import main

main()
