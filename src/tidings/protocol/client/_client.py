"""A client: publisher and subscriber in one, attached to one home broker at a time (paper A at both ends).

- Requests and events are sent again until the home broker confirms them; what was confirmed is durable there. When the
  broker has started again, all requests are repeated: it may have lost unconfirmed ones.
- Every event is stamped (`ordering.Stamper`), with a publication record while the home broker reports that a subscriber
  wants the client's events in order. `_receiver` gives received events to the application.
- `pause` withdraws the credit: brokers keep the client's events, within their bounds, until `resume`.
- `move` changes the home broker, and so does a `Move` from the home broker; nothing is lost (`_migration`). While there
  are two, both may deliver. If the home broker stays away for `failover_ns`, the client moves on its own.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from tidings.ordering import Policy, Stamper
from tidings.protocol import wire
from tidings.protocol._effects import Effect, EventId
from tidings.protocol._errors import PeerError, RequestError, known_code
from tidings.protocol._filters import parsed
from tidings.protocol._machine import Bound, Machine, Sampler
from tidings.protocol._settings import ClientSettings
from tidings.protocol._states import ALLOWED, MoveState, PeerState, PeerStep
from tidings.protocol.client._acks import Acks
from tidings.protocol.client._bundle import Bundles
from tidings.protocol.client._early import EarlyEvent, EarlyEvents
from tidings.protocol.client._migration import Actions, Migration
from tidings.protocol.client._publisher import Publisher
from tidings.protocol.client._receiver import EventReceiver
from tidings.protocol.client._requests import Requests
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.links._peers import Outcomes, Peer
from tidings.protocol.links._window import SendLimits
from tidings.scheduling import Strategy

__all__ = ["Client"]

_HOMES: Final = 2
"""A client that moves gets events of two brokers."""
_ROOM_BYTES: Final = 8_192
"""What a frame holds besides attributes and payload: stamp, record, names."""


class Client(Machine):
    """One client; `bundles` are those of all clients of its process, if their broker is there too."""

    __slots__ = (  # there may be many in one process
        "_acks",
        "_bundles",
        "_early",
        "_is_known",
        "_is_paused",
        "_migration",
        "_publisher",
        "_receiver",
        "_requests",
        "_stamper",
        "epoch",
        "settings",
    )

    def __init__(self, settings: ClientSettings, bundles: Bundles | None = None) -> None:
        super().__init__(settings.name, max_refused=settings.max_refused)
        self.settings = settings
        self.epoch = settings.epoch
        """The epoch of this incarnation: later than any that its broker knows of, whatever the clocks show."""
        self._is_known = False  # whether a broker knows this epoch
        self._is_paused = False
        self._bundles = bundles
        self._stamper = Stamper(record=0)
        self._receiver = EventReceiver(
            settings, counts=self.counts, emit=self._emit, order_at=self._order_at, forget_at=self._forget_at
        )
        self._early = EarlyEvents(self._receiver.former, _HOMES * (settings.window + 1))
        self._acks = Acks(settings, send=self._send, answer_at=self._answer_at)
        self._requests = Requests(
            retry_least_ns=settings.retry_least_ns,
            retry_most_ns=settings.retry_most_ns,
            places=lambda: self._migration.places(),
            send=self._send,
            emit=self._emit,
            ask_at=self._ask_at,
        )
        self._publisher = Publisher(settings, send=self._send, emit=self._emit, retry_at=self._retry_at)
        self._migration = Migration(
            settings,
            brokers=self.brokers,
            requests=self._requests,
            publisher=self._publisher,
            actions=Actions(self._make_peer, self._let_go, self._send, self._emit, self._move_at),
        )

    @property
    def home(self) -> Peer | None:
        """The home broker."""
        return self._migration.home

    @property
    def is_moving(self) -> bool:
        """Whether it is moving, or a former home has not yet confirmed that it forgot the client."""
        return self._migration.state is not MoveState.AT_HOME or self._migration.leaving > 0

    # -- for applications ----------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[Effect]:
        """Start the client; it does nothing before it is connected."""
        self._now_ns = now_ns
        return self._finish()

    def advertise(self, name: str, filter: str, now_ns: int) -> list[Effect]:
        """Promise that all events published under this name match the filter."""
        _require_sendable(name, filter)
        parsed(filter)
        return self._request("advertise", name, filter, now_ns)

    def unadvertise(self, name: str, now_ns: int) -> list[Effect]:
        """Withdraw a promise."""
        return self._request("unadvertise", name, None, now_ns)

    def end(self) -> list[tuple[str, EventId]]:
        """Stop: the events that are held to restore order, by subscription."""
        return self._receiver.end()

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
        conflate: tuple[str, ...] = (),
    ) -> list[Effect]:
        """Subscribe to the events that match a filter; for `late_ns` after their deadline they are still wanted. With
        `conflate`, of those that wait with equal values of these attributes the latest alone."""
        terms: dict[str, Any] = {"max_delay_ns": max_delay_ns, "price": price, "late_ns": late_ns, "policy": policy}
        return self.subscribe_many([(name, filter)], now_ns, **terms, conflate=conflate)

    def subscribe_many(
        self,
        wanted: Sequence[tuple[str, str]],
        now_ns: int,
        *,
        max_delay_ns: int | None = None,
        price: float = 1.0,
        late_ns: int = 0,
        policy: Policy | None = None,
        conflate: tuple[str, ...] = (),
    ) -> list[Effect]:
        """Subscribe with many filters, by name, on the same terms; no request is made if one is invalid."""
        self._now_ns = now_ns
        for name, filter in wanted:
            _require_sendable(name, filter)
            parsed(filter)
        _require_key(conflate)
        record = None if policy is None else min(policy.record, wire.MAX_RECORD)
        for name, filter in wanted:
            entry = wire.Entry(name, filter, max_delay_ns, price, late_ns, record, conflate)
            self._receiver.add(entry, policy)
            self._requests.make("subscribe", name, entry, now_ns)
        self._take_early_soon()
        return self._finish()

    def unsubscribe(self, name: str, now_ns: int) -> list[Effect]:
        """End a subscription; events that are held to restore order are dropped."""
        self._drop(name)
        return self._request("unsubscribe", name, None, now_ns)

    def publish(
        self,
        attributes: Mapping[str, int | float | str | bool],
        now_ns: int,
        *,
        payload: bytes = b"",
        lifetime_ns: int | None = None,
        must_reach: bool = False,
        waits: bool = False,
    ) -> tuple[int, list[Effect]]:
        """Publish an event: its sequence number and the effects. RequestError when too many are unacknowledged.

        With `waits` it leaves with the next call of `send`, together with all that have waited. With `must_reach` it is
        refused while the broker of a receiver is out of reach.
        """
        self._now_ns = now_ns
        home = None if waits else self.home
        sequence = self._enter(attributes, payload, lifetime_ns, home, must_reach=must_reach)
        return sequence, self._finish()

    def publish_all(
        self, events: Iterable[tuple[Mapping[str, int | float | str | bool], bytes, int | None]], now_ns: int
    ) -> tuple[list[int | RequestError], list[Effect]]:
        """Publish events, each with its payload and lifetime: their sequence numbers, or why one is refused."""
        self._now_ns = now_ns
        found: list[int | RequestError] = []
        for attributes, payload, lifetime_ns in events:
            try:
                found.append(self._enter(attributes, payload, lifetime_ns, None))
            except RequestError as error:
                found.append(error)
        self._publisher.pump(self.home, now_ns)
        return found, self._finish()

    def _enter(
        self,
        attributes: Mapping[str, int | float | str | bool],
        payload: bytes,
        lifetime_ns: int | None,
        home: Peer | None,
        *,
        must_reach: bool = False,
    ) -> int:
        """The sequence number of an event, which departs now; RequestError if it is refused."""
        if len(self._publisher) >= self.settings.max_unacknowledged:
            raise RequestError(
                "full",
                f"{self.settings.max_unacknowledged} events of {self.name!r} wait for their broker: publish later",
            )
        most_ns = self.settings.max_lifetime_ns
        if lifetime_ns is not None and not 0 < lifetime_ns <= most_ns:
            raise RequestError(
                "lifetime", f"a lifetime of {lifetime_ns} ns: it must be from 1 to {most_ns}, or omitted"
            )
        encoded = wire.encode_plain(attributes)
        size_bytes = len(encoded) + len(payload)
        if size_bytes > self.settings.max_frame_bytes - _ROOM_BYTES:
            raise RequestError("too-long", f"an event of {size_bytes} bytes does not fit into a frame")
        stamp = self._stamper.stamp(attributes, self._now_ns)
        content = wire.encode_plain((msgspec.Raw(encoded), stamp.encode(), payload))
        self._publisher.add(stamp.sequence, content, lifetime_ns, home, self._now_ns, must_reach=must_reach)
        return stamp.sequence

    def send(self, now_ns: int) -> list[Effect]:
        """Send the published events that wait for this call."""
        self._now_ns = now_ns
        self._publisher.pump(self.home, now_ns)
        return self._finish()

    def move(self, broker: str, now_ns: int) -> list[Effect]:
        """Move to another home broker; `Moved` reports that it is done, `Failed` that the client stays."""
        self._now_ns = now_ns
        self._migration.ask(broker, now_ns)
        return self._finish()

    def pause(self, now_ns: int) -> list[Effect]:
        """Take no events for now."""
        return self._send_credit(paused=True, now_ns=now_ns)

    def resume(self, now_ns: int) -> list[Effect]:
        """Take events again."""
        return self._send_credit(paused=False, now_ns=now_ns)

    def note_admission(self, brokers: Iterable[str], last_epoch: int) -> None:
        """A broker has admitted this client. If the clock was set back, the epoch is raised above the last one."""
        super().note_admission(brokers, last_epoch)
        if not self._is_known and last_epoch > self.epoch:
            self.epoch = self._publisher.epoch = last_epoch + 1

    def leave(self, now_ns: int) -> list[Effect]:
        """The application is about to stop: acknowledge all its events, so that no broker keeps them."""
        self._now_ns = now_ns
        self._acks.flush(self._credit(), now_ns, hurry=True)
        return self._finish()

    def bounds(self) -> Mapping[str, Bound]:
        """Everything that could grow, with its bound."""
        return {
            "unacknowledged": (len(self._publisher), self.settings.max_unacknowledged),
            "under way": (self._publisher.under_way, self.settings.window + 1),
            "seen": (self._receiver.seen, self.settings.max_seen),
            "leaving": (self._migration.leaving, self.settings.max_leaving + 1),
            "early": (len(self._early), self._early.most),
        }

    def _request(self, kind: str, name: str, what: Any, now_ns: int) -> list[Effect]:
        self._now_ns = now_ns
        self._requests.make(kind, name, what, now_ns)
        return self._finish()

    def _ask_at(self, at_ns: int) -> None:
        self._agenda.advance(("requests",), at_ns)

    def _retry_at(self, at_ns: int) -> None:
        self._agenda.advance(("retry",), at_ns)

    def _move_at(self, at_ns: int) -> None:
        self._agenda.advance(("move",), at_ns)

    def _order_at(self, name: str, at_ns: int) -> None:
        self._agenda.advance(("order", name), at_ns)

    def _answer_at(self, at_ns: int) -> None:
        self._agenda.advance(("answer",), at_ns)

    def _forget_at(self, at_ns: int) -> None:
        self._agenda.advance(("seen",), at_ns)

    # -- connections ---------------------------------------------------------------------------------------------

    def _on_connected(self, connection: str) -> None:
        if self._by_connection.get(connection) is None and connection in self._by_connection:
            self._send_over(connection, self._hello(self._versions[connection]))
            self._agenda.set(("greet", connection), self._now_ns + self.settings.greet_ns)

    def _hello(self, version: int) -> wire.Hello:
        return wire.Hello(version, self.name, "client", self.epoch, self._credit(), self._now_ns)

    def _welcome(self, hello: wire.Hello) -> wire.Welcome:
        own = (hello.version, self.name, "client", self.epoch, self._credit())
        return wire.Welcome(*own, self._now_ns, hello.clock_ns)

    def _credit(self) -> int:
        return 0 if self._is_paused else self.settings.window

    def _send_credit(self, *, paused: bool, now_ns: int) -> list[Effect]:
        self._now_ns = now_ns
        self._is_paused = paused
        for peer in self._migration.peers():
            if peer.is_up:
                self._send(peer, wire.Credit(self._credit()))
        return self._finish()

    def _on_disconnected(self, peer: Peer) -> None:
        peer.connection = None
        self._acks.forget(peer)
        peer.step(PeerStep.DISCONNECTED)
        self._migration.check(self._now_ns)
        self._fail_over()

    def _make_peer(self, name: str) -> Peer:
        return Peer(name, "broker", _unused_outbox(self.settings))

    def _let_go(self, peer: Peer) -> None:
        """The client is done with this broker."""
        self._acks.forget(peer)
        self._early.forget(peer)
        self._agenda.cancel(("silence", peer.name))
        if peer.connection is not None:
            self._by_connection.pop(peer.connection, None)

    def _answers_errors(self, connection: str) -> bool:  # noqa: ARG002
        return False

    def _on_frame(self, connection: str, frame: bytes | wire.Parts) -> None:
        message: wire.Message | wire.Parts
        if isinstance(frame, wire.Parts):
            message = frame
        elif len(frame) > self.settings.max_frame_bytes:
            raise PeerError(
                "too-long", f"a frame of {len(frame)} bytes: at most {self.settings.max_frame_bytes} allowed"
            )
        else:
            message = wire.decode(frame)
        if type(message) is wire.Hello or type(message) is wire.Welcome:
            self._on_greeting(connection, message)
            return
        source = self._by_connection.get(connection)
        if source is None or not source.is_up:
            if not isinstance(message, wire.Error):
                self._send_over(connection, self._hello(self._versions[connection]))
            return
        if type(message) not in _ALLOWED and type(message) is not wire.Parts:
            raise PeerError("not-allowed", f"a broker may not send {type(message).__name__} to a client")
        source.heard_ns = self._now_ns
        self._on_message(source, message)
        self._migration.check(self._now_ns)

    def _on_message(self, source: Peer, message: wire.Message | wire.Parts) -> None:
        match message:
            case wire.Parts():
                if not self._take_together(source, message):
                    self._on_transfer(source, message.message(), left_ns=message.sent_ns)
            case wire.Transfer():
                self._on_transfer(source, message)
            case wire.Ack():
                self._publisher.on_ack(source, message, self.home, self._now_ns)
            case wire.Credit():
                source.outbox.credit = message.credit
                self._publisher.pump(self.home, self._now_ns)
            case wire.Ping():
                self._on_ping(source, message)
            case wire.Done():
                self._requests.on_done(source, message, self._now_ns)
            case wire.Error():
                self._on_error(source, message)
            case wire.Move():
                self._on_move(source, message)
            case wire.MigrationComplete():
                self._migration.on_complete(source, message, self._now_ns)

    def _on_ping(self, source: Peer, message: wire.Ping) -> None:
        """Answer, and learn the broker's measurements."""
        if message.rtt_ns:
            source.meter.note_round_trip(message.rtt_ns)
        source.meter.read_ping(message, self._now_ns)
        if source is self.home:
            self._stamper.record = message.record
        # Acknowledge first: the next incarnation would be given unacknowledged events, and report them again.
        self._acks.flush(self._credit(), self._now_ns, hurry=True)
        self._send(source, wire.Pong(message.sent_ns, self._now_ns, source.outcomes.news()))

    def _on_error(self, source: Peer, message: wire.Error) -> None:
        self.counts[f"told {known_code(message.code)}"] += 1
        if source is self._migration.target and message.kind:
            self._migration.call_off(message.code, message.text, self._now_ns)
        elif source is not self.home:
            return  # a former home
        elif message.kind == "publish":
            self._publisher.on_error(message, source, self._now_ns)
        elif self._requests.on_error(message) and message.kind == "subscribe":
            self._drop(message.request)

    def _drop(self, name: str) -> None:
        """Forget a subscription."""
        self._receiver.drop(name)
        self._take_early_soon()
        self._agenda.cancel(("order", name))
        for peer in self._migration.peers():
            peer.outcomes.drop(name)

    def _on_move(self, source: Peer, message: wire.Move) -> None:
        """The home broker has found a better place."""
        if source is not self.home or message.target == source.name:
            return
        if not self.settings.may_be_moved:
            self._migration.report(source, wire.Moving(message.target, "called off", "the client stays where it is"))
            return
        try:
            self._migration.ask(message.target, self._now_ns)
        except RequestError as error:
            self.counts[f"not moved: {error.code}"] += 1
            self._migration.report(source, wire.Moving(message.target, "called off", error.code))

    def _on_greeting(self, connection: str, greeting: wire.Hello | wire.Welcome) -> None:
        if greeting.kind != "broker":
            raise PeerError("not-allowed", "a client is greeted by brokers only")
        self._require_version(connection, greeting)
        peer = self._migration.peer(greeting.name)
        if peer is None:
            if self.home is not None and self.home.connection is not None:
                raise PeerError("unknown", f"{self.name!r} is at home at {self.home.name!r}, not at {greeting.name!r}")
            peer = self._make_peer(greeting.name)
            self._migration.adopt(peer, self._now_ns)
        if greeting.epoch < peer.epoch:
            return
        was_up = peer.is_up
        if not self._is_known:
            self._agenda.set(("settle",), self._now_ns + self.settings.settle_ns)
        self._is_known = True
        peer.connection, peer.version = connection, greeting.version
        peer.outbox.is_congested = connection in self._congested
        self._by_connection[connection] = peer
        if peer.state is PeerState.AWAY:
            peer.step(PeerStep.CONNECTED)
        peer.step(PeerStep.GREETED)
        peer.heard_ns = self._now_ns
        peer.outbox.credit = greeting.credit
        is_new = peer.greet(greeting.epoch)
        if is_new:
            self._early.forget(peer)
            peer.outcomes = Outcomes()
            peer.outcomes.is_traced = Sampler(greeting.sample) if greeting.sample else None
            peer.meter.forget_clock()
        if isinstance(greeting, wire.Hello):
            self._send_over(connection, self._welcome(greeting))
        else:
            peer.meter.read_greeting(greeting, self._now_ns)
        if not is_new and (isinstance(greeting, wire.Hello) or not was_up):
            # It has not read what was sent while one of the two took the other for lost.
            peer.outcomes.repeat()
            self._acks.take(peer, (), peer.inbox.acknowledged(), self._now_ns)
        if is_new or not was_up:
            self._migration.greeted(peer, self._now_ns, is_new=is_new)
        if not was_up:
            self._agenda.set(("silence", peer.name), self._now_ns + self.settings.silence_ns)
            if peer is self.home:
                self._publisher.hasten(self._now_ns)
            self._ask_at(self._now_ns)

    def _on_uncongested(self, peer: Peer) -> None:
        if peer is self.home:
            self._publisher.resend(peer, self._now_ns)

    # -- time ----------------------------------------------------------------------------------------------------

    def _on_task(self, task: Hashable) -> None:
        match task:
            case ("greet", connection):
                self._on_connected(str(connection))
            case ("silence", name):
                self._listen(self._migration.peer(str(name)))
            case ("retry",):
                self._publisher.resend(self.home, self._now_ns)
                self._migration.check(self._now_ns)
            case ("requests",):
                self._requests.ask_again(self._now_ns)
            case ("move",):
                self._migration.on_time(self._now_ns)
            case ("failover",):
                self._fail_over()
            case ("order", name):
                self._receiver.restore_order(str(name), self._now_ns)
            case ("answer",):
                pass  # every step ends with it
            case ("seen",):
                self._receiver.forget_old(self._now_ns)
            case ("settle",):
                self._receiver.settle()
                self._take_early()
            case ("early",):
                self._take_early()

    def _fail_over(self) -> None:
        """Check whether the home broker is away, and for how long."""
        was_there = self._migration.state is MoveState.AT_HOME
        again_ns = self._migration.fail_over(self._now_ns)
        if was_there and self._migration.state is not MoveState.AT_HOME:
            self.counts["failover"] += 1
        if again_ns is not None:
            self._agenda.set(("failover",), again_ns)

    def _listen(self, peer: Peer | None) -> None:
        """Check whether the broker is still heard; if not, greet it until it answers."""
        if peer is None or peer.connection is None:
            return
        task = ("silence", peer.name)
        if peer.is_up and self._now_ns - peer.heard_ns >= self.settings.silence_ns:
            peer.step(PeerStep.SILENT)
            self._migration.check(self._now_ns)
            self._fail_over()
        if peer.is_up:
            self._agenda.set(task, peer.heard_ns + self.settings.silence_ns)
        else:
            self._send(peer, self._hello(peer.version))
            self._agenda.set(task, self._now_ns + self.settings.greet_ns)

    def _take_together(self, source: Peer, parts: wire.Parts) -> bool:
        """Take events of a broker in this process all at once; whether that was possible: they are new, valid, on time,
        not traced, and for one subscription without order."""
        if self._bundles is None or parts.session != source.epoch or self._early or source.outcomes.is_traced:
            return False
        many, targets = len(parts.events), parts.targets[0]
        names = _names_in(targets)
        if len(names) != 1 or self._receiver.former(names) or (many > 1 and parts.targets.count(targets) != many):
            return False
        new, _ = source.inbox.look(parts.number, many, parts.floor)
        bundle = self._bundles.of(parts)
        if type(new) is not range or bundle is None:
            return False
        if not self._receiver.take_together(source.outcomes, names[0], bundle, self._now_ns):
            return False
        self.events_in += many
        source.inbox.take_at_once(new)
        self._acks.take(source, new, (), self._now_ns, ease_ns=parts.ease_ns)
        return True

    def _on_transfer(self, source: Peer, message: wire.Transfer, *, left_ns: int | None = None) -> None:
        """Take events; an invalid one is refused alone, and not requested again. `left_ns`: when the frame left, if
        that is known."""
        if message.session != source.epoch:
            return
        if self._early:
            self._take_early()
        self.events_in += len(message.events)
        new, done = source.inbox.look(message.number, len(message.events), message.floor)
        if left_ns is None:
            left_ns = source.meter.left_ns(message.sent_ns, self._now_ns)
        link_ns = source.meter.error_ns(self._now_ns)
        early: set[int] = set()
        for number in new:
            place = number - message.number
            event, targets = message.events[place], message.targets[place]
            former = self._receiver.former(targets)
            if former:
                early.add(number)
                if self._early.has(source, number):
                    continue
                if not self._early.add(EarlyEvent(source, source.epoch, number, event, former, left_ns, link_ns)):
                    continue
                targets = {name: terms for name, terms in targets.items() if name not in former}
            self._take(source, event, targets, left_ns, link_ns)
        if early:
            self.counts["early"] += len(early)
            new = [number for number in new if number not in early]
        if new:
            source.inbox.take(new)
            source.inbox.acknowledge(new)
        self._acks.take(source, new, done, self._now_ns, ease_ns=message.ease_ns)

    def _take(
        self, source: Peer, event: wire.Event, targets: Collection[str], left_ns: int, link_ns: int | None
    ) -> None:
        """Take one event for these subscriptions, or refuse it."""
        try:
            self._receiver.take(source, event, targets, left_ns, link_ns, self._now_ns)
        except PeerError as error:
            self.refused[error.code] += 1
            for name in targets:
                source.outcomes.of(name).discarded += 1

    def _take_early_soon(self) -> None:
        """Take what has come for a subscription before it was made or ended, when the application has returned."""
        if self._early:
            self._agenda.set(("early",), self._now_ns)

    def _take_early(self) -> None:
        """Take the events that wait for no subscription any more."""
        for each, names, is_all in self._early.ready():
            source = each.source
            new, _ = source.inbox.look(each.number, 1, 0)
            if not new:
                continue  # the broker has given it up
            self._take(source, each.event, names, each.left_ns, each.link_ns)
            if is_all:
                source.inbox.take(new)
                source.inbox.acknowledge(new)
                if source.is_up:
                    self._acks.take(source, new, (), self._now_ns)

    def _finish(self) -> list[Effect]:
        if self._publisher.is_stirred:
            self._publisher.flush(self.home, self._now_ns)
        if self._acks:
            # A moving client acknowledges everything: the rest would be sent after it.
            hurry = self._migration.state is not MoveState.AT_HOME
            self._acks.flush(self._credit(), self._now_ns, hurry=hurry)
        if self._receiver.given:
            self._report_given()
        return super()._finish()

    def _report_given(self) -> None:
        """Report to tracing brokers which events the application was given."""
        self._receiver.given = False
        for peer in self._migration.peers():
            given, peer.outcomes.given = peer.outcomes.given, []
            for begin in range(0, len(given), wire.MAX_BATCH):
                self._send(peer, wire.Given(tuple(given[begin : begin + wire.MAX_BATCH])))

    def _on_synced(self, token: int) -> None:
        raise AssertionError(f"a client stores nothing, so there is no sync {token}")


_ALLOWED: Final = ALLOWED["client", "broker"]
_FIFO: Final = Strategy.fifo()


@lru_cache(maxsize=1_024)
def _names_in(targets: bytes) -> tuple[str, ...]:
    """The subscriptions that an event is for, as a transfer contains them."""
    return tuple(msgspec.msgpack.decode(targets))


def _require_sendable(name: str, filter: str) -> None:
    """RequestError if no message can contain a name or a filter: the broker could not name what it refuses."""
    if not 0 < len(name) <= wire.MAX_NAME:
        raise RequestError("name", f"a name of {len(name)} characters: from 1 to {wire.MAX_NAME} are allowed")
    if len(filter) > wire.MAX_FILTER:
        raise RequestError(
            "too-long",
            f"the filter of {name!r} has {len(filter)} characters; the limit is {wire.MAX_FILTER}: "
            "shorten it, or split it into several",
        )


def _require_key(attributes: tuple[str, ...]) -> None:
    """RequestError if no message can contain these names of attributes."""
    if len(attributes) > wire.MAX_CONFLATED:
        raise RequestError("name", f"a key of {len(attributes)} attributes: at most {wire.MAX_CONFLATED} are allowed")
    for name in attributes:
        if not 0 < len(name) <= wire.MAX_NAME:
            raise RequestError("name", f"an attribute of {len(name)} characters: from 1 to {wire.MAX_NAME} are allowed")


def _unused_outbox(settings: ClientSettings) -> Outbox:
    """An outbox that only measures the link and keeps the credit: a client's events leave in the order of
    publication."""
    limits = SendLimits(
        window=settings.window, retry_least_ns=settings.retry_least_ns, retry_most_ns=settings.retry_most_ns
    )
    return Outbox(limits, strategy=_FIFO, processing_s=0.0, max_queued=1)
