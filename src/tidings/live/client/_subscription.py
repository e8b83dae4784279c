"""The events of one subscription, for the application."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from tidings.errors import TidingsError

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
        while not self._held:
            if self._failure is not None:
                raise self._failure
            if self._is_ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        delivery = self._held.popleft()
        if len(self._held) == self._max_held // 2:
            self._owner.may_resume()
        return delivery

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
