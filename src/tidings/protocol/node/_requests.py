"""A share of the processor for the requests of clients, divided fairly: a client that floods waits, and events do not.

All frames of clients without events are requests. In each turn of the node some of them are handled:

- While events arrive (one in the last CALM_NS), requests of all clients together may take `share` of a processor: at
  most SLICE_US at once, and the next slice when it is paid for. Events never wait for more than that.
- While no events arrive, slices follow each other at once, and are longer.
- Among clients it is start-time fair queueing (Goyal, Vin and Cheng, 1996): each has a tag that grows by the cost of
  its handled requests, and the least tag is next. A client that floods is behind all that do not.
- Costs are estimates by kind and size, so that a storm gives the same result each time.

Waiting requests are not lost, and keep their order. Their client is not read from meanwhile, so nothing accumulates
here. As many acknowledgements as there were frames with events count as part of the events; more of them are requests.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from tidings.protocol.wire import (
    Ack,
    Advertise,
    Credit,
    Given,
    Hello,
    MigrationUpdate,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    WireMessage,
)

__all__ = [
    "ANSWERS_EACH",
    "ANSWERS_MOST",
    "CALM_NS",
    "CALM_SLICE_US",
    "QUANTUM_US",
    "REQUESTS_SHARE",
    "SLICE_US",
    "Requests",
    "answers_events",
    "cost_us",
    "has_events",
]

REQUESTS_SHARE: Final = 0.25
"""The share of one processor for the requests of all clients together."""
SLICE_US: Final = 1_000.0
"""The work done at once while events arrive."""
CALM_SLICE_US: Final = 10_000.0
"""The same while none arrive: requests handled together are announced, committed and written together."""
CALM_NS: Final = 100_000_000
"""After this time without an event, requests delay nobody."""
QUANTUM_US: Final = 250.0
"""The work done for one client before the next one's turn; at least one request."""
ANSWERS_EACH: Final = 4
"""For each frame with events, a client may send so many answers as part of carrying them."""
ANSWERS_MOST: Final = 1_024
"""The most such answers that a client can save up."""

_KINDS_US: Final[dict[type[WireMessage], float]] = {
    Subscribe: 200.0,
    Unsubscribe: 100.0,
    Advertise: 150.0,
    Unadvertise: 50.0,
    MigrationUpdate: 500.0,
    Hello: 100.0,
}
_COSTS_US: Final = {kind.__struct_config__.tag: each_us for kind, each_us in _KINDS_US.items()}
_OTHERS_US: Final = 25.0
_BYTE_US: Final = 0.02
_EVENTS: Final = Publish.__struct_config__.tag
_ANSWERS: Final = frozenset(kind.__struct_config__.tag for kind in (Ack, Given, Credit))
Who = TypeVar("Who")


def has_events(frame: bytes) -> bool:
    """Whether a client's frame carries events."""
    return len(frame) > 1 and frame[1] == _EVENTS


def answers_events(frame: bytes) -> bool:
    """Whether a client's frame reports on events."""
    return len(frame) > 1 and frame[1] in _ANSWERS


def cost_us(frame: bytes) -> float:
    """The estimated cost of a request for this broker and its neighbours each; long filters are charged elsewhere."""
    kind = frame[1] if len(frame) > 1 else -1
    return _COSTS_US.get(kind, _OTHERS_US) + _BYTE_US * len(frame)


class Requests(Generic[Who]):
    """The clients whose requests wait, and how much may be done for them now."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.waited = 0
        """How often a client had to wait for another turn."""
        self.due_ns = 0
        """Nothing is handled before this time."""
        self.is_calm = True
        """Whether no events arrive."""
        self._left_us = SLICE_US
        self._filled_ns = 0
        self._events = 0
        self._calm_ns = 0  # when it becomes calm
        self.row: list[tuple[float, int, Who]] = []
        """Those who wait, as a heap: tag, order of arrival, client."""
        self._now_us = 0.0  # the tag of the client handled last
        self._serial = 0

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[Who]:
        return (who for _, _, who in self.row)

    def put(self, who: Who, tag_us: float) -> None:
        """Let a client wait; `tag_us` is its tag from `next`, plus its cost since."""
        self._serial += 1
        heappush(self.row, (max(tag_us, self._now_us), self._serial, who))

    def next(self) -> tuple[Who, float] | None:
        """The client whose turn it is, with its tag; None if enough was done for now."""
        if not self.row or self._left_us <= 0.0:
            return None
        self._now_us, _, who = heappop(self.row)
        return who, self._now_us

    def spend(self, spent_us: float) -> None:
        """Charge for handled requests."""
        self._left_us -= spent_us

    def begin(self, events: int, now_ns: int) -> bool:
        """Whether something may be done now; `events` is the total number of events so far."""
        if events != self._events:
            self._events, self._calm_ns = events, now_ns + CALM_NS
        passed_ns, self._filled_ns = max(now_ns - self._filled_ns, 0), now_ns
        self.is_calm = now_ns >= self._calm_ns
        if self.is_calm:
            self._left_us, self.due_ns = CALM_SLICE_US, now_ns
        else:
            self._left_us = min(self._left_us + passed_ns * 1e-3 * self.share, SLICE_US)
        return now_ns >= self.due_ns

    def end(self, now_ns: int) -> None:
        """Let the rest wait for the next slice."""
        if self._left_us <= 0.0 and not self.is_calm:
            self.due_ns = now_ns + round((SLICE_US - self._left_us) / self.share * 1e3)
