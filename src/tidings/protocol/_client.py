"""A client: publisher and subscriber in one, attached to one home broker at a time (paper A at both ends).

- Requests and events are sent again until the home broker confirms them; what was confirmed is durable there. When the
  broker has started again, all requests are repeated: it may have lost what it had not confirmed.
- Every event is stamped (`ordering.Stamper`), and every subscription with an ordering policy has an ordered receiver.
- An event is given to a subscription once: copies are known by the event's identity until none can come any more.
- On time means that the application gets the event before its deadline, holding included. What is too late is dropped,
  or delivered and marked as late if the subscription takes late events.
- `pause` takes the credit away: the home broker keeps what comes, within its bounds, until `resume`.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tidings.errors import InputError
from tidings.ordering import DEFAULT_IDLE_NS, Policy, Receiver, Stamp, Stamper, SummaryMatcher
from tidings.protocol import _messages as wire
from tidings.protocol._custody import Seen
from tidings.protocol._effects import Deliver, Effect, EventId
from tidings.protocol._errors import PeerError, RequestError
from tidings.protocol._interests import parsed
from tidings.protocol._machine import Bound, Machine
from tidings.protocol._outbox import Outbox
from tidings.protocol._peers import Peer
from tidings.protocol._publishing import Publishing
from tidings.protocol._requests import Requests
from tidings.protocol._settings import ClientSettings
from tidings.protocol._states import ALLOWED, PeerState, PeerStep
from tidings.scheduling import Strategy

__all__ = ["Client"]

_ROOM_BYTES: Final = 8_192
"""What a frame holds besides attributes and payload: stamp, record, names."""


class _Arrival(NamedTuple):
    """An event on its way to the application."""

    event: EventId
    content: wire.Content
    since_ns: int
    lifetime_ns: int


class _Subscription(NamedTuple):
    entry: wire.Entry
    receiver: Receiver[_Arrival] | None


class Client(Machine):
    """One client."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings.name, tracing=False, max_refused=settings.max_refused)
        self.settings = settings
        self.home: Peer | None = None
        self._stamper = Stamper(record=settings.record)
        self._subscriptions: dict[str, _Subscription] = {}
        self._requests = Requests(
            retry_ns=settings.retry_most_ns, send=self._send, emit=self._emit, ask_at=self._ask_at
        )
        self._publishing = Publishing(settings, send=self._send, emit=self._emit, retry_at=self._retry_at)
        self._seen: Seen[tuple[str, EventId]] = Seen(settings.max_seen)
        self._is_paused = False

    # -- what applications do ------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[Effect]:
        """The client comes to life; it does nothing before it is connected."""
        self._now_ns = now_ns
        return self._finish()

    def advertise(self, name: str, filter: str, now_ns: int) -> list[Effect]:
        """Promise that all events published under this name satisfy the filter."""
        parsed(filter)
        return self._request("advertise", name, filter, now_ns)

    def unadvertise(self, name: str, now_ns: int) -> list[Effect]:
        """Take a promise back."""
        return self._request("unadvertise", name, None, now_ns)

    def subscribe(
        self,
        name: str,
        filter: str,
        now_ns: int,
        *,
        max_delay_ns: int | None = None,
        price: float = 1.0,
        late_ns: int = 0,
        policy: Policy | None = None,
    ) -> list[Effect]:
        """Ask for the events that satisfy a filter; for `late_ns` after their deadline they are still wanted."""
        wanted = parsed(filter)
        entry = wire.Entry(name, filter, max_delay_ns, price, late_ns)
        receiver: Receiver[_Arrival] | None = None
        if policy is not None:
            # An event may be under way for as long as it lives: only what is older can be a publisher's new beginning.
            oldest_ns = self.settings.max_lifetime_ns + late_ns + 1
            policy = msgspec.structs.replace(policy, clock_step_ns=max(policy.clock_step_ns, oldest_ns))
            idle_ns = max(DEFAULT_IDLE_NS, 2 * oldest_ns)
            receiver = Receiver(policy, SummaryMatcher([wanted]), idle_ns=idle_ns)
        self._subscriptions[name] = _Subscription(entry, receiver)
        return self._request("subscribe", name, entry, now_ns)

    def unsubscribe(self, name: str, now_ns: int) -> list[Effect]:
        """Ask for no more of them; what is held to restore order is dropped."""
        self._subscriptions.pop(name, None)
        self._agenda.cancel(("order", name))
        return self._request("unsubscribe", name, None, now_ns)

    def publish(
        self,
        attributes: Mapping[str, int | float | str | bool],
        now_ns: int,
        *,
        payload: bytes = b"",
        lifetime_ns: int | None = None,
    ) -> tuple[int, list[Effect]]:
        """Publish an event: its sequence number and what to do. RequestError when too many are unacknowledged."""
        if len(self._publishing) >= self.settings.max_unacknowledged:
            raise RequestError(
                "full", f"{self.settings.max_unacknowledged} events of {self.name!r} wait for their broker: wait too"
            )
        most_ns = self.settings.max_lifetime_ns
        if lifetime_ns is not None and not 0 < lifetime_ns <= most_ns:
            raise RequestError("lifetime", f"a lifetime of {lifetime_ns} ns: from 1 to {most_ns}, or leave it out")
        size_bytes = len(wire.encode_content(wire.Content(dict(attributes), b"", payload)))
        if size_bytes > self.settings.max_frame_bytes - _ROOM_BYTES:
            raise RequestError("too-long", f"an event of {size_bytes} bytes does not fit into a frame")
        self._now_ns = now_ns
        stamp = self._stamper.stamp(attributes, now_ns)
        content = wire.encode_content(wire.Content(dict(attributes), stamp.encode(), payload))
        self._publishing.add(stamp.sequence, content, lifetime_ns, self.home, now_ns)
        return stamp.sequence, self._finish()

    def pause(self, now_ns: int) -> list[Effect]:
        """Take no more events for now."""
        return self._tell_credit(paused=True, now_ns=now_ns)

    def resume(self, now_ns: int) -> list[Effect]:
        """Take events again."""
        return self._tell_credit(paused=False, now_ns=now_ns)

    def bounds(self) -> Mapping[str, Bound]:
        """Everything that could grow, with its bound."""
        return {
            "unacknowledged": (len(self._publishing), self.settings.max_unacknowledged),
            "under way": (self._publishing.under_way, self.settings.window + 1),
            "seen": (len(self._seen), self.settings.max_seen),
        }

    def _request(self, kind: str, name: str, what: Any, now_ns: int) -> list[Effect]:
        self._now_ns = now_ns
        self._requests.make(kind, name, what, self.home, now_ns)
        return self._finish()

    def _ask_at(self, at_ns: int) -> None:
        self._agenda.advance(("requests",), at_ns)

    def _retry_at(self, at_ns: int) -> None:
        self._agenda.advance(("retry",), at_ns)

    # -- connections ---------------------------------------------------------------------------------------------

    def _on_connected(self, connection: str) -> None:
        if self._by_connection.get(connection) is None and connection in self._by_connection:
            self._send_over(connection, self._greeting(wire.Hello))
            self._agenda.set(("greet", connection), self._now_ns + self.settings.greet_ns)

    def _greeting(self, kind: type[wire.Hello] | type[wire.Welcome]) -> wire.Hello | wire.Welcome:
        return kind(wire.VERSION, self.name, "client", self.settings.epoch, self._credit())

    def _credit(self) -> int:
        return 0 if self._is_paused else self.settings.window

    def _tell_credit(self, *, paused: bool, now_ns: int) -> list[Effect]:
        self._now_ns = now_ns
        self._is_paused = paused
        if self.home is not None and self.home.is_up:
            self._send(self.home, wire.Credit(self._credit()))
        return self._finish()

    def _on_disconnected(self, peer: Peer) -> None:
        peer.connection = None
        peer.step(PeerStep.DISCONNECTED)

    def _answers_errors(self, connection: str) -> bool:  # noqa: ARG002
        return False

    def _on_frame(self, connection: str, frame: bytes) -> None:
        if len(frame) > self.settings.max_frame_bytes:
            raise PeerError("too-long", f"a frame of {len(frame)} bytes: at most {self.settings.max_frame_bytes} here")
        message = wire.decode(frame)
        if isinstance(message, wire.Hello | wire.Welcome):
            self._on_greeting(connection, message)
            return
        home = self._by_connection.get(connection)
        if home is None or not home.is_up:
            if not isinstance(message, wire.Error):
                self._send_over(connection, self._greeting(wire.Hello))
            return
        if type(message) not in ALLOWED["client", home.kind]:
            raise PeerError("not-allowed", f"a broker may not send {type(message).__name__} to a client")
        home.heard_ns = self._now_ns
        match message:
            case wire.Transfer():
                self._on_transfer(home, message)
            case wire.Ack():
                self._publishing.on_ack(home, message, self._now_ns)
            case wire.Credit():
                home.outbox.credit = message.credit
                self._publishing.pump(home, self._now_ns)
            case wire.Ping():
                home.meter.note_round_trip(message.rtt_ns)
                self._send(home, wire.Pong(message.sent_ns))
            case wire.Done():
                self._requests.on_done(message)
            case wire.Error():
                self._on_error(home, message)

    def _on_error(self, home: Peer, said: wire.Error) -> None:
        self.counts[f"told {said.code}"[:80]] += 1
        if said.kind == "publish":
            self._publishing.on_error(said, home, self._now_ns)
        elif self._requests.on_error(said) and said.kind == "subscribe":
            self._subscriptions.pop(said.request, None)

    def _on_greeting(self, connection: str, said: wire.Hello | wire.Welcome) -> None:
        if said.kind != "broker":
            raise PeerError("not-allowed", "a client is greeted by brokers only")
        home = self.home
        if home is None or home.name != said.name:
            home = self.home = Peer(said.name, "broker", _unused_outbox(self.settings))
        if said.epoch < home.epoch:
            return
        was_up = home.is_up
        home.connection = connection
        self._by_connection[connection] = home
        if home.state is PeerState.AWAY:
            home.step(PeerStep.CONNECTED)
        home.step(PeerStep.GREETED)
        home.heard_ns = self._now_ns
        home.outbox.credit = said.credit
        if isinstance(said, wire.Hello):
            self._send_over(connection, self._greeting(wire.Welcome))
        if home.greet(said.epoch):
            self._requests.ask_all(home, self._now_ns)
        if not was_up:
            self._agenda.set(("silence",), self._now_ns + self.settings.silence_ns)
            self._publishing.hasten(self._now_ns)
            self._ask_at(self._now_ns)

    # -- time ----------------------------------------------------------------------------------------------------

    def _on_task(self, task: Hashable) -> None:
        match task:
            case ("greet", connection):
                self._on_connected(str(connection))
            case ("silence",):
                self._listen()
            case ("retry",):
                self._publishing.resend(self.home, self._now_ns)
            case ("requests",):
                self._requests.ask_again(self.home, self._now_ns)
            case ("order", name):
                subscription = self._subscriptions.get(str(name))
                if subscription is not None and subscription.receiver is not None:
                    self._deliver(subscription, subscription.receiver.advance(self._now_ns))
            case ("seen",):
                for _ in self._seen.forget_old(self._now_ns):
                    pass
                self._set_seen_timer()

    def _listen(self) -> None:
        """Is the home broker still there? If not, greet it until it answers."""
        home = self.home
        if home is None or home.connection is None:
            return
        if home.is_up and self._now_ns - home.heard_ns >= self.settings.silence_ns:
            home.step(PeerStep.SILENT)
        if home.is_up:
            self._agenda.set(("silence",), home.heard_ns + self.settings.silence_ns)
        else:
            self._send(home, self._greeting(wire.Hello))
            self._agenda.set(("silence",), self._now_ns + self.settings.greet_ns)

    # -- deliveries ----------------------------------------------------------------------------------------------

    def _on_transfer(self, home: Peer, said: wire.Transfer) -> None:
        if said.session != home.epoch:
            return
        if home.inbox.look(said.number, said.floor) == "new":
            self._take(home, said)
            home.inbox.take(said.number)
            home.inbox.acknowledge(said.number)
        self._send(home, wire.Ack(said.session, said.number, 0, self._credit()))

    def _take(self, home: Peer, said: wire.Transfer) -> None:
        content = wire.decode_content(said.content)
        try:
            stamp = Stamp.decode(content.stamp)
        except InputError as error:
            raise PeerError("content", str(error)) from None
        id = (said.publisher, said.epoch, said.sequence)
        since_ns = self._now_ns - said.age_ns - home.meter.transit_ns(said.size_bytes)
        if self.settings.synchronised_clocks:
            since_ns = min(said.departure_ns, self._now_ns)
        lifetime_ns = min(said.lifetime_ns or self.settings.max_lifetime_ns, self.settings.max_lifetime_ns)
        arrival = _Arrival(id, content, since_ns, lifetime_ns)
        for name in said.targets:
            subscription = self._subscriptions.get(name)
            if subscription is None:
                self.counts["not subscribed"] += 1
            elif self._is_first(subscription, arrival):
                if subscription.receiver is None:
                    self._hand_over(subscription, arrival)
                else:
                    publisher = f"{said.epoch}/{said.publisher}"
                    self._deliver(subscription, subscription.receiver.receive(publisher, arrival, stamp, self._now_ns))

    def _is_first(self, subscription: _Subscription, arrival: _Arrival) -> bool:
        key = (subscription.entry.name, arrival.event)
        if key in self._seen:
            self.counts["duplicates"] += 1
            return False
        late_ns = subscription.entry.late_ns
        expires_ns = max(arrival.since_ns + arrival.lifetime_ns + late_ns, self._now_ns) + self.settings.seen_grace_ns
        if self._seen.add(key, expires_ns) is not None:
            self.counts["seen forgotten"] += 1
        self._set_seen_timer()
        return True

    def _set_seen_timer(self) -> None:
        expiry_ns = self._seen.next_expiry_ns
        if expiry_ns is not None:
            self._agenda.advance(("seen",), expiry_ns)

    def _deliver(self, subscription: _Subscription, deliveries: list[Any]) -> None:
        for delivery in deliveries:
            self._hand_over(subscription, delivery.item)
        receiver = subscription.receiver
        due_ns = None if receiver is None else receiver.next_timer_ns
        if due_ns is not None:
            self._agenda.advance(("order", subscription.entry.name), due_ns)

    def _hand_over(self, subscription: _Subscription, arrival: _Arrival) -> None:
        """To the application, if it is on time or late events are wanted."""
        entry = subscription.entry
        age_ns = self._now_ns - arrival.since_ns
        allowed_ns = arrival.lifetime_ns
        if entry.max_delay_ns is not None:
            allowed_ns = min(allowed_ns, entry.max_delay_ns)
        is_late = age_ns >= allowed_ns
        if is_late and age_ns >= allowed_ns + entry.late_ns:
            self.counts["too late"] += 1
            return
        content = arrival.content
        self._effects.append(Deliver(entry.name, arrival.event, content.attributes, content.payload, age_ns, is_late))

    def _on_synced(self, token: int) -> None:
        raise AssertionError(f"a client stores nothing, so there is no sync {token}")


_FIFO: Final = Strategy.fifo()


def _unused_outbox(settings: ClientSettings) -> Outbox:
    """A client's outbox measures the link and keeps the credit; its events leave in the order they were published."""
    return Outbox(
        strategy=_FIFO,
        processing_s=0.0,
        window=settings.window,
        max_queued=1,
        retry_least_ns=settings.retry_least_ns,
        retry_most_ns=settings.retry_most_ns,
    )
