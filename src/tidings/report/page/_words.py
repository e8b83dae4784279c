"""Figures in the page's own form, one for each kind, and the words of the scale of lateness."""

from collections.abc import Sequence
from typing import Final

from tidings.model.units import format_quantity, shown_time
from tidings.prediction import Unmodelled
from tidings.report.figures import LATENESS_STEPS

__all__ = ["LATENESS", "count", "duration", "lateness", "left_out", "per_second", "volume"]

LATENESS: Final = ("99 % or more", "95 to 99 %", "80 to 95 %", "50 to 80 %", "below 50 %")
"""The steps of the scale, as on-time shares."""


def lateness(share: float | None) -> str:
    """The class of the style sheet with the colour of an on-time share."""
    return "unknown" if share is None else f"l{sum(share < step for step in LATENESS_STEPS)}"


def duration(time_s: float | None) -> str:
    return "–" if time_s is None else shown_time(time_s)


def per_second(rate: float) -> str:
    return "–" if rate == 0.0 else f"{rate:,.3g}/s"


def volume(kb_per_s: float) -> str:
    return "–" if kb_per_s == 0.0 else f"{format_quantity(kb_per_s, 'size', digits=3)}/s"


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def left_out(unmodelled: Sequence[Unmodelled]) -> list[str]:
    """A sentence for everything that a prediction leaves out except failures, which have sections of their own."""
    return [
        f"Not modelled: {each.what}; R′ is predicted {each.effect}." for each in unmodelled if each.kind != "failures"
    ]
