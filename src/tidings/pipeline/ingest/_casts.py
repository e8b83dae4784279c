"""Values of one Spark type as another, without loss: what does not convert is NULL and marked as wrong.

Only conversions that keep the meaning are made. A whole number may be written as `12`, `12.0` or `"12"`, but 12.5 is
none; a boolean is not a number; a timestamp is a count of nanoseconds since 1970 in columns of moments, and no number
elsewhere.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["as_kind", "as_nanoseconds", "converted", "shown_path"]

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_NARROW: Final = ("float", "double")
_EXACT: Final = "decimal(38,9)"
"""Wide enough for any 64-bit number with a fraction of nine digits."""


def converted(value: Column, found: str, wanted: str) -> tuple[Column, Column | None]:
    """The value in the wanted type, and when it is wrong (None: never); `found` is its type as Spark writes it."""
    if found == wanted:
        return value, None
    if wanted == "bigint":
        return _whole(value, found)
    if (wanted == "double" and (_is_number(found) or found == "string")) or (wanted, found) == ("boolean", "string"):
        cast = value.try_cast(wanted)
    elif wanted == "string" and not found.startswith(("struct", "array", "map", "binary")):
        cast = value.cast("string")
    else:
        cast = f.lit(None).cast(wanted)
    return cast, value.isNotNull() & cast.isNull()


def as_nanoseconds(value: Column, found: str, unit_ns: int) -> tuple[Column, Column | None]:
    """A count of this unit, or one of Spark's timestamps, in nanoseconds, and when it is wrong: beyond 64 bits."""
    count = f.unix_micros(value) if found == "timestamp" else value
    if unit_ns == 1:
        return count, None
    exact = f.try_multiply(count, f.lit(unit_ns).cast("bigint"))
    return exact, value.isNotNull() & exact.isNull()


def as_kind(value: Column, found: str) -> tuple[str, Column]:
    """An attribute's value as one of the four kinds, by the type it is found in."""
    if found in _WHOLE:
        return "whole", value.cast("bigint")
    if found == "boolean":
        return "boolean", value
    if _is_number(found):
        return "number", value.cast("double")
    if found.startswith(("struct", "array", "map")):
        return "string", f.to_json(value)
    return "string", f.base64(value) if found == "binary" else value.cast("string")


def shown_path(file: Column) -> Column:
    """The file that a row came from, as people write it: Spark reports a percent-encoded address."""
    return f.url_decode(f.replace(f.regexp_replace(file, "^file:/+", "/"), f.lit("+"), f.lit("%2B")))


def _whole(value: Column, found: str) -> tuple[Column, Column | None]:
    if found in _WHOLE:
        return value.cast("bigint"), None
    if not (_is_number(found) or found == "string"):
        return f.lit(None).cast("bigint"), value.isNotNull()
    exact = value.try_cast(_EXACT)
    whole = exact.try_cast("bigint")
    # A string's digits beyond the ninth are rounded away by the decimal, so 1.0000000001 passes for 1: no clock has it.
    is_wrong = value.isNotNull() & (whole.isNull() | (whole.cast(_EXACT) != exact))
    return f.when(~is_wrong, whole), is_wrong


def _is_number(found: str) -> bool:
    return found in _WHOLE or found in _NARROW or found.startswith("decimal")
