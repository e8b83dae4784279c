"""The options of the data source, checked: an error names the option and says what to write."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from tidings.errors import ConfigurationError, TidingsError
from tidings.live.security import client_secret_file, kept_secret, read_secret
from tidings.model.filters import Filter
from tidings.model.units import parse_quantity
from tidings.pipeline.source._columns import METADATA

__all__ = [
    "BatchOptions",
    "SinkOptions",
    "StreamOptions",
    "Terms",
    "batch_options",
    "sink_options",
    "stream_options",
    "wanted",
]

MAX_EVENTS_PER_TRIGGER: Final = 10_000
IDLE_S: Final = 5.0
WITHIN_S: Final = 10.0

_CONNECTION: Final = (
    "address",
    "name",
    "token",
    "tokenFile",
    "secret",
    "secretFile",
    "authority",
    "certificate",
    "key",
    "serverName",
    "connectTimeout",
)
_WANTED: Final = ("filter", "maxDelay", "late", "price", "metadata", "mode")
_STREAM: Final = (*_CONNECTION, *_WANTED, "spool", "maxEventsPerTrigger", "idle")
_BATCH: Final = (*_CONNECTION, *_WANTED, "within", "events")
_SINK: Final = (*_CONNECTION, "lifetime", "payload", "require")
_OTHERS: Final = ("path", "checkpointLocation", "queryName")
"""What Spark itself puts among the options of a source or sink."""

T = TypeVar("T")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber asks for, and how events become rows."""

    filter: str
    max_delay_s: float | None
    late_s: float
    price: float
    metadata: tuple[str, ...]
    fails_fast: bool

    @property
    def asked(self) -> dict[str, Any]:
        """What `subscribe` is given beside the filter."""
        return {"max_delay_s": self.max_delay_s, "late_s": self.late_s, "price": self.price}


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A stream: `connection` is what `connect` is given."""

    connection: dict[str, Any]
    name: str
    terms: Terms
    spool: Path
    max_events: int
    idle_s: float


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A batch: whatever comes within a time, or the first so many events."""

    connection: dict[str, Any]
    terms: Terms
    within_s: float
    events: int | None


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher for each partition; `name` is what theirs begin with."""

    connection: dict[str, Any]
    name: str | None
    lifetime_s: float | None
    payload: str | None
    require: Literal["reachable"] | None


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Of a streaming read."""
    read = _Reader(given, _STREAM)
    name = read.text("name")
    if name is None:
        raise ConfigurationError(
            "option name is missing: the broker keeps events for a stream under its name while it is not running; "
            "give .option('name', 'my-job'), a name that no other client has"
        )
    spool = read.text("spool")
    return StreamOptions(
        connection=read.connection() | {"name": name, "durable": True},
        name=name,
        terms=read.terms(),
        spool=default_spool(name) if spool is None else Path(spool),
        max_events=read.count("maxEventsPerTrigger") or MAX_EVENTS_PER_TRIGGER,
        idle_s=read.time_s("idle") or IDLE_S,
    )


def wanted(given: Mapping[str, str]) -> Terms:
    """The terms alone, of whatever read it is."""
    return _Reader(given, {*_STREAM, *_BATCH}).terms()


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Of a read that ends."""
    read = _Reader(given, _BATCH)
    within_s = read.time_s("within")
    return BatchOptions(
        connection=read.connection() | {"name": read.text("name")},
        terms=read.terms(),
        within_s=WITHIN_S if within_s is None else within_s,
        events=read.count("events"),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Of a write. The secret that goes with a name is looked up here, on the driver, and travels with the tasks."""
    read = _Reader(given, _SINK)
    connection = read.connection()
    name = read.text("name")
    secret_file = connection.pop("secret_file")
    if secret_file is not None:
        connection["secret"] = read.checked("secretFile", lambda: kept_secret(Path(secret_file)))
    elif name is not None and connection["token"] is None and connection["secret"] is None:
        connection["secret"] = read.checked("name", lambda: kept_secret(client_secret_file(name)))
    return SinkOptions(
        connection=connection,
        name=name,
        lifetime_s=read.time_s("lifetime"),
        payload=read.text("payload"),
        require="reachable" if read.one_of("require", ("reachable",)) else None,
    )


def default_spool(name: str) -> Path:
    """Where a stream keeps events if nobody says where: with the state of the user's programs, by its client's name."""
    secret = client_secret_file(name)
    return secret.parent.with_name("spark") / secret.name


class _Reader:
    """Options that are known here; Spark ignores the case of their names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        by_lower = {name.lower(): name for name in known}
        for name in given:
            if name.lower() not in by_lower and name.lower() not in map(str.lower, _OTHERS):
                close = difflib.get_close_matches(name.lower(), by_lower, 1)
                hint = f"did you mean {by_lower[close[0]]}?" if close else f"there are {', '.join(by_lower.values())}"
                raise ConfigurationError(f"option {name} is not one of format('tidings') here; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def checked(self, name: str, read: Callable[[], T]) -> T:
        """What `read` returns; an error of ours names the option."""
        try:
            return read()
        except TidingsError as error:
            raise ConfigurationError(f"option {name}: {error}") from None

    def time_s(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        found = self.checked(name, lambda: parse_quantity(text, "time"))
        if found < 0:
            raise ConfigurationError(f"option {name} is {text!r}, but must not be negative")
        return found

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ConfigurationError(f"option {name} is {text!r}; write a whole number of events from 1 on")
        return int(text)

    def one_of(self, name: str, known: Iterable[str]) -> str | None:
        text = self.text(name)
        if text is not None and text.lower() not in known:
            raise ConfigurationError(f"option {name} is {text!r}; write {' or '.join(known)}")
        return None if text is None else text.lower()

    def connection(self) -> dict[str, Any]:
        """What `connect` is given, but for the name."""
        address = self.text("address")
        if address is None:
            raise ConfigurationError(
                "option address is missing; give the broker's: .option('address', '127.0.0.1:7001'), or several with "
                "commas between"
            )
        token_file, token = self.text("tokenFile"), self.text("token")
        if token_file is not None:
            token = self.checked("tokenFile", lambda: read_secret(Path(token_file)))
        found: dict[str, Any] = {
            "address": [each.strip() for each in address.split(",")],
            "token": token,
            "secret": self.text("secret"),
            "secret_file": self.text("secretFile"),
            "authority": self.text("authority"),
            "certificate": self.text("certificate"),
            "key": self.text("key"),
            "server_name": self.text("serverName"),
        }
        wait_s = self.time_s("connectTimeout")
        return found if wait_s is None else found | {"connect_s": wait_s}

    def terms(self) -> Terms:
        text = self.text("filter")
        if text is None:
            raise ConfigurationError(
                "option filter is missing; say which events are wanted: .option('filter', \"symbol = 'YHOO'\"); TRUE "
                "takes all"
            )
        self.checked("filter", lambda: Filter.parse(text))
        price = self.text("price")
        try:
            price_each = 1.0 if price is None else float(price)
        except ValueError:
            raise ConfigurationError(f"option price is {price!r}; write a number") from None
        return Terms(
            filter=text,
            max_delay_s=self.time_s("maxDelay"),
            late_s=self.time_s("late") or 0.0,
            price=price_each,
            metadata=self._metadata(),
            fails_fast=self.one_of("mode", ("permissive", "failfast")) == "failfast",
        )

    def _metadata(self) -> tuple[str, ...]:
        text = self.text("metadata")
        if text is None or text.strip().lower() == "false":
            return ()
        if text.strip().lower() in ("true", "all"):
            return tuple(METADATA)
        names = [name.strip() for name in text.split(",")]
        found = tuple(name if name.startswith("_") else f"_{name}" for name in names)
        for name in found:
            if name not in METADATA:
                raise ConfigurationError(
                    f"option metadata: there is no {name}; write all, or some of {', '.join(METADATA)}"
                )
        return found
