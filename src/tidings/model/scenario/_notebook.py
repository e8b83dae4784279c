"""A scenario as a notebook shows it: a few small tables of what was written."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["scenario_html"]

_RUN = ("duration", "warmup", "seed", "topology", "links", "brokers", "policies")
_PUBLISHERS = ("name", "at", "count", "per_broker", "rate", "interval", "size", "lifetime", "attributes")
_SUBSCRIBERS = ("name", "at", "count", "per_broker", "filter", "max_delay", "price")


def scenario_html(table: Mapping[str, Any], title: str) -> str:
    """The tables as HTML; whatever was written is text."""
    run = [(key, _shown(table[key])) for key in _RUN if key in table]
    parts = [f"<h4>{escape(title)}</h4>", _html(("", ""), run)]
    for name, columns in (("publishers", _PUBLISHERS), ("subscribers", _SUBSCRIBERS)):
        groups = table.get(name, ())
        used = [key for key in columns if any(key in group for group in groups)]
        if used:
            rows = [[_shown(group.get(key, "")) for key in used] for group in groups]
            parts.append(f"<h5>{name}</h5>{_html(used, rows)}")
    return "<div>" + "".join(parts) + "</div>"


def _html(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)
