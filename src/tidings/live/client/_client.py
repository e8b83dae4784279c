"""The client library: publish and subscribe in a few lines, over a connection that comes back by itself.

    async with tidings.connect("127.0.0.1:7001", name="desk-1") as t:
        await t.publish({"symbol": "YHOO", "price": 17.2}, lifetime_s=5.0)
        async for event in await t.subscribe("price > 10", max_delay_s=2.0):
            print(event.attributes, event.age_s)

- `publish` returns when the home broker has made the event durable and knows its way on; `offer` returns as soon as
  fewer than `max_in_flight` events wait for that, with a future of it.
- A lost connection is opened again, ever more rarely; requests and events that were not confirmed are sent again, and
  what the broker kept meanwhile comes. No subscription is given an event twice by one client.
- An application that is slow to take events fills its subscription's buffer; at `max_held` the broker is told to send
  no more, and keeps them in the order of their deadlines.
- Who leaves ends its subscriptions, unless it is `durable`: then the broker keeps events for it, for as long as it
  keeps clients that are away, and the next client of that name with the same subscriptions gets them.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Literal

from tidings.errors import InputError, TidingsError
from tidings.live._errors import ConnectionLostError, DeniedError
from tidings.live.broker._admission import Preamble
from tidings.live.client._keeping import Keeper
from tidings.live.client._subscription import Attributes, Delivery, Subscription
from tidings.live.configuration._schema import Address
from tidings.live.transport._clock import Clock
from tidings.live.transport._connection import Connection
from tidings.live.transport._driver import Driver
from tidings.ordering import Policy
from tidings.protocol import Client as Machine
from tidings.protocol import ClientSettings, Confirmed, Connect, Deliver, Disconnect, Effect, Failed, Moved

__all__ = ["Tidings"]

LEAVE_S: Final = 2.0
_EVERYTHING: Final = "TRUE"
_SECOND_NS: Final = 10**9


class Tidings:
    """A client that is connected; made by `connect`."""

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        *,
        token: str | None,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        durable: bool,
        max_in_flight: int,
        connect_s: float,
    ) -> None:
        self.name = settings.name
        self.address = address
        self._settings = settings
        self._token = token
        self._tls = tls
        self._server_name = server_name
        self._durable = durable
        self._max_in_flight = max_in_flight
        self._connect_s = connect_s
        self._subscriptions: dict[str, Subscription] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._in_flight: dict[str, asyncio.Future[int]] = {}
        self._room: deque[asyncio.Future[None]] = deque()
        self._has_advertised = self._is_sending = False
        self._is_paused = False
        self._failure: TidingsError | None = None

    # -- coming and going ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Tidings":
        self._machine = Machine(self._settings)
        self._driver = Driver(self._machine, Clock(), on_effect=self._on_effect, on_lost=self._on_lost)
        self._driver.start()
        self._keeper = Keeper(
            Preamble("client", self.name, self._token),
            max_frame_bytes=self._settings.max_frame_bytes,
            tls=self._tls,
            attach=self._driver.attach,
            denied=self._give_up,
        )
        try:
            await self._keeper.begin(self.address, self._server_name, self._connect_s)
        except BaseException:
            self._keeper.end()
            self._driver.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._failure is None and self.is_connected:
                async with asyncio.timeout(LEAVE_S):
                    await self.flush()
                    if not self._durable:
                        for name in list(self._subscriptions):
                            await self.unsubscribe(name)
        except (TimeoutError, TidingsError):
            pass  # the broker forgets a client that stays away
        finally:
            self._keeper.end()
            self._driver.call(self._machine.leave)
            self._driver.stop()
            for connection in list(self._driver.connections.values()):
                connection.close("the client leaves")
            self._give_up(ConnectionLostError(f"client {self.name!r} has left"))
            await asyncio.sleep(0)

    def _on_lost(self, connection: Connection, reason: str) -> None:  # noqa: ARG002
        self._keeper.lost(connection)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return bool(self._driver.connections)

    @property
    def home(self) -> str | None:
        """The name of the home broker; None before it has greeted."""
        return None if self._machine.home is None else self._machine.home.name

    async def move(self, broker: str) -> None:
        """Go to another home broker, with everything: nothing is lost, nothing comes twice.

        Returns when the home before has forgotten the client; DeniedError if it stays where it is.
        """
        self._check()
        if broker not in self._keeper.addresses:
            await self._keeper.learn()
        if broker not in self._keeper.addresses:
            known = ", ".join(sorted(self._keeper.addresses))
            raise InputError(f"there is no broker {broker!r} in the network; there are: {known}")
        if broker != self.home:
            await self._wait("move", broker, self._machine.move, broker)

    def _give_up(self, error: TidingsError) -> None:
        """Nothing will be confirmed any more."""
        self._failure = error
        waiting: list[asyncio.Future[Any]] = [*self._waiting.values(), *self._in_flight.values(), *self._room]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: nobody has to wait for what was merely offered
        self._waiting.clear()
        self._in_flight.clear()
        for subscription in self._subscriptions.values():
            subscription.end(error if isinstance(error, DeniedError) else None)

    # -- publishing ----------------------------------------------------------------------------------------------

    async def advertise(self, filter: str, *, name: str = "all") -> None:
        """Promise that the events published here satisfy a filter; the broker refuses others."""
        self._has_advertised = True
        await self._ask("advertise", name, self._machine.advertise, filter)

    async def publish(self, attributes: Attributes, *, payload: bytes = b"", lifetime_s: float | None = None) -> int:
        """Publish an event and wait until the broker has it, durably; its sequence number."""
        return await (await self.offer(attributes, payload=payload, lifetime_s=lifetime_s))

    async def offer(
        self, attributes: Attributes, *, payload: bytes = b"", lifetime_s: float | None = None
    ) -> "asyncio.Future[int]":
        """Publish an event as soon as fewer than `max_in_flight` are; a future of what `publish` waits for.

        Without an advertisement, everything is advertised first.
        """
        if not self._has_advertised:
            await self.advertise(_EVERYTHING)
        while len(self._in_flight) >= self._max_in_flight:
            self._check()
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room
        self._check()
        lifetime_ns = None if lifetime_s is None else round(lifetime_s * _SECOND_NS)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        driver = self._driver
        now_ns = driver.clock.now_ns()
        sequence, effects = self._machine.publish(
            attributes, now_ns, payload=payload, lifetime_ns=lifetime_ns, waits=True
        )
        self._in_flight[str(sequence)] = future
        driver.step(effects, now_ns)
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send_offered)
        return future

    def _send_offered(self) -> None:
        """What was offered in this turn of the event loop leaves together."""
        self._is_sending = False
        if self._failure is None:
            self._driver.call(self._machine.send)

    async def flush(self) -> None:
        """Wait until everything that was offered has been accepted or refused."""
        while self._in_flight:
            await asyncio.wait(list(self._in_flight.values()))

    # -- subscribing ---------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        filter: str,
        *,
        name: str | None = None,
        max_delay_s: float | None = None,
        price: float = 1.0,
        late_s: float = 0.0,
        order: Policy | str | None = None,
        late_order: Literal["deliver", "drop"] = "deliver",
        callback: Callable[[Delivery], None] | None = None,
        max_held: int = 10_000,
    ) -> Subscription:
        """Ask for the events that satisfy a filter; returns when the broker has made that durable.

        `late_s`: for so long after its deadline an event is still wanted, and then marked as late. `order` is an
        ordering policy or its name (docs/reference/ordering.md); `late_order` what it does with events out of order.
        """
        name = name or f"s{len(self._subscriptions) + 1}"
        if name in self._subscriptions:
            raise InputError(f"client {self.name!r} has a subscription {name!r} already: give another name")
        policy = Policy.parse(order, late=late_order) if isinstance(order, str) else order
        subscription = self._subscriptions[name] = Subscription(self, name, max_held, callback)
        subscription.filter = filter
        try:
            await self._ask(
                "subscribe",
                name,
                self._machine.subscribe,
                filter,
                max_delay_ns=None if max_delay_s is None else round(max_delay_s * _SECOND_NS),
                price=price,
                late_ns=round(late_s * _SECOND_NS),
                policy=policy,
            )
        except BaseException:
            self._subscriptions.pop(name, None)
            raise
        return subscription

    async def unsubscribe(self, name: str) -> None:
        """Want no more events of a subscription."""
        subscription = self._subscriptions.pop(name, None)
        if subscription is not None:
            await self._ask("unsubscribe", name, self._machine.unsubscribe)
            subscription.end()
            self.may_resume()

    async def _ask(self, kind: str, name: str, do: Callable[..., Any], *what: Any, **more: Any) -> None:
        await self._wait(kind, name, do, name, *what, **more)

    async def _wait(self, kind: str, name: str, do: Callable[..., Any], *what: Any, **more: Any) -> None:
        """Have the machine do something, and wait until it says that it is done or refused."""
        self._check()
        future = asyncio.get_running_loop().create_future()
        self._waiting[kind, name] = future
        try:
            self._driver.call(do, *what, **more)
            await future
        finally:
            if self._waiting.get((kind, name)) is future:
                del self._waiting[kind, name]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- what comes back -----------------------------------------------------------------------------------------

    def _on_effect(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect)
        elif isinstance(effect, Confirmed):
            if effect.kind == "publish":
                self._settle(effect.name, None)
            else:
                self._done(effect.kind, effect.name)
        elif isinstance(effect, Connect):
            self._keeper.connect(effect.broker)
        elif isinstance(effect, Disconnect):
            self._keeper.disconnect(effect.broker)
        elif isinstance(effect, Moved):
            self._done("move", effect.target)
        elif isinstance(effect, Failed):
            error = DeniedError(effect.code, f"{effect.kind} {effect.name!r}: {effect.message}")
            if effect.kind == "publish":
                self._settle(effect.name, error)
            else:
                self._refused(effect, error)

    def _done(self, kind: str, name: str) -> None:
        waiting = self._waiting.get((kind, name))
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _settle(self, sequence: str, error: DeniedError | None) -> None:
        future = self._in_flight.pop(sequence, None)
        if future is not None and not future.done():
            if error is None:
                future.set_result(int(sequence))
            else:
                future.set_exception(error)
                future.exception()  # seen: nobody has to wait for what was merely offered
        while self._room and len(self._in_flight) < self._max_in_flight:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                break

    def _refused(self, effect: Failed, error: DeniedError) -> None:
        waiting = self._waiting.get((effect.kind, effect.name))
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif effect.kind == "subscribe" and effect.name in self._subscriptions:
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
                late=effect.late,
            )
        )
        if subscription.is_full and not self._is_paused:
            self._is_paused = True
            self._driver.call(self._machine.pause)

    def may_resume(self) -> None:
        """A subscription has room again: if all have, let the broker go on."""
        if self._is_paused and not any(subscription.is_full for subscription in self._subscriptions.values()):
            self._is_paused = False
            self._driver.call(self._machine.resume)
