"""Attribute values: which Python values an event may carry, and what they are to a filter.

One function decides for everybody (the predicate, the matching index, the event itself): `check_value` takes what a
caller handed in and returns a plain ``bool``, ``int``, ``float``, ``str`` or ``None``, or raises `EventError`.

- None is a missing attribute, NULL.
- A boolean is never a number, although Python says ``True == 1``.
- Whole numbers have 64 bits; other numbers are finite doubles. NaN and infinities are refused, because
  comparisons with them are rarely what was intended.
- NumPy scalars count as the Python value they hold; NumPy itself is not imported for that.
- Strings must be encodable as UTF-8: a lone surrogate could not be sent, and has no place in the order of code points.
"""

import sys
from math import isfinite
from typing import Final

from tidings.errors import EventError

PlainValue = bool | int | float | str

WHOLE_MIN: Final = -(2**63)
WHOLE_MAX: Final = 2**63 - 1

EXACT_WHOLE: Final = 2**53
"""From this magnitude on, a double no longer tells every whole number from its neighbour."""


def check_value(name: str, value: object) -> PlainValue | None:
    """The plain value of an attribute, or EventError if a filter could not make sense of it."""
    kind = type(value)
    if kind is str:
        if not value.isascii():  # type: ignore[attr-defined]
            _check_encodable(name, value)  # type: ignore[arg-type]
        return value  # type: ignore[return-value]
    if kind is float:
        if not isfinite(value):  # type: ignore[arg-type]
            raise EventError(f"attribute {name!r} is {value!r}: send a finite number, or leave the attribute out")
        return value  # type: ignore[return-value]
    if kind is int:
        if not WHOLE_MIN <= value <= WHOLE_MAX:  # type: ignore[operator]
            raise EventError(
                f"attribute {name!r} is a whole number beyond 64 bits: send it as a float or as a string instead"
            )
        return value  # type: ignore[return-value]
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    return check_value(name, _as_plain(name, value))


def kind_of(value: PlainValue) -> str:
    """The kind of a plain value: 'number', 'string' or 'boolean'."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def _as_plain(name: str, value: object) -> object:
    """Unwrap NumPy scalars and subclasses of the plain types (IntEnum, StrEnum, np.float64, np.str_)."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        plain: object = value.item()
        if type(plain) in (bool, int, float, str) and not isinstance(value, (numpy.datetime64, numpy.timedelta64)):
            return plain
    elif isinstance(value, int):
        return int(value)
    elif isinstance(value, float):
        return float(value)
    elif isinstance(value, str):
        return str.__str__(value)
    raise EventError(
        f"attribute {name!r} has a value of type {type(value).__name__}: "
        "an attribute is a number, a string, a boolean or None"
    )


def _check_encodable(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EventError(
            f"attribute {name!r} holds a lone surrogate (U+{ord(value[error.start]):04X}) at character "
            f"{error.start + 1}: send text that can be encoded as UTF-8"
        ) from None
