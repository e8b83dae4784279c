"""`python -m tidings` is `tidings`, for where the command is not on the path."""

from tidings.cli import main

main()
