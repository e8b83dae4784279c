"""Rows as JSON exactly as Spark writes it, so that both engines leave the same quarantine to the last character."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["double_text", "json_text"]

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')


def json_text(value: Any) -> str:
    """A Python value as Spark's `to_json` writes it; the fields of a row in their order."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json_text(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), value) + '"'
    return str(value)


def double_text(value: float) -> str:
    """A number as Java writes it: 0.001 to 10^7 with a point, others with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0.0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The power of ten of the first digit.
    power = int(exponent or 0) + (
        len(whole) - 1 if whole.strip("0") else -1 - (len(fraction) - len(fraction.lstrip("0")))
    )
    digits = digits.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if 1e-3 <= abs(value) < 1e7:
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        padded = digits.ljust(power + 1, "0")
        return f"{sign}{padded[: power + 1]}.{padded[power + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
