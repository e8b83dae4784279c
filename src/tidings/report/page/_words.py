"""Figures as a reader sees them: one way for each kind, everywhere on the page."""

from collections.abc import Sequence

from tidings.model.units import format_quantity
from tidings.prediction import Unmodelled
from tidings.report.figures import shown_time

__all__ = ["count", "duration", "left_out", "per_second", "percent", "step_of", "volume"]

_STEPS = (0.2, 0.4, 0.6, 0.8, 0.95)


def percent(share: float | None, digits: int = 1) -> str:
    """Never rounds to 100 what is not all, nor to 0 what is not nothing."""
    if share is None:
        return "–"
    shown = f"{100.0 * share:.{digits}f}"
    least = 10.0**-digits
    if share < 1.0 and float(shown) >= 100.0:
        shown = f">{100.0 - least:.{digits}f}"
    elif share > 0.0 and float(shown) == 0.0:
        shown = f"<{least:.{digits}f}"
    return f"{shown} %"


def duration(time_s: float | None) -> str:
    return "–" if time_s is None else shown_time(time_s)


def per_second(rate: float) -> str:
    return "–" if rate == 0.0 else f"{rate:,.3g}/s"


def volume(kb_per_s: float) -> str:
    return "–" if kb_per_s == 0.0 else f"{format_quantity(kb_per_s, 'size', digits=3)}/s"


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def step_of(utilisation: float) -> int:
    """Which of the six colours stands for how busy something is."""
    return sum(utilisation >= step for step in _STEPS)


def left_out(unmodelled: Sequence[Unmodelled]) -> list[str]:
    """A sentence for everything that a prediction leaves out, but for failures, which have sections of their own."""
    return [
        f"Not modelled: {each.what}; R′ is predicted {each.effect}." for each in unmodelled if each.kind != "failures"
    ]
