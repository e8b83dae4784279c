"""The blocking client, for scripts: the same calls without `await`; a background thread does the work.

with tidings.connect_blocking("127.0.0.1:7001") as t:
    t.publish({"symbol": "YHOO", "price": 17.2})
    for event in t.subscribe("price > 10"):
        print(event.attributes)
"""

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from tidings.errors import TidingsError
from tidings.live.client._client import Tidings
from tidings.live.client._connect import connect
from tidings.live.client._subscription import Attributes, Delivery, Subscription

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BlockingSubscription", "BlockingTidings", "connect_blocking"]

P = ParamSpec("P")
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
        """The next event; None when the subscription has ended or the time is up."""
        return self._owner._do(self._next(timeout_s))

    def batches(
        self, schema: "pa.Schema | None" = None, *, max_rows: int = 10_000, wait_s: float = 0.1
    ) -> "Iterator[pa.RecordBatch]":
        """As `Subscription.batches`."""
        inner = self._inner.batches(schema, max_rows=max_rows, wait_s=wait_s)
        return iter(lambda: self._owner._do(_next_of(inner)), None)

    @property
    def failure(self) -> TidingsError | None:
        """The error that ended the subscription, if it was not ended by its owner."""
        return self._inner.failure

    def resume(self) -> None:
        """Resume delivery after `keep` has returned False."""
        self._owner._do(self._resume())

    def close(self) -> None:
        """End the subscription."""
        self._owner._do(self._inner.close())

    async def _resume(self) -> None:
        self._inner.resume()

    async def _next(self, timeout_s: float | None) -> Delivery | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._inner)
        except (StopAsyncIteration, TimeoutError):
            return None


async def _next_of(some: AsyncIterator[T]) -> T | None:
    return await anext(some, None)


def _blocking(
    method: Callable[Concatenate[Tidings, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[BlockingTidings, P], T]":
    """A method of the client that waits for its result, with the same arguments and documentation."""

    @functools.wraps(method)
    def waiting(self: "BlockingTidings", /, *given: P.args, **named: P.kwargs) -> T:
        return self._do(method(self._inner, *given, **named))

    return waiting


def _subscribing(
    method: Callable[Concatenate[Tidings, P], Coroutine[Any, Any, Subscription]],
) -> "Callable[Concatenate[BlockingTidings, P], BlockingSubscription]":
    """`_blocking` for a method that makes a subscription."""

    @functools.wraps(method)
    def waiting(self: "BlockingTidings", /, *given: P.args, **named: P.kwargs) -> BlockingSubscription:
        return BlockingSubscription(self, self._do(method(self._inner, *given, **named)))

    return waiting


def _subscribing_many(
    method: Callable[Concatenate[Tidings, P], Coroutine[Any, Any, list[Subscription]]],
) -> "Callable[Concatenate[BlockingTidings, P], list[BlockingSubscription]]":
    """`_blocking` for a method that makes several subscriptions."""

    @functools.wraps(method)
    def waiting(self: "BlockingTidings", /, *given: P.args, **named: P.kwargs) -> list[BlockingSubscription]:
        return [BlockingSubscription(self, each) for each in self._do(method(self._inner, *given, **named))]

    return waiting


class BlockingTidings:
    """A client for scripts; made by `connect_blocking`."""

    advertise = _blocking(Tidings.advertise)
    publish = _blocking(Tidings.publish)
    publish_many = _blocking(Tidings.publish_many)
    flush = _blocking(Tidings.flush)
    subscribe = _subscribing(Tidings.subscribe)
    subscribe_many = _subscribing_many(Tidings.subscribe_many)
    move = _blocking(Tidings.move)

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

    def offer(
        self,
        attributes: Attributes,
        *,
        payload: bytes = b"",
        lifetime_s: float | None = None,
        require: Literal["reachable"] | None = None,
    ) -> "concurrent.futures.Future[int]":
        """Publish without waiting for the broker; returns a future of the result of `publish`."""
        outcome: concurrent.futures.Future[int] = concurrent.futures.Future()
        inner = self._do(self._inner.offer(attributes, payload=payload, lifetime_s=lifetime_s, require=require))
        self._loop.call_soon_threadsafe(inner.add_done_callback, lambda done: _copy(done, outcome))
        return outcome

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


def _for_scripts(make: Callable[P, Tidings]) -> Callable[P, BlockingTidings]:
    @functools.wraps(make)
    def connect_blocking(*given: P.args, **named: P.kwargs) -> BlockingTidings:
        return BlockingTidings(lambda: make(*given, **named))

    connect_blocking.__name__ = connect_blocking.__qualname__ = "connect_blocking"
    connect_blocking.__doc__ = (make.__doc__ or "").replace("`async with`", "`with`")
    return connect_blocking


connect_blocking = _for_scripts(connect)
