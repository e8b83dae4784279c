"""Logs of foreign systems, CSV, JSON lines and OTLP, read through a mapping.

Everything is read as text and converted by expressions, so a wrong value is a fault of its row and of no other. Times
are exact: they go through decimals, or for ISO timestamps through whole seconds and the digits of the fraction, because
neither doubles nor Spark's timestamps hold nanoseconds.

Numbers of events. A log that knows events by an id only gets sequence numbers here: the events of a publisher are
counted in the order of departure (ties: by id). That needs all publications at once (one shuffle by publisher, and one
by event for what refers to them), and a late file may shift the numbers: `Mapping.is_whole` says so. An id that
several publishers have sent says nothing where the row does not name the publisher: such a row is ambiguous.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from tidings.pipeline._storage import read_path
from tidings.pipeline.ingest._casts import converted
from tidings.pipeline.ingest._columns import KIND_TYPES, TYPES
from tidings.pipeline.ingest._files import TraceFile
from tidings.pipeline.ingest._mapping import (
    DIGITS,
    ESCAPE,
    EVENT,
    FALLBACKS,
    FROM_THE_BEGINNING_NS,
    SEPARATOR,
    SPAN_FIELDS,
    Columns,
    FirstOf,
    IfKnown,
    Mapping,
    TableMapping,
    Time,
    several,
)
from tidings.pipeline.ingest._reasons import (
    AMBIGUOUS_EVENT,
    JSON_OPTIONS,
    MALFORMED,
    UNKNOWN_PUBLICATION,
    WRONG_TYPE,
)
from tidings.pipeline.ingest._rules import DURATIONS
from tidings.pipeline.ingest._topics import VARIANT_KINDS, is_topics, span_of, topic_lines

__all__ = ["fallback_columns", "given_rows", "read_foreign", "read_topics"]

_BROKEN = "_malformed_line"
_EVENT = "_event"


def read_foreign(
    spark: SparkSession, table: str, files: Sequence[TraceFile], mapping: Mapping
) -> tuple[DataFrame, dict[str, tuple[str, ...]]]:
    """The rows of a table in these files (those of other tables help to number events), and its attributes' kinds."""
    rows = _read_all(spark, table, files, mapping)
    if EVENT in mapping.tables[table].columns:
        sends = rows if table == "publications" else _read_all(spark, "publications", files, mapping)
        rows = _numbered(table, rows, _numbers(sends), has_publisher="publisher" in mapping.tables[table].columns)
    kinds: dict[str, tuple[str, ...]] = {
        name: (kind,) for name, (_, kind) in mapping.tables[table].attribute_columns().items()
    }
    attributes = ["attributes"] if table == "publications" else []
    return rows.select(*TYPES[table], *attributes, "_file", "_faults", "_raw", "_host"), kinds


def given_rows(spark: SparkSession, mapping: Mapping) -> DataFrame:
    """The subscriptions that the mapping itself gives."""
    rows: list[tuple[object, ...]] = [
        (
            given.subscription or given.subscriber,
            given.subscriber,
            given.broker,
            given.filter,
            None if given.max_delay is None else round(given.max_delay * 1e9),
            given.price,
            FROM_THE_BEGINNING_NS,
            None,
            mapping.source,
            [],
            None,
        )
        for given in mapping.subscribers
    ]
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES["subscriptions"].items())
    return spark.createDataFrame(rows, f"{columns}, _file string, _faults array<string>, _raw string")


def _read_all(spark: SparkSession, table: str, files: Sequence[TraceFile], mapping: Mapping) -> DataFrame:
    by_columns: dict[tuple[str, ...], list[TraceFile]] = {}
    for file in files:
        if file.table == table and file.format != "parquet" and file.fault is None:
            assert not isinstance(file.columns, str)
            by_columns.setdefault(file.columns or (), []).append(file)
    parts = [_read_alike(spark, table, columns, alike, mapping) for columns, alike in sorted(by_columns.items())]
    return reduce(DataFrame.unionAll, parts)


def _read_alike(
    spark: SparkSession, table: str, header: tuple[str, ...], files: Sequence[TraceFile], mapping: Mapping
) -> DataFrame:
    """Files with the same columns, brought to the contract's; `_event` is the event's id, if there is one."""
    plan = mapping.tables[table]
    if plan.format == "csv":
        lines, texts, raw = _csv(spark, [read_path(file.path) for file in files], header, plan.delimiter)
    else:
        read = _json_lines if plan.format == "json-lines" else _spans
        lines, texts, raw = read(_lines(spark, files), plan.file_columns())
    inner, wrong = list[Column](), list[Column]()
    for name, (column, kind) in plan.attribute_columns().items():
        value, is_wrong = converted(texts[column], "string", KIND_TYPES[kind])
        inner.append(value.alias(name))
        wrong += [] if is_wrong is None else [is_wrong]
    return _in_contract(table, plan, mapping.times[table], lines, texts, raw, inner, wrong)


def read_topics(
    spark: SparkSession, table: str, files: Sequence[TraceFile]
) -> tuple[DataFrame, dict[str, tuple[str, ...]]]:
    """The rows of a table in spans of Kafka's records that are in the contract's own columns, as JSON objects."""
    plan = TableMapping(files="*", format="json-lines", columns={name: name for name in TYPES[table]})
    lines, texts, raw = _json_lines(_lines(spark, files), plan.file_columns())
    given: dict[str, set[str]] = {}
    for file in files:
        for entry in file.columns or ():
            kind, _, name = entry.partition(" ")
            given.setdefault(name, set()).add(kind)
    # JSON writes 12.0 as 12 or not, as it likes: where some are numbers, whole ones are too.
    kinds = {
        name: tuple(kind for kind in KIND_TYPES if kind in some and not (kind == "whole" and "number" in some))
        for name, some in sorted(given.items())
    }
    inner = [_of_kinds(name, some).alias(name) for name, some in kinds.items()]
    rows = _in_contract(table, plan, Time(unit="ns"), lines, texts, raw, inner, [])
    attributes = ["attributes"] if table == "publications" else []
    return rows.select(*TYPES[table], *attributes, "_file", "_faults", "_raw", "_host"), kinds


def _of_kinds(name: str, kinds: tuple[str, ...]) -> Column:
    """An attribute of a JSON object; where it has several kinds, a field for each, of which one has the value."""
    path = f"$.attributes{_in_brackets(name)}"
    if len(kinds) == 1:
        return f.try_variant_get("_object", path, KIND_TYPES[kinds[0]])
    found = f.regexp_extract(f.schema_of_variant(f.try_variant_get("_object", path, "variant")), "^[A-Z]+", 0)
    mine = {kind: [word for word, other in VARIANT_KINDS.items() if other == kind] for kind in kinds}
    if "number" in mine:
        mine["number"] += [word for word, other in VARIANT_KINDS.items() if other == "whole"]
    others = [word for word, kind in VARIANT_KINDS.items() if kind != "string"]
    fields = []
    for kind in kinds:
        is_mine = ~found.isin(others) if kind == "string" else found.isin(mine[kind])
        fields.append(f.when(is_mine, f.try_variant_get("_object", path, KIND_TYPES[kind])).alias(kind))
    return f.struct(*fields)


def _lines(spark: SparkSession, files: Sequence[TraceFile]) -> DataFrame:
    """The lines of files, or the records of Kafka's, as `value` and `_path`."""
    spans = [span_of(file.path) for file in files if is_topics(file.path)]
    paths = [read_path(file.path) for file in files if not is_topics(file.path)]
    parts = [topic_lines(spark, spans)] if spans else []
    if paths:
        parts.append(spark.read.text(paths).select("value", f.col("_metadata.file_path").alias("_path")))
    return reduce(DataFrame.unionAll, parts)


def _in_contract(
    table: str,
    plan: TableMapping,
    time: Time,
    lines: DataFrame,
    texts: dict[str, Column],
    raw: Column,
    inner: list[Column],
    wrong: list[Column],
) -> DataFrame:
    """Lines in the contract's columns. `inner` are the attributes; `wrong` says of some whether they are."""
    values: list[Column] = []
    for name, kind in TYPES[table].items():
        text = _key(texts, plan.columns[name]) if name in plan.columns else None
        value, is_wrong = (f.lit(None).cast(kind), None) if text is None else _field(text, name, kind, time)
        default = plan.defaults.get(name)
        values.append((value if default is None else f.coalesce(value, f.lit(default).cast(kind))).alias(name))
        wrong += [] if is_wrong is None else [is_wrong]
    if table == "publications":
        values.append(f.struct(*inner).alias("attributes"))
    event = _key(texts, plan.columns[EVENT]) if EVENT in plan.columns else f.lit(None).cast("string")
    is_wrong = f.coalesce(reduce(Column.__or__, wrong, f.lit(False)), f.lit(False))
    is_malformed = f.col(_BROKEN).isNotNull()
    for column, wanted in plan.where.items():
        # A broken line belongs to no table more than to another, and must not vanish from all.
        lines = lines.where(is_malformed | texts[column].isin(*several(wanted)))
    faults = f.when(is_malformed, f.array(f.lit(MALFORMED))).when(is_wrong, f.array(f.lit(WRONG_TYPE)))
    rows = lines.select(
        *values,
        event.alias(_EVENT),
        (f.lit(None).cast("string") if plan.host is None else _key(texts, plan.host)).alias("_host"),
        f.col("_path").alias("_file"),
        f.coalesce(faults, f.array().cast("array<string>")).alias("_faults"),
        f.when(is_malformed | is_wrong, raw).alias("_raw"),
        raw.alias("_text"),
    )
    for name, fallback in FALLBACKS[table].items():
        rows = rows.withColumn(name, f.coalesce(f.col(name), *fallback_columns(fallback, TYPES[table][name])))
    return rows


def fallback_columns(fallback: object, kind: str) -> list[Column]:
    """What a field without a value is taken to be (FALLBACKS), as arguments of `coalesce`."""
    if isinstance(fallback, FirstOf):
        return [f.col(name) for name in fallback.fields]
    if isinstance(fallback, IfKnown):
        return [f.when(f.col(fallback.field).isNotNull(), fallback.then).otherwise(fallback.otherwise)]
    return [f.lit(fallback).cast(kind)]


def _key(texts: dict[str, Column], columns: Columns) -> Column:
    """The value of one column, or the key that several make; NULL if one of them is."""
    if isinstance(columns, str):
        return texts[columns]
    escape, separator = f.lit(ESCAPE), f.lit(SEPARATOR)
    parts: list[Column] = []
    for column in columns:
        escaped = f.replace(texts[column], escape, f.lit(ESCAPE * 2))
        parts += [*([separator] if parts else []), f.replace(escaped, separator, f.lit(ESCAPE + SEPARATOR))]
    return f.concat(*parts)


def _csv(
    spark: SparkSession, paths: list[str], header: tuple[str, ...], delimiter: str
) -> tuple[DataFrame, dict[str, Column], Column]:
    """Lines by position, because names in a header may differ in case only, which Spark confuses."""
    names = [f"_{number}" for number in range(len(header))]
    schema = ", ".join(f"{name} string" for name in [*names, _BROKEN])
    reader = spark.read.schema(schema).options(
        header=True, sep=delimiter, quote='"', escape='"', mode="PERMISSIVE", columnNameOfCorruptRecord=_BROKEN
    )
    lines = reader.csv(paths).select(*names, _BROKEN, f.col("_metadata.file_path").alias("_path"))
    columns = dict(zip(header, map(f.col, names), strict=True))
    row = f.to_json(f.struct(*(column.alias(title) for title, column in columns.items())), JSON_OPTIONS)
    # Whatever a broken line holds may belong to other columns.
    texts = {title: f.when(f.col(_BROKEN).isNull(), column) for title, column in columns.items()}
    broken = f.to_json(f.struct(f.col(_BROKEN).alias("line")))
    return lines, texts, f.when(f.col(_BROKEN).isNotNull(), broken).otherwise(row)


def _json_lines(read: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, dict[str, Column], Column]:
    lines = read.where(f.trim("value") != "").withColumn("_object", f.try_parse_json("value"))
    is_object = f.coalesce(f.schema_of_variant("_object").startswith("OBJECT"), f.lit(False))
    lines = lines.withColumn(_BROKEN, f.when(~is_object, f.col("value")))
    texts = {
        column: f.when(is_object, f.try_variant_get("_object", _json_path(column), "string")) for column in columns
    }
    broken = f.to_json(f.struct(f.col("value").alias("line")))
    return lines, texts, f.when(is_object, f.col("value")).otherwise(broken)


_ATTRIBUTES = "array<struct<key string, value map<string, string>>>"
_SPAN = (
    f"struct<{', '.join(f'{name} string' for name in SPAN_FIELDS)}, attributes {_ATTRIBUTES}, "
    "links array<map<string, string>>>"
)
_OTLP = (
    f"resourceSpans array<struct<resource struct<attributes {_ATTRIBUTES}>, "
    f"scopeSpans array<struct<spans array<{_SPAN}>>>>>"
)
_EACH_SPAN = (
    "flatten(transform(_document.resourceSpans, r -> flatten(transform(r.scopeSpans, s -> transform(s.spans, "
    "x -> struct(r.resource.attributes AS resource, x AS span))))))"
)


def _spans(read: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, dict[str, Column], Column]:
    """OpenTelemetry's traces as the collector's file exporter writes them: on each line a document with many spans."""
    lines = read.where(f.trim("value") != "").withColumn("_document", f.from_json("value", _OTLP))
    lines = lines.withColumn(_BROKEN, f.when(f.col("_document.resourceSpans").isNull(), f.col("value")))
    each = lines.select("_path", _BROKEN, f.explode_outer(f.expr(_EACH_SPAN)).alias("_found"))
    each = each.where(f.col(_BROKEN).isNotNull() | f.col("_found").isNotNull())
    texts = {column: _of_span(column) for column in columns}
    broken = f.to_json(f.struct(f.col(_BROKEN).alias("line")))
    return each, texts, f.coalesce(f.to_json("_found.span"), broken)


def _of_span(column: str) -> Column:
    if column in SPAN_FIELDS:
        return f.col(f"_found.span.{column}")
    start, _, rest = column.partition(".")
    if start == "link":
        return f.get("_found.span.links", f.lit(0))[rest]
    attributes, key = ("_found.resource", rest) if start == "resource" else ("_found.span.attributes", column)
    found = f.get(f.filter(f.col(attributes), lambda each: each["key"] == key), f.lit(0))
    return f.get(f.map_values(found["value"]), f.lit(0))


def _json_path(column: str) -> str:
    """A column that begins with `$` is a path (`$.payload.price`), any other the name of a key."""
    return column if column.startswith("$") else f"${_in_brackets(column)}"


def _in_brackets(key: str) -> str:
    return "['" + key.replace("\\", "\\\\").replace("'", "\\'") + "']"


def _field(text: Column, name: str, kind: str, time: Time) -> tuple[Column, Column | None]:
    if not name.endswith("_ns"):
        return converted(text, "string", kind)
    if name in DURATIONS:
        assert time.duration_unit is not None
        value = _scaled_ns(text, time.duration_unit, origin_ns=0)
    elif time.unit == "iso":
        value = _moment_ns(text, origin_ns=time.origin_ns)
    else:
        value = _scaled_ns(text, time.unit, origin_ns=time.origin_ns)
    return value, text.isNotNull() & value.isNull()


def _scaled_ns(text: Column, unit: str, *, origin_ns: int) -> Column:
    """A number in a unit as nanoseconds from the origin on; digits finer than a nanosecond are rounded."""
    digits = DIGITS[unit]
    exact = text.try_cast(f"decimal(22,{digits})") * f.lit(10**digits).cast("decimal(10,0)")
    return (exact - f.lit(str(origin_ns)).cast("decimal(20,0)")).try_cast("bigint")


_MOMENT = r"^\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d)?:?(\d\d)?\s*$"


def _moment_ns(text: Column, *, origin_ns: int) -> Column:
    """An ISO 8601 timestamp as nanoseconds from the origin on; without a zone it is UTC."""
    part = [f.regexp_extract(text, _MOMENT, number) for number in range(6)]
    zone = f.when(part[4].isin("", "Z"), "+00:00").otherwise(
        f.concat(part[4], f.lit(":"), f.when(part[5] == "", "00").otherwise(part[5]))
    )
    whole = f.unix_seconds(f.concat(part[1], f.lit("T"), part[2], zone).try_cast("timestamp"))
    fraction = f.rpad(part[3], 9, "0").cast("decimal(10,0)")
    exact = whole.cast("decimal(19,0)") * f.lit(10**9).cast("decimal(10,0)") + fraction
    return f.when(part[0] != "", (exact - f.lit(str(origin_ns)).cast("decimal(20,0)")).try_cast("bigint"))


def _numbers(sends: DataFrame) -> DataFrame:
    """Every event id of every publisher with its sequence number; the same id again is the same event."""
    usable = sends.where(f.size("_faults") == 0).dropna(subset=["publisher", "departure_ns", _EVENT])
    first = usable.groupBy("publisher", _EVENT).agg(f.min("departure_ns").alias("_first_ns"))
    order = Window.partitionBy("publisher").orderBy("_first_ns", _EVENT)
    return first.select("publisher", _EVENT, (f.row_number().over(order) - 1).cast("bigint").alias("_number"))


def _numbered(table: str, rows: DataFrame, numbers: DataFrame, *, has_publisher: bool) -> DataFrame:
    """The rows with the numbers of their events; without a publisher, the only one who has sent an event of this id."""
    keyed = numbers.select("publisher", _EVENT, "_number", f.lit(1).cast("bigint").alias("_senders"))
    if has_publisher:
        joined = rows.join(keyed, ["publisher", _EVENT], "left")
    else:
        alone = [f.when(f.count("*") == 1, f.min(name)).alias(name) for name in ("publisher", "_number")]
        keyed = keyed.groupBy(_EVENT).agg(*alone, f.count("*").alias("_senders"))
        joined = rows.drop("publisher").join(keyed, [_EVENT], "left")
    numbered = joined.withColumn("sequence", f.col("_number"))
    if table == "publications":
        return numbered
    is_unsure = f.col("_number").isNull() & f.col(_EVENT).isNotNull() & (f.size("_faults") == 0)
    reason = f.when(f.col("_senders") > 1, AMBIGUOUS_EVENT).otherwise(UNKNOWN_PUBLICATION)
    return numbered.withColumn("_raw", f.when(is_unsure, f.col("_text")).otherwise(f.col("_raw"))).withColumn(
        "_faults", f.when(is_unsure, f.array(reason)).otherwise(f.col("_faults"))
    )
