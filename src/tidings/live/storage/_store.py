"""The durable store of one broker: keys and values in LMDB (docs/decisions has the measurements).

Rules:

- A commit is one transaction: when it returns, all of it is on disk; when it raises, none of it is.
- A lack of room (a full disk, or the store's own bound `max_bytes`) is `StoreFullError`: nothing was written, and the
  same commit may be tried again. Any other failure is `StoreError`, after which the process must stop: the system may
  have dropped data that it failed to write.
- The bound applies to what is kept: a commit after which the store keeps no more than before is not refused for it.
  LMDB never overwrites what it keeps, so even an erasure needs a free page for each page it changes; for these the file
  may grow to twice the bound.
- Values are kept unchanged: the node seals them and checks what it gets back (`protocol.node`). The integrity of the
  tree is checked here: the number of entries must equal the number that the store has recorded. A damaged tree is an
  error at the start, never a shorter list of events.
- Only one process may have a store open; a lock file keeps others out and is released when the process is gone.
- In format 1 this module made the checksums. For keys that are not too long they equal those that the node makes now;
  values with a long key, and the recorded time, are sealed when they are read and replaced when they are written.
"""

import contextlib
import errno
import faulthandler
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import lmdb
import msgspec

from tidings.live._errors import StoreError, StoreFullError
from tidings.protocol import FormatError
from tidings.protocol.node import opened, sealed

__all__ = ["DEFAULT_MAX_BYTES", "Prepared", "Store"]

DEFAULT_MAX_BYTES: Final = 8 << 30
"""The bound of what a store keeps; it reserves addresses, not disk space."""

_FILE: Final = "data.mdb"
_OLD_CLOCK: Final = b"!clock"
"""The time in format 1; now a value to write when a transaction must write something."""
_CLOCK: Final = "clock/0"
_PLAIN: Final = ord("=")
_MOST_KEY_BYTES: Final = 480
"""LMDB's keys hold 511 bytes; a longer key is stored beside its value, under its digest."""
_LONG_KEY: Final = b"%"
_OLD_LONG_KEY: Final = b"#"
_UNREAD: Final = "unread/"
"""A value under a digest whose key cannot be read is returned under the digest."""
_UNREAD_KEY: Final = _UNREAD.encode()
_UNREAD_BYTES: Final = len(_UNREAD_KEY)
_OLD_CRC_BYTES: Final = 4
_SPARE_BYTES: Final = 1 << 20
_LONG: Final = msgspec.msgpack.Decoder(tuple[str, bytes])


class Prepared(NamedTuple):
    """A transaction that is ready to be committed."""

    transaction: lmdb.Transaction
    size_bytes: int


class Store:
    """An open store; `open` makes it, `close` ends it."""

    def __init__(self, directory: Path, environment: lmdb.Environment, lock: int, max_bytes: int) -> None:
        self.directory = directory
        self._environment = environment
        self._lock = lock
        self._max_pages = max_bytes // environment.stat()["psize"]
        self._path = directory / _FILE
        self._file = self._path.stat().st_ino

    @classmethod
    def open(cls, directory: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> "Store":
        """Open a store, or create one in an empty directory; StoreError if it is damaged or in use."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(directory / "in-use", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"store {directory}: {error.strerror or error}; give a directory that can be written"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held_bytes = file.stat().st_size if (file := directory / _FILE).exists() else 0  # maybe of a larger bound
            environment = lmdb.open(
                str(directory),
                map_size=max(max_bytes + max(max_bytes, _SPARE_BYTES), held_bytes + _SPARE_BYTES),
                mode=0o600,
                metasync=True,
                sync=True,
                lock=False,
                max_spare_txns=0,
            )
        except BlockingIOError:
            os.close(lock)
            raise StoreError(f"store {directory} is in use by another process: stop that one first") from None
        except lmdb.Error as error:
            os.close(lock)
            raise _damaged(directory, str(error)) from None
        store = cls(directory, environment, lock, max_bytes)
        if store._missing_bytes:
            try:
                store._fill_up()
            except StoreError:
                store.close()
                raise
        return store

    def load(self) -> dict[str, bytes]:
        """All entries as they were committed; StoreError if the tree is damaged."""
        kept: dict[str, bytes] = {}
        try:
            with self._environment.begin() as transaction:
                noted = transaction.stat()["entries"]
                found = 0
                for key, data in transaction.cursor():
                    found += 1
                    if key[0] == _PLAIN:
                        kept[key[1:].decode()] = data
                    elif key != _OLD_CLOCK:
                        name, record = _read_long(key, data)
                        kept[name] = record
                    elif data:
                        kept[_CLOCK] = sealed(_CLOCK, data[_OLD_CRC_BYTES:]) if _is_sound(key, data) else b""
        except (lmdb.Error, ValueError) as error:
            raise _damaged(self.directory, str(error)) from None
        if found != noted:
            raise _damaged(self.directory, f"{noted} entries were written, but {found} found")
        return kept

    def prepare(self, writes: Mapping[str, bytes | None]) -> "Prepared":
        """Put values into a transaction, and erase those that are None; nothing is durable or visible yet.

        Every call of LMDB releases the interpreter, and a thread that has released it while the event loop is busy
        waits long to get it back. So this is for the event loop's own thread, and `finish` for another.
        """
        size_bytes = sum(len(value) for value in writes.values() if value is not None)
        with self._failing(size_bytes):
            transaction = self._environment.begin(write=True)
            try:
                pages = _pages(transaction)
                put, delete = transaction.put, transaction.delete
                kept = []  # what is erased makes room for it
                for name, value in writes.items():
                    key = _key(name)
                    is_plain = key[0] == _PLAIN
                    if not is_plain:
                        delete(_OLD_LONG_KEY + key[1:])
                    if value is None:
                        delete(key)
                    else:
                        kept.append((key, value if is_plain else msgspec.msgpack.encode((name, value))))
                for key, data in kept:
                    put(key, data)
                if not writes:
                    put(_OLD_CLOCK, b"")
                if max(pages, self._max_pages) < _pages(transaction):
                    raise self._full()
            except BaseException:
                transaction.abort()
                raise
        return Prepared(transaction, size_bytes)

    def finish(self, prepared: "Prepared") -> None:
        """Make all of it durable, or none; any thread may call it. StoreError if the file is gone: nobody could read
        what is written to a deleted file."""
        with self._failing(prepared.size_bytes):
            prepared.transaction.commit()
        try:
            is_there = self._path.stat().st_ino == self._file
        except OSError:
            is_there = False
        if not is_there:
            raise StoreError(f"store {self.directory}: its file was deleted or replaced; who moved it?")

    def commit(self, writes: Mapping[str, bytes | None]) -> None:
        """Prepare and finish at once."""
        self.finish(self.prepare(writes))

    def make_room(self, names: Sequence[str]) -> None:
        """Erase values although there may be no room for anything else; the next commit can use what becomes free.

        Each transaction needs a free page for every page that it changes, so values are erased in portions that fit.
        If this raises, some may be erased and others not.
        """
        begin, portion = 0, len(names)
        while begin < len(names):
            some = names[begin : begin + portion]
            try:
                self.commit(dict.fromkeys(some))
            except StoreFullError:
                if len(some) == 1:
                    raise
                portion = len(some) // 8 or 1
            else:
                begin, portion = begin + len(some), portion * 2
        self.commit({})  # a page that one commit frees can be used from the next but one on

    @contextlib.contextmanager
    def _failing(self, size_bytes: int) -> Iterator[None]:
        """LMDB's errors as ours, for a transaction of this many bytes."""
        try:
            yield
        except lmdb.MapFullError:
            raise self._full() from None
        except lmdb.Error as error:
            if _is_full(error) or not self._has_room(size_bytes):
                raise StoreFullError(f"store {self.directory}: no space left on the disk; free some") from None
            raise StoreError(f"store {self.directory} cannot be written: {error}; check the disk") from None

    def _full(self) -> StoreFullError:
        return StoreFullError(
            f"store {self.directory} is full: it holds as much as its bound allows; wait until events have left or "
            "expired, or raise `store_size`"
        )

    @property
    def used_bytes(self) -> int:
        """The size of the store's file."""
        return (self.directory / _FILE).stat().st_size

    def close(self) -> None:
        """Close the store; others may open it."""
        self._environment.close()
        os.close(self._lock)

    def _has_room(self, size_bytes: int) -> bool:
        """Whether as much could be written again: LMDB reports a partial write on a full disk as an I/O error."""
        wanted_bytes = 4 * size_bytes + _SPARE_BYTES
        try:
            with tempfile.TemporaryFile(dir=self.directory) as file:
                os.posix_fallocate(file.fileno(), self.used_bytes, wanted_bytes)
        except OSError:
            return False
        return True

    @property
    def _missing_bytes(self) -> int:
        """How much shorter the file is than its tree states."""
        whole_bytes = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        return max(int(whole_bytes) - self.used_bytes, 0)

    def _fill_up(self) -> None:
        """Make a short file as long as its tree states.

        LMDB does not write unused pages at the end, so a sound file may be short. A truncated one is short, too, and
        reading it may kill the process without a message; so another process reads it first.
        """
        os.truncate(self.directory / _FILE, self.used_bytes + self._missing_bytes)
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            try:
                os._exit(1 if opened(self.load()).damaged else 0)
            except FormatError:
                os._exit(0)  # the next reader reports it
            except BaseException:
                os._exit(1)
        if os.waitpid(child, 0)[1] != 0:
            raise _damaged(self.directory, "it was truncated")


def _pages(transaction: lmdb.Transaction) -> int:
    """How many pages hold entries; free pages, and LMDB's records of them, are not counted."""
    known = transaction.stat()
    return int(known["branch_pages"] + known["leaf_pages"] + known["overflow_pages"])


def _key(name: str) -> bytes:
    key = name.encode()
    if len(key) > _MOST_KEY_BYTES:
        return _LONG_KEY + hashlib.sha256(key).digest()
    if key[:_UNREAD_BYTES] == _UNREAD_KEY:
        with contextlib.suppress(ValueError):
            return bytes.fromhex(name[len(_UNREAD) :])
    return b"=" + key


def _is_sound(key: bytes, data: bytes) -> bool:
    """Whether a record of format 1 is intact."""
    return crc32(data[_OLD_CRC_BYTES:], crc32(key)).to_bytes(_OLD_CRC_BYTES, "big") == data[:_OLD_CRC_BYTES]


def _read_long(key: bytes, data: bytes) -> tuple[str, bytes]:
    """The key and value stored under the key's digest; an unreadable one is returned empty, which counts as damaged."""
    is_old = key.startswith(_OLD_LONG_KEY)
    if not is_old or _is_sound(key, data):
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            name, value = _LONG.decode(data[_OLD_CRC_BYTES:] if is_old else data)
            if _key(name)[1:] == key[1:]:
                return name, sealed(name, value) if is_old else value
    return _UNREAD + key.hex(), b""


def _is_full(error: lmdb.Error) -> bool:
    return any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def _damaged(directory: Path, what: str) -> StoreError:
    return StoreError(
        f"store {directory} is damaged: {what}. Nothing was changed. Restore it from a copy, or move it away to begin "
        "anew: its events, and its clients' subscriptions until they are repeated, are then lost"
    )
