"""Events as rows of Arrow record batches, for applications that compute on columns.

Rules:

- Without a schema, the columns are METADATA and the attributes that the filter names, in its order: a number is a
  `double`, a string a `string`, a boolean a `bool`. An attribute that the filter compares with nothing, or with two
  kinds, has no type, and a schema must be given.
- Columns of METADATA are about the event itself; in a given schema they may be anywhere.
- An attribute that an event lacks is null. So is one whose value is not of the column's type (a column of doubles takes
  whole numbers).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from tidings.errors import InputError
from tidings.model.filters import Filter, implied_kinds

if TYPE_CHECKING:
    from tidings.live.client._subscription import Delivery

__all__ = ["ATTRIBUTE_TYPES", "METADATA", "EventColumns", "EventRow", "event_row", "filter_types"]

METADATA: Final[dict[str, pa.DataType]] = {
    "_publisher": pa.string(),
    "_epoch": pa.int64(),
    "_sequence": pa.int64(),
    "_published": pa.timestamp("us", tz="UTC"),
    "_age_ns": pa.int64(),
    "_late": pa.bool_(),
    "_payload": pa.binary(),
}
"""Columns about an event, and their types; publisher, epoch and sequence together identify an event."""
ATTRIBUTE_TYPES: Final = (
    pa.string(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
)
_OF_KIND: Final = {"number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """An event as it was taken: `published_us` by this machine's clock, its age then, and whether it was late."""

    publisher: str
    epoch: int
    sequence: int
    published_us: int
    age_ns: int
    late: bool
    attributes: dict[str, int | float | str | bool]
    payload: bytes


Misfit = Callable[[str, EventRow, Any], None]


def event_row(each: "Delivery", now_us: int) -> EventRow:
    """An event that was taken now; when it was published follows from its age."""
    age_ns = round(each.age_s * 1e9)
    return EventRow(
        each.publisher,
        each.epoch,
        each.sequence,
        now_us - age_ns // 1000,
        age_ns,
        each.late,
        dict(each.attributes),
        each.payload,
    )


def filter_types(text: str) -> dict[str, pa.DataType | str]:
    """The type of each attribute that a filter names, or why its type is not known."""
    found: dict[str, pa.DataType | str] = {}
    for name, kinds in implied_kinds(Filter.parse(text)).items():
        if len(kinds) == 1:
            (kind,) = kinds
            found[name] = _OF_KIND[kind]
        else:
            why = "with numbers, strings or booleans at once" if kinds else "with no number, string or boolean"
            found[name] = f"compares {name} {why}, so its type is not known"
    return found


class EventColumns:
    """Makes rows of events, by a schema; `on_misfit` is called for values that are of another type than their column.

    It is given the column's name, the event and the value, and may raise.
    """

    def __init__(self, schema: pa.Schema, *, on_misfit: Misfit | None = None) -> None:
        self.schema = schema
        self._values = [_value(field, on_misfit) for field in schema]

    @classmethod
    def of_filter(cls, text: str) -> "EventColumns":
        """METADATA, and the attributes that a filter names."""
        fields = [pa.field(name, kind) for name, kind in METADATA.items()]
        for name, kind in filter_types(text).items():
            if isinstance(kind, str):
                raise InputError(f"the filter {kind}: give schema=, for example pa.schema([({name!r}, pa.string())])")
            fields.append(pa.field(name, kind))
        return cls(pa.schema(fields))

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> "EventColumns":
        """A given schema, if events can be its rows."""
        for field in schema:
            wanted = METADATA.get(field.name)
            if wanted is not None and field.type != wanted:
                raise InputError(f"column {field.name} is of type {field.type} in the schema, but must be {wanted}")
            if wanted is None and field.type not in ATTRIBUTE_TYPES:
                known = ", ".join(map(str, ATTRIBUTE_TYPES))
                raise InputError(
                    f"column {field.name} is of type {field.type} in the schema; attributes are {known}, and about the "
                    f"event there are {', '.join(METADATA)}"
                )
        return cls(schema)

    def batch(self, rows: Sequence[EventRow]) -> pa.RecordBatch:
        """Events as rows."""
        arrays = [
            pa.array(list(map(value, rows)), field.type) for field, value in zip(self.schema, self._values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _value(field: pa.Field, on_misfit: Misfit | None) -> Callable[[EventRow], Any]:
    """What an event has in a column."""
    name = field.name
    if name in METADATA:
        source = {"_published": "published_us"}.get(name, name[1:])
        return lambda row: getattr(row, source)
    fits = _fits(field.type)

    def value(row: EventRow) -> Any:
        found = row.attributes.get(name)
        if found is None:
            return None
        fitting = fits(found)
        if fitting is None and on_misfit is not None:
            on_misfit(name, row, found)
        return fitting

    return value


def _fits(kind: pa.DataType) -> Callable[[int | float | str | bool], Any]:
    """The value for a column of this type; None if it is of another."""
    if kind in (pa.string(), pa.bool_()):
        wanted = str if kind == pa.string() else bool
        return lambda value: value if isinstance(value, wanted) else None
    if pa.types.is_floating(kind):
        return lambda value: None if isinstance(value, bool | str) else float(value)
    most = 1 << (kind.bit_width - 1)

    def whole(value: int | float | str | bool) -> int | None:
        if isinstance(value, bool | str) or (isinstance(value, float) and not value.is_integer()):
            return None
        return int(value) if -most <= value < most else None

    return whole
