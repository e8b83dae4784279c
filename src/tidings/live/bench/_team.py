"""The clients of a bench in one process: they connect, publish, wait for outstanding events, and disconnect."""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

from tidings.live._errors import DeniedError
from tidings.live.bench._figures import Tally, bin_of
from tidings.live.bench._load import HEADER, Load
from tidings.live.client._client import Tidings
from tidings.live.client._connect import connect
from tidings.live.client._subscription import Delivery

__all__ = ["SPREAD_S", "Team"]

SPREAD_S: Final = 1.0
"""How long new subscriptions may take to reach all brokers."""
PATIENCE_S: Final = 10.0
"""How long nothing may arrive before missing events are given up."""
_POLL_S: Final = 0.02
_NS: Final = 1e-9


class Team:
    """The publishers and subscribers of these numbers."""

    def __init__(self, load: Load, publishers: Sequence[int], subscribers: Sequence[int]) -> None:
        self._load = load
        self._publishers = publishers
        self._subscribers = subscribers
        self._stack = contextlib.AsyncExitStack()
        self._clients: list[Tidings] = []
        self._tally = Tally.empty(load)
        self._tally.wanted = load.wanted(subscribers)
        self._deadlines_s = [load.deadline_s(event) for event in load.events]
        self._latencies: Counter[int] = Counter()
        self._heard_s = time.monotonic()
        self._from_ns = self._until_ns = self._offered = 0

    async def join(self) -> None:
        """Connect everybody, and subscribe."""
        load = self._load
        for number in self._subscribers:
            client = await self._connect(load.subscribe_at, f"{load.name}-s{number}", number)
            await client.subscribe(
                load.filters[number],
                name="bench",
                max_delay_s=load.max_delay_s,
                late_s=0.0,
                callback=_Counting(self).take,
            )
        for number in self._publishers:
            client = await self._connect(load.publish_at, f"{load.name}-p{number}", number)
            await client.advertise(load.advertise)
            self._clients.append(client)

    async def _connect(self, addresses: tuple[str, ...], name: str, number: int) -> Tidings:
        address = addresses[number % len(addresses)]
        given = {**self._load.connection, "name": name, "max_in_flight": self._load.in_flight}
        return await self._stack.enter_async_context(connect(address, **given))

    async def publish(self, begin_ns: int) -> list[int]:
        """Publish from this time on, for the duration of the load; by event how many were accepted."""
        load = self._load
        self._from_ns = begin_ns + round(load.warmup_s * 1e9)
        self._until_ns = begin_ns + round(load.seconds * 1e9)
        await asyncio.sleep(max(begin_ns - time.monotonic_ns(), 0) * _NS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(load.seconds + PATIENCE_S):
                await asyncio.gather(
                    *(
                        self._publish(client, number, begin_ns)
                        for client, number in zip(self._clients, self._publishers, strict=True)
                    )
                )
        await asyncio.sleep(0)  # the last outcomes are counted in the next turn
        tally = self._tally
        tally.unconfirmed = self._offered - sum(tally.accepted) - sum(tally.expired) - tally.refused
        return self._tally.accepted

    async def _publish(self, client: Tidings, number: int, begin_ns: int) -> None:
        """Events of one publisher; the others' are due in between."""
        load, events = self._load, self._load.events
        step_ns = 0.0 if load.rate_per_s is None else 1e9 / load.rate_per_s
        turn = number
        while True:
            now_ns = time.monotonic_ns()
            due_ns = now_ns if load.rate_per_s is None else begin_ns + round(turn * step_ns)
            if due_ns >= self._until_ns:
                break
            if due_ns > now_ns:
                await asyncio.sleep((due_ns - now_ns) * _NS)
            which = turn % len(events)
            event = events[which]
            payload = HEADER.pack(due_ns, which) + event.payload[HEADER.size :]
            outcome = await client.offer(event.attributes, payload=payload, lifetime_s=event.lifetime_s)
            self._offered += 1
            outcome.add_done_callback(partial(self._accepted, which))
            turn += load.publishers
            if load.rate_per_s is None and not turn // load.publishers % 64:
                await asyncio.sleep(0)  # others are in this process too
        await client.flush()

    def _accepted(self, which: int, outcome: "asyncio.Future[int]") -> None:
        error = outcome.exception()
        if isinstance(error, DeniedError):
            if error.code == "expired":
                self._tally.expired[which] += 1
            else:
                self._tally.refused += 1
        if error is not None:
            return
        self._tally.accepted[which] += 1
        if self._from_ns <= time.monotonic_ns() < self._until_ns:
            self._tally.accepted_in_time += 1

    def count(self, due_ns: int, which: int) -> None:
        """An event has arrived for the first time at one of the subscribers."""
        now_ns = time.monotonic_ns()
        tally = self._tally
        tally.came[which] += 1
        latency_s = (now_ns - due_ns) * _NS
        deadline_s = self._deadlines_s[which]
        if deadline_s is not None and latency_s <= deadline_s:
            tally.on_time += 1
        if due_ns >= self._from_ns:
            self._latencies[bin_of(latency_s)] += 1
        if self._from_ns <= now_ns < self._until_ns:
            tally.came_in_time += 1
        self._heard_s = time.monotonic()

    def count_again(self) -> None:
        """An event has arrived once more."""
        self._tally.duplicated += 1

    async def settle(self, accepted: list[int]) -> Tally:
        """Wait for the outstanding deliveries of all accepted events, then disconnect."""
        tally = self._tally
        expected = sum(times * wanted for times, wanted in zip(accepted, tally.wanted, strict=True))
        self._heard_s = time.monotonic()
        deadlines_s = [PATIENCE_S if deadline_s is None else deadline_s for deadline_s in self._deadlines_s]
        patience_s = min(max(deadlines_s) + SPREAD_S, PATIENCE_S)
        while sum(tally.came) < expected and time.monotonic() - self._heard_s < patience_s:
            await asyncio.sleep(_POLL_S)
        await self.leave()
        tally.latencies = dict(self._latencies)
        return tally

    async def leave(self) -> None:
        """Disconnect everybody; subscriptions end."""
        await self._stack.aclose()


class _Counting:
    """The deliveries of one subscriber."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._had: dict[tuple[str, int], set[int]] = defaultdict(set)

    def take(self, delivery: Delivery) -> None:
        had = self._had[delivery.publisher, delivery.epoch]
        if len(delivery.payload) < HEADER.size:
            return  # somebody else's event
        due_ns, which = HEADER.unpack_from(delivery.payload)
        if delivery.sequence in had:
            self._team.count_again()
        else:
            had.add(delivery.sequence)
            self._team.count(due_ns, which)
