"""The events of one subscription, for the application."""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidings.errors import InputError, TidingsError
from tidings.extras import missing_extra
from tidings.protocol import TRACEPARENT, read_context

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Attributes", "Delivery", "Keep", "Subscription"]

Attributes = Mapping[str, int | float | str | bool]


class Owner(Protocol):
    """The client that a subscription belongs to."""

    def may_resume(self) -> None:
        """The subscription has room for more events."""

    async def unsubscribe(self, name: str) -> None:
        """End the subscription."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event as an application gets it; `late`: its deadline has passed, and the subscription accepts late events.

    `age_s` is the time from its publication until this client read it from its connection or, if it was held to restore
    order, until it was released. The true age is within `age_error_s` of it: for each link, half of the shortest round
    trip over which the clocks at its ends were compared, however much its two directions differ, plus the drift of
    ordinary clocks (200 ppm). None: unknown, because clocks are taken to be synchronised, or because a broker on the
    path does not report it.

    With `order`: it was held for `hold_s` to restore order; `out_of_order`: a later event of its publisher came before.
    """

    subscription: str
    publisher: str
    epoch: int
    sequence: int
    attributes: Attributes
    payload: bytes
    age_s: float
    age_error_s: float | None = None
    late: bool
    hold_s: float = 0.0
    out_of_order: bool = False

    @property
    def traceparent(self) -> str | None:
        """The publisher's trace context (W3C), to continue its trace; None if there is none, or none that is valid.

        `opentelemetry.propagate.extract(event.attributes)` reads it, with `tracestate`.
        """
        value = self.attributes.get(TRACEPARENT)
        return value if isinstance(value, str) and read_context(value) is not None else None


Keep = Callable[[Sequence[Delivery]], bool]
"""Makes events durable that arrived together, before any is acknowledged; returns whether there is room for more."""


class Subscription:
    """The events of one subscription: iterate over it, or have them passed to a callback or `keep` as they arrive."""

    def __init__(
        self,
        owner: Owner,
        name: str,
        max_held: int,
        callback: Callable[[Delivery], None] | None,
        keep: Keep | None = None,
    ) -> None:
        self.name = name
        self.filter = ""
        self._owner = owner
        self._max_held = max_held
        self._callback = callback
        self._keep = keep
        self._to_keep: list[Delivery] = []
        self._has_room = True
        self._held: deque[Delivery] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_ended = False
        self._failure: TidingsError | None = None

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        if not await self._some():
            raise StopAsyncIteration
        delivery = self._held.popleft()
        if len(self._held) == self._max_held // 2:
            self._owner.may_resume()
        return delivery

    def batches(
        self, schema: "pa.Schema | None" = None, *, max_rows: int = 10_000, wait_s: float = 0.1
    ) -> "AsyncIterator[pa.RecordBatch]":
        """The events as Arrow record batches: `max_rows` events, or what arrives within `wait_s` of the first.

        The columns are those of `schema`. Without one they are the attributes that the filter names and, about the
        event, `_publisher`, `_epoch`, `_sequence`, `_published`, `_age_ns`, `_late` and `_payload`. An attribute that
        is missing, or of another type than its column, is null. Needs pyarrow (`tidings[broker]`).
        """
        if self._callback is not None or self._keep is not None:
            raise InputError(f"the events of subscription {self.name!r} go to its callback or keep: leave that out")
        if max_rows < 1:
            raise InputError(f"max_rows is {max_rows!r}: give a whole number of events from 1 on")
        if not 0.0 <= wait_s < math.inf:
            raise InputError(f"wait_s is {wait_s!r}: give a number of seconds from 0 on")
        return self._batches(self._columns(schema), min(max_rows, self._max_held), wait_s)

    async def _batches(
        self, columns: "Callable[[list[Delivery]], pa.RecordBatch]", most: int, wait_s: float
    ) -> "AsyncIterator[pa.RecordBatch]":
        while await self._some():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while len(self._held) < most and not self._is_ended:
                        await self._arrival()
            yield columns(self._take(most))

    def _columns(self, schema: "pa.Schema | None") -> "Callable[[list[Delivery]], pa.RecordBatch]":
        try:
            from tidings.live.client.columns import EventColumns, event_row
        except ImportError as error:
            raise missing_extra(error, "broker", "subscription.batches()") from None
        made = EventColumns.of_filter(self.filter) if schema is None else EventColumns.of_schema(schema)

        def batch(taken: list[Delivery]) -> "pa.RecordBatch":
            now_us = time.time_ns() // 1000
            return made.batch([event_row(each, now_us) for each in taken])

        return batch

    def _take(self, most: int) -> list[Delivery]:
        """What has arrived, at most so many events."""
        was_above = len(self._held) > self._max_held // 2
        taken = [self._held.popleft() for _ in range(min(most, len(self._held)))]
        if was_above and len(self._held) <= self._max_held // 2:
            self._owner.may_resume()
        return taken

    async def _some(self) -> bool:
        """Wait until an event has arrived; False if the subscription has ended."""
        while not self._held:
            if self._failure is not None:
                raise self._failure
            if self._is_ended:
                return False
            await self._arrival()
        return True

    async def _arrival(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    @property
    def held(self) -> int:
        """How many events wait for the application."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether the broker should wait."""
        return not self._has_room or len(self._held) >= self._max_held

    @property
    def failure(self) -> TidingsError | None:
        """The error that ended the subscription, if its owner did not; events that have arrived can still be taken."""
        return self._failure

    @property
    def is_kept(self) -> bool:
        """Whether its events are made durable before they are acknowledged."""
        return self._keep is not None

    def keep_held(self) -> None:
        """Pass to `keep` what has arrived since the last call."""
        if self._keep is not None and self._to_keep:
            came, self._to_keep = self._to_keep, []
            self._has_room = self._keep(came)

    def resume(self) -> None:
        """Resume delivery after `keep` has returned False."""
        self._has_room = True
        self._owner.may_resume()

    async def close(self) -> None:
        """End the subscription; events that have arrived can still be taken."""
        await self._owner.unsubscribe(self.name)

    def put(self, delivery: Delivery) -> None:
        if self._callback is not None:
            self._call(self._callback, delivery)
            return
        if self._keep is not None:
            self._to_keep.append(delivery)
            return
        self._held.append(delivery)
        self._wake()

    def _call(self, callback: Callable[[Delivery], None], delivery: Delivery) -> None:
        """An exception in a callback is reported by the event loop; other subscriptions continue."""
        try:
            callback(delivery)
        except Exception as error:
            message = f"the callback of subscription {self.name!r} failed"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def end(self, failure: TidingsError | None = None) -> None:
        self._is_ended = True
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
