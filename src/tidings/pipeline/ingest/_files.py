"""The files of a trace: which there are, of which table, and what their footers say.

Rules:

- Several directories are one trace. Each has a folder per table (model/trace.py), with files at any depth; names that
  begin with ``_`` or ``.`` are half-written or not data, and are never read.
- A Parquet footer is read once per file, on a pool of threads, and not at all for a file that is known already (same
  path, size and time of change). It gives the columns, the number of rows and the range of times and numbers.
- A file that cannot be read is not an error but a file with a `fault`; it ends in the quarantine, with as many rows as
  its footer says, and is looked into again by the next run. A file of a version of the contract that we do not know is
  an InputError: all of it would be misread, not one row.
- Columns that the contract does not have are not read, whatever their types.
- Places are local paths, or addresses (``s3://...``, ``hdfs://...``) that PyArrow can list.
"""

import csv
import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.trace import TABLES, VERSION
from tidings.pipeline.ingest._columns import contract_columns

if TYPE_CHECKING:
    from tidings.pipeline.ingest._mapping import Mapping

__all__ = ["NEEDED", "TraceFile", "find_files", "require_attributes", "require_readable"]

FOOTER_THREADS: Final = 16
HEADER_BYTES_MAX: Final = 1 << 20
NEEDED: Final = ("publications", "subscriptions")
"""Tables without which nothing can be said; the others may be absent, which is as good as empty."""

Format = Literal["parquet", "csv", "json-lines"]


class TraceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a trace. `columns` is what it holds of the contract (Parquet: as Spark DDL; CSV: its whole header);
    None where unknown.

    The ranges of `sequence` and `received_ns` come from Parquet statistics and are None where the file has none.
    `sample` is the share of events that the writer kept. `left_out` are attributes that cannot be read, by name, with
    their types. `fault` says why the file cannot be read.
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
    least_received_ns: int | None = None
    greatest_received_ns: int | None = None
    sample: float = 1.0
    left_out: dict[str, str] = {}
    fault: str | None = None

    @property
    def rows_or_one(self) -> int:
        """What an unreadable file counts for: its rows, or itself."""
        return 1 if self.rows is None else self.rows


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A file as its directory shows it: `below` is its path from the trace directory on, with slashes."""

    path: str
    below: str
    size_bytes: int
    modified_ns: int


def find_files(
    traces: Sequence[str | Path],
    *,
    mapping: "Mapping | None" = None,
    known: Iterable[TraceFile] = (),
    needed: Iterable[str] = NEEDED,
) -> list[TraceFile]:
    """The complete files of a trace, by table and path; an InputError names what is missing and the remedy.

    A file that `known` has, unchanged and without a fault, is taken from there. A table in `needed` without files is
    an error, unless the mapping gives it.
    """
    if not traces:
        raise InputError("no trace given: name the directory of a trace, such as `tidings simulate --out` writes")
    before = {(file.table, file.path, file.size_bytes, file.modified_ns): file for file in known}
    files: dict[tuple[str, str], TraceFile] = {}
    new: dict[tuple[str, str], tuple[pafs.FileSystem, str, TraceFile]] = {}
    for trace in traces:
        filesystem, root, address = _open(str(trace))
        listed = _list(filesystem, root, address)
        for file in _assign(str(trace), listed, mapping):
            key = (file.table, file.path)
            seen = before.get((*key, file.size_bytes, file.modified_ns))
            if seen is not None and seen.fault is None:
                files[key] = seen
            else:
                new[key] = filesystem, root + file.path.removeprefix(address), file
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        files.update(zip(new, pool.map(lambda found: _look_into(*found, mapping=mapping), new.values()), strict=True))
    _require(needed, traces, files.values(), mapping)
    return [files[key] for key in sorted(files)]


def require_readable(files: Iterable[TraceFile], tables: Iterable[str] = tuple(TABLES)) -> None:
    """An InputError that names a file of these tables with a fault, where it cannot go to a quarantine."""
    for file in files:
        if file.fault is not None and file.table in tables:
            raise InputError(
                f"{file.path}: cannot be read ({file.fault}); bring a whole copy, or put a _ in front of its name to "
                "leave it out"
            )


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


def _list(filesystem: pafs.FileSystem, root: str, address: str) -> list[_Listed]:
    """What lies in a directory at any depth, without names that are not data."""
    entries = filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=False))
    listed = []
    for entry in entries:
        below = entry.path[len(root) :].strip("/")
        if entry.type != pafs.FileType.File or any(part.startswith(("_", ".")) for part in below.split("/")):
            continue
        modified_ns = entry.mtime_ns if entry.mtime_ns is not None else 0
        listed.append(
            _Listed(path=f"{address}/{below}", below=below, size_bytes=entry.size, modified_ns=int(modified_ns))
        )
    return listed


def _open(trace: str) -> tuple[pafs.FileSystem, str, str]:
    """The file system of a place, the place in it, and the address that begins the paths of its files."""
    if "://" not in trace:
        path = Path(trace).absolute()
        if not path.exists():
            raise InputError(f"{trace}: there is no such directory; give the directory of a trace")
        if not path.is_dir():
            raise InputError(f"{trace} is a file; give the directory that holds the folders of a trace's tables")
        return pafs.LocalFileSystem(), path.as_posix(), path.as_posix()
    scheme, _, rest = trace.partition("://")
    # Hadoop's names for the same stores; PyArrow knows the plain ones.
    plain = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    try:
        filesystem, root = pafs.FileSystem.from_uri(f"{plain}://{rest}")
        found = filesystem.get_file_info(root)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{trace}: cannot be listed: {error}; copy or mount the trace and give its path") from None
    if found.type != pafs.FileType.Directory:
        raise InputError(f"{trace}: there is no such directory; give the directory of a trace")
    return filesystem, root.rstrip("/"), trace.rstrip("/")


def _assign(trace: str, listed: list[_Listed], mapping: "Mapping | None") -> list[TraceFile]:
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


def _file(table: str, file: _Listed, form: Format) -> TraceFile:
    return TraceFile(table=table, path=file.path, size_bytes=file.size_bytes, modified_ns=file.modified_ns, format=form)


def _refuse(trace: str, file: _Listed, listed: list[_Listed]) -> None:
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


def _require(
    needed: Iterable[str], traces: Sequence[str | Path], files: Iterable[TraceFile], mapping: "Mapping | None"
) -> None:
    present = {file.table for file in files} | (mapping.given_tables if mapping else set())
    where = ", ".join(str(trace) for trace in traces)
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
            raise InputError(f"{where}: no files of table {table!r}, without which nothing can be said; {remedy}")


def _look_into(filesystem: pafs.FileSystem, place: str, file: TraceFile, *, mapping: "Mapping | None") -> TraceFile:
    """The file with what its footer or header says, or with the fault that keeps it from being read."""
    try:
        if file.format == "csv":
            assert mapping is not None
            return _with_header(filesystem, place, file, mapping)
        return _with_footer(filesystem, place, file) if file.format == "parquet" else file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return msgspec.structs.replace(file, fault=str(error).splitlines()[0])


def _with_header(filesystem: pafs.FileSystem, place: str, file: TraceFile, mapping: "Mapping") -> TraceFile:
    """The names in a CSV file's first line; a column that the mapping names and the file lacks is an InputError."""
    plan = mapping.tables[file.table]
    with filesystem.open_input_stream(place) as stream:
        line = stream.read(HEADER_BYTES_MAX).decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r")
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


def _with_footer(filesystem: pafs.FileSystem, place: str, file: TraceFile) -> TraceFile:
    metadata = pq.read_metadata(place, filesystem=filesystem)
    schema = metadata.schema.to_arrow_schema()
    notes = schema.metadata or {}
    version = notes.get(b"tidings.trace", VERSION.encode()).decode()
    if version != VERSION:
        raise InputError(
            f"{file.path}: follows version {version} of the trace contract, and this Tidings knows version {VERSION}: "
            "read it with the Tidings that wrote it, or upgrade"
        )
    least, greatest = _range(metadata, "sequence")
    least_received, greatest_received = _range(metadata, "received_ns")
    columns, fault, left_out = contract_columns(file.table, schema)
    return msgspec.structs.replace(
        file,
        columns=columns,
        left_out=left_out,
        fault=fault,
        rows=metadata.num_rows,
        least_sequence=least,
        greatest_sequence=greatest,
        least_received_ns=least_received,
        greatest_received_ns=greatest_received,
        sample=float(notes.get(b"tidings.sample", b"1")),
    )


def _range(metadata: Any, name: str) -> tuple[int | None, int | None]:
    """The least and greatest value of a column over all groups of rows, if each group with values says so."""
    places = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path == name]
    least: int | None = None
    greatest: int | None = None
    for group in range(metadata.num_row_groups if places else 0):
        column = metadata.row_group(group).column(places[0])
        statistics = column.statistics
        if statistics is not None and not statistics.has_min_max and statistics.null_count == column.num_values:
            continue
        if statistics is None or not isinstance(statistics.min, int):
            return None, None
        least = statistics.min if least is None else min(least, statistics.min)
        greatest = statistics.max if greatest is None else max(greatest, statistics.max)
    return least, greatest
