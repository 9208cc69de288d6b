"""`python -m tefm.cli`."""

from tefm.cli import main

main()
