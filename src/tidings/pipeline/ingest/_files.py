"""The files of a trace: which there are, of which table, and what their footers say.

Rules:

- Several directories are one trace. Each has a folder per table (model/trace.py), with files at any depth; names that
  begin with ``_`` or ``.`` are half-written or not data, and are never read.
- A Parquet footer is read once per file, and not at all for a file that is known already (same path, size and time of
  change). It gives the columns, the number of rows and the range of sequence numbers.
- A file that cannot be read is not an error but a file with a `fault`; it ends in the quarantine, with as many rows as
  its footer says, and is looked into again by the next run. A file of a version of the contract that we do not know is
  an InputError: all of it would be misread, not one row.
- Columns that the contract does not have are not read, whatever their types; those that it has are found in any case.
- Places are paths on this machine, or addresses in any file system that Spark can name (_storage.py); or topics of
  Kafka, of which a span of records counts as a file (_topics.py).
"""

import csv
import difflib
import fnmatch
from collections.abc import Callable, Container, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.trace import TABLES, VERSION
from tidings.pipeline._storage import Listed, Storage, is_local, place_of, storage_of
from tidings.pipeline.ingest._columns import contract_columns, names_in
from tidings.pipeline.ingest._reasons import QUARANTINE_SCHEMA, UNREADABLE_FILE
from tidings.pipeline.ingest._topics import Span, is_topics, kinds_in, span_of, spans_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidings.pipeline.ingest._mapping import Mapping

__all__ = [
    "NEEDED",
    "TraceFile",
    "find_files",
    "listed_files",
    "require_attributes",
    "require_readable",
    "require_tables",
    "unreadable_files",
    "warmup_of",
]

FOOTER_BYTES: Final = 1 << 16
"""Of the end of a file: most footers are in it; a longer one is read again, whole."""
HEADER_BYTES_MAX: Final = 1 << 20
NEEDED: Final = ("publications", "subscriptions")
"""Tables that every trace has to have; the others may be absent, which is the same as empty."""

Format = Literal["parquet", "csv", "json-lines", "otlp", "topic"]
"""`topic`: records of Kafka's, each a JSON object with the contract's own columns."""


class TraceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a trace. `columns` is what it holds of the contract (Parquet: as Spark DDL; CSV: its whole header);
    None where unknown.

    The range of `sequence` comes from Parquet statistics and is None where the file has none. `sample` is the share of
    events that the writer kept, `warmup_ns` the time before which events do not count. `left_out` are attributes that
    cannot be read, by name, with their types; `units_ns` is by column what one of its timestamps is in nanoseconds.
    `fault` says why the file cannot be read.
    """

    table: str
    path: str
    size_bytes: int
    modified_ns: int
    format: Format = "parquet"
    columns: str | tuple[str, ...] | None = None
    rows: int | None = None
    least_sequence: int | None = None
    greatest_sequence: int | None = None
    sample: float = 1.0
    warmup_ns: int = 0
    left_out: dict[str, str] = {}
    units_ns: dict[str, int] = {}
    fault: str | None = None

    @property
    def rows_or_one(self) -> int:
        """What an unreadable file counts for: its rows, or itself."""
        return 1 if self.rows is None else self.rows


def find_files(
    traces: Sequence[str | PathLike[str]],
    *,
    session: "SparkSession | Callable[[], SparkSession] | None" = None,
    mapping: "Mapping | None" = None,
    known: Iterable[TraceFile] = (),
    needed: Iterable[str] = NEEDED,
) -> list[TraceFile]:
    """The complete files of a trace, by table and path; an InputError names what is missing and the remedy.

    A `session` is needed for places that are not on this machine; one that is a function is called only then. A file
    that `known` has, unchanged and without a fault, is taken from there. A table in `needed` without files is
    an error, unless the mapping gives it.
    """
    if not traces:
        raise InputError("no trace given: name the directory of a trace, such as `tidings simulate --out` writes")
    known = list(known)
    before = {(file.table, file.path, file.size_bytes, file.modified_ns): file for file in known}
    files: dict[tuple[str, str], TraceFile] = {}
    new: dict[tuple[str, str], tuple[Storage, TraceFile]] = {}
    for trace in traces:
        place = place_of(trace)
        if is_topics(place):
            files |= {(file.table, file.path): file for file in topic_files(place, session, mapping, known)}
            continue
        _require_folder(fspath(trace), place)
        storage = storage_of(place, session)
        for file in _assign(fspath(trace), storage.list(place), mapping):
            key = (file.table, file.path)
            seen = before.get((*key, file.size_bytes, file.modified_ns))
            if seen is not None and seen.fault is None:
                files[key] = seen
            else:
                new[key] = storage, file
    files.update(_look_into(new, mapping))
    require_tables(needed, traces, files.values(), mapping)
    return [files[key] for key in sorted(files)]


def listed_files(
    trace: str,
    listed: list[Listed],
    *,
    session: "SparkSession | Callable[[], SparkSession] | None" = None,
    mapping: "Mapping | None" = None,
) -> list[TraceFile]:
    """The files among those that somebody has listed in a trace, as `find_files` gives them."""
    if is_topics(place_of(trace)):
        assert session is not None
        spans = [
            msgspec.structs.replace(file, modified_ns=each.modified_ns)
            for each in listed
            for file in files_of_span(each.below, span_of(each.path), mapping)
        ]
        return described_spans(session() if callable(session) else session, spans)
    storage = storage_of(place_of(trace), session)
    found = _look_into({(file.table, file.path): (storage, file) for file in _assign(trace, listed, mapping)}, mapping)
    return [found[key] for key in sorted(found)]


def require_readable(files: Iterable[TraceFile], tables: Iterable[str] = tuple(TABLES)) -> None:
    """An InputError that names a file of these tables with a fault, where it cannot go to a quarantine."""
    for file in files:
        if file.fault is not None and file.table in tables:
            raise InputError(
                f"{file.path}: cannot be read ({file.fault}); bring a whole copy, or put a _ in front of its name to "
                "leave it out"
            )


def unreadable_files(files: Iterable[TraceFile]) -> pa.Table:
    """Files that cannot be read, as rows of the quarantine, one each."""
    rows = [
        {
            "table": file.table,
            "file": file.path,
            "reasons": [UNREADABLE_FILE],
            "row": msgspec.json.encode({"fault": file.fault, "size_bytes": file.size_bytes}).decode(),
            "rows": file.rows_or_one,
        }
        for file in files
        if file.fault is not None
    ]
    return pa.Table.from_pylist(rows, QUARANTINE_SCHEMA)


def require_attributes(files: Iterable[TraceFile], names: Iterable[str]) -> None:
    """An InputError if one of these attributes, which somebody asks for, is of a type that cannot be read."""
    wanted = sorted(names)
    for file in files:
        for name in wanted:
            if name in file.left_out:
                raise InputError(
                    f"{file.path}: attribute {name!r} is of type {file.left_out[name]}, which Spark does not read, and "
                    "a filter or --topic asks for it; write it as a number, a whole number, a string or a boolean"
                )


def warmup_of(files: Iterable[TraceFile]) -> int:
    """The warm-up in nanoseconds that the subscriptions' files state; an InputError if two of them differ."""
    stated: dict[int, str] = {}
    for file in files:
        if file.table == "subscriptions" and file.format == "parquet" and file.fault is None:
            stated.setdefault(file.warmup_ns, file.path)
    if len(stated) > 1:
        places = " and ".join(f"{ns / 1e9:g} s in {path}" for ns, path in sorted(stated.items())[:2])
        raise InputError(f"the traces have different warm-ups: {places}; say which to leave out with --warmup")
    return next(iter(stated), 0)


def _require_folder(trace: str, place: str) -> None:
    """Of a path on this machine; what an address holds is seen when it is listed."""
    if is_local(place) and not Path(place).exists():
        raise InputError(f"{trace}: there is no such directory; give the directory of a trace")
    if is_local(place) and not Path(place).is_dir():
        raise InputError(f"{trace} is a file; give the directory that holds the folders of a trace's tables")


def _assign(trace: str, listed: list[Listed], mapping: "Mapping | None") -> list[TraceFile]:
    """Each file with its table: by the mapping's patterns first, or else by the folder it is in."""
    patterns = mapping.patterns if mapping else {}
    taken: set[str] = set()
    files = []
    for table, (pattern, form) in patterns.items():
        for file in listed:
            if fnmatch.fnmatchcase(file.below, pattern):
                taken.add(file.below)
                files.append(_file(table, file, form))
    for file in listed:
        table, slash, _ = file.below.partition("/")
        if file.below in taken or (mapping is not None and table not in TABLES):
            continue
        if table in patterns:
            continue  # the mapping says which files of this table count
        if slash and table in TABLES and file.below.endswith(".parquet"):
            files.append(_file(table, file, "parquet"))
        else:
            _refuse(trace, file, listed)
    return files


def topic_files(
    place: str,
    session: "SparkSession | Callable[[], SparkSession] | None",
    mapping: "Mapping | None",
    known: Iterable[TraceFile],
) -> list[TraceFile]:
    """The spans of records that Kafka's topics in a place have now, as files; those that are known as they were."""
    if session is None:
        raise InputError(f"{place}: topics can be read with Spark only; run with --engine spark")
    spark = session() if callable(session) else session
    before = {(file.table, file.path): file for file in known}
    found = []
    for name, span in spans_below(spark, place, {path for _, path in before}):
        found += [before.get((file.table, file.path), file) for file in files_of_span(name, span, mapping)]
    return described_spans(spark, found, before)


def files_of_span(name: str, span: Span, mapping: "Mapping | None") -> list[TraceFile]:
    """A span of the records of a topic, as a file of each table that it is of."""
    patterns = mapping.patterns if mapping else {}
    forms: dict[str, Format] = {
        table: form for table, (pattern, form) in patterns.items() if fnmatch.fnmatchcase(name, pattern)
    }
    if not forms and name in TABLES and name not in patterns:
        forms = {name: "topic"}
    for table, form in forms.items():
        if form == "csv":
            raise InputError(
                f"{span.path}: the mapping reads {table} as CSV, and records have no header line; use JSON"
            )
    return [
        TraceFile(table=table, path=span.path, size_bytes=0, modified_ns=0, format=form, rows=span.records)
        for table, form in forms.items()
    ]


def described_spans(
    spark: "SparkSession", files: Iterable[TraceFile], known: Container[tuple[str, str]] = ()
) -> list[TraceFile]:
    """Spans with the attributes that those of publications have; those that are known are not looked into."""
    listed = list(files)
    new = [
        span_of(file.path)
        for file in listed
        if file.table == "publications" and file.format == "topic" and (file.table, file.path) not in known
    ]
    kinds = kinds_in(spark, new)
    return [msgspec.structs.replace(file, columns=kinds.get(file.path, file.columns)) for file in listed]


def _file(table: str, file: Listed, form: Format) -> TraceFile:
    return TraceFile(table=table, path=file.path, size_bytes=file.size_bytes, modified_ns=file.modified_ns, format=form)


def _refuse(trace: str, file: Listed, listed: list[Listed]) -> None:
    """Say why a file is not part of a trace; a stray file beside the folders (a note, a scenario) is no matter."""
    folder, slash, rest = file.below.partition("/")
    if not slash:
        if folder.endswith((".parquet", ".csv", ".jsonl", ".ndjson")):
            raise InputError(
                f"{trace}/{file.below}: lies beside the tables; move it into the folder of its table "
                f"({', '.join(TABLES)}), or say in a mapping file what it is"
            )
        return
    if folder in TABLES:
        raise InputError(
            f"{file.path}: a trace's files end in .parquet; move it away, or say in a mapping file how to read it"
        )
    if rest.partition("/")[0] in TABLES and not any(other.below.partition("/")[0] in TABLES for other in listed):
        inner = sorted({other.below.partition("/")[0] for other in listed if "/" in other.below})
        shown = " ".join(f"{trace}/{name}" for name in inner[:3]) + (" ..." if len(inner) > 3 else "")
        raise InputError(f"{trace}: holds traces and is none; name those that belong together: {shown}")
    close = difflib.get_close_matches(folder, TABLES, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"a trace has {', '.join(TABLES)}; move it away"
    raise InputError(f"{trace}/{folder}: there is no table {folder!r}; {hint}")


def require_tables(
    needed: Iterable[str], traces: Sequence[str | PathLike[str]], files: Iterable[TraceFile], mapping: "Mapping | None"
) -> None:
    """An InputError if there is no file of one of these tables, and the mapping does not give it."""
    present = {file.table for file in files} | (mapping.given_tables if mapping else set())
    where = ", ".join(fspath(trace) for trace in traces)
    if not present:
        hint = f"none fits {mapping.source}" if mapping else f"a trace has a folder per table: {', '.join(TABLES)}"
        raise InputError(f"{where}: no files of a trace here; {hint}")
    for table in needed:
        if table not in present:
            remedy = (
                "give `[[subscribers]]` in a mapping file, or the directory that has the table"
                if table == "subscriptions"
                else "give the directory that has the table as well; several directories are one trace"
            )
            raise InputError(f"{where}: no files of table {table!r}, which every trace has to have; {remedy}")


Key = tuple[str, str]


def _look_into(new: dict[Key, tuple[Storage, TraceFile]], mapping: "Mapping | None") -> dict[Key, TraceFile]:
    """The files with what their footers or headers say, or with the fault that keeps them from being read."""
    spans = {
        key: (max(0, file.size_bytes - FOOTER_BYTES), file.size_bytes)
        if file.format == "parquet"
        else (0, min(file.size_bytes, HEADER_BYTES_MAX))
        for key, (_, file) in new.items()
        if file.format not in ("json-lines", "otlp")
    }
    found = _pieces(new, spans)
    longer = {
        key: (max(0, end - length), end)
        for key, (start, end) in spans.items()
        if new[key][1].format == "parquet" and (length := _footer_length(found[key])) > end - start
    }
    found |= _pieces(new, longer)
    return {key: _described(file, found.get(key), mapping) for key, (_, file) in new.items()}


def _pieces(
    new: dict[Key, tuple[Storage, TraceFile]], spans: dict[Key, tuple[int, int]]
) -> dict[Key, bytes | Exception]:
    """Of each file these bytes; all files of one place are read together."""
    found: dict[Key, bytes | Exception] = {}
    for storage in {id(new[key][0]): new[key][0] for key in spans}.values():
        mine = [key for key in spans if new[key][0] is storage]
        pieces = storage.pieces({key[1]: spans[key] for key in mine})
        found |= {key: pieces[key[1]] for key in mine}
    return found


def _footer_length(end: bytes | Exception) -> int:
    """With its length and the mark at the end; 0 if this is the end of no Parquet file."""
    is_parquet = isinstance(end, bytes) and len(end) >= 8 and end[-4:] == b"PAR1"
    return 8 + int.from_bytes(end[-8:-4], "little") if is_parquet and isinstance(end, bytes) else 0


def _described(file: TraceFile, piece: bytes | Exception | None, mapping: "Mapping | None") -> TraceFile:
    if isinstance(piece, Exception):  # each file system has its own
        return msgspec.structs.replace(file, fault=(str(piece) or type(piece).__name__).splitlines()[0])
    if piece is None:
        return file
    try:
        if file.format == "csv":
            assert mapping is not None
            return _with_header(piece, file, mapping)
        return _with_footer(piece, file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return msgspec.structs.replace(file, fault=str(error).splitlines()[0])


def _with_header(piece: bytes, file: TraceFile, mapping: "Mapping") -> TraceFile:
    """The names in a CSV file's first line; a column that the mapping names and the file lacks is an InputError."""
    plan = mapping.tables[file.table]
    line = _plain(piece, file.path).decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r")
    header = next(csv.reader([line], delimiter=plan.delimiter), [])
    if not header:
        return msgspec.structs.replace(file, fault="empty: there is no header line")
    for column in plan.file_columns():
        if header.count(column) != 1:
            problem = "has no column" if column not in header else "has more than one column"
            raise InputError(
                f"{file.path}: {problem} {column!r}, which {mapping.source} names; it has {', '.join(header)}"
            )
    return msgspec.structs.replace(file, columns=tuple(header))


def _plain(piece: bytes, path: str) -> bytes:
    """The beginning of a file that may be compressed, as its name shows (``.gz``, ``.bz2``, ``.zst``)."""
    try:
        codec = pa.Codec.detect(path)
    except (TypeError, ValueError):  # PyArrow's words for: not compressed
        return piece
    with pa.CompressedInputStream(pa.BufferReader(piece), codec.name) as stream:
        return bytes(stream.read(HEADER_BYTES_MAX // 16))  # much less than what went in, which may be cut off


def _with_footer(end: bytes, file: TraceFile) -> TraceFile:
    # The footer stands for the file: places in it are not looked at here.
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + end if len(end) < file.size_bytes else end))
    schema = metadata.schema.to_arrow_schema()
    notes = schema.metadata or {}
    version = notes.get(b"tidings.trace", VERSION.encode()).decode()
    if version != VERSION:
        raise InputError(
            f"{file.path}: follows version {version} of the trace contract, and this Tidings knows version {VERSION}: "
            "read it with the Tidings that wrote it, or upgrade"
        )
    places = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    legacy = {path for path, number in places.items() if metadata.schema.column(number).physical_type == "INT96"}
    held = contract_columns(file.table, schema, legacy)
    called = "" if held.fault else names_in(file.table, schema.names).get("sequence", "")
    least, greatest = _range(metadata, places.get(called))
    return msgspec.structs.replace(
        file,
        columns=held.columns,
        units_ns=held.units_ns,
        left_out=held.left_out,
        fault=held.fault,
        rows=metadata.num_rows,
        least_sequence=least,
        greatest_sequence=greatest,
        sample=float(notes.get(b"tidings.sample", b"1")),
        warmup_ns=int(notes.get(b"tidings.warmup_ns", b"0")),
    )


def _range(metadata: Any, place: int | None) -> tuple[int | None, int | None]:
    """The least and greatest value of a column over all groups of rows, if each group with values says so."""
    least: int | None = None
    greatest: int | None = None
    for group in range(0 if place is None else metadata.num_row_groups):
        column = metadata.row_group(group).column(place)
        statistics = column.statistics
        if statistics is not None and not statistics.has_min_max and statistics.null_count == column.num_values:
            continue
        if statistics is None or not isinstance(statistics.min, int):
            return None, None
        least = statistics.min if least is None else min(least, statistics.min)
        greatest = statistics.max if greatest is None else max(greatest, statistics.max)
    return least, greatest
