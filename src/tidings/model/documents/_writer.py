"""TOML written by us: a table as a text that reads back to the same table.

Tables of a document stand under headings, in the order given, and everything inside them in one line each.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tidings.errors import InputError

__all__ = ["document_text", "table_text"]


def document_text(table: Mapping[str, Any]) -> str:
    """A whole document: plain keys first, then tables and arrays of tables under headings."""
    plain = {key: value for key, value in table.items() if not _is_table(value) and not _is_array_of_tables(value)}
    parts = [table_text("", plain)] if plain else []
    for key, value in table.items():
        if _is_array_of_tables(value):
            parts += [table_text(f"[[{_key(key)}]]", row, at=f"{key}[{n}].") for n, row in enumerate(value)]
        elif _is_table(value):
            parts.append(table_text(f"[{_key(key)}]", value, at=f"{key}."))
    return "\n".join(parts)


def table_text(heading: str, rows: Mapping[str, Any], *, at: str = "") -> str:
    """One table under its heading; InputError, naming the key, if something has no form in TOML."""
    lines = [heading] if heading else []
    return "\n".join([*lines, *(f"{_key(key)} = {_value(value, at + str(key))}" for key, value in rows.items())]) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(item, Mapping) for item in value)


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise InputError(f"{name!r} is not a key: keys are strings")
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _text(name)


def _value(value: Any, at: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return repr(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case Mapping():
            items = (f"{_key(key)} = {_value(item, f'{at}.{key}')}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case Sequence() if not isinstance(value, bytes):
            return f"[{', '.join(_value(item, f'{at}[{number}]') for number, item in enumerate(value))}]"
    raise InputError(
        f"{at}: {type(value).__name__} has no form in TOML; write strings, numbers, booleans, lists, dicts"
    )


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
