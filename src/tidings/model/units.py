"""Quantities as people write them: a number, a space, a unit.

Each dimension has one base unit, the one that names in the code end in: seconds (`_s`), kilobytes (`_kb`, 1000 bytes),
events per second (`_per_s`), seconds per kilobyte (`_s_per_kb`), kilobytes per second, kilometres (`_km`).
Conversion is exact up to one rounding: "0.1 ms" is the double nearest to 0.0001. A bare number is refused, since
nobody can tell "5 seconds" from "5 milliseconds" by looking at a 5.
"""

import difflib
import math
import re
from fractions import Fraction
from typing import Literal

from tidings.errors import InputError

__all__ = ["Dimension", "format_quantity", "parse_quantity", "percent", "points", "shown_time"]

Dimension = Literal["time", "size", "rate", "slowness", "bandwidth", "length"]

_MILLI, _MICRO, _NANO = Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**9)
_TIME = {
    "ns": _NANO,
    "us": _MICRO,
    "µs": _MICRO,
    "ms": _MILLI,
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_SIZE = {
    "B": _MILLI,
    "kB": Fraction(1),
    "MB": Fraction(10**3),
    "GB": Fraction(10**6),
    "KiB": Fraction(1024, 1000),
    "MiB": Fraction(1024**2, 1000),
}
_BITS = {"bit": _MILLI / 8, "kbit": Fraction(1, 8), "Mbit": Fraction(10**3, 8), "Gbit": Fraction(10**6, 8)}

_UNITS: dict[Dimension, dict[str, Fraction]] = {
    "time": _TIME,
    "size": _SIZE,
    "rate": {f"/{unit}": 1 / factor for unit, factor in _TIME.items()},
    "slowness": {f"{time}/{size}": _TIME[time] / _SIZE[size] for time in _TIME for size in _SIZE},
    "bandwidth": {f"{unit}/s": factor for unit, factor in (_BITS | _SIZE).items()},
    "length": {"m": _MILLI, "km": Fraction(1)},
}
_EXAMPLES: dict[Dimension, str] = {
    "time": "250 ms",
    "size": "50 kB",
    "rate": "15 /min",
    "slowness": "40 ms/kB",
    "bandwidth": "100 Mbit/s",
    "length": "120 km",
}
_BASE_UNITS: dict[Dimension, str] = {
    "time": "s",
    "size": "kB",
    "rate": "/s",
    "slowness": "s/kB",
    "bandwidth": "kB/s",
    "length": "km",
}
_SHOWN_UNITS: dict[Dimension, tuple[str, ...]] = {
    "time": ("d", "h", "min", "s", "ms", "us", "ns"),
    "size": ("GB", "MB", "kB", "B"),
    "rate": ("/s", "/min", "/h", "/d"),
    "slowness": ("s/kB", "ms/kB", "us/kB", "ns/kB"),
    "bandwidth": ("Gbit/s", "Mbit/s", "kbit/s", "bit/s"),
    "length": ("km", "m"),
}
_TIME_DIGITS = 3
_LEAST_TIME_S = 1e-6

# The bounds on digits keep a hostile "1e999999999" from becoming a number with a billion digits.
_QUANTITY = re.compile(
    r"\s*([+-]?[0-9_]{1,30}(?:\.[0-9_]{1,30})?(?:[eE][+-]?[0-9]{1,3})?)\s*([^\s0-9][^0-9]*?)?\s*", re.ASCII
)


def parse_quantity(text: object, dimension: Dimension) -> float:
    """The quantity in the base unit of its dimension; an InputError says what to write instead."""
    example = f'write it like "{_EXAMPLES[dimension]}"'
    if isinstance(text, bool) or not isinstance(text, int | float | str):
        raise InputError(f"expected a {dimension}, got {_describe(text)}; {example}")
    if not isinstance(text, str):
        raise InputError(_no_unit(text, str(text), dimension))
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is not a {dimension}; {example}")
    number, unit = found.group(1), found.group(2)
    if unit is None:
        raise InputError(_no_unit(text, number, dimension))
    factor = _UNITS[dimension].get(unit)
    if factor is None:
        raise InputError(f"{text!r}: {_wrong_unit(unit, dimension)}")
    try:
        value = float(Fraction(number) * factor)
    except (ValueError, OverflowError):
        raise InputError(f"{text!r} is not a {dimension}; {example}") from None
    if not math.isfinite(value):
        raise InputError(f"{text!r} is too large; {example}")
    return value


def format_quantity(value: float, dimension: Dimension, *, digits: int = 4) -> str:
    """The quantity for people: in the largest unit that leaves a number of at least 1, to so many digits."""
    units = _SHOWN_UNITS[dimension]
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {_BASE_UNITS[dimension]}"
    for unit in units:
        shown = value / float(_UNITS[dimension][unit])
        if abs(shown) >= 1:
            return f"{shown:.{digits}g} {unit}"
    smallest = units[-1]
    return f"{value / float(_UNITS[dimension][smallest]):.{digits}g} {smallest}"


def _no_unit(written: object, number: str, dimension: Dimension) -> str:
    meant = f'write "{number} {_BASE_UNITS[dimension]}" if that is what you mean'
    return f"{written!r} has no unit, but a {dimension} is expected here; {meant}"


def _wrong_unit(unit: str, dimension: Dimension) -> str:
    for other, units in _UNITS.items():
        if unit in units:
            example = _EXAMPLES[dimension]
            return f'{unit!r} is a unit of {other}, but a {dimension} is expected here; write it like "{example}"'
    close = [known for known in _UNITS[dimension] if known.casefold() == unit.casefold()]
    close = close or difflib.get_close_matches(unit, _UNITS[dimension], n=1)
    if close:
        return f"unknown unit {unit!r}; did you mean {close[0]!r}?"
    return f"unknown unit {unit!r}; write a {dimension} in one of {', '.join(_SHOWN_UNITS[dimension])}"


def _describe(value: object) -> str:
    names = {bool: "a boolean", list: "an array", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def percent(share: float | None, decimals: int = 1) -> str:
    """A share as text, such as "90.8 %"; only a share of exactly 0 or 1 is shown as 0 or 100. None is a dash."""
    if share is None:
        return "–"
    shown = f"{100.0 * share:.{decimals}f}"
    least = 10.0**-decimals
    if share < 1.0 and float(shown) >= 100.0:
        shown = f">{100.0 - least:.{decimals}f}"
    elif share > 0.0 and float(shown) == 0.0:
        shown = f"<{least:.{decimals}f}"
    return f"{shown} %"


def points(now: float, then: float) -> str:
    """The difference of two shares, with its sign: that of the rounded shares, so that a reader can check it."""
    difference = round(then, 3) - round(now, 3)
    return f"{'−' if difference < -1e-9 else '+'}{100.0 * abs(difference):.1f} points"


def shown_time(time_s: float) -> str:
    """To three digits in the largest unit that gives a number of at least 1; below a microsecond, "<1 µs"."""
    if time_s == 0.0:
        return "0"
    if time_s < _LEAST_TIME_S:
        return "<1 µs"
    # Rounded first: otherwise 999.9 us would be shown as 1e+03 us.
    rounded = float(f"{time_s:.{_TIME_DIGITS}g}")
    return format_quantity(rounded, "time", digits=_TIME_DIGITS).replace(" us", " µs")
