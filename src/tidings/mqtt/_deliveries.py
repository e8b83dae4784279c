"""Messages to the client of a session: numbered until it has confirmed them, and QoS 2 from our side.

- A delivery of QoS 1 or 2 gets a number at once. For a session that outlives its connection it is stored, and once that
  is durable it is acknowledged to the broker. A delivery of QoS 2 is sent after that, and so is its PUBREL.
- No events are taken from the broker while as many as the client's receive maximum are unconfirmed: they wait at the
  broker, where the deadline decides.
- A client that wants the latest of each key alone is given MOST_CONFLATED at a time: what it was given is replaced no
  more.
- A number is in use until PUBACK or PUBCOMP. When the client returns, unconfirmed messages are sent again, in order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidings.mqtt._copies import Copy, copy_of, restored
from tidings.mqtt._mapping import Message
from tidings.mqtt._packets import Ack, Kind, Reason
from tidings.mqtt._records import GIVEN, Outgoing, Subscription, key, pack

if TYPE_CHECKING:
    from tidings.mqtt._gateway import Gateway
    from tidings.mqtt._session import Session

__all__ = ["MOST_CONFLATED", "Deliveries"]

MOST_CONFLATED: Final = 16


class Deliveries:
    """The messages for a client."""

    def __init__(self, session: "Session", gateway: "Gateway") -> None:
        self.out: dict[int, Copy | None] = {}
        """Unconfirmed, by number; None if the client has released it, and only the number counts."""
        self.given: dict[str, int] = {}
        """Of the last messages of QoS 2: their identities, and where these are stored."""
        self.report: tuple[str, ...] = ()
        """What the client wants to know of each message."""
        self.most = gateway.settings.max_under_way
        """No more are unconfirmed, whatever the client's receive maximum."""
        self._session = session
        self._gateway = gateway
        self._places = 0
        self._last_id = 0
        self._unsent: list[int] = []
        self._sent: set[int] = set()
        self._is_paused = False

    def restart(self, report: tuple[str, ...]) -> None:
        """The client has a new connection to the broker, which is paused."""
        self.report, self._is_paused = report, True

    # -- what the client confirms ----------------------------------------------------------------------------------

    def receive(self, packet: Ack) -> None:
        number = packet.packet_id
        copy = self.out.get(number)
        if number not in self.out or (copy is not None and copy.qos != 2):
            self._session.acknowledge(Kind.PUBREL, number, Reason.PACKET_IDENTIFIER_NOT_FOUND)
        elif packet.reason >= Reason.UNSPECIFIED:
            self._end(number)
        else:
            self.out[number] = None
            self._sent.add(number)
            if not self._session.is_kept:
                self._session.acknowledge(Kind.PUBREL, number)
                return
            released = Outgoing(packet_id=number, qos=2, is_released=True)
            self._gateway.commits.store(key("out", self._session.client_id, number), pack(released))
            link = self._session.link
            self._gateway.commits.when_durable(
                lambda: self._session.acknowledge(Kind.PUBREL, number) if self._session.link is link else None
            )

    def complete(self, number: int) -> None:
        """PUBCOMP."""
        copy = self.out.get(number)
        if number in self.out and (copy is None or copy.qos == 2):
            self._end(number)

    def end(self, numbers: Sequence[int]) -> None:
        """PUBACK of these numbers."""
        for number in numbers:
            copy = self.out.get(number)
            if copy is not None and copy.qos == 1:
                self._remove(number)
        self._pump()

    def _end(self, number: int) -> None:
        self._remove(number)
        self._pump()

    def _remove(self, number: int) -> None:
        del self.out[number]
        self._sent.discard(number)
        if self._session.is_kept:
            self._gateway.commits.erase(key("out", self._session.client_id, number))

    # -- what it is given ------------------------------------------------------------------------------------------

    def give(
        self, subscription: Subscription, message: Message, *, retain: bool, is_late: bool, identity: str = ""
    ) -> None:
        """Give a message."""
        copy = copy_of(message, subscription, self.report, retain=retain, is_late=is_late)
        if not copy.qos:
            if self._session.link is not None:
                self._session.link.publish(copy, 0, self._gateway.now_ns)
            return
        number = self._enter(copy)
        if identity:
            self._remember(identity)
        if self._session.is_kept and copy.qos == 2:
            self._gateway.commits.when_durable(lambda: self._line_up(number, copy))
        else:
            self._line_up(number, copy)
        self.pause_if_full()

    def give_all(self, copies: Sequence[Copy]) -> None:
        """Give messages of QoS 0 and 1 that came together and are on time."""
        link, now_ns, sent = self._session.link, self._gateway.now_ns, self._sent
        assert link is not None
        room = 0 if self._unsent else link.receive_maximum - len(sent)
        packets: list[bytes] | None = [] if link.is_plain else None
        for copy in copies:
            number = 0
            if copy.qos:
                number = self._enter(copy)
                if room <= 0:
                    self._unsent.append(number)
                    continue
                room -= 1
                sent.add(number)
            if packets is None:
                if not link.publish(copy, number, now_ns) and number:
                    self._remove(number)  # as if it had been sent [MQTT-3.1.2-25]
                continue
            before, after = copy.packet(link.version, now_ns)
            packets.append(before)
            if number:
                packets += (number.to_bytes(2, "big"), after)
        if packets:
            link.send_plain(packets)
        self.pause_if_full()

    def _enter(self, copy: Copy) -> int:
        """The number of a message of QoS 1 or 2, which is in use from now on."""
        number = self._last_id
        while True:
            number = number % 0xFFFF + 1
            if number not in self.out:
                break
        self._last_id = number
        self.out[number] = copy
        if self._session.is_kept:
            commit = self._gateway.commits.store(key("out", self._session.client_id, number), pack(copy.record(number)))
            if self._session.member is not None:
                self._session.member.gate = commit
        return number

    def _line_up(self, number: int, copy: Copy) -> None:
        if self.out.get(number) is copy and number not in self._sent:
            self._unsent.append(number)
            self._pump()

    def _remember(self, identity: str) -> None:
        place = self._places
        self._places += 1
        self.given[identity] = place
        if self._session.is_kept:
            self._gateway.commits.store(key("given", self._session.client_id, place % GIVEN), pack((identity, place)))
        while len(self.given) > GIVEN:
            del self.given[next(iter(self.given))]

    def _pump(self) -> None:
        """Send as many messages as the client takes at once [MQTT-4.9.0-2]."""
        link, now_ns, sent = self._session.link, self._gateway.now_ns, self._sent
        while link is not None and self._unsent and len(sent) < link.receive_maximum:
            number = self._unsent.pop(0)
            copy = self.out.get(number)
            if copy is None or number in sent:
                continue
            if copy.is_over(now_ns):  # [MQTT-3.3.2-5]
                self._remove(number)
                continue
            sent.add(number)
            if not link.publish(copy, number, now_ns):
                self._remove(number)  # as if it had been sent [MQTT-3.1.2-25]
        self.pause_if_full()

    def send_again(self, now_ns: int) -> None:
        """The client is back: what it has not confirmed, under its number and in order [MQTT-4.4.0-1]; but nothing of
        QoS 1 whose time is over."""
        link, was_sent = self._session.link, self._sent
        assert link is not None
        self._unsent.clear()
        self._sent = set()
        for number, copy in list(self.out.items()):
            if copy is None:
                self._sent.add(number)
                self._session.acknowledge(Kind.PUBREL, number)
            elif copy.qos == 1 and copy.is_over(now_ns):
                self._remove(number)
            elif number in was_sent:
                self._sent.add(number)
                link.publish(copy, number, now_ns, dup=True)
            else:
                self._unsent.append(number)
        self._pump()

    def pause_if_full(self) -> None:
        """Take events from the broker only while the client takes them."""
        member, link = self._session.member, self._session.link
        if member is None or member.is_over:
            return
        most = 0 if link is None else min(link.receive_maximum, self.most)
        is_full = link is None or link.is_congested or bool(link.held) or len(self.out) >= most
        if is_full != self._is_paused and (is_full or len(self.out) <= most // 2):
            self._is_paused = is_full
            member.call(member.machine.pause if is_full else member.machine.resume, self._gateway.now_ns)
            self._gateway.stir(self._session)

    def restore(self, out: list[Outgoing], given: list[tuple[int, str]]) -> None:
        """Restore stored messages, and the identities of messages of QoS 2 that were given, in the order of places."""
        self.out = {message.packet_id: restored(message) for message in out}
        self._sent = set(self.out)  # nobody knows
        self.given = {identity: place for place, identity in given}
        self._places = given[-1][0] + 1 if given else 0
