"""Values as people write them: in `--vary`, in a list, and back into TOML.

One value is TOML where it is a number, a truth value or in brackets or quotes, and otherwise the text as it stands, so
that `fifo` and `40 /s` need no quotes. Several values stand between commas; `1:15:2` is the range from 1 to 15 in steps
of 2, both ends included, and `1:15:2 /s` the same with a unit.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidings.errors import InputError

__all__ = ["VALUES_MAX", "read_value", "read_values", "to_toml", "write_value"]

VALUES_MAX = 100_000
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?(\s+\S.*|\s*[a-zA-Z/]\S*)?")
_PLAIN = re.compile(r"[A-Za-z_][\w ./-]*|\d+(?:\.\d+)? \S+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def read_values(text: str) -> tuple[Any, ...]:
    """The values in a list with commas, ranges unfolded; an InputError says what is wrong."""
    values: list[Any] = []
    for part in _split(text):
        if not part:
            raise InputError(f"{text!r} has an empty value; write values between commas, or '' for an empty string")
        found = _RANGE.fullmatch(part)
        values += _unfold(part, *found.groups()) if found else [read_value(part)]
    return tuple(values)


def read_value(text: str) -> Any:
    """One value: TOML if it looks like that, else the text itself."""
    text = text.strip()
    is_marked = text[:1] in ('"', "'", "[", "{")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, ValueError) as error:
        if is_marked:
            raise InputError(f"{text!r} is not a TOML value: {error}") from None
        return text
    return value if is_marked or isinstance(value, bool | int | float) else text  # a date stays a text


def write_value(value: Any) -> str:
    """The shortest text that `read_values` reads as this one value."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value == value.strip() and read_value(value) == value:
        return value
    return _inline(value)


def to_toml(table: Mapping[str, Any]) -> str:
    """A TOML text with this content, one line for each key of the table itself."""
    return "".join(f"{_key(key)} = {_inline(value)}\n" for key, value in table.items())


def _split(text: str) -> list[str]:
    """The parts between commas that are in no bracket and no quotes."""
    parts, begin, closing, quote = [], 0, "", ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote and (quote == "'" or not _is_escaped(text, at)) else quote
        elif sign in "\"'":
            quote = sign
        elif sign in _BRACKETS:
            closing += _BRACKETS[sign]
        elif closing and sign == closing[-1]:
            closing = closing[:-1]
        elif sign == "," and not closing:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _unfold(part: str, low: str, high: str, step: str | None, unit: str | None) -> list[Any]:
    first, last, by = Decimal(low), Decimal(high), Decimal(step or "1")
    if by == 0 or (last - first) * by < 0:
        raise InputError(f"the range {part!r} does not get from {low} to {high}; write first:last:step")
    count = int((last - first) / by) + 1
    if count > VALUES_MAX:
        raise InputError(f"the range {part!r} has {count:,} values; at most {VALUES_MAX:,} are possible")
    numbers = [first + number * by for number in range(count)]
    if unit:
        return [f"{number:f} {unit.strip()}" for number in numbers]
    is_whole = all(number == number.to_integral_value() for number in (first, by)) and not re.search(r"[.eE]", part)
    return [int(number) if is_whole else float(number) for number in numbers]


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise InputError(f"{value!r} is a {type(value).__name__}, which no scenario holds")
