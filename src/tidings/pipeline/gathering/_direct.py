"""Files that fit the contract, read by the workers themselves: Parquet pages in, packed rows out.

A row is judged here only as good or suspect, with the same conditions as `ingest.check_rows` has, on whole columns.
Suspect rows travel marked (`bad` names their file and no reasons); where there are any, those files are read again by
Spark, which says why. Whatever is suspect here and good there would be lost, so their numbers are compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidings.model.trace import TABLES
from tidings.pipeline._damage import DamagedFileError
from tidings.pipeline._facts import CHUNK_EVENTS
from tidings.pipeline.gathering._packing import PACKED, pack
from tidings.pipeline.ingest import OUTCOMES, TIME_NS_MAX, TIMES_IN_ORDER, TraceFile
from tidings.pipeline.ingest._columns import KIND_TYPES, spark_columns
from tidings.pipeline.interest import Shipped
from tidings.pipeline.rows import BAD, KEPT_IN, Names, Values, names_of, truncated_quotient, values_of

__all__ = ["Judging", "fitting", "read_directly"]

Array = npt.NDArray[Any]

ROWS_PER_PIECE: Final = 1_000_000
ROWS_PER_BATCH: Final = 1 << 19
_PIECE: Final = pa.schema([("table", pa.string()), ("path", pa.string()), ("piece", pa.int64()), ("of", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What workers have to know to judge a row: `audience` is an Audience, `matcher` a Matcher.

    `units` is where the units to be read are (Parquet: publisher, chunk), between the least and greatest sequence
    number; None: everything is read.
    """

    brokers: frozenset[str] | None
    audience: Shipped
    matcher: Shipped
    attributes: frozenset[str]
    topic: str | None
    clock_tolerance_ns: int
    units: str | None = None
    least_sequence: int = 0
    greatest_sequence: int = -1


def fitting(files: Sequence[TraceFile], *, topic: str) -> list[TraceFile]:
    """Those of the files of one table that workers can read as they are.

    Publications have to be alike, all of them, with attributes of the four kinds and no others; a topic has to be a
    string.
    """
    if not files:
        return []
    table = files[0].table
    readable = [file for file in files if file.format == "parquet" and file.fault is None and "://" not in file.path]
    contract = TABLES[table]
    plain = pa.schema([field for field in contract if field.name != "attributes"])
    fixed, _ = spark_columns(plain)
    if table != "publications":
        return [file for file in readable if file.columns == fixed]
    kinds = {file.columns for file in files if file.fault is None}
    if len(kinds) != 1 or len(readable) < len([file for file in files if file.fault is None]):
        return []
    if any(file.left_out for file in readable):
        return []
    columns = kinds.pop()
    assert isinstance(columns, str)
    if columns == fixed:
        return readable
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    if schema.names != contract.names or not columns.startswith(f"{fixed}, "):
        return []
    attributes = schema["attributes"].dataType
    if not isinstance(attributes, StructType):
        return []
    found = {field.name: field.dataType.simpleString() for field in attributes}
    return readable if set(found.values()) <= {*KIND_TYPES.values()} and found.get(topic, "string") == "string" else []


def read_directly(spark: SparkSession, files: Sequence[TraceFile], judging: Judging, *, partitions: int) -> DataFrame:
    """The rows of files that fit, checked and matched, as PACKED."""
    pieces = [
        {"table": file.table, "path": file.path, "piece": piece, "of": of}
        for file in files
        for of in [max(1, ceil((file.rows or 0) / ROWS_PER_PIECE))]
        for piece in range(of)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(pieces, _PIECE)).repartition(max(1, len(pieces)))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                for rows in _rows_of(piece["table"], piece["path"], piece["piece"], piece["of"], judging):
                    yield pack(rows, partitions)

    return frame.mapInArrow(run, PACKED)


def _rows_of(table: str, path: str, piece: int, of: int, judging: Judging) -> Iterator[pa.RecordBatch]:
    for batch in _read(table, path, piece, of, judging):
        wanted = batch if judging.units is None else batch.filter(pa.array(_is_touched(batch, judging)))
        if wanted.num_rows:
            yield in_own_form(table, wanted, judging, path)


def _read(table: str, path: str, piece: int, of: int, judging: Judging) -> Iterator[pa.RecordBatch]:
    names = [field.name for field in TABLES[table] if pa.types.is_string(field.type)]
    try:
        with pq.ParquetFile(path, read_dictionary=names) as file:
            for groups in _together(file.metadata, piece, of, judging):
                rows = file.read_row_groups(groups, columns=TABLES[table].names, use_threads=False)
                rows = rows.unify_dictionaries().combine_chunks()
                yield from rows.to_batches(ROWS_PER_BATCH)
    except (OSError, pa.ArrowException) as error:
        raise DamagedFileError(path) from error


def _together(metadata: Any, piece: int, of: int, judging: Judging) -> Iterator[list[int]]:
    """The groups of rows of a piece, as many at a time as make up a batch."""
    groups: list[int] = []
    rows = 0
    for number in range(metadata.num_row_groups)[piece::of]:
        group = metadata.row_group(number)
        if not _may_have(group, judging):
            continue
        if groups and rows + group.num_rows > ROWS_PER_BATCH:
            yield groups
            groups, rows = [], 0
        groups.append(number)
        rows += group.num_rows
    if groups:
        yield groups


def _may_have(group: Any, judging: Judging) -> bool:
    """Whether a group of rows may have some of the units that are asked for, or rows of no event."""
    if judging.units is None:
        return True
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "sequence" and (statistics := column.statistics) is not None:
            if not statistics.has_min_max or statistics.null_count:
                return True
            return bool(statistics.max >= judging.least_sequence and statistics.min <= judging.greatest_sequence)
    return True


def _is_touched(batch: pa.RecordBatch, judging: Judging) -> Array:
    """Which rows belong to a unit that is asked for, or to no event."""
    assert judging.units is not None
    publisher, sequence = names_of(batch.column("publisher")), values_of(batch.column("sequence"))
    units = _units(judging.units)
    chunk = truncated_quotient(sequence.values, CHUNK_EVENTS)
    wanted = (publisher.codes < 0) | ~sequence.known
    for code, name in enumerate(publisher.names.to_pylist()):
        chunks = units.get(name)
        if chunks is not None:
            wanted |= (publisher.codes == code) & np.isin(chunk, chunks)
    return wanted


@lru_cache(maxsize=2)
def _units(place: str) -> dict[str, Array]:
    """The chunks to be read, by publisher. The place is one of a run's own, so it never holds anything else."""
    table = pq.read_table(Path(place), columns=["publisher", "chunk"])
    found: dict[str, list[int]] = {}
    for publisher, chunk in zip(table["publisher"].to_pylist(), table["chunk"].to_pylist(), strict=True):
        if publisher is not None:
            found.setdefault(publisher, []).append(chunk)
    return {publisher: np.array(chunks, np.int64) for publisher, chunks in found.items()}


def in_own_form(table: str, batch: pa.RecordBatch, judging: Judging, path: str) -> pa.RecordBatch:
    """Rows of a table that fits as those columns of GATHERED that it has, suspect ones marked."""
    numbers = {
        field.name: values_of(batch.column(field.name)) for field in TABLES[table] if pa.types.is_int64(field.type)
    }
    names = {
        field.name: names_of(batch.column(field.name)) for field in TABLES[table] if pa.types.is_string(field.type)
    }
    is_good = _is_good(table, numbers, judging.clock_tolerance_ns)
    for name in ("broker", "source", "target"):
        if name in names:
            is_good &= _is_known(names[name], judging.brokers, may_lack=name == "source")
    is_good &= names["publisher"].codes >= 0
    own: dict[str, pa.Array] = {}
    if table == "hops":
        own["outcome"] = _numbered(names["outcome"], pa.array(OUTCOMES))
        is_good &= np.asarray(own["outcome"].is_valid())
    elif table == "deliveries":
        own["number"] = _numbered(names["subscription"], judging.audience.value().subscriptions)
        is_good &= np.asarray(own["number"].is_valid())
    else:
        own, are_finite = _of_attributes(batch, judging)
        is_good &= are_finite
    rows = batch.num_rows
    columns: dict[str, pa.Array] = {
        "of": pa.array(np.full(rows, list(KEPT_IN).index(table), np.int32)),
        "publisher": batch.column("publisher"),
        "sequence": batch.column("sequence"),
    }
    for letter, name in KEPT_IN[table].items():
        if name in own:
            columns[letter] = own[name]
        elif name in batch.schema.names:
            columns[letter] = batch.column(name)
    if not is_good.all():
        columns["bad"] = _marks(is_good, path)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_good(table: str, numbers: dict[str, Values], clock_tolerance_ns: int) -> Array:
    """Whether what a row says of numbers and times can be: none missing, all within their ranges and in order."""
    is_good = np.ones(len(numbers["sequence"].values), np.bool_)
    for field in TABLES[table]:
        column = numbers.get(field.name)
        if column is None:
            continue
        if not field.nullable:
            is_good &= column.known
        least = 1 if field.name == "lifetime_ns" else 0
        if field.name.endswith("_ns"):
            is_good &= (column.values >= -TIME_NS_MAX) & (column.values <= TIME_NS_MAX)
        if not field.name.endswith("_ns") or field.name == "lifetime_ns":
            is_good &= (column.values >= least) | ~column.known
    names = TIMES_IN_ORDER.get(table, ())
    latest = np.full(len(is_good), -TIME_NS_MAX, np.int64)
    for name in names:
        column = numbers[name]
        # What is out of range is suspect already; clipped, no difference leaves 64 bits.
        values = np.clip(column.values, -TIME_NS_MAX, TIME_NS_MAX)
        is_good &= ~column.known | (values >= latest - min(clock_tolerance_ns, TIME_NS_MAX))
        latest = np.where(column.known, np.maximum(latest, values), latest)
    return is_good


def _is_known(column: Names, known: frozenset[str] | None, *, may_lack: bool) -> Array:
    """Whether each is one of the known names; nothing is unknown where nobody knows what there is."""
    words = column.names.to_pylist()
    return np.array([*(known is None or word in known for word in words), may_lack], np.bool_)[column.codes]


def _numbered(column: Names, words: pa.Array) -> pa.Array:
    """Each name's place among the words; NULL for one that is not there."""
    places = values_of(pc.index_in(column.names, value_set=words))
    known = np.append(places.known, False)[column.codes]
    return Values(np.append(places.values, 0)[column.codes], known).to_arrow()


def _of_attributes(batch: pa.RecordBatch, judging: Judging) -> tuple[dict[str, pa.Array], Array]:
    """Topic and matches of events, and whether they have attributes at all, numbers being finite."""
    are_good = np.ones(batch.num_rows, np.bool_)
    fields: dict[str, pa.Array] = {}
    if "attributes" in batch.schema.names:
        struct = batch.column("attributes")
        are_good &= np.asarray(struct.is_valid())
        fields = {field.name: struct.field(number) for number, field in enumerate(struct.type)}
    for values in fields.values():
        if pa.types.is_floating(values.type):
            are_good &= np.asarray(pc.fill_null(pc.is_finite(values), True))
    read = {name: fields[name] for name in sorted(judging.attributes.intersection(fields))}
    found = {"matches": judging.matcher.value().matches(batch.column("departure_ns"), read)}
    if judging.topic in fields:
        found["topic"] = fields[judging.topic]
    return found, are_good


def _marks(is_good: Array, path: str) -> pa.Array:
    nothing = pa.nulls(len(is_good), BAD.field("reasons").type)
    file = pa.array([path] * len(is_good), pa.string())
    fields = [file, nothing, pa.nulls(len(is_good), pa.string())]
    return pa.StructArray.from_arrays(fields, fields=list(BAD), mask=pa.array(is_good))
