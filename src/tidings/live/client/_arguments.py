"""Checks of an application's arguments before they are sent: a broker could only close the connection."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, Final

from tidings.errors import EventError, InputError
from tidings.extras import missing_extra
from tidings.model.filters import check_value
from tidings.protocol import attributes_of_key, late_ns_of
from tidings.protocol.wire import LONGEST_NS, MAX_ATTRIBUTES, MAX_NAME

__all__ = [
    "checked_filter",
    "checked_key",
    "checked_price",
    "duration_ns",
    "event_rows",
    "late_ns",
    "plain_attributes",
    "require_bytes",
    "split_payload",
]

_SECOND_NS: Final = 10**9
_ROWS: Final = 4_096
_LONGEST_S: Final = LONGEST_NS / _SECOND_NS


def duration_ns(what: str, value_s: Any) -> int:
    """Seconds as nanoseconds; `what` is the name of the argument."""
    if not _is_number(value_s):
        raise InputError(f"{what} is {value_s!r}: give a number of seconds, for example {what}=2.0")
    if not 0.0 <= value_s <= _LONGEST_S:
        raise InputError(f"{what} is {value_s:g}: give from 0 to {_LONGEST_S:g} seconds")
    value_ns: int = round(value_s * _SECOND_NS)
    return value_ns


def late_ns(late: Any, late_s: Any) -> int:
    """How long after its deadline an event is wanted."""
    return late_ns_of(None if late is None else str(late), None if late_s is None else duration_ns("late_s", late_s))


def checked_price(price: Any) -> float:
    """The price that a subscription pays for an on-time event."""
    if not _is_number(price) or not 0.0 <= price <= 1e300:
        raise InputError(f"price is {price!r}: give a number that is not negative, for example price=2.5")
    return float(price)


def checked_filter(filter: Any, *, stacklevel: int) -> str:
    """The text of a valid filter; warnings about its meaning point to the line this many levels up."""
    if not isinstance(filter, str):
        raise InputError(f'the filter is {filter!r}: give its text, for example "price > 10"')
    # With the parser, which takes long to load.
    from tidings.model.filters import filter_warnings
    from tidings.protocol import read_filter

    for warning in filter_warnings(read_filter(filter)):
        warnings.warn(warning, stacklevel=stacklevel + 1)
    return filter


def checked_key(conflate: Any) -> tuple[str, ...]:
    """The attributes whose values are the key of an event."""
    if not isinstance(conflate, str):
        raise InputError(f"conflate is {conflate!r}: give the name of an attribute, for example conflate='symbol'")
    return attributes_of_key(conflate)


def plain_attributes(attributes: Any) -> dict[str, bool | int | float | str]:
    """An event's attributes as they are sent; None is left out, since filters treat it as missing."""
    if not isinstance(attributes, Mapping):
        raise EventError(f'the attributes are {attributes!r}: give a dictionary, for example {{"price": 17.2}}')
    plain: dict[str, bool | int | float | str] = {}
    for name, value in attributes.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
            raise EventError(f"an attribute's name is {name!r}: names are strings of 1 to {MAX_NAME} characters")
        found = check_value(name, value)
        if found is not None:
            plain[name] = found
    if len(plain) > MAX_ATTRIBUTES:
        raise EventError(
            f"an event of {len(plain)} attributes: at most {MAX_ATTRIBUTES}; put the others in the payload"
        )
    return plain


def require_bytes(payload: Any) -> None:
    """InputError unless a payload is bytes."""
    if not isinstance(payload, bytes):
        raise InputError(
            f"the payload is of type {type(payload).__name__}: give bytes, for example payload=text.encode()"
        )


def event_rows(events: Any) -> Iterator[Any]:
    """Events one by one: those of an iterable, or the rows of Arrow data, which are read in portions."""
    if not hasattr(events, "__arrow_c_stream__") and not hasattr(events, "__arrow_c_array__"):
        if not isinstance(events, Iterable) or isinstance(events, Mapping | str | bytes):
            kind = type(events).__name__
            raise InputError(f"the events are of type {kind}: give dictionaries in a list, or an Arrow record batch")
        yield from events
        return
    try:
        import pyarrow as pa
    except ImportError as error:
        raise missing_extra(error, "broker", "publish_many() of Arrow data") from None
    if hasattr(events, "__arrow_c_stream__"):
        batches: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(events)
    else:
        batches = [pa.record_batch(events)]
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS):
            yield from batch.slice(begin, _ROWS).to_pylist()


def split_payload(event: Any, column: str | None) -> tuple[dict[str, bool | int | float | str], bytes]:
    """An event's attributes and its payload, if that is in a column."""
    if column is None:
        return plain_attributes(event), b""
    if not isinstance(event, Mapping) or column not in event:
        raise EventError(f"there is no column {column!r} for the payload")
    payload = event[column]
    if payload is None:
        payload = b""
    elif isinstance(payload, str):
        payload = payload.encode()
    require_bytes(payload)
    return plain_attributes({name: value for name, value in event.items() if name != column}), payload


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Real) and not isinstance(value, bool) and math.isfinite(value)
