"""The blocking twin of the client, for scripts: the same calls, without `await`; a thread of its own does the work.

with tidings.connect_blocking("127.0.0.1:7001") as t:
    t.publish({"symbol": "YHOO", "price": 17.2})
    for event in t.subscribe("price > 10"):
        print(event.attributes)
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from tidings.errors import TidingsError
from tidings.live.client._client import Tidings
from tidings.live.client._connecting import connect
from tidings.live.client._subscription import Attributes, Delivery, Subscription

__all__ = ["BlockingSubscription", "BlockingTidings", "connect_blocking"]

T = TypeVar("T")


class BlockingSubscription:
    """The events of one subscription."""

    def __init__(self, owner: "BlockingTidings", inner: Subscription) -> None:
        self.name = inner.name
        self._owner = owner
        self._inner = inner

    def __iter__(self) -> Iterator[Delivery]:
        while (delivery := self.get()) is not None:
            yield delivery

    def get(self, timeout_s: float | None = None) -> Delivery | None:
        """The next event; None when the subscription has ended, or nothing came in time."""
        return self._owner._do(self._next(timeout_s))

    @property
    def failure(self) -> TidingsError | None:
        """What has ended the subscription against its owner's will."""
        return self._inner.failure

    def resume(self) -> None:
        """There is room to keep more events."""
        self._owner._do(self._resume())

    def close(self) -> None:
        """Want no more events."""
        self._owner._do(self._inner.close())

    async def _resume(self) -> None:
        self._inner.resume()

    async def _next(self, timeout_s: float | None) -> Delivery | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._inner)
        except (StopAsyncIteration, TimeoutError):
            return None


class BlockingTidings:
    """A client for scripts; made by `connect_blocking`."""

    def __init__(self, make: Callable[[], Tidings]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidings-client", daemon=True)

    def __enter__(self) -> "BlockingTidings":
        self._thread.start()
        try:
            self._inner = self._make()
            self._do(self._inner.__aenter__())
        except BaseException:
            self._stop()
            raise
        self.name = self._inner.name
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._do(self._inner.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def advertise(self, filter: str, *, name: str = "all") -> None:
        """Promise that the events published here satisfy a filter."""
        self._do(self._inner.advertise(filter, name=name))

    def publish(self, attributes: Attributes, **terms: Any) -> int:
        """Publish an event and wait until the broker has it, durably; its sequence number; `terms` as in
        `Tidings.publish`."""
        return self._do(self._inner.publish(attributes, **terms))

    def offer(self, attributes: Attributes, **terms: Any) -> "concurrent.futures.Future[int]":
        """Publish without waiting for the broker; a future of what `publish` waits for."""
        outcome: concurrent.futures.Future[int] = concurrent.futures.Future()
        inner = self._do(self._inner.offer(attributes, **terms))
        self._loop.call_soon_threadsafe(inner.add_done_callback, lambda done: _copy(done, outcome))
        return outcome

    def flush(self) -> None:
        """Wait until everything that was offered has been accepted or refused."""
        self._do(self._inner.flush())

    def subscribe(self, filter: str, **terms: Any) -> BlockingSubscription:
        """Ask for the events that satisfy a filter; `terms` as in `Tidings.subscribe`."""
        return BlockingSubscription(self, self._do(self._inner.subscribe(filter, **terms)))

    def subscribe_many(self, filters: Iterable[str] | Mapping[str, str], **terms: Any) -> list[BlockingSubscription]:
        """Ask for the events of many filters at once; `terms` as in `Tidings.subscribe_many`."""
        made = self._do(self._inner.subscribe_many(filters, **terms))
        return [BlockingSubscription(self, each) for each in made]

    def move(self, broker: str) -> None:
        """Go to another home broker, with everything."""
        self._do(self._inner.move(broker))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _copy(done: "asyncio.Future[int]", outcome: "concurrent.futures.Future[int]") -> None:
    error = done.exception()
    if error is None:
        outcome.set_result(done.result())
    else:
        outcome.set_exception(error)


def connect_blocking(address: str, **options: Any) -> BlockingTidings:
    """A client for scripts, to be used with `with`; `options` are those of `connect`."""
    return BlockingTidings(lambda: connect(address, **options))
