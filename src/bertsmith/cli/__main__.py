"""`python -m bertsmith.cli`."""

from bertsmith.cli.app import main

main()
