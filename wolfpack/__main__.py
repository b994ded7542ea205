"""`python -m wolfpack`: the same as the command `wolfpack`."""

from wolfpack.cli import main

main()
