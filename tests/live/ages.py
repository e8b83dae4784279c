"""The true age of events on one machine, for tests of ages; run as a program, a subscriber in a process of its own.

All processes of a machine share one steady clock, which no node is told of. When an event was published lies between
two readings of it, before and after the call; when a client took it is the time of its turn (`Watch`).
"""

import asyncio
import json
import sys
import time
from typing import NamedTuple

from tidings.live import Delivery, Tidings, connect
from tidings.live.transport._clock import Clock

__all__ = ["Departures", "Seen", "Watch"]


class Seen(NamedTuple):
    """One delivery: when it was taken, by the clock of the machine, and what it says of itself."""

    n: int
    at_ns: int
    age_ns: int
    error_ns: int
    late: bool


class Departures:
    """When events were published: not before the first time of each pair, and not after the second."""

    def __init__(self) -> None:
        self._between_ns: dict[int, tuple[int, int]] = {}

    async def offer(self, client: Tidings, n: int, lifetime_s: float | None = None) -> "asyncio.Future[int]":
        """Publish an event, and remember when."""
        before_ns = time.monotonic_ns()
        future = await client.offer({"n": n}, lifetime_s=lifetime_s)
        self._between_ns[n] = (before_ns, time.monotonic_ns())
        return future

    def true_ns(self, seen: Seen) -> tuple[int, int]:
        """The least and the greatest true age of a delivery."""
        before_ns, after_ns = self._between_ns[seen.n]
        return seen.at_ns - after_ns, seen.at_ns - before_ns

    def check(self, seen: Seen) -> None:
        """The true age is within the stated error."""
        least_ns, most_ns = self.true_ns(seen)
        assert least_ns - seen.error_ns <= seen.age_ns <= most_ns + seen.error_ns, (seen, least_ns, most_ns)


class _Watched(Clock):
    """A clock that knows when it was last read, by the clock of the machine."""

    def __init__(self, clock: Clock) -> None:
        self._offset_ns = clock._offset_ns
        self.read_ns = 0

    def now_ns(self) -> int:
        self.read_ns = time.monotonic_ns()
        return self.read_ns + self._offset_ns


class Watch:
    """The callback of a subscription: it keeps what its client is given, as `Seen`."""

    def __init__(self, client: Tidings) -> None:
        self.seen: list[Seen] = []
        self._clock = client._driver.clock = _Watched(client._driver.clock)

    def __call__(self, event: Delivery) -> None:
        assert event.age_error_s is not None
        n, times_ns = int(event.attributes["n"]), (round(event.age_s * 1e9), round(event.age_error_s * 1e9))
        self.seen.append(Seen(n, self._clock.read_ns, *times_ns, event.late))


async def _read(address: str, late_s: float) -> None:
    """Subscribe to everything, and print what comes, line by line."""
    async with connect(address, name="reader") as client:
        watched = Watch(client)

        def put(event: Delivery) -> None:
            watched(event)
            print(json.dumps(watched.seen.pop()), flush=True)

        await client.subscribe("n >= 0", late_s=late_s, callback=put)
        print("[]", flush=True)
        await asyncio.sleep(3_600)


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1], float(sys.argv[2])))
