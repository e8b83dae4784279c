"""Shares on the command line: 0.99 and 99% are the same."""

import typer

__all__ = ["parse_share"]


def parse_share(text: str | float) -> float:
    """A share as people write it: 1% or 0.01."""
    number, percent, rest = str(text).partition("%")
    try:
        share = float(number) / (100.0 if percent else 1.0) if not rest.strip() else -1.0
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise typer.BadParameter(f"{text!r} is not a share: write 1% or 0.01")
    return share
