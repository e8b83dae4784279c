"""Logs of foreign systems read through a mapping without Spark: the same rows as _foreign.py, in plain Python.

`tidings import check` and the engine arrow read with it, row by row. A value has the same meaning in both readers: text
is converted without loss or is a fault of its row alone, times are exact, keys of several columns are joined alike,
events known by ids get the same numbers, and a bad row is shown with the same text. Tests compare the two readers.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from tidings.pipeline.ingest._columns import TYPES
from tidings.pipeline.ingest._files import TraceFile
from tidings.pipeline.ingest._json import json_text
from tidings.pipeline.ingest._mapping import (
    DIGITS,
    ESCAPE,
    EVENT,
    FALLBACKS,
    HOSTED,
    SEPARATOR,
    SPAN_FIELDS,
    Columns,
    FirstOf,
    IfKnown,
    TableMapping,
    Time,
    several,
)
from tidings.pipeline.ingest._mapping import Mapping as FileMapping
from tidings.pipeline.ingest._reasons import AMBIGUOUS_EVENT, MALFORMED, UNKNOWN_PUBLICATION, WRONG_TYPE
from tidings.pipeline.ingest._rules import DURATIONS

__all__ = ["EventNumbers", "PlainRow", "joined_key", "number_events", "read_plain"]

Texts = Callable[[str], str | None]
"""The text of a row in a column, None if it has none."""
Show = Callable[[], str]

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_NANO: Final = Decimal(1).scaleb(-9)
_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")


@dataclass(kw_only=True)
class PlainRow:
    """A row as the contract has it (`values`, None where it has none), its faults and its file.

    `show` makes the text that the quarantine shows; few rows are ever shown.
    """

    values: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    event: str | None = None
    host: str | None = None
    faults: list[str] = field(default_factory=list)
    show: Callable[[], str]
    file: str

    @property
    def raw(self) -> str:
        return self.show()


def read_plain(
    table: str, files: Sequence[TraceFile], mapping: FileMapping, *, rows_max: int | None = None
) -> Iterator[PlainRow]:
    """The rows of a table in these files (CSV, JSON lines, OTLP), without numbers of events; the first so many."""
    plan = mapping.tables[table]
    return islice(_rows(table, plan, mapping.times[table], files), rows_max)


def _rows(table: str, plan: TableMapping, time: Time, files: Sequence[TraceFile]) -> Iterator[PlainRow]:
    wanted = {column: frozenset(several(values)) for column, values in plan.where.items()}
    for file in files:
        if file.table != table or file.format == "parquet" or file.fault is not None:
            continue
        for texts, show in _RECORDS[plan.format](file, plan):
            if texts is None:
                broken = _row(table, plan, time, _nothing, show, file.path)
                broken.faults.append(MALFORMED)
                yield broken
            elif all(texts(column) in values for column, values in wanted.items()):
                yield _row(table, plan, time, texts, show, file.path)


def _nothing(_column: str) -> None:
    """The texts of a broken line: whatever it holds may belong to other columns."""


def _row(table: str, plan: TableMapping, time: Time, texts: Texts, show: Show, file: str) -> PlainRow:
    row = PlainRow(values={}, show=show, file=file)
    is_wrong = False
    for name, kind in TYPES[table].items():
        text = joined_key(texts, plan.columns[name]) if name in plan.columns else None
        value = None if text is None else _field(text, name, kind, time)
        is_wrong |= text is not None and value is None
        row.values[name] = plan.defaults.get(name) if value is None else value
    for name, (column, attribute) in plan.attribute_columns().items():
        text = texts(column)
        row.attributes[name] = None if text is None else _CONVERTED[attribute](text)
        is_wrong |= text is not None and row.attributes[name] is None
    row.event = joined_key(texts, plan.columns[EVENT]) if EVENT in plan.columns else None
    for name, fallback in FALLBACKS[table].items():
        if row.values[name] is None:
            row.values[name] = _fallback(fallback, row.values)
    if table in HOSTED:
        row.host = joined_key(texts, plan.host) if plan.host is not None else None
        row.host = row.values[HOSTED[table]] if row.host is None else row.host
    if is_wrong:
        row.faults.append(WRONG_TYPE)
    return row


def joined_key(texts: Texts, columns: Columns) -> str | None:
    """The text of one column, or the key that several make; None if one of them has none."""
    if isinstance(columns, str):
        return texts(columns)
    parts = [texts(column) for column in columns]
    if None in parts:
        return None
    escaped = (str(part).replace(ESCAPE, ESCAPE * 2).replace(SEPARATOR, ESCAPE + SEPARATOR) for part in parts)
    return SEPARATOR.join(escaped)


def _fallback(fallback: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(fallback, FirstOf):
        return next((values[name] for name in fallback.fields if values[name] is not None), None)
    if isinstance(fallback, IfKnown):
        return fallback.otherwise if values[fallback.field] is None else fallback.then
    return fallback


class EventNumbers:
    """The sequence numbers of events that a log knows by ids: in the order of departure, ties by id."""

    def __init__(self, sends: Iterable[PlainRow]) -> None:
        first: dict[tuple[str, str], int] = {}
        for row in sends:
            publisher, departure = row.values["publisher"], row.values["departure_ns"]
            if not row.faults and row.event is not None and publisher is not None and departure is not None:
                key = (publisher, row.event)
                first[key] = min(first.get(key, departure), departure)
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._senders: dict[str, list[str]] = {}
        counted = Counter[str]()
        for publisher, event in sorted(first, key=lambda key: (first[key], key[1])):
            self._numbers[publisher, event] = counted[publisher]
            self._senders.setdefault(event, []).append(publisher)
            counted[publisher] += 1

    def number_publication(self, row: PlainRow) -> None:
        row.values["sequence"] = None if row.event is None else self._numbers.get((row.values["publisher"], row.event))

    def number_reference(self, row: PlainRow, *, has_publisher: bool) -> None:
        """Number a row of another table; without a publisher, by the only one who has sent an event of this id."""
        known = [] if row.event is None else self._senders.get(row.event, [])
        if not has_publisher:
            row.values["publisher"] = known[0] if len(known) == 1 else None
        self.number_publication(row)
        if row.values["sequence"] is None and row.event is not None and not row.faults:
            row.faults.append(AMBIGUOUS_EVENT if len(known) > 1 and not has_publisher else UNKNOWN_PUBLICATION)


def number_events(
    sends: Sequence[PlainRow], others: Mapping[str, Sequence[PlainRow]], plans: Mapping[str, TableMapping]
) -> None:
    """Give events known by ids their numbers, in publications and in the rows of other tables that refer to them."""
    numbers = EventNumbers(sends)
    for row in sends:
        numbers.number_publication(row)
    for table, rows in others.items():
        for row in rows if EVENT in plans[table].columns else ():
            numbers.number_reference(row, has_publisher="publisher" in plans[table].columns)


# Records: the lines of a file, each as a function from columns to texts (None for a broken line) and as it stood.


def _lines(file: TraceFile) -> Iterator[str]:
    with pa.input_stream(file.path, compression="detect") as stream:
        for line in io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="\n"):
            text = line.rstrip("\r\n")
            if text.strip():
                yield text


def _csv_records(file: TraceFile, plan: TableMapping) -> Iterator[tuple[Texts | None, Show]]:
    lines = _lines(file)
    header = next(csv.reader([next(lines, "")], delimiter=plan.delimiter), [])
    places = {name: place for place, name in enumerate(header)}

    def texts_of(fields: list[str]) -> Texts:
        return lambda column: fields[places[column]] or None

    for line in lines:
        fields = next(csv.reader([line], delimiter=plan.delimiter))
        if len(fields) != len(header):
            yield None, _shown_line(line)
        else:
            yield texts_of(fields), partial(_shown_fields, header, fields)


def _json_records(file: TraceFile, plan: TableMapping) -> Iterator[tuple[Texts | None, Show]]:
    paths = {column: _path(column) for column in plan.file_columns()}

    def texts_of(found: dict[str, Any]) -> Texts:
        return lambda column: _text(_at(found, paths[column]))

    for line in _lines(file):
        found = _object(line)
        yield (None, _shown_line(line)) if found is None else (texts_of(found), partial(str, line))


def _otlp_records(file: TraceFile, plan: TableMapping) -> Iterator[tuple[Texts | None, Show]]:
    """Every span of every line; SPAN_FIELDS says what columns it has."""
    for line in _lines(file):
        found = _object(line)
        if found is None or not isinstance(found.get("resourceSpans"), list):
            yield None, _shown_line(line)
            continue
        for resource in found["resourceSpans"]:
            about = _pairs(resource.get("resource") or {})
            for scope in resource.get("scopeSpans") or ():
                for span in scope.get("spans") or ():
                    yield _span_texts(span, about), partial(_shown_span, span)
    del plan


def _span_texts(span: dict[str, Any], resource: dict[str, str | None]) -> Texts:
    own = _pairs(span)
    link: dict[str, Any] = next(iter(span.get("links") or ()), {})

    def text(column: str) -> str | None:
        if column in SPAN_FIELDS:
            return _text(span.get(column))
        start, _, rest = column.partition(".")
        return (
            _text(link.get(rest)) if start == "link" else resource.get(rest) if start == "resource" else own.get(column)
        )

    return text


def _shown_line(line: str) -> Show:
    return partial(json_text, {"line": line})


def _shown_fields(header: Sequence[str], fields: Sequence[str]) -> str:
    return json_text({name: text or None for name, text in zip(header, fields, strict=True)})


def _shown_span(span: Mapping[str, Any]) -> str:
    """The fields of a span that are read, without those that it lacks."""
    texts = {name: _text(span[name]) for name in SPAN_FIELDS if span.get(name) is not None}
    attributes = [
        {name: each[name] if name == "key" else _texts(each[name]) for name in ("key", "value") if name in each}
        for each in span.get("attributes") or ()
    ]
    links = [_texts(link) for link in span.get("links") or ()]
    lists = {"attributes": attributes, "links": links}
    return json_text({**texts, **{name: found for name, found in lists.items() if span.get(name) is not None}})


def _texts(given: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: _text(value) for name, value in given.items()}


def _pairs(holder: Mapping[str, Any]) -> dict[str, str | None]:
    """OTLP's attributes: a list of keys with values of one of several types."""
    return {
        each.get("key", ""): _text(next(iter((each.get("value") or {}).values()), None))
        for each in reversed(holder.get("attributes") or ())
    }


_RECORDS: Final = {"csv": _csv_records, "json-lines": _json_records, "otlp": _otlp_records}


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = _DECODER.decode(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refused(name: str) -> None:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refused)
"""Numbers stay the text that they are: what they mean, the mapping says."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")


def _path(column: str) -> tuple[str | int, ...]:
    """The steps of a column in JSON: a path if it begins with `$`, or else the name of a key."""
    if not column.startswith("$"):
        return (column,)
    return tuple(int(number) if number else name or quoted for name, number, quoted in _STEP.findall(column))


def _at(found: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return ("true" if value else "false") if isinstance(value, bool) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Values: text as the contract's types, None if it is none of that type.


def _field(text: str, name: str, kind: str, time: Time) -> Any:
    if not name.endswith("_ns"):
        return _CONVERTED[kind](text)
    if name in DURATIONS:
        assert time.duration_unit is not None
        return _scaled_ns(text, time.duration_unit, 0)
    return _moment_ns(text, time.origin_ns) if time.unit == "iso" else _scaled_ns(text, time.unit, time.origin_ns)


def _decimal(text: str) -> Decimal | None:
    try:
        found = Decimal(text.strip()) if "_" not in text else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


def _whole(text: str) -> int | None:
    exact = _decimal(text)
    if exact is None or abs(exact) > 1 << 64:
        return None
    exact = exact.quantize(_NANO, ROUND_HALF_UP)
    return int(exact) if exact == exact.to_integral_value() and _LEAST <= exact <= _GREATEST else None


def _number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _boolean(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


_CONVERTED: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("bigint", "whole"), _whole),
    **dict.fromkeys(("double", "number"), _number),
    "boolean": _boolean,
    "string": str,
}
"""By the contract's type, or the kind of an attribute."""


def _scaled_ns(text: str, unit: str, origin_ns: int) -> int | None:
    exact, digits = _decimal(text), DIGITS[unit]
    if exact is None or abs(exact) >= 10 ** (22 - digits):
        return None
    value = int((exact.scaleb(digits)).to_integral_value(ROUND_HALF_UP)) - origin_ns
    return value if _LEAST <= value <= _GREATEST else None


_MOMENT = re.compile(r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(?:(Z)|([+-]\d\d):?(\d\d)?)?\s*")


def _moment_ns(text: str, origin_ns: int) -> int | None:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, _, hours, minutes = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        return None
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    if hours is not None:
        sign = -1 if hours.startswith("-") else 1
        since -= sign * timedelta(hours=abs(int(hours)), minutes=int(minutes or 0))
    seconds = since.days * 86_400 + since.seconds
    value = seconds * 10**9 + int((fraction or "").ljust(9, "0")) - origin_ns
    return value if _LEAST <= value <= _GREATEST else None
