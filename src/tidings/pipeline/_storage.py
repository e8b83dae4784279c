"""Where data lies: one contract for listing, small objects and removal, and a driver for each kind of place.

A place is a path on this machine, or an address in any file system that Spark can name (``hdfs://``, ``s3a://``,
``abfss://``, ``gs://``). Rows are always read and written by Spark; here is only what surrounds them: which files there
are, the ends of files (footers), and small objects such as the record of a run.

- `_Local`: a path, or ``file:``. Needs no session.
- `_Hadoop`: an address, through the Hadoop file systems of the session's JVM.
- `_Connect`: an address, through a Connect server, which shows no JVM: DataFrames alone, so that the end of a file
  costs reading all of it, and of what is removed an empty folder stays.

An object store has neither rename nor locks. What it has is that an object appears whole or not at all. So nothing is
ever replaced: records are numbered (`Log`), and the last one counts.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from tidings.errors import InputError
from tidings.pipeline._session import cause_in_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Listed",
    "Log",
    "Storage",
    "is_local",
    "naming_damaged_files",
    "place_of",
    "read_path",
    "storage_of",
    "write_path",
]

READ_THREADS: Final = 16
LOG_KEEPS: Final = 2
"""Records of a log that stay: the last, and the one before for whoever is reading it."""

_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/+)(?P<rest>.*)")
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""What Hadoop calls writing an object only if there is none; S3A has it since Hadoop 3.4.2."""
_LISTED: Final = "path string, modificationTime timestamp, length bigint, content binary"
_READING: Final = re.compile(r"FAILED_READ_FILE[^\n]*?reading file (?:file:/*(?=/))?(\S+?)\.?\s+SQLSTATE")


class Listed(NamedTuple):
    """A file: `below` is its path from the listed folder on, with slashes."""

    path: str
    below: str
    size_bytes: int
    modified_ns: int


class Storage(Protocol):
    """What can be done with places of one kind; paths are as `place_of` and `list` give them."""

    def list(self, folder: str) -> list[Listed]:
        """The files in a folder at any depth, but for names that begin with ``_`` or ``.``; [] if there is none.

        Spark passes over files without a byte, which hold no row.
        """

    def pieces(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, bytes | Exception]:
        """The bytes of files from a start to an end, by path, or why they cannot be read."""

    def read(self, path: str) -> bytes:
        """A small file."""

    def write_new(self, path: str, data: bytes) -> bool:
        """Make a small object, whole or not at all; False if there is one already."""

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""


def place_of(place: str | PathLike[str]) -> str:
    """A place as it is known here: an absolute path on this machine, or an address without a slash at its end."""
    found = _ADDRESS.fullmatch(fspath(place))
    if found is None:
        return os.path.normpath(Path(place).absolute())
    if found["scheme"].lower() == "file":
        return os.path.normpath(f"/{found['rest']}")
    # A pathlib.Path has one slash of the two; three are an address without a host, as in hdfs:///user.
    slashes = "//" if len(found["slashes"]) < 3 else found["slashes"]
    return f"{found['scheme']}:{slashes}{found['rest']}".rstrip("/")


def is_local(place: str) -> bool:
    """Whether a place (of `place_of`, or a file's path) is on this machine."""
    return _ADDRESS.fullmatch(place) is None


def read_path(path: str) -> str:
    """A path for Spark's readers, which take it for a pattern: exactly this one."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", write_path(path))


def write_path(path: str) -> str:
    """A path for Spark's writers; without a scheme it is on this machine, whatever a cluster's default."""
    return f"file:{path}" if is_local(path) else path


@contextmanager
def naming_damaged_files() -> Iterator[None]:
    """Turn Spark's failure to read a file into an InputError that names it; any other error passes.

    Footers are read before a run, data is not: that would take as long as the run.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found = _READING.search(str(error))
        if found is None:
            raise
        raise InputError(
            f"{unquote(found[1])}: its footer can be read, but its data is damaged; bring a whole copy, or put a _ in "
            "front of its name to leave it out"
        ) from error


def storage_of(place: str, session: "SparkSession | Callable[[], SparkSession] | None") -> Storage:
    """The driver for a place; a session that is a function is called only where one is needed.

    An InputError if Spark knows no such file system, or cannot reach it.
    """
    if is_local(place):
        return _Local()
    if session is None:
        raise InputError(f"{place}: is not on this machine, and can be read with Spark only; copy or mount it")
    spark = session() if callable(session) else session
    storage = _Connect(spark) if getattr(spark, "_jvm", None) is None else _Hadoop(spark)
    storage.require(place)
    return storage


class Log:
    """Numbered records in a folder, of which the last counts; whoever makes the next number first has it."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def records(self) -> list[tuple[int, bytes]]:
        """The records by number, the last one first. One that is empty was never finished, and does not count."""
        found = (
            (number, self._storage.read(file.path).strip()) for number, file in sorted(self._files(), reverse=True)
        )
        return [(number, data) for number, data in found if data]

    def append(self, number: int, data: bytes) -> bool:
        """Make the record of this number; False if somebody else has."""
        if any(known >= number for known, _ in self._files()):
            return False
        if not self._storage.write_new(f"{self._folder}/{number:09}.json", data):
            return False
        for known, file in self._files():
            if known <= number - LOG_KEEPS:
                self._storage.delete(file.path)
        return True

    def _files(self) -> list[tuple[int, Listed]]:
        # Through Connect a record is a folder with one file in it.
        files = self._storage.list(self._folder)
        found = ((file.below.partition("/")[0].removesuffix(".json"), file) for file in files)
        return [(int(name), file) for name, file in found if name.isdigit()]


class _Local:
    def list(self, folder: str) -> list[Listed]:
        root, found = Path(folder), list[Listed]()
        for path, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            for file in (Path(path, name) for name in names if not name.startswith(("_", "."))):
                with suppress(FileNotFoundError):
                    stat, below = file.stat(), file.relative_to(root).as_posix()
                    found.append(Listed(f"{folder}/{below}", below, stat.st_size, stat.st_mtime_ns))
        return found

    def pieces(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, bytes | Exception]:
        return {path: _tried(self._piece, path, *span) for path, span in spans.items()}

    def _piece(self, path: str, start: int, end: int) -> bytes:
        with Path(path).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write_new(self, path: str, data: bytes) -> bool:
        """On the disk under another name first; a link is made at once or not at all, and never over another."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}; give another directory") from None
        try:
            target.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def delete(self, path: str) -> None:
        if Path(path).is_file():
            Path(path).unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


class _BySpark:
    """What both drivers on Spark do by DataFrames."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def require(self, place: str) -> None:
        """An InputError if Spark cannot look there."""
        self.list(place)

    def list(self, folder: str) -> list[Listed]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as fn

        # Whole microseconds: a timestamp of Python's knows no zone.
        modified = fn.unix_micros("modificationTime").alias("modified_us")
        try:
            rows = self._binary(folder).select("path", "length", modified).collect()
        except (PySparkException, Py4JError) as error:
            if isinstance(error, PySparkException) and error.getCondition() == "PATH_NOT_FOUND":
                return []
            raise InputError(
                f"{folder}: Spark cannot read or write there: {cause_in_jvm(error)}; give a path on this machine, or "
                "set Spark up for such addresses (docs/guide/spark-cluster.md)"
            ) from error
        root = urlsplit(folder).path.rstrip("/")
        return [
            Listed(path, urlsplit(path).path.removeprefix(root).strip("/"), int(size), 1_000 * int(modified_us))
            for path, size, modified_us in rows
        ]

    def _binary(self, *paths: str) -> "DataFrame":
        reader = self._spark.read.format("binaryFile").schema(_LISTED).option("recursiveFileLookup", "true")
        return reader.load([read_path(path) for path in paths])


class _Hadoop(_BySpark):
    def __init__(self, spark: "SparkSession") -> None:
        super().__init__(spark)
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def pieces(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, bytes | Exception]:
        with ThreadPoolExecutor(READ_THREADS) as pool:
            found = pool.map(lambda each: _tried(self._range, each[0], *each[1]), spans.items())
            return dict(zip(spans, found, strict=True))

    def read(self, path: str) -> bytes:
        filesystem, place = self._at(path)
        return self._range(path, 0, filesystem.getFileStatus(place).getLen())

    def _range(self, path: str, start: int, end: int) -> bytes:
        filesystem, place = self._at(path)
        stream = filesystem.open(place)
        try:
            stream.seek(start)
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, end - start))
        finally:
            stream.close()

    def write_new(self, path: str, data: bytes) -> bool:
        from py4j.protocol import Py4JJavaError

        filesystem, place = self._at(path)
        try:
            if filesystem.hasPathCapability(place, _CONDITIONAL):
                # Of two that write at the same moment the store itself refuses the one who ends second.
                builder = filesystem.createFile(place).create().overwrite(False).opt(_CONDITIONAL, "true")
                stream = builder.build()
            else:
                stream = filesystem.create(place, False)
            stream.write(bytearray(data))
            stream.close()  # a store makes the object here
        except Py4JJavaError as error:
            if filesystem.exists(place):
                return False
            raise InputError(f"{path}: cannot be written: {cause_in_jvm(error)}; give another place") from error
        return True

    def exists(self, path: str) -> bool:
        filesystem, place = self._at(path)
        return bool(filesystem.exists(place))

    def delete(self, path: str) -> None:
        filesystem, place = self._at(path)
        filesystem.delete(place, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place


class _Connect(_BySpark):
    def pieces(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, bytes | Exception]:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as fn

        if not spans:
            return {}
        rows = [(path, start + 1, end - start) for path, (start, end) in spans.items()]
        wanted = self._spark.createDataFrame(rows, "path string, start bigint, bytes bigint")
        found = self._binary(*spans).join(fn.broadcast(wanted), "path", "inner")
        try:
            cut = found.selectExpr("path", "substring(content, int(start), int(bytes)) AS piece").collect()
            return {path: bytes(piece) for path, piece in cut}
        except PySparkException as error:
            if len(spans) == 1:
                return dict.fromkeys(spans, OSError(cause_in_jvm(error)))
        # Each by itself, to find the one that cannot be read.
        return {key: value for path in spans for key, value in self.pieces({path: spans[path]}).items()}

    def read(self, path: str) -> bytes:
        return b"".join(bytes(row["content"]) for row in self._binary(path).collect())

    def write_new(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        frame = self._spark.createDataFrame([(data.decode(),)], "value string")
        frame.coalesce(1).write.mode("append").text(path)
        return len(self.list(path)) == 1  # two at the same moment are one too many: neither has it

    def exists(self, path: str) -> bool:
        return bool(self.list(path))

    def delete(self, path: str) -> None:
        if self.exists(path):
            self._spark.createDataFrame([], "value string").write.mode("overwrite").text(path)


def _tried(call: Callable[..., bytes], *given: Any) -> bytes | Exception:
    try:
        return call(*given)
    except Exception as error:
        return error
