"""`python -m wolfpack.cli` is the command `wolfpack`."""

from wolfpack.cli import main

main()
