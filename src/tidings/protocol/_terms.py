"""The terms of a subscription as applications write them, for all kinds of clients."""

from typing import Final

from tidings.errors import InputError
from tidings.protocol.wire import MAX_CONFLATED, MAX_NAME

__all__ = ["LATER_NS", "attributes_of_key", "late_ns_of"]

LATER_NS: Final = 3_600_000_000_000
"""How long after its deadline an event is kept that is wanted later, unless the subscription says otherwise."""


def attributes_of_key(text: str) -> tuple[str, ...]:
    """The attributes that a key names, with commas in between; InputError if it names none, or too many."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if len(names) > MAX_CONFLATED or not all(0 < len(name) <= MAX_NAME for name in names):
        raise InputError(
            f"conflate is {text[:100]!r}: give the name of an attribute, or up to {MAX_CONFLATED} with commas in "
            "between, for example 'symbol,venue'"
        )
    return names


def late_ns_of(late: str | None, late_ns: int | None) -> int:
    """How long after its deadline an event is wanted, by the name of what becomes of it and a time, if given."""
    if late not in (None, "drop", "later"):
        raise InputError(f"late is {late[:100]!r}: give 'later', which keeps late events, or 'drop'")
    if late == "drop" and late_ns:
        raise InputError("late is 'drop', and there is a time for which late events are kept: leave one of them out")
    if late_ns is None:
        return LATER_NS if late == "later" else 0
    return late_ns
