"""The client library: publish and subscribe in a few lines, over a connection that is restored automatically.

    async with tidings.connect("127.0.0.1:7001", name="desk-1") as t:
        await t.publish({"symbol": "YHOO", "price": 17.2}, lifetime_s=5.0)
        async for event in await t.subscribe("price > 10", max_delay_s=2.0):
            print(event.attributes, event.age_s)

- `publish` returns when the home broker has made the event durable and has routed it. `offer` returns as soon as fewer
  than `max_in_flight` events wait for that, with a future of the result.
- A lost connection is opened again, with growing pauses. Requests and events that were not confirmed are sent again,
  and events that the broker kept meanwhile are delivered. A client never hands an event to a subscription twice. If the
  broker stays away, the client continues at another one (`failover_s`).
- A slow application fills its subscription's buffer. At `max_held` the broker stops sending and keeps the events in the
  order of their deadlines.
- Leaving ends a client's subscriptions unless it is `durable`: then the broker keeps events for it for as long as it
  keeps absent clients, and the next client of that name with the same subscriptions gets them.
"""

import asyncio
import contextlib
import random
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tidings.errors import ConnectionLostError, DeniedError, EventError, InputError, RequestError, TidingsError
from tidings.live._errors import StoreError
from tidings.live.client._arguments import (
    checked_filter,
    checked_key,
    checked_price,
    duration_ns,
    event_rows,
    late_ns,
    plain_attributes,
    require_bytes,
    split_payload,
)
from tidings.live.client._context import add_context, current_context
from tidings.live.client._subscription import Attributes, Delivery, Keep, Subscription
from tidings.live.configuration._address import Address
from tidings.live.transport._clock import Clock
from tidings.live.transport._driver import Driver
from tidings.live.transport._question import ask
from tidings.model.policies import NO_ORDERING
from tidings.ordering import Policy
from tidings.protocol import Client as Machine
from tidings.protocol import ClientSettings, Confirmed, Deliver, Failed, Moved
from tidings.protocol.node import (
    Admitted,
    ConnectionLimits,
    Credentials,
    Directory,
    Node,
    NodeEffect,
    Preamble,
    Unreached,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Tidings"]

LEAVE_S: Final = 2.0
_HELD: Final = 10_000
_HELD_CONFLATED: Final = 16
"""What waits in this process is no longer replaced, and is read before anything newer."""
TOGETHER: Final = 256
"""How many requests of `subscribe_many` are under way at once, so that a broker answers before they are repeated."""
_EVERYTHING: Final = "TRUE"


class Tidings:
    """A connected client; made by `connect`."""

    def __init__(
        self,
        addresses: list[Address],
        settings: ClientSettings,
        *,
        credentials: Credentials,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        durable: bool,
        max_in_flight: int,
        connect_s: float,
    ) -> None:
        self.name = settings.name
        self.addresses = addresses
        self._settings = settings
        self._credentials = credentials
        self._tls = tls
        self._server_name = server_name
        self._durable = durable
        self._max_in_flight = max_in_flight
        self._connect_s = connect_s
        self._subscriptions: dict[str, Subscription] = {}
        self._keeping: dict[str, Subscription] = {}  # received events in this turn that must be kept
        self._waiting: defaultdict[tuple[str, str], list[asyncio.Future[None]]] = defaultdict(list)
        self._in_flight: dict[str, asyncio.Future[int] | _Batch] = {}
        self._room: deque[asyncio.Future[None]] = deque()
        self._is_sending = False
        self._advertised: set[str] = set()
        self._is_paused = False
        self._failure: TidingsError | None = RequestError(
            "nowhere", f"client {self.name!r} is not connected: use it as `async with connect(...) as client`"
        )
        self._first: asyncio.Future[None]  # done at the first connection
        self._trouble = ""  # why the broker was not reached

    # -- coming and going ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Tidings":
        self._failure = None
        self._machine = Machine(self._settings)
        self._preamble = Preamble("client", self.name)
        self._node = Node(
            self._machine,
            preamble=self._preamble,
            credentials=self._credentials,
            limits=ConnectionLimits(max_frame_bytes=self._settings.max_frame_bytes),
            chance=random.random,
            is_refusal_final=True,
        )
        self._driver = Driver(
            self._node, Clock(), on_effect=self._on_effect, tls=lambda: self._tls, before_write=self._keep
        )
        self._first = asyncio.get_running_loop().create_future()
        self._driver.start()
        address, *others = map(str, self.addresses)
        self._driver.call_node(self._node.want, address, address, self._server_name, others=others)
        try:
            async with asyncio.timeout(self._connect_s):
                await self._first
        except TimeoutError:
            self._end()
            why = self._trouble or f"{' and '.join([address, *others])} did not answer within {self._connect_s:g} s"
            raise ConnectionLostError(why) from None
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._failure is None and self.is_connected:
                async with asyncio.timeout(LEAVE_S):
                    if kind is None:
                        await self.flush()
                    if not self._durable:
                        await self._take_back()
        except (TimeoutError, TidingsError):
            pass  # the broker forgets a client that stays away
        finally:
            self._driver.call(self._machine.leave)
            self._end()
            self._give_up(ConnectionLostError(f"client {self.name!r} has left"))
            await asyncio.sleep(0)

    async def _take_back(self) -> None:
        """End all of this client's subscriptions and advertisements; the broker forgets its name."""
        advertised, self._advertised = self._advertised, set()
        await asyncio.gather(
            *(self.unsubscribe(name) for name in list(self._subscriptions)),
            *(self._ask("unadvertise", name, self._machine.unadvertise) for name in advertised),
        )

    def _end(self) -> None:
        """Send what is pending, and close everything."""
        self._driver.call_node(self._node.drain)
        self._driver.call_node(self._node.end, "the client leaves")
        self._driver.flush()
        self._driver.stop()

    @property
    def trouble(self) -> str:
        """Why its broker was not reached the last time; empty if it always was."""
        return self._trouble

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected now."""
        return self._failure is None and any(
            target.since_ns is not None for target in self._node.dials.targets.values()
        )

    @property
    def home(self) -> str | None:
        """The name of the home broker; None before the first greeting."""
        home = self._machine.home if self._failure is None else None
        return None if home is None else home.name

    async def move(self, broker: str) -> None:
        """Move to another home broker with all subscriptions: nothing is lost, nothing is delivered twice.

        Returns when the previous home has forgotten the client; DeniedError if the client stays where it is.
        """
        self._check()
        if broker not in self._node.addresses:
            await self._learn()
        if broker not in self._node.addresses:
            known = ", ".join(sorted(self._node.addresses))
            raise InputError(f"there is no broker {broker!r} in the network; there are: {known}")
        if broker != self.home:
            await self._wait("move", broker, self._machine.move, broker)

    async def _learn(self) -> None:
        """Ask the connected brokers for the addresses of all brokers: some may have been added."""
        question = msgspec.structs.replace(self._preamble, kind="directory")
        for target in list(self._node.dials.targets.values()):
            with contextlib.suppress(ConnectionLostError, DeniedError, msgspec.MsgspecError):
                address = Address.parse(target.address)
                answer = await ask(address, question, self._credentials, tls=self._tls, server_name=target.server_name)
                self._node.addresses |= msgspec.msgpack.decode(answer.detail, type=Directory).addresses

    def _give_up(self, error: TidingsError) -> None:
        """Fail everything that waits for a confirmation."""
        self._failure = error
        waiting: list[asyncio.Future[Any]] = [
            *(future for futures in self._waiting.values() for future in futures),
            *self._room,
        ]
        for each in self._in_flight.values():
            if isinstance(each, _Batch):
                each.settle(error)
            else:
                waiting.append(each)
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: an application need not wait for what it merely offered
        self._waiting.clear()
        self._in_flight.clear()
        for subscription in self._subscriptions.values():
            subscription.end(error if isinstance(error, DeniedError | StoreError) else None)

    # -- publishing ----------------------------------------------------------------------------------------------

    async def advertise(self, filter: str, *, name: str = "all") -> None:
        """Promise that the events published by this client satisfy a filter; the broker refuses others."""
        filter = checked_filter(filter, stacklevel=2)
        self._check()
        self._advertised.add(name)
        await self._ask("advertise", name, self._machine.advertise, filter)

    async def publish(
        self,
        attributes: Attributes,
        *,
        payload: bytes = b"",
        lifetime_s: float | None = None,
        require: Literal["reachable"] | None = None,
    ) -> int:
        """Publish an event, wait until the broker has made it durable, and return its sequence number.

        An event for a subscriber whose broker is out of reach waits on disk until that broker is back or the event has
        expired; with `require="reachable"` it is refused instead (DeniedError, code "unreachable").
        """
        return await (await self.offer(attributes, payload=payload, lifetime_s=lifetime_s, require=require))

    async def offer(
        self,
        attributes: Attributes,
        *,
        payload: bytes = b"",
        lifetime_s: float | None = None,
        require: Literal["reachable"] | None = None,
    ) -> "asyncio.Future[int]":
        """Publish an event as soon as fewer than `max_in_flight` are under way; a future of the result of `publish`.

        Without an advertisement, the client first advertises that it may publish anything. If OpenTelemetry has a
        current span, the event gets its context (`traceparent`), unless `attributes` has one.
        """
        terms = _publishing_terms(lifetime_s, require)
        plain = plain_attributes(attributes)
        add_context(plain, attributes, current_context())
        require_bytes(payload)
        await self._await_room()
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._offer(plain, payload, terms, future)
        return future

    async def publish_many(
        self,
        events: "Iterable[Attributes] | pa.RecordBatch | pa.Table | pa.RecordBatchReader",
        *,
        payload: str | None = None,
        lifetime_s: float | None = None,
        require: Literal["reachable"] | None = None,
    ) -> int:
        """Publish events in their order, wait until the broker has made all of them durable, and return their number.

        Events are dictionaries, or rows of Arrow data (of anything that has `__arrow_c_stream__`, such as a data
        frame): nulls are left out. `payload` names the column that is the payload, of text or bytes. At most
        `max_in_flight` events are under way. If the broker refuses some, the others are published all the same and the
        first refusal is raised; if one is malformed, those before it are published, and the error has its number.
        """
        terms = _publishing_terms(lifetime_s, require)
        batch = _Batch(asyncio.get_running_loop().create_future())
        context = current_context()
        try:
            for number, event in enumerate(event_rows(events)):
                try:
                    plain, body = split_payload(event, payload)
                except (EventError, InputError) as error:
                    raise type(error)(f"event {number}: {error}") from None
                add_context(plain, event, context)
                await self._await_room()
                self._offer(plain, body, terms, batch)
        except Exception:
            await batch.end()
            raise
        await batch.end()
        if batch.error is not None:
            raise batch.error
        return batch.count

    async def _await_room(self) -> None:
        """Wait until fewer than `max_in_flight` events are under way, and something is advertised."""
        if not self._advertised:
            await self.advertise(_EVERYTHING)
        while len(self._in_flight) >= self._max_in_flight:
            self._check()
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room
        self._check()

    def _offer(
        self,
        plain: dict[str, bool | int | float | str],
        payload: bytes,
        terms: dict[str, Any],
        waiting: "asyncio.Future[int] | _Batch",
    ) -> None:
        sequence: int = self._driver.call(self._machine.publish, plain, payload=payload, waits=True, **terms)
        self._in_flight[str(sequence)] = waiting
        if isinstance(waiting, _Batch):
            waiting.add()
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send_offered)

    def _send_offered(self) -> None:
        """Send together what was offered in this turn of the event loop."""
        self._is_sending = False
        if self._failure is None:
            self._driver.call_at_once(self._machine.send)

    async def flush(self) -> None:
        """Wait until everything that was offered has been accepted or refused."""
        while self._in_flight:
            await asyncio.wait({each.done if isinstance(each, _Batch) else each for each in self._in_flight.values()})

    # -- subscribing ---------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        filter: str,
        *,
        name: str | None = None,
        max_delay_s: float | None = None,
        price: float = 1.0,
        late: Literal["drop", "later"] | None = None,
        late_s: float | None = None,
        order: Policy | str | None = None,
        late_order: Literal["deliver", "drop"] = "deliver",
        conflate: str | None = None,
        callback: Callable[[Delivery], None] | None = None,
        keep: Keep | None = None,
        max_held: int | None = None,
    ) -> Subscription:
        """Subscribe to the events that satisfy a filter; returns when the broker has made the subscription durable.

        `late="later"`: events that are late are delivered too, marked as late, but leave brokers after all that can
        still be in time. They are kept for `late_s` after their deadline, an hour by default; `late_s` alone means the
        same. `order` is an ordering policy
        or its name (docs/reference/ordering.md); `late_order` is what happens to events out of order. A filter that
        probably does not mean what it states gives a `FilterWarning`.

        With `conflate`, the name of an attribute (or several, with commas in between), a newer event replaces one with
        an equal value while that one waits at the broker. `max_held` is how many events wait in this process before the
        broker keeps them: 10,000, with `conflate` 16.

        `keep` is called with the events that arrived together, and none of them is acknowledged before it returns: what
        it has made durable by then is never lost. It returns whether there is room for more; if not, no events are
        delivered until `resume` is called. If it raises, nothing is acknowledged, and the client ends with a
        `StoreError`.
        """
        filter = checked_filter(filter, stacklevel=2)
        if keep is not None and (callback is not None or order is not None):
            raise InputError(
                "keep excludes callback and order (events held for order are acknowledged before they are kept): "
                "leave them out, and sort what was kept by publisher and sequence"
            )
        wanted = {name or f"s{len(self._subscriptions) + 1}": filter}
        policy = _policy(order, late_order)
        terms = _terms(max_delay_s, price, late_ns(late, late_s), policy, conflate)
        most = _most_held(max_held, conflate)
        (subscription,) = await self._subscribe(
            wanted, terms, lambda name: Subscription(self, name, most, callback, keep)
        )
        return subscription

    async def subscribe_many(
        self,
        filters: Iterable[str] | Mapping[str, str],
        *,
        max_delay_s: float | None = None,
        price: float = 1.0,
        late: Literal["drop", "later"] | None = None,
        late_s: float | None = None,
        order: Policy | str | None = None,
        late_order: Literal["deliver", "drop"] = "deliver",
        conflate: str | None = None,
        callback: Callable[[Delivery], None] | None = None,
        max_held: int | None = None,
    ) -> list[Subscription]:
        """Subscribe with many filters on the same terms; one subscription for each, in the order given.

        A mapping gives the subscriptions' names. Requests are sent TOGETHER at a time without waiting for each other,
        so this takes one round trip for each such portion. It returns when the broker has made all of them durable. If
        one is refused, all are withdrawn and the error is raised.
        """
        wanted = dict(filters) if isinstance(filters, Mapping) else self._named(filters)
        for filter in wanted.values():
            checked_filter(filter, stacklevel=2)
        policy = _policy(order, late_order)
        terms = _terms(max_delay_s, price, late_ns(late, late_s), policy, conflate)
        most = _most_held(max_held, conflate)
        return await self._subscribe(wanted, terms, lambda name: Subscription(self, name, most, callback))

    def _named(self, filters: Iterable[str]) -> dict[str, str]:
        names = (f"s{number}" for number in count(len(self._subscriptions) + 1))
        return dict(zip((name for name in names if name not in self._subscriptions), filters, strict=False))

    async def _subscribe(
        self, wanted: Mapping[str, str], terms: dict[str, Any], make: Callable[[str], Subscription]
    ) -> list[Subscription]:
        for name in wanted:
            if name in self._subscriptions:
                raise InputError(f"client {self.name!r} has a subscription {name!r} already: give another name")
        self._check()
        subscriptions = {name: make(name) for name in wanted}
        for name, filter in wanted.items():
            subscriptions[name].filter = filter
        self._subscriptions |= subscriptions
        asked: list[str] = []
        try:
            portions = list(wanted.items())
            for begin in range(0, len(portions), TOGETHER):
                some = portions[begin : begin + TOGETHER]
                names = [name for name, _ in some]
                asked += names
                await self._wait_all("subscribe", names, self._machine.subscribe_many, some, **terms)
        except BaseException:
            for name in wanted:
                self._subscriptions.pop(name, None)
            if len(wanted) > 1 and self._failure is None:
                for name in asked:
                    self._driver.call(self._machine.unsubscribe, name)
            raise
        return list(subscriptions.values())

    async def unsubscribe(self, name: str) -> None:
        """End a subscription."""
        subscription = self._subscriptions.pop(name, None)
        if subscription is not None:
            await self._ask("unsubscribe", name, self._machine.unsubscribe)
            subscription.end()
            self.may_resume()

    async def _ask(self, kind: str, name: str, do: Callable[..., Any], *what: Any, **more: Any) -> None:
        await self._wait(kind, name, do, name, *what, **more)

    async def _wait(self, kind: str, name: str, do: Callable[..., Any], *what: Any, **more: Any) -> None:
        """Make a request of the machine, and wait until it is done or refused."""
        await self._wait_all(kind, (name,), do, *what, **more)

    async def _wait_all(self, kind: str, names: Sequence[str], do: Callable[..., Any], *what: Any, **more: Any) -> None:
        """Make requests of the machine under several names, and wait until all are done or one is refused.

        Of two requests under one name the later one counts, and both wait for it.
        """
        self._check()
        loop = asyncio.get_running_loop()
        futures: dict[str, asyncio.Future[None]] = {name: loop.create_future() for name in names}
        for name, future in futures.items():
            self._waiting[kind, name].append(future)
        try:
            self._driver.call(do, *what, **more)
            await asyncio.gather(*futures.values())
        finally:
            for name, future in futures.items():
                if future.done() and not future.cancelled():
                    future.exception()  # retrieved: only the first of them is raised
                others = [each for each in self._waiting.pop((kind, name), ()) if each is not future]
                if others:
                    self._waiting[kind, name] = others

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- what comes back -----------------------------------------------------------------------------------------

    def _on_effect(self, effect: NodeEffect) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect)
        elif isinstance(effect, Confirmed):
            if effect.kind == "publish":
                self._settle(effect.name, None)
            else:
                self._done(effect.kind, effect.name)
        elif isinstance(effect, Moved):
            self._done("move", effect.target)
        elif isinstance(effect, Admitted):
            if not self._first.done():
                self._first.set_result(None)
        elif isinstance(effect, Unreached):
            self._unreached(effect)
        elif isinstance(effect, Failed):
            error = DeniedError(effect.code, f"{effect.kind} {effect.name!r}: {effect.message}")
            if effect.kind == "publish":
                self._settle(effect.name, error)
            else:
                self._refused(effect, error)

    def _unreached(self, effect: Unreached) -> None:
        self._trouble = effect.why
        if effect.code:
            error = DeniedError(effect.code, effect.why)
            if self._first.done():
                if effect.target == self.home:  # others are no loss
                    self._give_up(error)
            else:
                self._first.set_exception(error)

    def _done(self, kind: str, name: str) -> None:
        for waiting in self._waiting.get((kind, name), ()):
            if not waiting.done():
                waiting.set_result(None)

    def _settle(self, sequence: str, error: DeniedError | None) -> None:
        waiting = self._in_flight.pop(sequence, None)
        if isinstance(waiting, _Batch):
            waiting.settle(error)
        elif waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(int(sequence))
            else:
                waiting.set_exception(error)
                waiting.exception()  # retrieved: an application need not wait for what it merely offered
        while self._room and len(self._in_flight) < self._max_in_flight:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                break

    def _refused(self, effect: Failed, error: DeniedError) -> None:
        waiting = [each for each in self._waiting.get((effect.kind, effect.name), ()) if not each.done()]
        for each in waiting:
            each.set_exception(error)
        if waiting:
            return
        if effect.kind == "subscribe" and effect.name in self._subscriptions:
            self._subscriptions.pop(effect.name).end(error)

    def _deliver(self, effect: Deliver) -> None:
        subscription = self._subscriptions.get(effect.subscription)
        if subscription is None:
            return
        publisher, epoch, sequence = effect.event
        subscription.put(
            Delivery(
                subscription=effect.subscription,
                publisher=publisher,
                epoch=epoch,
                sequence=sequence,
                attributes=effect.attributes,
                payload=effect.payload,
                age_s=effect.age_ns * 1e-9,
                age_error_s=None if effect.error_ns is None else effect.error_ns * 1e-9,
                late=effect.late,
                hold_s=effect.held_ns * 1e-9,
                out_of_order=effect.out_of_order,
            )
        )
        if subscription.is_kept:
            self._keeping[subscription.name] = subscription
        elif subscription.is_full:
            self._pause()

    def _keep(self) -> bool:
        """Before anything is sent, make durable what arrived, so that it may be acknowledged; False if that failed."""
        keeping, self._keeping = self._keeping, {}
        for subscription in keeping.values():
            try:
                subscription.keep_held()
            except Exception as error:
                self._give_up(StoreError(f"subscription {subscription.name!r}: its events cannot be kept: {error}"))
                for connection in list(self._driver.connections.values()):
                    connection.abort("its events cannot be kept")
                return False
            if subscription.is_full:
                self._pause()
        return not isinstance(self._failure, StoreError)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._driver.call(self._machine.pause)

    def may_resume(self) -> None:
        """A subscription has room again: if all have, let the broker continue."""
        if self._is_paused and not any(subscription.is_full for subscription in self._subscriptions.values()):
            self._is_paused = False
            self._driver.call(self._machine.resume)


class _Batch:
    """Events that are published together: how many are under way, and the first error among them."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.count = 0
        self.error: TidingsError | None = None
        self._under_way = 1  # itself, until it ends

    def add(self) -> None:
        """One more is under way."""
        self.count += 1
        self._under_way += 1

    def settle(self, error: TidingsError | None) -> None:
        """One was accepted, or refused."""
        self._under_way -= 1
        self.error = self.error or error
        if self._under_way == 0 and not self.done.done():
            self.done.set_result(None)

    async def end(self) -> None:
        """No more will come: wait until all are settled."""
        self.settle(None)
        await self.done


def _publishing_terms(lifetime_s: float | None, require: str | None) -> dict[str, Any]:
    """The terms of an event in the machine's units."""
    if require not in (None, "reachable"):
        raise InputError(f"require is {require!r}: give 'reachable', or leave it out")
    return {
        "lifetime_ns": None if lifetime_s is None else duration_ns("lifetime_s", lifetime_s),
        "must_reach": require is not None,
    }


def _policy(order: Policy | str | None, late: Literal["deliver", "drop"]) -> Policy | None:
    """The ordering policy that an argument names; None for none."""
    if isinstance(order, str):
        return None if order == NO_ORDERING else Policy.parse(order, late=late)
    return order


def _most_held(max_held: int | None, conflate: str | None) -> int:
    """How many events of a subscription wait in this process: few if they are replaced at the broker."""
    return (_HELD if conflate is None else _HELD_CONFLATED) if max_held is None else max_held


def _terms(
    max_delay_s: float | None, price: float, late_ns: int, policy: Policy | None, conflate: str | None
) -> dict[str, Any]:
    """The terms of a subscription in the machine's units."""
    return {
        "max_delay_ns": None if max_delay_s is None else duration_ns("max_delay_s", max_delay_s),
        "price": checked_price(price),
        "late_ns": late_ns,
        "policy": policy,
        "conflate": () if conflate is None else checked_key(conflate),
    }
