"""A share of the processor for what clients ask for, fairly among them: whoever floods waits, and events do not.

All frames of clients that carry no events are requests. Of those that have come, each turn of the node looks at some:

- While events come (one in the last CALM_NS), requests of all clients together may take `share` of a processor: at most
  SLICE_US at once, and the next slice when it is paid for. Events that come meanwhile never wait for more than that.
- While no events come, slices follow each other at once, and are longer.
- Among clients it is start-time fair queueing (Goyal, Vin and Cheng, 1996): each has a tag that grows by the cost of
  what was looked at, and the least tag is next. Who floods is behind all who do not.
- Costs are estimates by kind and size, so that a storm does the same each time that it is run.

What waits is not lost, and keeps its order. Its client is not read from meanwhile, so nothing piles up here.
Acknowledgements are part of carrying events, as many as there were frames with events; beyond that they are requests.
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
"""Of one processor, for the requests of all clients together."""
SLICE_US: Final = 1_000.0
"""So much is done at once while events come."""
CALM_SLICE_US: Final = 10_000.0
"""And while they do not: what is done together is told to neighbours, committed and written together."""
CALM_NS: Final = 100_000_000
"""After so long without an event nobody minds."""
QUANTUM_US: Final = 250.0
"""So much of one client is looked at before it is another one's turn; one request at least."""
ANSWERS_EACH: Final = 4
"""For each frame with events that a client was sent it may answer so often, as part of carrying them."""
ANSWERS_MOST: Final = 1_024
"""And so often, if it has not answered for long."""

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
    """Whether a client's frame says what became of events."""
    return len(frame) > 1 and frame[1] in _ANSWERS


def cost_us(frame: bytes) -> float:
    """What a request costs this broker and its neighbours each, by estimate; long filters are charged elsewhere."""
    kind = frame[1] if len(frame) > 1 else -1
    return _COSTS_US.get(kind, _OTHERS_US) + _BYTE_US * len(frame)


class Requests(Generic[Who]):
    """Those whose requests wait, and how much may be done for them now."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.waited = 0
        """How often a client had to wait for another turn."""
        self.due_ns = 0
        """Not before this time anything is looked at."""
        self.is_calm = True
        """Whether no events come."""
        self._left_us = SLICE_US
        self._filled_ns = 0
        self._events = 0
        self._calm_ns = 0  # from when on it is calm
        self._row: list[tuple[float, int, Who]] = []
        self._now_us = 0.0  # the tag of whom was looked at last
        self._serial = 0

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Who]:
        return (who for _, _, who in self._row)

    def put(self, who: Who, tag_us: float) -> None:
        """Somebody waits; `tag_us` is what `next` said of it before, with what it has cost since."""
        self._serial += 1
        heappush(self._row, (max(tag_us, self._now_us), self._serial, who))

    def next(self) -> tuple[Who, float] | None:
        """Whose turn it is, with its tag; nobody's if enough was done for now."""
        if not self._row or self._left_us <= 0.0:
            return None
        self._now_us, _, who = heappop(self._row)
        return who, self._now_us

    def spend(self, spent_us: float) -> None:
        """This was done."""
        self._left_us -= spent_us

    def begin(self, events: int, now_ns: int) -> bool:
        """Whether something may be done now; `events` is how many have come, all in all."""
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
        """What is left waits for the next slice."""
        if self._left_us <= 0.0 and not self.is_calm:
            self.due_ns = now_ns + round((SLICE_US - self._left_us) / self.share * 1e3)
