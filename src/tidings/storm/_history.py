"""The history of a storm in true time, which no machine sees: the input of checks and traces."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from tidings.protocol import Balance, Deliver, EventId, Failed, Moved, Note
from tidings.storm._mqtt_history import MqttHistory

__all__ = ["Delivery", "History", "Hop", "Loss", "Moving", "Published", "Report", "Residence", "Subscribed"]

_OF_CLIENTS: Final = ("subscription/", "departed/", "left/")


class Published:
    """One event: when it was published, when its home broker accepted it (each time), and when the publisher knew."""

    __slots__ = (
        "accepted_ns",
        "attributes",
        "broker",
        "confirmed_ns",
        "departed_ns",
        "id",
        "lifetime_ns",
        "payload",
    )

    def __init__(self, id: EventId, broker: str, departed_ns: int, lifetime_ns: int | None, payload: bytes) -> None:
        self.id = id
        self.broker = broker
        self.departed_ns = departed_ns
        self.lifetime_ns = lifetime_ns
        self.payload = payload
        self.attributes: dict[str, int | float | str | bool] = {}
        self.accepted_ns: list[int] = []
        self.confirmed_ns: int | None = None

    @property
    def size_bytes(self) -> int:
        """The length of its payload."""
        return len(self.payload)


class Subscribed:
    """One subscription: when it was confirmed to the client, and when the client ended it."""

    __slots__ = (
        "client",
        "confirmed_ns",
        "conflate",
        "drops",
        "filter",
        "home",
        "is_ordered",
        "late_ns",
        "max_delay_ns",
        "name",
        "price",
        "until_ns",
    )

    def __init__(self, client: str, name: str, home: str, filter: str) -> None:
        self.client = client
        self.name = name
        self.home = home
        self.filter = filter
        self.max_delay_ns: int | None = None
        self.price = 1.0
        self.late_ns = 0
        self.drops = self.is_ordered = False
        self.conflate: tuple[str, ...] = ()
        self.confirmed_ns: int | None = None
        self.until_ns: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The subscription's name in the whole storm."""
        return self.client, self.name


class Moving:
    """A move of a client: when it was requested, from where to where, and when it ended.

    Its old home handles what the client has sent in sequence, and no faster than the client's budget allows:
    `budgeted_ns` is the time for the most that waited there.
    """

    __slots__ = ("at_ns", "budgeted_ns", "client", "done_ns", "failed", "paused_ns", "source", "target")

    def __init__(self, at_ns: int, client: str, source: str, target: str) -> None:
        self.at_ns = at_ns
        self.client = client
        self.source = source
        self.target = target
        self.done_ns: int | None = None
        self.paused_ns: int | None = None
        self.failed: str | None = None
        self.budgeted_ns = 0


class Residence(NamedTuple):
    """A client's home in its own view at the end, and the brokers that know it."""

    home: str | None
    is_moving: bool
    registered: tuple[str, ...]
    connected: tuple[str, ...]


class Loss(NamedTuple):
    """A broker has lost its disk or some of its records, or its clock has jumped: the events concerned, the clients
    whose subscriptions are concerned, and whether it may have forgotten what it delivered.

    After a clock jump events are older or younger than they should be, and no subscriptions are lost. `copied` are the
    events whose second copies it keeps for other brokers: their ages are wrong as well if it takes their place.
    """

    at_ns: int
    broker: str
    what: Literal["disk", "clock", "records"]
    events: frozenset[EventId]
    clients: frozenset[str]
    forgets: bool
    copied: frozenset[EventId]


class Report(NamedTuple):
    """A home broker's account of a subscription at the end, and the events that are still held for it."""

    client: str
    subscription: str
    home: str
    home_epoch: int
    shown: Balance
    owed: frozenset[EventId]
    """By brokers, or by the client itself to restore order."""


class Delivery(NamedTuple):
    """An application got an event, possibly after its client had held it to restore order.

    A restarted client has forgotten what it got in its previous `life`.
    """

    at_ns: int
    client: str
    subscription: str
    event: EventId
    late: bool
    age_ns: int
    home: str
    home_epoch: int
    held_ns: int
    life: int
    error_ns: int | None
    """The error of the age that the delivery states."""


class Overtaking(NamedTuple):
    """A broker has sent an event to a peer while an earlier one of the same publisher waited for that peer; both were
    for these home brokers, or subscriptions of a client."""

    at_ns: int
    broker: str
    peer: str
    event: EventId
    earlier: EventId
    common: frozenset[str]


class Hop:
    """One event over one link, with its first sending and its first receipt."""

    __slots__ = ("enqueued_ns", "outcome", "received_ns", "sent_ns")

    def __init__(self, enqueued_ns: int) -> None:
        self.enqueued_ns = enqueued_ns
        self.sent_ns: int | None = None
        self.received_ns: int | None = None
        self.outcome = "in-flight"


class History:
    """The record of one storm."""

    def __init__(self) -> None:
        self.published: dict[EventId, Published] = {}
        self.subscribed: dict[tuple[str, str], Subscribed] = {}
        self.deliveries: list[Delivery] = []
        self.hops: dict[tuple[EventId, str, str], Hop] = {}
        self.transitions: list[tuple[int, str, str, str | None, bool]] = []
        self.local: list[tuple[int, str, EventId]] = []
        self.waiting: dict[tuple[str, str], dict[EventId, tuple[str, ...]]] = {}  # by broker and peer
        self.overtakings: list[Overtaking] = []
        self.crashes: list[tuple[int, str, int]] = []  # by broker, with what it wrote before on its disk
        self.losses: list[Loss] = []
        self.excused: Counter[str] = Counter()  # by cause: deliveries that would have been owed
        self.reports: list[Report] = []
        self.held: set[tuple[EventId, str, str]] = set()  # at the end, to restore order: event, client, subscription
        self.movers: set[str] = set()
        self.connected: dict[tuple[str, str], list[int]] = defaultdict(list)  # when a node connected to a broker
        self.intruders: list[str] = []
        self.corrupted: list[str] = []
        self.damage_reported = 0
        self.damage_missed: list[str] = []
        self.unerased: list[str] = []
        self.settled_ns: dict[int, int] = {}  # by the start of a calm: when everybody was connected again
        self.unconnected: list[str] = []
        self.still_full: list[str] = []
        self.tables: dict[str, int] = {}
        """By broker: how many subscriptions it announces to the others at the end."""
        self.dropped: set[tuple[EventId, str]] = set()  # because the queue to this peer was full
        self.drops: Counter[str] = Counter()
        self.replaced: dict[tuple[EventId, str, str], EventId] = {}
        """By event, client and subscription: the newer event of the same key."""
        self.faults: Counter[str] = Counter()
        self.bounds_broken: list[str] = []
        self.moves: list[Moving] = []
        self.left: set[tuple[str, str]] = set()  # clients and their former home brokers
        self.relocated = 0  # moves that brokers asked for
        self.residence: dict[str, Residence] = {}
        self.converged_ns: int | None = None
        self.differences: list[str] = []
        self.mqtt = MqttHistory()

    def deliver(self, at_ns: int, client: str, effect: Deliver, home: tuple[str, int], life: int) -> None:
        """An application got an event while its client was at home at this broker, in this epoch of the broker."""
        what = (effect.subscription, effect.event, effect.late, effect.age_ns)
        known = self.published.get(effect.event)
        if known is None or (effect.payload, dict(effect.attributes)) != (known.payload, known.attributes):
            self.corrupted.append(f"{effect.event} came to {client}/{effect.subscription} as nobody published it")
        self.deliveries.append(Delivery(at_ns, client, *what, *home, effect.held_ns, life, effect.error_ns))

    def crash(self, at_ns: int, broker: str, written_ns: int) -> None:
        """A broker has crashed: its queues are empty."""
        self.crashes.append((at_ns, broker, written_ns))
        for where in [where for where in self.waiting if where[0] == broker]:
            del self.waiting[where]

    def lose(self, at_ns: int, broker: str, what: Literal["disk", "clock", "records"], keys: Iterable[str]) -> None:
        """A broker has lost sound records, or its clock has jumped while it kept them."""
        keys = list(keys)
        events = frozenset(_event_of(key) for key in keys if key.startswith("event/"))
        clients = frozenset(_client_of(key) for key in keys if key.startswith(_OF_CLIENTS))
        copied = frozenset(_event_of(_copied_key(key)) for key in keys if _copied_key(key).startswith("event/"))
        forgets = what != "records" or any(key.startswith("seen/") for key in keys)
        clients = frozenset() if what == "clock" else clients
        self.losses.append(Loss(at_ns, broker, what, events, clients, forgets, copied))

    def moved(self, at_ns: int, client: str, effect: Moved | Failed) -> None:
        """A client has a new home, or stays."""
        self.movers.add(client)
        if isinstance(effect, Moved):
            self.left.add((client, effect.source))
        target = effect.target if isinstance(effect, Moved) else effect.name
        for move in reversed(self.moves):
            if (move.client, move.target) == (client, target) and move.done_ns is None and move.failed is None:
                if isinstance(effect, Moved):
                    move.done_ns, move.paused_ns = at_ns, effect.paused_ns
                else:
                    move.failed = effect.code
                return
        self.relocated += isinstance(effect, Moved)

    def note(self, at_ns: int, broker: str, note: Note) -> None:
        """A broker reports what happened to an event."""
        if note.kind == "accepted":
            known = self.published.get(note.event)
            if known is not None:
                if not known.accepted_ns:
                    known.broker = broker
                known.accepted_ns.append(at_ns)
        elif note.kind == "local":
            self.local.append((at_ns, broker, note.event))
        elif note.kind == "received":
            hop = self.hops.get((note.event, note.peer, broker))
            if hop is not None and hop.received_ns is None:
                hop.received_ns = at_ns
                hop.outcome = "received"
        elif note.kind != "restored":
            self._note_leaving(at_ns, broker, note)

    def _note_leaving(self, at_ns: int, broker: str, note: Note) -> None:
        waiting = self.waiting.setdefault((broker, note.peer), {})
        if note.newer is not None:
            self.replaced.update({(note.event, note.peer, name): note.newer for name in note.targets})
        elif note.kind in ("enqueued", "sent"):  # an event may be handed to a client again
            for name in note.targets if self.replaced else ():
                self.replaced.pop((note.event, note.peer, name), None)
        if note.kind == "enqueued":
            waiting[note.event] = note.targets
        elif note.kind == "replaced in part":
            waiting[note.event] = tuple(name for name in waiting.get(note.event, ()) if name not in note.targets)
            return
        else:
            waiting.pop(note.event, None)
        if note.kind == "sent" and waiting:
            self._note_overtaking(at_ns, broker, note, waiting)
        key = (note.event, broker, note.peer)
        hop = self.hops.get(key)
        if hop is None:
            hop = self.hops[key] = Hop(at_ns)
        if note.kind == "sent":
            if hop.sent_ns is None:
                hop.sent_ns = at_ns
            hop.outcome = "received" if hop.received_ns is not None else "in-flight"
        elif note.kind == "withdrawn" and hop.received_ns is None:
            hop.outcome = "failed" if hop.sent_ns is None else "lost"
        elif note.kind in ("expired", "hopeless", "full", "replaced"):
            self.drops[note.kind] += 1
            if note.kind == "full":
                self.dropped.add((note.event, note.peer))
            if hop.received_ns is None:
                hop.outcome = "expired" if note.kind == "expired" else "hopeless"

    def _note_overtaking(self, at_ns: int, broker: str, note: Note, waiting: Mapping[EventId, tuple[str, ...]]) -> None:
        for earlier, targets in waiting.items():
            if earlier[:2] == note.event[:2] and earlier[2] < note.event[2]:
                common = frozenset(targets) & frozenset(note.targets)
                if common:
                    self.overtakings.append(Overtaking(at_ns, broker, note.peer, note.event, earlier, common))

    def digest(self) -> str:
        """One number for the whole history: equal histories have equal digests."""
        hops = [(key, hop.enqueued_ns, hop.sent_ns, hop.received_ns, hop.outcome) for key, hop in self.hops.items()]
        published = [(p.id, p.departed_ns, p.accepted_ns, p.confirmed_ns) for p in self.published.values()]
        moves = [(move.at_ns, move.client, move.target, move.done_ns, move.failed) for move in self.moves]
        rows: tuple[object, ...] = (published, self.deliveries, hops, self.transitions, self.local, moves)
        if self.mqtt.greetings:
            rows += (self.mqtt.greetings, self.mqtt.got)
        return hashlib.sha256(msgspec.msgpack.encode(rows)).hexdigest()


def _event_of(key: str) -> EventId:
    _, epoch, sequence, publisher = key.split("/", 3)
    return publisher, int(epoch), int(sequence)


def _copied_key(key: str) -> str:
    """The key that a record has at the broker whose copy it is; empty if it is no copy."""
    kind, _, rest = key.partition("/")
    length, _, rest = rest.partition("/")
    return rest[int(length) + 1 :] if kind == "copy" else ""


def _client_of(key: str) -> str:
    kind, _, rest = key.partition("/")
    if kind == "departed":
        return rest
    length, _, rest = rest.partition("/")
    return rest[: int(length)]
