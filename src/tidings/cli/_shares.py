"""Shares on the command line: 0.99 and 99% are the same."""

import typer

from tidings.errors import ConfigurationError

__all__ = ["parse_share", "share_option"]


def parse_share(text: str | float) -> float:
    """A share as people write it: 1% or 0.01."""
    number, percent, rest = str(text).partition("%")
    try:
        value = float(number) if not rest.strip() else -1.0
    except ValueError:
        value = -1.0
    share = value / 100.0 if percent else value
    if 0.0 <= share <= 1.0:
        return share
    meant = value if 1.0 < value <= 100.0 else 1.0
    raise ConfigurationError(f"{text!r} is not a share: write {meant:g}% or {meant / 100.0:g}")


def share_option(text: str | float) -> float:
    """`parse_share` as the parser of an option, whose name is then in the error."""
    try:
        return parse_share(text)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
