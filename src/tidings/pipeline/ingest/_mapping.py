"""The mapping file: how the logs of a foreign system are read as the tables of a trace (docs/reference).

It is TOML, decoded as strictly as a scenario: an unknown key, a column of no table, a default of the wrong type is an
error with its line. A mapping says for each table which files hold it, in which format, which of their columns are the
contract's fields, and in which unit times are; subscriptions may be given in the mapping itself.

A mapping is data: whoever interprets it (Spark's expressions in _foreign.py, plain Python in _plain.py) has to do no
more than it says here. A key of several columns is their values joined by SEPARATOR, with ESCAPE before each SEPARATOR
or ESCAPE inside a value, so different values never make the same key; it is NULL if one of them is.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tidings.errors import FilterError, InputError
from tidings.model.documents import Place, Quantity, Source, decode, suggestion
from tidings.model.filters import Filter
from tidings.model.trace import TABLES, AttributeKind
from tidings.model.units import parse_quantity
from tidings.pipeline.ingest._columns import TYPES
from tidings.pipeline.ingest._rules import DURATIONS

if TYPE_CHECKING:
    from tidings.pipeline.ingest._clocks import Corrections

__all__ = [
    "DIGITS",
    "ESCAPE",
    "EVENT",
    "FALLBACKS",
    "HOSTED",
    "SEPARATOR",
    "SOURCE_TIMES",
    "SPAN_FIELDS",
    "TARGET_TIMES",
    "Clock",
    "Clocks",
    "Columns",
    "FirstOf",
    "Format",
    "IfKnown",
    "Mapping",
    "Subscriber",
    "TableMapping",
    "Time",
    "load_mapping",
    "several",
]

SEPARATOR: Final = "|"
ESCAPE: Final = "\\"

EVENT: Final = "event"
"""In a log without sequence numbers: the column with the event's id, from which its number is derived."""

DIGITS: Final = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Decimal digits of a unit's fraction that are whole nanoseconds."""

HOSTED: Final = {"publications": "publisher", "deliveries": "subscription"}
"""Tables whose rows have the times of one host each, and the column that names it unless the mapping has `host`."""
SOURCE_TIMES: Final = ("enqueued_ns", "sent_ns")
TARGET_TIMES: Final = ("received_ns", "began_ns", "ended_ns")
"""Times of a hop by the clock of its source (or the publisher), and by that of its target."""

Format = Literal["csv", "json-lines", "otlp"]

FROM_THE_BEGINNING_NS: Final = -(1 << 62)


class FirstOf(NamedTuple):
    """The first of these fields that has a value."""

    fields: tuple[str, ...]


class IfKnown(NamedTuple):
    """One word if a field has a value, another if not."""

    field: str
    then: str
    otherwise: str


FALLBACKS: Final[dict[str, dict[str, str | int | float | FirstOf | IfKnown]]] = {
    "publications": {"broker": "broker", "size_bytes": 0},
    "hops": {
        "enqueued_ns": FirstOf(("sent_ns", "received_ns")),
        "outcome": IfKnown("received_ns", "received", "lost"),
    },
    "deliveries": {"broker": "broker", "delivered_ns": FirstOf(("arrived_ns",))},
    "subscriptions": {
        "subscription": FirstOf(("subscriber",)),
        "subscriber": FirstOf(("subscription",)),
        "broker": "broker",
        "price": 1.0,
        "from_ns": FROM_THE_BEGINNING_NS,
    },
    "transitions": {"kind": IfKnown("target", "link", "broker")},
    "topology": {"kind": IfKnown("target", "link", "broker")},
}
"""What a field without a value is taken to be, in this order; a field that is neither here nor NULL by contract is
needed."""

SPAN_FIELDS: Final = ("traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano")
"""Columns of OTLP that are a span's own fields. `link.` and a name is a field of its first link, `resource.` and a name
an attribute of its resource, any other name an attribute of its own."""

_EVENT_TABLES: Final = ("publications", "hops", "deliveries")
_LITERALS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "bigint": (int,),
    "double": (int, float),
    "boolean": (bool,),
}


class _Moment:
    """A time written in TOML's own form, as text."""

    def prepare(self, raw: Any, place: Place) -> Any:
        if isinstance(raw, date) and not isinstance(raw, datetime):
            place.fail("a date alone is no moment; write it like 2026-01-31T00:00:00Z")
        return raw.isoformat() if isinstance(raw, datetime) else raw


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Time(_Written, frozen=True, kw_only=True):
    """How times are written: the unit of a number, or "iso" for text; `origin` becomes time 0."""

    unit: Literal["s", "ms", "us", "ns", "iso"]
    origin: Annotated[str | int | float, _Moment()] = 0
    durations: Literal["s", "ms", "us", "ns"] | None = None
    EXAMPLES: ClassVar = {"unit": 'unit = "ms"'}

    @property
    def origin_ns(self) -> int:
        return _origin_ns(self.origin, self.unit)

    @property
    def duration_unit(self) -> str | None:
        return self.durations or (self.unit if self.unit != "iso" else None)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def _origin_ns(origin: str | float, unit: str) -> int:
    if isinstance(origin, str):
        moment = datetime.fromisoformat(origin)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000
    return int(Decimal(str(origin)) * 10 ** DIGITS[unit if unit != "iso" else "s"])


class Attribute(_Written, frozen=True, kw_only=True):
    """An attribute: its kind, and its column if that has another name."""

    kind: AttributeKind
    column: str | None = None
    EXAMPLES: ClassVar = {"kind": 'kind = "number"'}


Columns = str | Annotated[tuple[str, ...], Meta(min_length=1)]
"""One column, or several whose values make a key together; in `where`, one value or several."""


def several(given: Columns) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


class TableMapping(_Written, frozen=True, kw_only=True):
    """One table: its files (a pattern below the trace's directory), and what their columns are. Rows count only if
    each column in `where` has one of its values. `host` is the column with the host whose clock the times are of."""

    files: Annotated[str, Meta(min_length=1)]
    format: Format
    columns: dict[str, Columns]
    where: dict[str, Columns] = {}
    host: Columns | None = None
    defaults: dict[str, str | int | float | bool] = {}
    attributes: dict[str, AttributeKind | Attribute] = {}
    time: Time | None = None
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ","
    EXAMPLES: ClassVar = {
        "files": 'files = "sends/*.csv"',
        "format": 'format = "csv"',
        "columns": 'columns = { publisher = "producer" }',
    }

    def attribute_columns(self) -> dict[str, tuple[str, AttributeKind]]:
        """Attributes by name, each with its column and its kind."""
        return {
            name: (name, given) if isinstance(given, str) else (given.column or name, given.kind)
            for name, given in self.attributes.items()
        }

    def file_columns(self) -> list[str]:
        """Every column that a file has to have, once."""
        keys = [*self.columns.values(), *(() if self.host is None else (self.host,))]
        named = [column for given in keys for column in several(given)]
        attributes = [column for column, _ in self.attribute_columns().values()]
        return list(dict.fromkeys([*named, *attributes, *self.where]))


class Subscriber(_Written, frozen=True, kw_only=True):
    """A subscription that no file holds; it counts from the beginning to the end."""

    subscriber: Annotated[str, Meta(min_length=1)]
    subscription: str | None = None
    filter: str
    max_delay: Annotated[float, Quantity("time")] | None = None
    price: Annotated[float, Meta(ge=0)] = 1.0
    broker: str = "broker"
    EXAMPLES: ClassVar = {"subscriber": 'subscriber = "billing"', "filter": "filter = \"symbol = 'YHOO'\""}


class _SignedTime:
    """A time that may be negative, held in nanoseconds."""

    def prepare(self, raw: Any, place: Place) -> int:
        try:
            return round(parse_quantity(raw, "time") * 1e9)
        except InputError as error:
            place.fail(str(error))


class _Error(_SignedTime):
    def prepare(self, raw: Any, place: Place) -> int:
        value = super().prepare(raw, place)
        if value < 0:
            place.fail(f"{raw!r} is negative, but must be zero or more")
        return value


class _ClockWritten:
    """A clock is a table, or just how far it is ahead."""

    def prepare(self, raw: Any, place: Place) -> Any:  # noqa: ARG002 - the marker's signature
        return {"ahead": raw} if isinstance(raw, str) else raw


class Clock(_Written, frozen=True, kw_only=True):
    """What is known of a host's clock: how far it is ahead of the true time, up to an error."""

    ahead_ns: Annotated[int, _SignedTime()] = msgspec.field(name="ahead")
    error_ns: Annotated[int, _Error()] = msgspec.field(name="error", default=0)
    EXAMPLES: ClassVar = {"ahead": 'ahead = "35 ms"'}


class Clocks(_Written, frozen=True, kw_only=True):
    """Hosts have clocks of their own: those of `hosts` are declared, others are estimated from traffic in both
    directions, if `estimate` says so, up to `error_ns` from the true time if that is known; with `drift` they may also
    run at different speeds. The clock of `reference` is right."""

    estimate: bool = True
    drift: bool = False
    reference: str | None = None
    error_ns: Annotated[int, _Error()] | None = msgspec.field(name="error", default=None)
    hosts: dict[str, Annotated[Clock, _ClockWritten()]] = {}

    @property
    def is_anchored(self) -> bool:
        """Whether anything is declared about the true time."""
        return bool(self.hosts) or self.reference is not None or self.error_ns is not None


class _Document(_Written, frozen=True, kw_only=True):
    time: Time
    publications: TableMapping | None = None
    hops: TableMapping | None = None
    deliveries: TableMapping | None = None
    subscriptions: TableMapping | None = None
    transitions: TableMapping | None = None
    topology: TableMapping | None = None
    subscribers: tuple[Subscriber, ...] = ()
    clocks: Clocks | None = None
    EXAMPLES: ClassVar = {"time": '[time] with unit = "ms"'}


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """A mapping file, decoded and found consistent. `digest` changes with its text: then nothing read before holds.

    `corrections` are the clocks of its `clocks`, once they have been found (_clocks.py): whoever reads rows corrects
    their times by them.
    """

    source: str
    digest: str
    tables: dict[str, TableMapping]
    times: dict[str, Time]
    subscribers: tuple[Subscriber, ...]
    clocks: Clocks | None = None
    corrections: "Corrections | None" = None

    @property
    def patterns(self) -> dict[str, tuple[str, Format]]:
        """By table: the pattern of its files, and their format."""
        return {name: (table.files, table.format) for name, table in self.tables.items()}

    @property
    def given_tables(self) -> set[str]:
        """Tables that the mapping itself has rows of."""
        return {"subscriptions"} if self.subscribers else set()

    @property
    def is_whole(self) -> bool:
        """Whether all files count together, and none alone: events are numbered by their ids, or clocks estimated."""
        has_ids = any(EVENT in table.columns for table in self.tables.values())
        return has_ids or (self.clocks is not None and self.clocks.estimate)


def load_mapping(path: str | Path) -> Mapping:
    """The mapping in a TOML file; an error names the line and the remedy."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give the path of a mapping in TOML") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; give the path of a mapping in TOML") from None
    source = Source(text, str(path))
    document = decode(source.table(), _Document, source.root)
    tables = {name: table for name in TABLES if (table := getattr(document, name)) is not None}
    _check_time(document.time, source.root / "time")
    for name, table in tables.items():
        _check_table(name, table, tables, table.time or document.time, source.root / name)
    _check_subscribers(document.subscribers, source.root / "subscribers")
    return Mapping(
        source=str(path),
        digest=hashlib.sha256(text.encode()).hexdigest(),
        tables=tables,
        times={name: table.time or document.time for name, table in tables.items()},
        subscribers=document.subscribers,
        clocks=document.clocks,
    )


def _check_time(time: Time, place: Place) -> None:
    try:
        time.origin_ns  # noqa: B018
    except (ValueError, ArithmeticError):
        (place / "origin").fail(f"{time.origin!r} is no moment; write it like 2026-01-31T00:00:00Z, or as a number")


def _check_table(name: str, table: TableMapping, tables: dict[str, TableMapping], time: Time, place: Place) -> None:
    known = [*TYPES[name], *([EVENT] if name in _EVENT_TABLES else [])]
    for part, keys in (("columns", table.columns), ("defaults", table.defaults)):
        for key in keys:
            if key not in known:
                (place / part / key).fail(f"{name} has no field `{key}`; {suggestion(key, known, otherwise='it has')}")
    for key, given in table.columns.items():
        if not isinstance(given, str) and TYPES[name].get(key, "string") != "string":
            (place / "columns" / key).fail(_not_composite(key, name))
    for key, value in table.defaults.items():
        if key == EVENT or type(value) not in _LITERALS[TYPES[name][key]]:
            (place / "defaults" / key).fail(f"{value!r} is no {TYPES[name].get(key, 'default of an event id')}")
    if table.attributes and name != "publications":
        (place / "attributes").fail("only publications have attributes; write them there")
    if table.host is not None and name not in HOSTED:
        (place / "host").fail(f"only {' and '.join(HOSTED)} name a host; hops have it as source and target")
    if table.time is not None:
        _check_time(table.time, place / "time")
    for key in table.columns:
        if key in DURATIONS and time.duration_unit is None:
            (place / "columns" / key).fail('is a duration, whose unit is unknown; write durations = "ms" in [time]')
    _check_complete(name, table, tables, place)


def _not_composite(key: str, name: str) -> str:
    if key != "sequence" or name not in _EVENT_TABLES:
        return "is one value, which several columns do not make; name one column"
    return (
        "is a number, which several columns do not make; put all but the last into the publisher, which then counts "
        'by itself (publisher = ["topic", "partition"], sequence = "offset"), or write event = [...] in its place'
    )


def _check_complete(name: str, table: TableMapping, tables: dict[str, TableMapping], place: Place) -> None:
    """Every field that is never NULL comes from somewhere."""
    have = {*table.columns, *table.defaults, *FALLBACKS[name]}
    if EVENT in table.columns:
        have.add("sequence")
        if name != "publications":
            have.add("publisher")
            if "publications" not in tables or EVENT not in tables["publications"].columns:
                (place / "columns" / EVENT).fail("needs the event ids of publications; write event there as well")
    if name == "subscriptions" and not {"subscription", "subscriber"} & {*table.columns, *table.defaults}:
        have -= {"subscription", "subscriber"}
    for field in TABLES[name]:
        if not field.nullable and field.name not in have and field.name != "attributes":
            meaning = field.metadata[b"meaning"].decode()
            or_event = ", or event for the column with an id" if field.name == "sequence" else ""
            (place / "columns").fail(
                f"`{field.name}` is missing ({meaning}); name its column here{or_event}, or a value in `defaults`"
            )


def _check_subscribers(subscribers: Iterable[Subscriber], place: Place) -> None:
    seen: set[str] = set()
    for number, given in enumerate(subscribers):
        id = given.subscription or given.subscriber
        if id in seen:
            (place / number).fail(f"subscription {id!r} is there already; give each a `subscription` of its own")
        seen.add(id)
        try:
            Filter.parse(given.filter)
        except FilterError as error:
            (place / number / "filter").fail(str(error))
