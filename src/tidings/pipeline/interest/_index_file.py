"""How a built index reaches the workers: as a file, once per machine, mapped once into each worker process.

Theory of operation. Building an index costs tens of microseconds per subscription, reading one costs nothing to speak
of, so the driver builds it and hands the file to the session as an artifact: that is what a local session,
a cluster and Spark Connect have in common, and the file is transferred once per machine, not per task. It is a pickle
whose arrays stand behind it as they are in memory, each at the start of a cache line. A worker maps the file (private,
copy on write): nothing is copied, and the workers of a machine share its pages. The file is named by its content, and a
worker keeps what it has mapped under that name, so two sets of subscriptions never get mixed up.
"""

import atexit
import hashlib
import mmap
import pickle
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from tidings.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shipped", "read_packed", "ship", "write_packed"]

ALIGNED: Final = 64  # bytes: a cache line
MAX_MAPPED: Final = 4
"""Files that a worker process keeps mapped; the one that was used longest ago goes first."""

_mapped: OrderedDict[str, Any] = OrderedDict()
_sent: "WeakKeyDictionary[SparkSession, set[str]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Shipped:
    """A value that workers can get at: all that a task has to carry is the name of its file."""

    name: str

    def value(self) -> Any:
        """In a worker: the value, mapped if this process has not done so before."""
        found = _mapped.get(self.name)
        if found is None:
            from pyspark import SparkFiles

            found = read_packed(Path(SparkFiles.get(self.name)))
            _mapped[self.name] = found
            while len(_mapped) > MAX_MAPPED:
                _mapped.popitem(last=False)
        _mapped.move_to_end(self.name)
        return found


def ship(session: "SparkSession", value: object) -> Shipped:
    """On the driver: make the value available to all workers of the session, once."""
    path = write_packed(value, _outbox())
    sent = _sent.setdefault(session, set())
    if path.name not in sent:
        session.addArtifacts(str(path), file=True)
        sent.add(path.name)
    return Shipped(path.name)


def write_packed(value: object, folder: Path) -> Path:
    """Write a value into a file of the folder, named by its content; an equal one that is there already is kept."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    spans, end = [], 0
    for view in views:
        spans.append((end, view.nbytes))
        end += view.nbytes + -view.nbytes % ALIGNED
    index = pickle.dumps((head, spans), protocol=5)
    digest = hashlib.blake2b(index, digest_size=16)
    for view in views:
        digest.update(view)
    path = folder / f"tidings-interest-{digest.hexdigest()}"
    if not path.exists():
        pieces: list[bytes | memoryview] = [len(index).to_bytes(8, "little") + index, *views]
        temporary = path.with_name(f"_{path.name}")
        _write_aligned(temporary, pieces)
        temporary.rename(path)
    return path


def read_packed(path: Path) -> Any:
    """The value in such a file. Its arrays are the file's own pages; writing into them changes this process only."""
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    index_end = 8 + int.from_bytes(mapped[:8], "little")
    head, spans = pickle.loads(mapped[8:index_end])
    start = index_end + -index_end % ALIGNED
    return pickle.loads(head, buffers=[mapped[start + at : start + at + size] for at, size in spans])


def _write_aligned(path: Path, pieces: "Iterable[bytes | memoryview]") -> None:
    try:
        with path.open("wb") as file:
            for piece in pieces:
                size = memoryview(piece).nbytes
                file.write(piece)
                file.write(bytes(-size % ALIGNED))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}; make room, or set TMPDIR to another directory"
        ) from None


@cache
def _outbox() -> Path:
    """The driver's folder of files for workers. A cluster fetches them from there, so they stay while it runs."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-interest-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
