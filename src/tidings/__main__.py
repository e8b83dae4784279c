"""`python -m tidings` is `tidings`, for where the command is not on the path."""

from tidings.cli import main

if __name__ == "__main__":  # not where a process of a pool loads this module again
    main()
