"""How `live_overload` counts: the stage on which events are published and come, and what an overload came to.

Strategies and peers are counted alike: by the number that every payload begins with, on one clock, in one process.
"""

import abc
import contextlib
import struct
import time
from typing import NamedTuple

__all__ = ["LONGEST_S", "PAYLOAD_BYTES", "SHORTEST_S", "VALUES", "Event", "Outcome", "Stage", "outcome_of"]

PAYLOAD_BYTES = 900
SHORTEST_S, LONGEST_S = 0.5, 3.0
VALUES = (1, 2, 3)
ENOUGH = 0.99
WITHIN_S = 1.0
STEADY_WINDOWS = 3
_STAMP = struct.Struct(">q")


class Event(NamedTuple):
    """What was published, and when it came; -1: never."""

    published_s: float
    lifetime_s: float
    value: int
    came_s: float

    @property
    def is_on_time(self) -> bool:
        return 0.0 <= self.came_s <= self.published_s + self.lifetime_s


class Outcome(NamedTuple):
    """One overload, with the calm after it."""

    load: float
    on_time: float
    on_time_limit: float
    value: float
    value_limit: float
    busy: float
    recovery_s: float | None
    delay_s: float


class Stage(abc.ABC):
    """The publisher and the subscriber of one strategy or peer."""

    def __init__(self) -> None:
        self.padding_bytes = 0
        self._published: list[tuple[float, float, int]] = []
        self._came_s: dict[int, float] = {}
        self._first = 0

    @abc.abstractmethod
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        """Connect the publisher to the port `near` and the subscriber to `far`; the stack ends both."""

    @abc.abstractmethod
    async def send(self, payload: bytes, value: int, left_s: float) -> None:
        """Publish an event that is late after `left_s`."""

    async def publish(self, published_s: float, lifetime_s: float, value: int) -> None:
        """The lifetime counts from when the event was due, though this process may be late."""
        number = self._first + len(self._published)
        self._published.append((published_s, lifetime_s, value))
        payload = _STAMP.pack(number) + bytes(PAYLOAD_BYTES + self.padding_bytes)
        await self.send(payload, value, max(published_s + lifetime_s - time.monotonic(), 0.001))

    def came(self, payload: bytes | memoryview) -> None:
        """The subscriber has got this."""
        self._came_s.setdefault(_STAMP.unpack_from(payload)[0], time.monotonic())

    @property
    def arrived(self) -> int:
        """How many events the subscriber has got since the last time."""
        return len(self._came_s)

    def take(self) -> list[Event]:
        """The events since the last time."""
        events = [
            Event(*published, self._came_s.get(self._first + number, -1.0))
            for number, published in enumerate(self._published)
        ]
        self._first += len(self._published)
        self._published.clear()
        self._came_s.clear()
        return events


def outcome_of(
    load: float,
    events: list[Event],
    began_s: float,
    overload_s: float,
    rest_s: float,
    capacity_per_s: float,
    busy: float,
) -> Outcome:
    ended_s = began_s + overload_s
    counted = [event for event in events if began_s + LONGEST_S <= event.published_s < ended_s - LONGEST_S]
    room = int(capacity_per_s * (overload_s - 2 * LONGEST_S))
    values = sorted((event.value for event in counted), reverse=True)
    on_time = [event for event in counted if event.is_on_time]
    delays_s = sorted(event.came_s - event.published_s for event in on_time)
    return Outcome(
        load=load,
        on_time=len(on_time) / len(counted),
        on_time_limit=min(1.0, room / len(counted)),
        value=sum(event.value for event in on_time) / sum(values),
        value_limit=sum(values[:room]) / sum(values),
        busy=busy,
        recovery_s=_recovery_s([event for event in events if event.published_s >= ended_s], ended_s, rest_s),
        delay_s=delays_s[len(delays_s) // 2] if delays_s else 0.0,
    )


def _recovery_s(after: list[Event], ended_s: float, rest_s: float) -> float | None:
    step_s = 0.05
    last = int((rest_s - STEADY_WINDOWS * WITHIN_S) / step_s)
    for step in range(last + 1):
        windows = [ended_s + step * step_s + number * WITHIN_S for number in range(STEADY_WINDOWS)]
        if all(_share(after, begin_s) >= ENOUGH for begin_s in windows):
            return step * step_s
    return None


def _share(events: list[Event], begin_s: float) -> float:
    within = [event.is_on_time for event in events if begin_s <= event.published_s < begin_s + WITHIN_S]
    return sum(within) / max(len(within), 1)
