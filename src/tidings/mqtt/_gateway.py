"""The gateway: MQTT connections on one side, clients of the broker on the other, without I/O.

Bytes of sockets and pipes, results of the disk, and the time come in; effects come out, as from a node: `Write`, `Shut`
and `Read` for sockets and pipes (distinguished by name), `Pipe` for a new pipe to the broker, `Commit` for the
gateway's own store, `SetTimer`. `tidings.live` carries them out.

- Each MQTT client is a client of the broker (`_member`): it is admitted by its token or certificate (`_admission`)
  before its session is touched.
- A session (`_session`) may outlive its connection and, if it is kept, the process. While its client is away it has no
  member: the broker keeps events for it, in the order of deadlines.
- The gateway has a store of its own (`_commits`), for sessions and retained messages.
- Every member of a shared subscription gets the event from the broker, and one of the connected ones is chosen, in
  turn. A group is within one broker.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import msgspec

from tidings.mqtt._admission import (
    REFUSALS,
    Attempt,
    asked_expiry_s,
    client_id_of,
    credentials_of,
    retaining_client,
)
from tidings.mqtt._commits import Commits, read_kept
from tidings.mqtt._copies import Shares, copy_of
from tidings.mqtt._deliveries import Deliveries
from tidings.mqtt._link import TOPIC_ALIASES, Link
from tidings.mqtt._mapping import Message, read_event
from tidings.mqtt._member import Member
from tidings.mqtt._packets import Connect, PacketError, Reason
from tidings.mqtt._publications import TOLERANCE
from tidings.mqtt._records import NEVER, Subscription
from tidings.mqtt._retained import RETAINED_FILTER, Retained
from tidings.mqtt._session import Session
from tidings.protocol import (
    Bundle,
    Bundles,
    ClientSettings,
    Deliver,
    DeliverTogether,
    EventId,
    Failed,
    SetTimer,
)
from tidings.protocol.node import Commit, Credentials, NodeEffect, Opened, Read, Report, Shut, Write, kinds_of

__all__ = ["Gateway", "GatewaySettings", "Pipe"]

_SECOND: Final = 1_000_000_000
CONNECT_NS: Final = 5 * _SECOND
"""How long a connection may take to send CONNECT and be admitted."""
FAREWELL_NS: Final = 5 * _SECOND
"""How long the broker may take to confirm a client's last requests."""
MAX_MESSAGES: Final = 1_024
"""How many events are cached as messages: one for many clients is decoded once."""
MAX_CHOICES: Final = 100_000
"""How many events of shared subscriptions are remembered with their receivers."""
WINDOW: Final = 64
"""How many events are taken from the broker before they are acknowledged. Events that a client does not take wait at
the broker, where the deadline decides what is next."""
UNREAD_BYTES: Final = 1_000_000
UNSENT_BYTES: Final = 1_000_000
"""How much may wait for the commit of a session whose client has connected; a client with more is disconnected."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a gateway."""

    broker: str
    has_tokens: bool = False
    """Whether a password is a token; otherwise it is the secret that a name is bound to."""
    retaining_token: str | None = None
    """The token of the client that collects retained messages, in a network with tokens."""
    json_topics: tuple[str, ...] = ()
    max_packet_bytes: int = 1_000_000
    max_lifetime_ns: int = 600 * _SECOND
    max_session_s: int = 600
    """The broker forgets a client that is away for longer."""
    receive_maximum: int = 128
    max_under_way: int = 128
    """The most messages of QoS 1 and 2 under way to a client, if its receive maximum allows."""
    max_retained: int = 10_000
    max_retained_bytes: int = 64_000_000
    max_connections: int = 10_000


class Pipe(msgspec.Struct, frozen=True, gc=False):
    """Open a connection to the broker inside the process, on behalf of an address and a certificate."""

    name: str
    address: str
    certified: tuple[str, ...]


GatewayEffect = NodeEffect | Pipe


class _Collector:
    """Collects retained messages."""

    def __init__(self, gateway: "Gateway") -> None:
        self.gateway = gateway

    def on_admitted(self) -> None:
        """Continue to collect."""

    def on_refused(self, code: str, why: str) -> None:
        self.gateway.report("warning", "retained messages are not collected", why=f"{code}: {why}")

    def on_deliver(self, effect: Deliver) -> None:
        self.gateway.retained.put(
            effect.attributes, effect.payload, effect.age_ns, effect.event[0], self.gateway.now_ns
        )
        self.gateway.gate_collector()

    def on_deliver_together(self, effect: DeliverTogether) -> None:
        now_ns = self.gateway.now_ns
        for event, content, since_ns, _ in effect.bundle.events:
            self.gateway.retained.put(content.attributes, content.payload, now_ns - since_ns, event[0], now_ns)
        self.gateway.gate_collector()

    def on_confirmed(self, kind: str, name: str) -> None:
        """The machine repeats its requests by itself."""

    def on_failed(self, effect: Failed) -> None:
        self.gateway.report("warning", "retained messages are not collected", why=f"{effect.code}: {effect.message}")


class Gateway:
    """All MQTT clients of one broker. `found` is the contents of its store; `chance` draws numbers from 0 to 1."""

    def __init__(self, settings: GatewaySettings, *, chance: Callable[[], float], found: Opened | None = None) -> None:
        self.settings = settings
        self.now_ns = 0
        self.commits = Commits()
        self.life = 0
        """Unique to this process; part of the identities of messages."""
        self.identities = count(1)
        """The numbers of messages of QoS 2 that have come in this process."""
        self.sessions: dict[str, Session] = {}
        self.links: dict[str, Link] = {}
        self.counts = {"connected": 0, "refused": 0}
        self.retained = Retained(
            max_messages=settings.max_retained,
            max_bytes=settings.max_retained_bytes,
            store=self.commits.store,
            erase=self.commits.erase,
        )
        self.bundles = Bundles(settings.max_lifetime_ns)
        self._chance = chance
        self._found = found
        self._of_link: dict[Link, Session] = {}
        self._attempts: dict[Link, Attempt] = {}
        self._pipes: dict[str, Member] = {}
        self._numbers = count(1)
        self._assigned = count(1)
        self._epochs: dict[str, int] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._wakes: dict[Member, int] = {}
        self._timer_ns: int | None = None
        self._holding: dict[Member, None] = {}
        self._stirred: dict[Session, None] = {}
        self._turning: dict[Member, None] = {}
        self._unsent: dict[Link, list[bytes]] = {}
        self._closing: list[tuple[Link, str]] = []
        self._gated: list[Link] = []
        self._messages: dict[EventId, Message | None] = {}
        self._choices: dict[tuple[str, str, EventId], str] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self._collector: Member | None = None
        self._is_over = False
        self._effects: list[GatewayEffect] = []

    # -- the driver's calls ----------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[GatewayEffect]:
        """Start, with the sessions and messages that were kept."""
        self.now_ns = self.life = now_ns
        if self._found is not None:
            self._restore(self._found)
            self._found = None
        name = retaining_client(self.settings.broker)
        credentials = Credentials(token=self.settings.retaining_token)
        self._collector = self._make_member(name, _Collector(self), credentials, "the door", (name,))
        member = self._collector
        member.call(member.machine.subscribe, now_ns, "retained", RETAINED_FILTER)
        member.start(now_ns)
        return self._finish()

    def opened(
        self, connection: str, now_ns: int, *, address: str, certified: tuple[str, ...] = ()
    ) -> list[GatewayEffect]:
        """An MQTT client has connected."""
        self.now_ns = now_ns
        link = Link(
            connection,
            address=address,
            certified=certified,
            max_packet_bytes=self.settings.max_packet_bytes,
            now_ns=now_ns,
            write=self._write,
        )
        self.links[connection] = link
        if self._is_over or len(self.links) > self.settings.max_connections:
            self.close(link, f"there are {self.settings.max_connections} MQTT connections, the most there may be")
        self._at(now_ns + CONNECT_NS, lambda: self._check_connected(link))
        return self._finish()

    def received(self, connection: str, data: bytes, now_ns: int) -> list[GatewayEffect]:
        """Bytes of an MQTT client."""
        self.now_ns = now_ns
        link = self.links.get(connection)
        if link is not None and not link.is_closed:
            link.heard_ns = now_ns
            link.reader.feed(data)
            self._read(link)
        return self._finish()

    def congested(self, connection: str, now_ns: int, *, is_congested: bool) -> list[GatewayEffect]:
        """The socket of a client is congested, or no longer is."""
        self.now_ns = now_ns
        link = self.links.get(connection)
        if link is not None:
            link.is_congested = is_congested
            session = self._of_link.get(link)
            if session is not None:
                session.deliveries.pause_if_full()
        return self._finish()

    def lost(self, connection: str, now_ns: int) -> list[GatewayEffect]:
        """The connection of a client is gone."""
        self.now_ns = now_ns
        link = self.links.pop(connection, None)
        if link is not None:
            self._part(link)
        return self._finish()

    def piped(self, came: Mapping[str, list[Any]], now_ns: int) -> list[GatewayEffect]:
        """Frames of the broker, by pipe."""
        self.now_ns = now_ns
        for pipe, frames in came.items():
            member = self._pipes.get(pipe)
            if member is not None:
                member.received(frames, now_ns)
        self.bundles.forget()
        return self._finish()

    def pipe_lost(self, pipe: str, reason: str, now_ns: int) -> list[GatewayEffect]:
        """The broker has closed a pipe."""
        self.now_ns = now_ns
        member = self._pipes.pop(pipe, None)
        if member is not None and member.pipe == pipe:
            member.lost(reason, now_ns)
        return self._finish()

    def wake(self, now_ns: int) -> list[GatewayEffect]:
        """The timer has expired."""
        self.now_ns = now_ns
        self._timer_ns = None
        while self._due and self._due[0][0] <= now_ns:
            heapq.heappop(self._due)[2]()
        return self._finish()

    def durable(self, now_ns: int) -> list[GatewayEffect]:
        """The commit under way is durable."""
        self.now_ns = now_ns
        was_full = self.commits.is_full
        self.commits.end(now_ns)
        if was_full and not self.commits.is_full:
            self.report("info", "MQTT store has room again")
        return self._finish()

    def refused(self, why: str, now_ns: int) -> list[GatewayEffect]:
        """The store has no room for the commit under way: what depends on it is not confirmed until there is room."""
        self.now_ns = now_ns
        if not self.commits.is_full:
            self.report("error", "MQTT store full", why=why, remedy="raise store_size under [network]")
        self.commits.refuse(now_ns)
        return self._finish()

    def end(self, now_ns: int) -> list[GatewayEffect]:
        """The broker stops: disconnect all clients."""
        self.now_ns = now_ns
        self._is_over = True
        for link in list(self.links.values()):
            link.dismiss(Reason.SERVER_SHUTTING_DOWN, "the broker stops")
            self.close(link, "the broker stops")
        return self._finish()

    def refer(self, servers: Mapping[str, str], now_ns: int) -> list[GatewayEffect]:
        """The broker leaves the network for good: disconnect all clients, each with the server to use from now on."""
        self.now_ns = now_ns
        for name, link in list(self.links.items()):
            link.dismiss(Reason.SERVER_MOVED, "the broker leaves the network", servers.get(name, ""))
            self.close(link, "the broker leaves the network")
        return self._finish()

    @property
    def is_idle(self) -> bool:
        """Whether everything is durable."""
        return self.commits.is_idle

    @property
    def is_full(self) -> bool:
        """Whether there was no room for the last commit."""
        return self.commits.is_full

    @property
    def committed(self) -> int:
        """The number of the last commit that is durable."""
        return self.commits.durable

    def bounds(self) -> Mapping[str, tuple[int, int]]:
        """Everything that could grow for a client, at the client that has most of it, with its bound."""
        sessions = self.sessions.values()
        most = self.settings.max_under_way + WINDOW
        return {
            "under way to an MQTT client": (max((len(each.deliveries.out) for each in sessions), default=0), most),
            "of QoS 2 from an MQTT client": (
                max((len(each.publications.incoming) for each in sessions), default=0),
                TOLERANCE * self.settings.receive_maximum,
            ),
        }

    # -- connections -----------------------------------------------------------------------------------------------

    def gate(self, link: Link) -> None:
        """Hold what is written to a client until everything so far is durable."""
        link.gate = self.commits.sync()
        if link.gate > self.commits.durable:
            self._gated.append(link)

    def _write(self, link: Link, parts: Sequence[bytes]) -> None:
        if link.held or link.gate > self.commits.durable:
            link.hold(parts)
            if link.held_bytes > UNSENT_BYTES:
                self.close(link, "the store is full")
            return
        unsent = self._unsent.get(link)
        if unsent is None:
            self._unsent[link] = [*parts]
        else:
            unsent += parts

    def close(self, link: Link, reason: str) -> None:
        """Close a connection when its pending bytes are sent."""
        if not link.is_closed:
            link.is_closed = True
            self._closing.append((link, reason))
            self._part(link)

    def _read(self, link: Link) -> None:
        """Handle the packets that have arrived, as long as the broker keeps up."""
        try:
            while not link.is_closed:
                session = self._of_link.get(link)
                is_waiting = link.has_asked and session is None
                if is_waiting or (session is not None and session.publications.is_busy):
                    self._pause(link, is_on=link.reader.unread_bytes < (UNREAD_BYTES if is_waiting else 1))
                    return
                if session is not None and (numbers := link.reader.pubacks()):
                    session.deliveries.end(numbers)
                packet = link.reader.next()
                if packet is None:
                    self._pause(link, is_on=True)
                    return
                if session is not None:
                    if isinstance(packet, Connect):  # [MQTT-3.1.0-2]
                        raise PacketError(Reason.PROTOCOL_ERROR, "a second CONNECT")
                    session.handle(packet)
                elif isinstance(packet, Connect):
                    self._connect(link, packet)
                else:  # [MQTT-3.1.0-1]
                    raise PacketError(Reason.PROTOCOL_ERROR, "the first packet is not CONNECT")
        except PacketError as error:
            self._fault(link, error)

    def _fault(self, link: Link, error: PacketError) -> None:
        """Close a connection after an invalid packet [MQTT-4.13.1-1]."""
        if link.is_welcome:
            link.dismiss(error.reason, str(error))
        elif error.reason is Reason.UNSUPPORTED_VERSION or link.has_asked:
            link.refuse(error.reason, str(error))
        self.counts["refused"] += 1
        self.report("info", "MQTT client dismissed", address=link.address, why=str(error))
        self.close(link, str(error))

    def _pause(self, link: Link, *, is_on: bool) -> None:
        if link.is_read != is_on:
            link.is_read = is_on
            self._effects.append(Read(link.name, is_on))

    def read_on(self, session: Session) -> None:
        """The broker has caught up with a client."""
        link = session.link
        if link is not None and not link.is_read and not session.publications.is_busy:
            self._read(link)

    def _check_connected(self, link: Link) -> None:
        if not link.is_welcome and not link.is_closed:
            if link.has_asked:
                link.refuse(Reason.SERVER_UNAVAILABLE, "the broker is not ready")
            self.close(link, f"no CONNECT that was answered within {CONNECT_NS // _SECOND} s")

    def _connect(self, link: Link, connect: Connect) -> None:
        """A client has sent CONNECT: the broker decides."""
        link.agree(connect)
        link.keep_alive_ns = connect.keep_alive_s * _SECOND * 3 // 2
        broker = self.settings.broker
        client_id, more = client_id_of(connect, broker, lambda: f"mqtt-{broker}-{self.life:x}-{next(self._assigned)}")
        attempt = Attempt(self, link, connect, client_id, more)
        self._attempts[link] = attempt
        credentials = credentials_of(connect, has_tokens=self.settings.has_tokens)
        window = min(link.receive_maximum, WINDOW)
        attempt.member = self._make_member(client_id, attempt, credentials, link.address, link.certified, window=window)
        attempt.member.call(attempt.member.machine.pause, self.now_ns)
        attempt.member.start(self.now_ns)

    def _make_member(
        self,
        name: str,
        owner: Any,
        credentials: Credentials,
        address: str,
        certified: tuple[str, ...],
        *,
        window: int = WINDOW,
    ) -> Member:
        epoch = max(self.now_ns // 1000, self._epochs.get(name, 0) + 1)
        if name in self.sessions:
            self._epochs[name] = epoch
        settings = ClientSettings(
            name=name,
            epoch=epoch,
            may_be_moved=False,
            failover_ns=0,
            max_lifetime_ns=self.settings.max_lifetime_ns,
            max_unacknowledged=2_048,
            window=window,
        )
        return Member(
            settings,
            owner,
            self,
            credentials=credentials,
            address=address,
            certified=certified,
            chance=self._chance,
        )

    def welcome(self, attempt: Attempt) -> None:
        """The broker has admitted a client: continue its session, or start one."""
        link, connect, client_id = attempt.link, attempt.connect, attempt.client_id
        self._attempts.pop(link, None)
        if link.is_closed or link.name not in self.links:
            attempt.member.leave(self.now_ns, "the client is gone")
            return
        before = self.sessions.get(client_id)
        will = None
        if before is not None:
            will = self._take_over(before, is_clean=connect.clean_start)
        session = self.sessions.get(client_id)
        is_present = session is not None
        former = set() if before is None or is_present else set(before.subscriptions)
        if session is None:
            session = self.sessions[client_id] = Session(client_id, self)
        asked_s = asked_expiry_s(connect)
        session.expiry_s = self.longest(asked_s)
        self._of_link[link] = session
        attempt.member.owner = session
        more = attempt.more | {
            "session_expiry_s": session.expiry_s if session.expiry_s != asked_s else None,
            "receive_maximum": self.settings.receive_maximum,
            "maximum_packet_size": self.settings.max_packet_bytes,
            "topic_alias_maximum": TOPIC_ALIASES,
        }
        if connect.properties.get("request_response_information"):
            more["response_information"] = f"response/{client_id}"
        is_kept = session.is_kept or before is not None
        session.attach(link, attempt.member, connect, is_present=is_present, is_durable=is_kept, more=more)
        for topic_filter in former:
            session.forget_former(topic_filter)
        if will is not None:
            session.will, own = will, session.will
            session.publish_will()
            session.will = own
        self.counts["connected"] += 1
        if link.keep_alive_ns:
            self._at(self.now_ns + link.keep_alive_ns, lambda: self._check_alive(link))
        self.stir(session)
        self._read(link)

    def _take_over(self, session: Session, *, is_clean: bool) -> Any:
        """Another connection takes over the session [MQTT-3.1.4-3]; returns the will that is due, if any."""
        will, session.will = session.will, None
        old = session.link
        if old is not None:
            old.dismiss(Reason.SESSION_TAKEN_OVER, "the client has connected again")
            self._of_link.pop(old, None)
            session.detach()
            self.close(old, "the client has connected again")
            if will is not None and will.properties.get("will_delay_s", 0) and not is_clean:
                will = None
        elif not is_clean:
            will = None  # it is back in time [MQTT-3.1.3-9]
        if session.member is not None:
            session.member.leave(self.now_ns, "the client has connected again")
            session.member = None
        if is_clean or session.is_ending or not session.is_kept:
            session.erase()
            del self.sessions[session.client_id]
        return will

    def turn_away(self, attempt: Attempt, code: str, why: str) -> None:
        """The broker does not admit a client."""
        self._attempts.pop(attempt.link, None)
        attempt.member.leave(self.now_ns, why)
        self.counts["refused"] += 1
        attempt.link.refuse(REFUSALS.get(code, Reason.SERVER_UNAVAILABLE), why)
        self.close(attempt.link, why)

    def revoke(self, session: Session, code: str, why: str) -> None:
        """The broker has revoked a client's admission."""
        link = session.link
        if link is not None:
            link.dismiss(Reason.NOT_AUTHORIZED, f"{code}: {why}")
            self.close(link, why)

    def _check_alive(self, link: Link) -> None:
        """Whether the client has been silent for one and a half times its keep-alive [MQTT-3.1.2-22]."""
        if link.is_closed or link.name not in self.links:
            return
        due_ns = link.heard_ns + link.keep_alive_ns
        if not link.is_read:  # it is this end that does not read
            due_ns = self.now_ns + link.keep_alive_ns
        if due_ns > self.now_ns:
            self._at(due_ns, lambda: self._check_alive(link))
            return
        link.dismiss(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard of the client for too long")
        self.close(link, "keep-alive timeout")

    # -- the end of a connection -----------------------------------------------------------------------------------

    def longest(self, expiry_s: int) -> int:
        """How long a session is kept, given the client's request."""
        return min(expiry_s, self.settings.max_session_s)

    def _part(self, link: Link) -> None:
        """A connection is gone: keep its session, or end it."""
        link.is_closed = True
        link.take_held()
        if link in self._gated:
            self._gated.remove(link)
        attempt = self._attempts.pop(link, None)
        if attempt is not None:
            attempt.member.leave(self.now_ns, "the client is gone")
        session = self._of_link.pop(link, None)
        if session is None or session.link is not link:
            return
        session.detach()
        session.store()
        will = session.will
        delay_s = 0 if will is None else min(will.properties.get("will_delay_s", 0), session.expiry_s)
        if delay_s:
            self._at(self.now_ns + delay_s * _SECOND, lambda: self._send_will(session, will))
        else:
            session.publish_will()
        if session.is_kept:
            if session.expiry_s != NEVER:
                ends_ns = self.now_ns + session.expiry_s * _SECOND
                self._at(ends_ns, lambda: self._expire(session, ends_ns))
        else:
            self._end(session)
        self._say_farewell(session)

    def _say_farewell(self, session: Session) -> None:
        """Give the broker some time to confirm the last requests of a client that is away."""
        session.farewell_ns = self.now_ns + FAREWELL_NS
        self._at(session.farewell_ns, lambda: self._give_up(session))
        self.stir(session)

    def _send_will(self, session: Session, will: Any) -> None:
        if session.link is None and session.will is will and self.sessions.get(session.client_id) is session:
            session.publish_will()
            self._say_farewell(session)

    def _expire(self, session: Session, ends_ns: int) -> None:
        """The client has not come back."""
        if session.link is None and self.sessions.get(session.client_id) is session and self.now_ns >= ends_ns:
            session.publish_will()
            self._end(session)
            self._say_farewell(session)

    def _end(self, session: Session) -> None:
        """End a session whose client is away."""
        session.erase()
        session.expiry_s = 0
        session.take_back()
        self.check_left(session)

    def check_left(self, session: Session) -> None:
        """Dismiss the member of a client that is away, once the broker has confirmed everything."""
        if session.link is None and session.is_settled and session.will is None:
            self._let_go(session)

    def _give_up(self, session: Session) -> None:
        if session.link is None and session.will is None and self.now_ns >= session.farewell_ns:
            self._let_go(session)

    def _let_go(self, session: Session) -> None:
        if session.member is not None:
            session.member.leave(self.now_ns, "the client is gone")
            session.member = None
        if (session.is_ending or not session.is_kept) and self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self._epochs.pop(session.client_id, None)

    # -- pipes -----------------------------------------------------------------------------------------------------

    def open_pipe(self, member: Member, now_ns: int) -> str:  # noqa: ARG002
        """A pipe to the broker."""
        name = f"mqtt-{next(self._numbers)}"
        self._pipes[name] = member
        self._effects.append(Pipe(name, member.address, member.certified))
        return name

    def write_pipe(self, pipe: str, frames: list[bytes]) -> None:
        """Hand frames to the broker."""
        self._effects.append(Write(pipe, frames))

    def shut_pipe(self, pipe: str, reason: str) -> None:
        """Close a pipe."""
        self._pipes.pop(pipe, None)
        self._effects.append(Shut(pipe, reason, at_once=False))

    def wake_at(self, member: Member, at_ns: int) -> None:
        """Wake a member at this time instead of the previous one."""
        self._wakes[member] = at_ns
        self._at(at_ns, lambda: self._wake_member(member, at_ns))

    def _wake_member(self, member: Member, at_ns: int) -> None:
        if self._wakes.get(member) == at_ns:
            del self._wakes[member]
            if not member.is_over:
                member.wake(self.now_ns)

    def hold(self, member: Member) -> None:
        """A member waits for the next commit."""
        self._holding[member] = None

    # -- what sessions need ----------------------------------------------------------------------------------------

    def stir(self, session: Session) -> None:
        """Note that a session has something for the broker."""
        self._stirred[session] = None

    def gate_collector(self) -> None:
        """Retained messages are acknowledged when they are durable."""
        if self._collector is not None and self.commits.is_filling:
            self._collector.gate = self.commits.filling

    def message_of(self, effect: Deliver) -> Message | None:
        """The message of an event, read once for all receivers."""
        since_ns = self.now_ns - effect.age_ns
        return self._message(effect.event, effect.attributes, effect.payload, since_ns, effect.lifetime_ns)

    def _message(
        self,
        event: EventId,
        attributes: Mapping[str, Any],
        payload: bytes,
        since_ns: int,
        lifetime_ns: int | None,
    ) -> Message | None:
        if event in self._messages:
            return self._messages[event]
        message = read_event(attributes, payload, since_ns)
        if message is not None and lifetime_ns is not None:
            message.ends_ns = since_ns + lifetime_ns
        if len(self._messages) >= MAX_MESSAGES:
            self._messages.clear()
        self._messages[event] = message
        return message

    def shares_of(self, bundle: Bundle, subscription: Subscription, deliveries: Deliveries) -> Shares | None:
        """What the clients of equal subscriptions are given of events that came together; None if one of the messages
        has expired, although the event has not."""
        report = subscription.report or deliveries.report
        terms = (subscription.qos, subscription.retain_as_published, subscription.identifier)
        key = (*terms, subscription.max_delay_ns, subscription.late_ns, report)
        if key not in bundle.notes:
            copies = []
            for event, content, since_ns, lifetime_ns in bundle.events:
                message = self._message(event, content.attributes, content.payload, since_ns, lifetime_ns)
                if message is not None:
                    retain = message.retain and subscription.retain_as_published  # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
                    copies.append(copy_of(message, subscription, report, retain=retain, is_late=False))
            has_expired = any(copy.is_over(self.now_ns) for copy in copies)
            bundle.notes[key] = None if has_expired else Shares(copies)
        shares: Shares | None = bundle.notes[key]
        return shares

    def is_chosen(self, session: Session, subscription: Subscription, event: EventId) -> bool:
        """Whether it is this session's turn to get an event of a shared subscription."""
        group = (subscription.topic_filter, "")
        choice = (*group, event)
        chosen = self._choices.get(choice)
        if chosen is None:
            there = [
                each.client_id
                for each in self.sessions.values()
                if each.link is not None and subscription.topic_filter in each.subscriptions
            ] or [session.client_id]
            turn = self._turns[group] = (self._turns.get(group, -1) + 1) % len(there)
            chosen = self._choices[choice] = there[turn]
            if len(self._choices) > MAX_CHOICES:
                del self._choices[next(iter(self._choices))]
        return chosen == session.client_id

    def report(self, level: Any, event: str, **facts: Any) -> None:
        """Something for the operator's log."""
        self._effects.append(Report(level, event, facts))

    # -- the end of a step -----------------------------------------------------------------------------------------

    def _at(self, at_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_ns, next(self._numbers), do))

    def _open_gates(self) -> None:
        """Let pass what has waited for the commits that are durable."""
        for link in [link for link in self._gated if link.gate <= self.commits.durable]:
            self._gated.remove(link)
            self._write(link, link.take_held())
            session = self._of_link.get(link)
            if session is not None:
                session.deliveries.pause_if_full()
        for member in list(self._holding):
            member.release()
            if not member.is_held:
                del self._holding[member]

    def _settle(self) -> Commit | None:
        """Do what sessions have for the broker; the commit that begins, if one does."""
        while self._stirred:
            session = next(iter(self._stirred))
            del self._stirred[session]
            session.publications.flush()
            if session.member is not None:
                session.member.turn(self.now_ns)
            self.check_left(session)
        return self.commits.begin(self.now_ns, hurry=self._is_over)

    def _finish(self) -> list[GatewayEffect]:
        commit = None
        while commit is None:
            commit = self._settle()
            if self._gated or self._holding:
                self._open_gates()
            if not self._stirred:
                break
        if self._stirred:
            self._settle()
        if self._collector is not None:
            self._collector.turn(self.now_ns)
        effects, self._effects = self._effects, []
        for link, parts in self._unsent.items():
            effects.append(Write(link.name, parts))
        self._unsent = {}
        for link, reason in self._closing:
            effects.append(Shut(link.name, reason, at_once=False))
        self._closing = []
        if commit is not None:
            effects.append(commit)
        due_ns = self._due[0][0] if self._due else None
        if self.commits.due_ns is not None and (due_ns is None or self.commits.due_ns < due_ns):
            due_ns = self.commits.due_ns
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            effects.append(SetTimer(due_ns))
        return effects

    def _restore(self, found: Opened) -> None:
        """Restore sessions and retained messages from the store, without its damaged records."""
        if found.damaged:
            for key in found.damaged:
                self.commits.erase(key)
            facts = {"records": len(found.damaged), "kinds": kinds_of(found.damaged)}
            remedy = "a client whose session is damaged begins a new one; check the disk"
            self.report("warning", "MQTT store damaged", **facts, remedy=remedy)
        sessions, retained, orphans = read_kept(found)
        for kept in sessions:
            record = kept.record
            session = self.sessions[record.client_id] = Session(record.client_id, self)
            session.restore(kept)
            ends_ns = record.ends_ns or self.now_ns + session.expiry_s * _SECOND
            self._at(ends_ns, lambda session=session, ends_ns=ends_ns: self._expire(session, ends_ns))  # type: ignore[misc]
        for message in retained:
            self.retained.restore(message)
        for key in orphans:
            self.commits.erase(key)
