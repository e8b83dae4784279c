"""Times and shares as sentences and tables have them."""

from tidings.model.units import format_quantity

__all__ = ["shown_share", "shown_time"]

_DIGITS = 3
_LEAST_S = 1e-6


def shown_time(time_s: float) -> str:
    """To three digits in the largest unit that leaves a number of at least 1; nothing is shorter than a microsecond."""
    if time_s == 0.0:
        return "0"
    if time_s < _LEAST_S:
        return "<1 µs"
    # Rounded first, or 999.9 us would be shown as 1e+03 of them.
    rounded = float(f"{time_s:.{_DIGITS}g}")
    return format_quantity(rounded, "time", digits=_DIGITS).replace(" us", " µs")


def shown_share(share: float) -> str:
    return f"{100.0 * share:.{_DIGITS}g} %"
