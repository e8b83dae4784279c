"""A thread that sends spans to a collector: OTLP over HTTP, as JSON.

The event loop only adds to a queue. The thread makes the spans, and sends them in batches. A batch that the collector
cannot take now is sent again, after pauses that grow; meanwhile the queue fills, and what does not fit is dropped and
counted. A batch that it refuses is dropped. Trouble is logged once, and so is its end.
"""

import http.client
import os
import random
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from tidings.live.operations._logs import Log

__all__ = ["SpanExporter"]

MAX_QUEUED: Final = 8_192
"""Spans that wait for the collector; at the bound new ones are dropped."""
BATCH: Final = 128
INTERVAL_S: Final = 0.5
"""How long a span waits for others at the most."""
PATIENCE_S: Final = 10.0
"""How long the collector may take to answer."""
FAREWELL_S: Final = 2.0
"""How long it may take when the broker stops."""
LEAST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 30.0
_AGAIN: Final = frozenset({429, 502, 503, 504})
"""The answers after which OTLP has a request sent again."""
_MOST_ANSWER_BYTES: Final = 65_536
_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"


class _RetryError(Exception):
    """The collector cannot take a batch now; it may state when."""

    def __init__(self, why: str, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class SpanExporter:
    """Sends what `encode` makes of the values that were put."""

    def __init__(self, url: str, encode: Callable[[list[Any]], bytes], log: "Log") -> None:
        self.exported = 0
        self._left_out = 0  # counted by the event loop
        self._refused = 0  # counted by the thread
        self._url = urllib.parse.urlsplit(url.rstrip("/") + "/v1/traces")
        self._encode = encode
        self._log = log
        self._headers = {"Content-Type": "application/json", **_headers(os.environ)}
        self._queue: deque[Any] = deque()
        self._batch: list[Any] = []
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._is_troubled = False
        self._thread = threading.Thread(target=self._run, name="tidings-spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many were never exported: too many waited, or the collector refused them."""
        return self._left_out + self._refused

    @property
    def queued(self) -> int:
        """How many wait or are being sent."""
        return len(self._queue) + len(self._batch)

    def put(self, value: Any) -> None:
        """Export it soon; never waits."""
        if self._closing.is_set() or len(self._queue) >= MAX_QUEUED:
            self._left_out += 1
            return
        self._queue.append(value)
        if len(self._queue) == BATCH:
            self._wake.set()

    def leave_out(self, many: int = 1) -> None:
        """Count spans that are not exported."""
        self._left_out += many

    def close(self) -> None:
        """Send what waits, if the collector takes it now; the rest is dropped."""
        self._closing.set()
        self._wake.set()
        self._thread.join(FAREWELL_S)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = LEAST_PAUSE_S
        while not (self._closing.is_set() and self.queued == 0):
            if not self._closing.is_set() and len(self._queue) < BATCH:
                self._wake.wait(INTERVAL_S)
                self._wake.clear()
            self._batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            while self._batch:
                try:
                    self._send_batch()
                    pause_s = LEAST_PAUSE_S
                except _RetryError as error:
                    self._trouble(str(error))
                    if self._closing.is_set():
                        self._give_up()
                        return
                    self._closing.wait(max(pause_s * random.uniform(0.5, 1.0), error.pause_s))
                    pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _send_batch(self) -> None:
        """Have the batch exported, or drop it if that can never be."""
        many = len(self._batch)
        try:
            dropped, why = self._post(self._encode(self._batch), many)
        except _RetryError:
            raise
        except Exception as error:  # a bug of ours must not end the export of all later spans
            dropped, why = many, f"{type(error).__name__}: {error}"
        self._batch = []
        self._refused += dropped
        self.exported += many - dropped
        if dropped:
            self._trouble(why)
        elif self._is_troubled:
            self._is_troubled = False
            self._log.info("spans exported again", collector=self._url.geturl(), dropped=self.dropped)

    def _post(self, body: bytes, many: int) -> tuple[int, str]:
        """Post a request; how many spans were refused, and why. _RetryError if it has to be posted again."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        timeout_s = FAREWELL_S if self._closing.is_set() else PATIENCE_S
        connection = kind(self._url.hostname or "", self._url.port, timeout=timeout_s)
        try:
            connection.request("POST", self._url.path, body, self._headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _RetryError(f"{self._url.geturl()}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()
        if 200 <= answer.status < 300:
            return _refused(text)
        what = text[:200].decode(errors="replace")
        why = f"{self._url.geturl()} answers {answer.status} {answer.reason}: {what}".rstrip(": ")
        if answer.status in _AGAIN:
            raise _RetryError(why, _retry_after_s(answer.getheader("Retry-After")))
        return many, why

    def _trouble(self, why: str) -> None:
        if not self._is_troubled:
            self._is_troubled = True
            remedy = "check `otlp` under [trace], and that the collector runs; events are not affected"
            self._log.warning("spans not exported", why=why, remedy=remedy)

    def _give_up(self) -> None:
        self._refused += self.queued
        self._batch = []
        self._queue.clear()


class _Partial(msgspec.Struct, frozen=True, rename="camel"):
    rejected_spans: int = 0
    error_message: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _Partial = _Partial()


def _refused(answer: bytes) -> tuple[int, str]:
    """How many spans of a request that succeeded were refused all the same, and why."""
    try:
        found = msgspec.json.decode(answer, type=_Answer, strict=False).partial_success
    except (msgspec.MsgspecError, UnicodeDecodeError):  # nothing, or not JSON
        return 0, ""
    return max(found.rejected_spans, 0), found.error_message or "the collector refused spans"


def _retry_after_s(value: str | None) -> float:
    """What the header states in seconds; dates are not understood."""
    return min(float(value), MOST_PAUSE_S) if value is not None and value.isdecimal() else 0.0


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Headers for the collector, as OpenTelemetry has them given: `key=value,key=value`."""
    pairs = (pair.partition("=") for pair in environment.get(_HEADERS, "").split(",") if "=" in pair)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in pairs}
