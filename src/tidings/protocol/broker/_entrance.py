"""How events come in: each is taken on once, and acknowledged when it is durable and its next hops are known.

An event that cannot be taken on is not acknowledged, and arrives again: any event while the store is full, and events
of clients while the broker does not know the subscriptions elsewhere. An event that must not be taken on is refused,
with the reason to its publisher.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidings.errors import EventError
from tidings.protocol import wire
from tidings.protocol._errors import PeerError
from tidings.protocol._names import broker_of
from tidings.protocol._settings import BrokerSettings
from tidings.protocol._trace_context import TraceContext, context_in
from tidings.protocol.broker._carrier import Carrier
from tidings.protocol.broker._courses import Course
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._ledgers import UNAUDITED
from tidings.protocol.broker._registry import Registry
from tidings.protocol.links._outbox import FAR
from tidings.protocol.links._peers import Peer, Ports, ranges
from tidings.protocol.relocation._coordinator import Coordinator

__all__ = ["Entrance"]


class Entrance:
    """The entrance of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        carrier: Carrier,
        registry: Registry,
        coordinator: Coordinator,
        ports: Ports,
        deny: Callable[[Peer, str, str, int, PeerError, TraceContext | None], None],
        when_durable: Callable[[tuple[Any, ...]], None],
    ) -> None:
        self._settings = settings
        self._carrier = carrier
        self._registry = registry
        self._coordinator = coordinator
        self._send = ports.send
        self._deny = deny
        self._note = ports.note
        self._choice = ports.choice
        self._count = ports.count
        self._when_durable = when_durable
        self._relocates = settings.relocation != "off"
        self.published = 0
        """Events of clients that were accepted."""
        self._taken: list[tuple[Any, ...]] = []
        self._acks: dict[Peer, tuple[list[tuple[int, int]], int]] = {}

    def credit(self, kind: str) -> int:
        """How many events a peer of this kind may have under way: none when the store is nearly full."""
        hops = 0 if kind == "client" else FAR
        if self._carrier.room_bytes(hops) <= 0:
            return 0
        return min(self._settings.window, max(self._carrier.room(hops) - self._settings.window, 0))

    @property
    def is_stirred(self) -> bool:
        """Whether this step has something to acknowledge, now or once it is durable."""
        return bool(self._taken or self._acks)

    def send_credit(self, peer: Peer) -> None:
        """Let a peer that was held back send more."""
        if peer.is_up and peer.credit_sent < self._settings.window:
            credit = self.credit(peer.kind)
            if credit > peer.credit_sent:
                peer.credit_sent = credit
                self._send(peer, wire.Credit(credit))

    def transfer(self, source: Peer, message: wire.Transfer, now_ns: int) -> None:
        """Take on events of a neighbour; the first invalid one ends it, and the rest is not taken on.

        An event for which there is no room holds back its publisher's later ones, and no others: they may have come
        further.
        """
        taken: list[int] = []
        left_ns, most_ns = source.meter.left_ns(message.sent_ns, now_ns), self._settings.max_lifetime_ns
        link_ns = self._link_error_ns(source, now_ns)
        source.meter.note_transit(now_ns - left_ns)
        sure, sure_bytes = self._carrier.room(0), self._carrier.room_bytes(0)
        refused: set[str] = set()
        try:
            for number in self._news(source, message):
                event, targets = message.events[number - message.number], message.targets[number - message.number]
                sure, sure_bytes = sure - 1, sure_bytes - len(event.content)
                if event.publisher in refused or (min(sure, sure_bytes) < 0 and not self._has_room(event)):
                    self._count("no room")
                    refused.add(event.publisher)
                    continue
                if not wire.is_sound(event.content, event.check):
                    # Its sender has no sound copy, and would repeat it for ever. Subscribers' accounts show the loss.
                    self._count("damaged")
                    taken.append(number)
                    continue
                since_ns, lifetime_ns = (
                    self._since_ns(event, left_ns, now_ns),
                    min(event.lifetime_ns or most_ns, most_ns),
                )
                error_ns = None
                if link_ns is not None and event.error_ns is not None:
                    error_ns = min(event.error_ns + link_ns, wire.LONGEST_NS)
                self._carrier.transfer(source.name, event, targets, since_ns, lifetime_ns, error_ns, now_ns)
                taken.append(number)
        finally:
            self._take(source, taken, now_ns)

    def _has_room(self, event: wire.Event) -> bool:
        """Whether an event of a neighbour can be taken on; one that is held anyhow takes no more room."""
        carrier, hops = self._carrier, event.hops + 1
        return (carrier.room(hops) > 0 and carrier.room_bytes(hops) > 0) or (
            (event.publisher, event.epoch, event.sequence) in carrier.holdings.held
        )

    def publish(self, source: Peer, message: wire.Publish, now_ns: int) -> None:
        """Take on events of a client; refused ones are not acknowledged, but their publisher gets the reason."""
        carrier, own, most_ns = self._carrier, self._settings.name, self._settings.max_lifetime_ns
        name, epoch, first, events = source.name, source.epoch, message.number, message.events
        is_checked = source.rights is not None or self._registry.checks(name)
        find, decode, choice = carrier.courses.finder(), wire.decode_attributes, self._choice
        is_recorded = choice.is_recorded
        left_ns = source.meter.left_ns(message.sent_ns, now_ns)
        sure, sure_bytes = carrier.room(0), carrier.room_bytes(0)
        period = UNAUDITED if message.is_again else carrier.accounts.period()
        error_ns, is_whole = self._link_error_ns(source, now_ns), carrier.router.is_whole
        taken: list[int] = []
        for number in self._news(source, message):
            event = events[number - first]
            sure_bytes -= len(event.content)
            if (len(taken) >= sure and not carrier.room(0)) or (sure_bytes < 0 and carrier.room_bytes(0) <= 0):
                self._count("no room")
                break
            lifetime_ns = event.lifetime_ns or most_ns
            if lifetime_ns > most_ns:
                lifetime_ns = most_ns
            try:
                attributes = decode(event.content, event.check)
                if is_checked:
                    lifetime_ns = self._checked_ns(source, attributes, event.lifetime_ns)
                course = find(attributes, lifetime_ns)
                if event.must_reach:
                    self._require_reach(course)
                if not is_whole:
                    carrier.router.require_room(course, len(event.content), now_ns)
            except (EventError, PeerError) as error:
                self._refuse(source, event, number, error)
                continue
            if course.record is not None and course.record > source.record:
                source.record = course.record
            taken.append(number)
            id = (name, epoch, event.sequence)
            is_noted = is_recorded(id) or (choice.spans and choice.published_has_spans(id, attributes))
            if is_noted or self._relocates or not course.is_unwanted:
                since_ns = self._since_ns(event, left_ns, now_ns)
                # By this broker's clock from here on, unless clocks are synchronised: a publisher's may show anything.
                departure_ns = event.departure_ns if self._settings.synchronised_clocks else since_ns
                facts = (departure_ns, since_ns, lifetime_ns, event.size_bytes)
                held = Held(id, own, *facts, 0, event.content, course, is_noted, error_ns)
                held.period, held.check = period, event.check
                self._accept(held, event, number, now_ns)
        if taken:
            self.published += len(taken)
            source.published += len(taken)
            source.course = course
        self._take(source, taken, now_ns)

    def _accept(self, held: Held, publication: wire.Publication, number: int, now_ns: int) -> None:
        """Send a client's event straight on, if all receivers are connected and still want it; otherwise hold it by
        itself.

        So is one that another broker may have accepted and report too. If nobody wants the event, it is done, unless it
        is traced.
        """
        carrier, course = self._carrier, held.course
        if held.is_noted:
            arrival = held.arrival() if self._choice.spans else None
            times_ns = (held.since_ns, held.departure_ns)
            self._note("accepted", held, "", number, (), publication, *times_ns, arrival)
        trace = self._coordinator.tag(held, now_ns) if self._relocates else None
        if course.is_unwanted and trace is None:
            return
        if carrier.holdings.unread:
            carrier.read_first(held.id, now_ns)
        is_simple = course.exits is not None and trace is None and held.since_ns + course.soonest_ns > now_ns
        is_known, is_audited = held.id in carrier.holdings.held, held.period != UNAUDITED
        if course.names and is_audited and not is_known:
            carrier.accounts.accepted(course, held.period)
        if is_simple and is_audited and not is_known:
            carrier.straight.add(held)
            return
        if course.record is not None:
            carrier.straight.send(now_ns)  # what this event must not overtake
        carrier.keep(held, now_ns, trace)

    def _since_ns(self, event: wire.Publication | wire.Event, left_ns: int, now_ns: int) -> int:
        """An event's departure on this broker's clock: its age when its frame left, at `left_ns` of the same clock."""
        if self._settings.synchronised_clocks:
            return min(event.departure_ns, now_ns)
        return left_ns - event.age_ns

    def _link_error_ns(self, source: Peer, now_ns: int) -> int | None:
        """The error that a link adds to ages, at most; None if unknown, as with clocks that are synchronised by
        others."""
        return None if self._settings.synchronised_clocks else source.meter.error_ns(now_ns)

    def _checked_ns(self, source: Peer, attributes: Mapping[str, Any], asked_ns: int | None) -> int:
        """How long an event may live; PeerError if the client may not publish it, or has not advertised it."""
        name, rights, most_ns = source.name, source.rights, self._settings.max_lifetime_ns
        lifetime_ns = min(asked_ns or most_ns, most_ns)
        if rights is not None:
            lifetime_ns = rights.lifetime_ns(name, attributes, asked_ns, most_ns)
        if self._registry.checks(name):
            self._registry.require_advertised(name, attributes)
        return lifetime_ns

    def _require_reach(self, course: Course) -> None:
        """PeerError if an event of this course would have to wait for a broker."""
        away = sorted({broker_of(target) for target in course.targets if not self._carrier.router.reaches(target)})
        if away:
            raise PeerError("unreachable", f"out of reach: {', '.join(away)}; without `require` the event waits for it")

    def _refuse(self, source: Peer, event: wire.Publication, number: int, error: EventError | PeerError) -> None:
        code = error.code if isinstance(error, PeerError) else "content"
        why = PeerError(code, str(error))
        self._deny(source, "publish", str(event.sequence), number, why, context_in(event.content))

    def acknowledge(self, peer: Peer, epoch: int, numbers: Sequence[int], held_ns: int) -> None:
        """Acknowledge durable events, if their sender still has the same epoch."""
        if peer.epoch == epoch:
            peer.inbox.acknowledge(numbers)
            self._acknowledge(peer, numbers, held_ns)

    def acknowledge_again(self, peer: Peer) -> None:
        """Repeat acknowledgements on a new connection: they may have been lost with the old one."""
        done = peer.inbox.acknowledged()
        if done:
            self._acknowledge(peer, done, 0)

    def flush(self) -> None:
        """Have the events of this step acknowledged once they are durable, and send the acknowledgements that are due,
        one to each peer."""
        taken, self._taken = self._taken, []
        for what in taken:
            self._when_durable(what)
        acks, self._acks = self._acks, {}
        for peer, (numbers, held_ns) in acks.items():
            peer.credit_sent = self.credit(peer.kind)
            for begin in range(0, len(numbers), wire.MAX_BATCH):
                some = tuple(numbers[begin : begin + wire.MAX_BATCH])
                self._send(peer, wire.Ack(peer.epoch, some, held_ns, peer.credit_sent))

    def _news(self, source: Peer, message: wire.Transfer | wire.Publish) -> Sequence[int]:
        """The numbers that have to be taken on; the others are acknowledged again."""
        if message.session != source.epoch:
            return ()
        new, done = source.inbox.look(message.number, len(message.events), message.floor)
        if done:
            self._acknowledge(source, done, 0)
        return new

    def _take(self, source: Peer, numbers: list[int], now_ns: int) -> None:
        if numbers:
            source.inbox.take(numbers)
            self._taken.append(("ack", source, source.epoch, numbers, now_ns))

    def _acknowledge(self, peer: Peer, numbers: Sequence[int], held_ns: int) -> None:
        """Acknowledge at the end of this step."""
        if peer.is_up:
            known = self._acks.get(peer)
            before = [] if known is None else known[0]
            self._acks[peer] = (before + ranges(numbers), max(held_ns, 0))
