"""Everything that a seed decides before the storm starts: the overlay, the clients, the workload and the faults.

Faults come in two bursts with a calm in between, and end in time for the network to recover and to be checked:

    0 ---- burst ---- calm ---- burst ---- calm, publishing continues ---- publishing ends ---- end

A long outage lasts longer than every time-out of the protocol. It starts in the first burst, may last through the calm
after it, and ends with the second burst.

A blackout cuts the power of all brokers at the same moment: everything not yet on a disk is lost. A calm is free of
faults but not of nuisances: event loops are busy, bytes arrive in pieces, strangers connect, and in some storms buffers
are so small that congestion is normal. Clients are asked to move to other brokers all the time, in calms and in bursts,
one by one, several at once, and on or back again right after they have arrived.

How much is published also depends on the seed: all octaves of rates are equally likely, over a factor of BUSIEST, with
the mean of the settings. A quiet storm has as many faults and moves as a busy one.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidings.protocol import Relocation
from tidings.storm._dice import Dice
from tidings.storm._kinds import HARMLESS, KINDS, PLACES, SHARES, WEIGHTS, FaultKind
from tidings.storm._mqtt_plan import MqttPlan, draw_mqtt
from tidings.storm._settings import StormSettings
from tidings.storm._sockets import SocketFigures

__all__ = ["ClientPlan", "Fault", "LinkPlan", "Move", "Publication", "StormPlan", "SubscriptionPlan", "make_plan"]

SECOND = 10**9

TOPICS = ("news", "trade", "alarm", "scores", "weather")
FILTERS = (
    *(f"topic = '{topic}'" for topic in TOPICS),
    *(f"topic = '{topic}' AND level > {level}" for topic in TOPICS for level in (20, 50, 80)),
    "level BETWEEN 10 AND 25",
    "level < 10 OR level > 90",
    "topic IN ('news', 'alarm') AND urgent = TRUE",
    "topic LIKE '%r%' AND level > 60",
    "urgent = TRUE",
    "region IS NULL AND level > 70",
    "NOT (topic = 'news') AND level < 15",
)
WORDY_STORMS = 0.3
"""The share of storms with long filters."""
WORDY = 0.15
"""The share of long filters in such a storm."""
WORDS = (80, 400)
POLICIES = (None, None, None, "ours-record", "ours-quantile", "P-0.05-10", "CST-50")
LIFETIMES_S = (1.0, 3.0, 12.0, 20.0, 30.0, None)
DELAYS_S = (None, None, None, 2.0, 10.0, 25.0)

RELOCATIONS: tuple[Relocation, ...] = ("off", "off", "on-time", "grape", "pop")
"""The relocation algorithm, in a share of the storms."""
HURRIED = 0.5
HURRIED_MS = (5.0, 150.0)
HURRIED_LATE_NS = 10 * SECOND
"""Where publishers move to be on time, many subscribers have short deadlines, so that a publisher's place matters. They
accept late events as well: how much is delivered must not depend on it, and is checked (`recover_s`)."""

CONFLATING_STORMS = 0.5
"""The share of storms in which some subscriptions want the latest value alone, and some keep late events."""
CONFLATING = 0.3
"""The share of such subscriptions in these storms."""
LATER = 0.15
LATER_NS = 20 * SECOND
"""The share of subscriptions in these storms that keep late events, and for how long."""
KEYS = (("topic",), ("topic", "region"), ("region", "urgent"), ("level",))

COPYING = 0.25
"""The share of storms with two copies of every event."""

BURSTS = ((0.08, 0.30), (0.48, 0.62))
"""When faults happen, as shares of the storm."""
PUBLISHING_ENDS = 0.80
BUSIEST = 10.0
"""How many times as much is published in the busiest storms as in the quietest."""
MOVING = (0.05, 0.85)
"""When clients move, as shares of the storm."""

LEAST_FULL_NS = 6e9
"""The least time that a store stays full: events must expire meanwhile."""
LONG_S = (12.0, 25.0)
"""How long a long outage lasts: `timeout_ns` of the storm's brokers is 8 s."""
RELOADING_NS = 1e9
"""How long all brokers may take to read a changed file."""
LEAST_REWIRED_NS = 2.5e9
LEAST_LARGE_NS = 4e9
SMALLEST_LARGE = 0.01
"""A large state that was not requested by name has at least this share of `large_subscriptions`, log-uniform."""
SPLITTING = 0.03
"""How often what is sent arrives in two pieces, in storms with faults."""
UNHEARD_S = (4.0, 6.0)
"""How long a system waits for an acknowledgement: 15 s on real brokers, but storms are short."""
BUSY_MS = ((1.0, 5.0), (2.0, 30.0), (5.0, 80.0))
"""How long event loops take before they read: usually at most the first, sometimes up to the second."""
COPY_BYTES = 1_600
"""What a link carries for each copy of an event: 1 kB and its acknowledgement, and bursts."""
BESIDES_BYTES_PER_S = 3_000
"""What a link carries besides events."""
BUFFERS = (
    SocketFigures(),
    SocketFigures(buffer_bytes=16_384, high_bytes=8_192, low_bytes=2_048),
    SocketFigures(buffer_bytes=2_048, high_bytes=1_024, low_bytes=256),
)


class Fault(NamedTuple):
    """A fault from `at_ns` to `until_ns`."""

    at_ns: int
    until_ns: int
    kind: FaultKind
    place: str
    other: str
    power: bool
    """Whether the power fails, so that no peer is informed."""
    stays: bool = False
    """Whether the change of a rewire or a large state stays."""
    subscriptions: int = 0
    """How many subscriptions a large state has."""


class Move(NamedTuple):
    """A request to a client to move to another broker, with the path to it."""

    at_ns: int
    client: str
    broker: str


class LinkPlan(NamedTuple):
    """A connection of two nodes: how long frames take, and what happens to them."""

    one: str
    other: str
    latency_ns: float
    jitter_ns: float
    ns_per_byte: float


class SubscriptionPlan(NamedTuple):
    """What a client subscribes to, from when on, and until when."""

    client: str
    name: str
    filter: str
    max_delay_ns: int | None
    price: float
    late_ns: int
    policy: str | None
    drops: bool
    from_ns: int
    until_ns: int | None
    conflate: tuple[str, ...] = ()


class ClientPlan(NamedTuple):
    name: str
    home: str
    advertises: bool


class Publication(NamedTuple):
    at_ns: int
    publisher: str
    attributes: dict[str, int | float | str | bool]
    lifetime_ns: int | None
    payload_bytes: int


class StormPlan(NamedTuple):
    """The plan of one storm."""

    brokers: tuple[str, ...]
    links: tuple[LinkPlan, ...]
    clients: tuple[ClientPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    publications: tuple[Publication, ...]
    faults: tuple[Fault, ...]
    moves: tuple[Move, ...]
    relocation: Relocation
    rate_per_s: float
    end_ns: int
    heal_ns: int
    figures: SocketFigures
    busy_ms: tuple[float, float]
    is_tight: bool
    copies: int = 1
    """The number of disks that hold an event before it is accepted."""
    mqtt: MqttPlan = MqttPlan()

    @property
    def everybody(self) -> tuple[str, ...]:
        """The names of all hosts."""
        return (*self.brokers, *(client.name for client in self.clients))

    def graph(self) -> dict[str, frozenset[str]]:
        """The planned overlay: the neighbours of every broker."""
        found: dict[str, set[str]] = {broker: set() for broker in self.brokers}
        for link in self.links:
            if link.one in found and link.other in found:
                found[link.one].add(link.other)
                found[link.other].add(link.one)
        return {broker: frozenset(others) for broker, others in found.items()}

    def added_links(self) -> list[tuple[str, str]]:
        """The links that do not exist at first; rewires add them."""
        planned = self.graph()
        pairs = {(fault.place, fault.other) for fault in self.faults if fault.kind == "rewire"}
        return sorted(pair for pair in pairs if pair[1] not in planned[pair[0]])

    def calms(self) -> list[tuple[int, int]]:
        """The intervals without faults, from first to last."""
        edges: list[tuple[int, int]] = []
        free_ns = 0
        for fault in sorted(fault for fault in self.faults if fault.kind not in HARMLESS):
            if fault.at_ns > free_ns:
                edges.append((free_ns, fault.at_ns))
            free_ns = max(free_ns, fault.until_ns)
        return [*edges, (free_ns, self.end_ns)]


def make_plan(settings: StormSettings, seed: int) -> StormPlan:
    """The plan of a seed."""
    dice = Dice(np.random.default_rng([seed, 1]))
    end_ns = round(settings.duration_s * SECOND)
    brokers = tuple(f"b{number}" for number in range(settings.brokers))
    links = [*_overlay(dice, brokers)]
    clients = tuple(
        ClientPlan(f"c{number:02}", dice.one_of(brokers), number % 5 < 2) for number in range(settings.clients)
    )
    links += [
        LinkPlan(client.name, client.home, dice.between(0.2e6, 2e6), dice.between(0.1e6, 1e6), dice.between(10, 200))
        for client in clients
    ]
    moving = Dice(np.random.default_rng([seed, 3]))
    relocation = moving.one_of(RELOCATIONS) if settings.relocation == "mixed" else settings.relocation
    faults: tuple[Fault, ...] = ()
    if settings.faults:
        by_itself = Dice(np.random.default_rng([seed, 6]))
        outages = _outages(by_itself, settings, brokers, links, clients, end_ns)
        phases = _phases(Dice(np.random.default_rng([seed, 8])), settings, brokers, links, end_ns)
        broken = _apart(sorted(_faults(dice, settings, brokers, links, clients, end_ns) + outages + phases))
        changes = _rewires(by_itself, settings, brokers, links, end_ns)
        changes += _large_states(by_itself, settings, clients, end_ns)
        faults = tuple(sorted(broken + changes))  # changes may overlap with other faults
    mqtt = draw_mqtt(Dice(np.random.default_rng([seed, 14])), settings, brokers, BURSTS, PUBLISHING_ENDS, end_ns)
    faults = tuple(sorted((*faults, *_faults_of_mqtt(mqtt))))
    heal_ns = max((fault.until_ns for fault in faults if fault.kind not in HARMLESS), default=0)
    rate_per_s = _rate_per_s(Dice(np.random.default_rng([seed, 5])), settings.rate_per_s)
    subscriptions = _subscriptions(dice, clients, heal_ns or end_ns // 2)
    if relocation == "on-time":
        subscriptions = _hurried(Dice(np.random.default_rng([seed, 8])), subscriptions)
    subscriptions = _wordy(Dice(np.random.default_rng([seed, 12])), subscriptions)
    subscriptions = _conflating(Dice(np.random.default_rng([seed, 14])), subscriptions)
    copies = _copies(Dice(np.random.default_rng([seed, 10])), settings, faults)
    return StormPlan(
        brokers=brokers,
        links=tuple(links),
        clients=clients,
        subscriptions=tuple(subscriptions),
        publications=tuple(_publications(dice, rate_per_s, clients, end_ns)),
        faults=faults,
        moves=tuple(_moves(moving, brokers, clients, faults, end_ns)) if settings.moves else (),
        relocation=relocation if "buffer" in settings.scheme else "off",
        rate_per_s=rate_per_s,
        end_ns=end_ns,
        heal_ns=heal_ns,
        figures=_figures(dice, faults, links, copies * rate_per_s) if settings.faults else SocketFigures(),
        busy_ms=dice.one_of(BUSY_MS) if settings.faults else BUSY_MS[0],
        is_tight=dice.happens(0.2) if settings.faults else False,
        copies=copies,
        mqtt=mqtt,
    )


def _faults_of_mqtt(mqtt: MqttPlan) -> list[Fault]:
    away = [
        Fault(each.at_ns, each.until_ns, "mqtt-away", each.client, each.client, not each.resets)
        for each in mqtt.absences
    ]
    return away + [Fault(at_ns, at_ns, "mqtt-garbage", door, door, power=False) for at_ns, door in mqtt.garbage]


def _copies(dice: Dice, settings: StormSettings, faults: tuple[Fault, ...]) -> int:
    """Not in the middle of an upgrade: brokers of the previous version keep no copies."""
    able = "buffer" in settings.scheme and settings.brokers > 1 and all(fault.kind != "upgrade" for fault in faults)
    if settings.copies == "mixed":
        return 2 if dice.happens(COPYING) and able else 1
    return settings.copies if able else 1


def _moves(
    dice: Dice, brokers: tuple[str, ...], clients: tuple[ClientPlan, ...], faults: tuple[Fault, ...], end_ns: int
) -> list[Move]:
    found = []
    for fault in faults:  # events wait for a client that is away or slow
        if fault.kind in ("client-away", "client-slow") and dice.happens(0.7):
            at_ns = round(dice.between(fault.at_ns, fault.until_ns + 0.5e9))
            found.append(Move(at_ns, fault.place, dice.one_of(brokers)))
    for _ in range(2 + dice.whole(7)):
        at_ns = round(dice.between(MOVING[0] * end_ns, MOVING[1] * end_ns))
        for _ in range(2 + dice.whole(3) if dice.happens(0.3) else 1):
            client = dice.one_of(clients)
            found.append(Move(at_ns, client.name, dice.one_of(brokers)))
            while dice.happens(0.4):
                again_ns = round(found[-1].at_ns + dice.between(0.05e9, 2e9))
                found.append(Move(again_ns, client.name, client.home if dice.happens(0.5) else dice.one_of(brokers)))
    return sorted(move for move in found if move.at_ns <= MOVING[1] * end_ns)


def _overlay(dice: Dice, brokers: tuple[str, ...]) -> list[LinkPlan]:
    """A random tree with some extra links, so that most failures can be bypassed and some cannot."""
    pairs = [(dice.one_of(brokers[:number]), brokers[number]) for number in range(1, len(brokers))]
    for _ in range(len(brokers) // 2):
        one, other = sorted((dice.one_of(brokers), dice.one_of(brokers)))
        if one != other and (one, other) not in pairs:
            pairs.append((one, other))
    return [
        LinkPlan(one, other, dice.between(1e6, 40e6), dice.between(0.5e6, 20e6), dice.between(100, 3000))
        for one, other in pairs
    ]


def _subscriptions(dice: Dice, clients: tuple[ClientPlan, ...], churn_ends_ns: int) -> list[SubscriptionPlan]:
    found = []
    for number, client in enumerate(clients):
        if number % 5 == 0:
            continue
        for name in ("s0", "s1")[: 1 + dice.whole(2)]:
            policy = dice.one_of(POLICIES)
            delay_s = dice.one_of(DELAYS_S)
            from_ns = round(dice.between(0.1, 3.0) * SECOND)
            until_ns = None
            if dice.happens(0.2):
                from_ns = round(dice.share() * churn_ends_ns)
            if dice.happens(0.2):
                until_ns = round(dice.between(from_ns, churn_ends_ns))
            found.append(
                SubscriptionPlan(
                    client=client.name,
                    name=name,
                    filter=dice.one_of(FILTERS),
                    max_delay_ns=None if delay_s is None else round(delay_s * SECOND),
                    price=float(1 + dice.whole(3)),
                    late_ns=5 * SECOND if dice.happens(0.2) else 0,
                    policy=policy,
                    drops=policy is not None and dice.happens(0.5),
                    from_ns=from_ns,
                    until_ns=until_ns,
                )
            )
    return found


def _hurried(dice: Dice, subscriptions: list[SubscriptionPlan]) -> list[SubscriptionPlan]:
    """The same clients, some with deadlines that not every broker can meet."""
    return [
        each._replace(max_delay_ns=round(dice.between(*HURRIED_MS) * 1e6), late_ns=HURRIED_LATE_NS)
        if dice.happens(HURRIED)
        else each
        for each in subscriptions
    ]


def _wordy(dice: Dice, subscriptions: list[SubscriptionPlan]) -> list[SubscriptionPlan]:
    """The same clients, in some storms a few with filters so long that they are parsed in slices."""
    if not dice.happens(WORDY_STORMS):
        return subscriptions
    return [
        each._replace(filter=f"({each.filter}) AND level NOT IN ({_no_levels(dice)})") if dice.happens(WORDY) else each
        for each in subscriptions
    ]


def _conflating(dice: Dice, subscriptions: list[SubscriptionPlan]) -> list[SubscriptionPlan]:
    """The same clients, in some storms a few that want the latest value alone, or late events for long."""
    if not dice.happens(CONFLATING_STORMS):
        return subscriptions
    found = [each._replace(conflate=dice.one_of(KEYS)) if dice.happens(CONFLATING) else each for each in subscriptions]
    return [each._replace(late_ns=LATER_NS) if dice.happens(LATER) else each for each in found]


def _no_levels(dice: Dice) -> str:
    """Numbers that no event has, and that hardly any other list has."""
    return ", ".join(str(10**6 + dice.whole(10**6)) for _ in range(round(dice.between(*WORDS))))


def _rate_per_s(dice: Dice, mean_per_s: float) -> float:
    """Log-uniform: from a to BUSIEST a, the mean of which is a (BUSIEST - 1) / ln BUSIEST."""
    quietest_per_s = mean_per_s * math.log(BUSIEST) / (BUSIEST - 1.0)
    return quietest_per_s * math.exp(math.log(BUSIEST) * dice.share())


def _publications(dice: Dice, rate_per_s: float, clients: tuple[ClientPlan, ...], end_ns: int) -> list[Publication]:
    publishers = [client.name for client in clients if client.advertises]
    found: list[Publication] = []
    at_ns = 1.0 * SECOND
    mean_ns = SECOND / rate_per_s
    while True:
        # Now and then a publisher sends several at once: bursts test order and queues, averages do not.
        at_ns += dice.exponential(mean_ns)
        if at_ns >= end_ns * PUBLISHING_ENDS:
            return found
        publisher = dice.one_of(publishers)
        together = range(4 if dice.happens(0.15) else 1)
        apart_ns = 1_000_000 if dice.happens(0.5) else 0
        found += [_publication(dice, publisher, round(at_ns) + step * apart_ns) for step in together]


def _publication(dice: Dice, publisher: str, at_ns: int) -> Publication:
    attributes: dict[str, int | float | str | bool] = {
        "topic": dice.one_of(TOPICS),
        "level": dice.whole(100),
        "urgent": dice.happens(0.1),
    }
    if dice.happens(0.7):
        attributes["region"] = dice.one_of(("north", "south"))
    lifetime_s = dice.one_of(LIFETIMES_S)
    lifetime_ns = None if lifetime_s is None else round(lifetime_s * SECOND)
    return Publication(at_ns, publisher, attributes, lifetime_ns, dice.whole(400))


def _figures(dice: Dice, faults: tuple[Fault, ...], links: list[LinkPlan], copies_per_s: float) -> SocketFigures:
    buffers = dice.one_of(BUFFERS)
    if buffers is BUFFERS[-1]:
        # With 2 KB in a round trip a large table takes longer than routing may take to be right (`converge_s`), and
        # what an overload has left behind longer than events may take (`recover_s`). Nor may a link be overloaded by
        # what is published anyway: events would expire in its queue, and nobody would have broken a promise.
        round_trip_s = max(2.0 * link.latency_ns + link.jitter_ns for link in links) / SECOND + BUSY_MS[-1][1] * 1e-3
        if (
            any(fault.kind in ("large-state", "overload") for fault in faults)
            or COPY_BYTES * copies_per_s + BESIDES_BYTES_PER_S > buffers.buffer_bytes / round_trip_s
        ):
            buffers = BUFFERS[-2]
    unheard_ns = round(dice.between(*UNHEARD_S) * SECOND)
    return SocketFigures(
        buffer_bytes=buffers.buffer_bytes,
        high_bytes=buffers.high_bytes,
        low_bytes=buffers.low_bytes,
        unheard_ns=unheard_ns,
        splitting=SPLITTING,
    )


def _faults(
    dice: Dice,
    settings: StormSettings,
    brokers: tuple[str, ...],
    links: list[LinkPlan],
    clients: tuple[ClientPlan, ...],
    end_ns: int,
) -> list[Fault]:
    between = [link for link in links if link.one in brokers and link.other in brokers]
    wanted = settings.kinds or KINDS
    kinds = [kind for kind in KINDS if kind in wanted and (between or PLACES[kind] != "link")]
    drawn = [kind for kind in kinds for _ in range(WEIGHTS[kind])]
    found = []
    for begin, end in BURSTS:
        first_ns, last_ns = begin * end_ns, end * end_ns
        for _ in range(3 + dice.whole(8) if drawn else 0):
            kind = dice.one_of(drawn)
            at_ns = dice.between(first_ns, last_ns)
            lasts_ns = dice.between(0.05, 1.0) ** 2 * 12e9
            if kind == "disk-full":
                at_ns, lasts_ns = min(at_ns, last_ns - LEAST_FULL_NS), LEAST_FULL_NS + lasts_ns
            lasts_ns = min(lasts_ns, last_ns - at_ns)
            place, other = _place(dice, kind, brokers, between, clients)
            found.append(Fault(round(at_ns), round(at_ns + lasts_ns), kind, place, other, dice.happens(0.5)))
        if "blackout" in kinds and dice.happens(0.5):
            at_ns = dice.between(first_ns, last_ns)
            until_ns = min(at_ns + dice.between(0.1e9, 3e9), last_ns)
            found.append(Fault(round(at_ns), round(until_ns), "blackout", "", "", True))
    for kind in sorted(HARMLESS.intersection(drawn)):  # strangers come at any time
        for _ in range(dice.whole(3)):
            at_ns = round(dice.between(0.02, 0.95) * end_ns)
            found.append(Fault(at_ns, at_ns, kind, dice.one_of(brokers), dice.one_of(clients).name, False))
    return found


def _has(dice: Dice, settings: StormSettings, kind: FaultKind) -> bool:
    """Whether this storm has faults of a kind that is drawn separately."""
    return dice.happens(SHARES[kind]) if not settings.kinds else kind in settings.kinds


def _outages(
    dice: Dice,
    settings: StormSettings,
    brokers: tuple[str, ...],
    links: list[LinkPlan],
    clients: tuple[ClientPlan, ...],
    end_ns: int,
) -> list[Fault]:
    """A process or a link is down for longer than every time-out."""
    if not _has(dice, settings, "long-outage"):
        return []
    between = [link for link in links if link.one in brokers and link.other in brokers]
    healed_ns, least_ns = BURSTS[-1][1] * end_ns, LONG_S[0] * SECOND
    found = []
    for _ in range(1 + dice.whole(2)):
        at_ns = dice.between(BURSTS[0][0] * end_ns, min(BURSTS[0][1] * end_ns, healed_ns - least_ns))
        until_ns = at_ns + dice.between(least_ns, min(LONG_S[1] * SECOND, healed_ns - at_ns))
        if dice.happens(0.2) and between:
            place, other = dice.one_of(between)[:2]
        elif dice.happens(0.25):
            place = other = dice.one_of(clients).name
        else:
            place = other = dice.one_of(brokers)
        found.append(Fault(round(at_ns), round(until_ns), "long-outage", place, other, dice.happens(0.5)))
    return found


def _phases(
    dice: Dice, settings: StormSettings, brokers: tuple[str, ...], links: list[LinkPlan], end_ns: int
) -> list[Fault]:
    """Links are noisy, and brokers are upgraded or downgraded, one after the other, through both bursts."""
    between = [link for link in links if link.one in brokers and link.other in brokers]
    found = []
    if _has(dice, settings, "noise"):
        found += [_shortly(dice, "noise", *dice.one_of(between)[:2], end_ns) for _ in range(4) if between]
    if _has(dice, settings, "upgrade"):
        found += [_shortly(dice, "upgrade", broker, broker, end_ns) for broker in brokers if dice.happens(0.8)]
    return found


def _shortly(dice: Dice, kind: FaultKind, place: str, other: str, end_ns: int) -> Fault:
    begin, end = dice.one_of(BURSTS)
    at_ns = dice.between(begin * end_ns, end * end_ns - SECOND)
    return Fault(round(at_ns), round(at_ns + dice.between(0.1, 1.0) * SECOND), kind, place, other, power=False)


def _rewires(
    dice: Dice, settings: StormSettings, brokers: tuple[str, ...], links: list[LinkPlan], end_ns: int
) -> list[Fault]:
    """In each burst the operator adds a link, or removes one that the overlay can do without."""
    if not _has(dice, settings, "rewire"):
        return []
    pairs = {(link.one, link.other) for link in links if link.one in brokers and link.other in brokers}
    found = []
    for begin, end in BURSTS:
        able = [
            (one, other)
            for place, one in enumerate(brokers)
            for other in brokers[place + 1 :]
            if (one, other) not in pairs or _is_connected(brokers, pairs - {(one, other)})
        ]
        if able:
            gone = [pair for pair in able if pair in pairs]
            pair = dice.one_of(gone if gone and dice.happens(0.5) else able)
            at_ns = dice.between(begin * end_ns, end * end_ns - LEAST_REWIRED_NS)
            until_ns = dice.between(at_ns + LEAST_REWIRED_NS, end * end_ns)
            stays = dice.happens(0.5)
            found.append(Fault(round(at_ns), round(until_ns), "rewire", *pair, power=False, stays=stays))
            pairs ^= {pair} if stays else set()
    return found


def _is_connected(brokers: tuple[str, ...], pairs: set[tuple[str, str]]) -> bool:
    reached = set(brokers[:1])
    while more := {end for pair in pairs if reached.intersection(pair) for end in pair} - reached:
        reached |= more
    return len(reached) == len(brokers)


def _large_states(dice: Dice, settings: StormSettings, clients: tuple[ClientPlan, ...], end_ns: int) -> list[Fault]:
    """A client makes very many subscriptions in one of the bursts."""
    if not _has(dice, settings, "large-state"):
        return []
    smaller = 1.0 if "large-state" in settings.kinds else math.exp(math.log(SMALLEST_LARGE) * dice.share())
    begin, end = dice.one_of(BURSTS)
    at_ns = dice.between(begin * end_ns, end * end_ns - LEAST_LARGE_NS)
    until_ns = dice.between(at_ns + LEAST_LARGE_NS, end * end_ns)
    client, count = dice.one_of(clients).name, max(round(settings.large_subscriptions * smaller), 1)
    at = (round(at_ns), round(until_ns))
    return [Fault(*at, "large-state", client, client, power=False, stays=dice.happens(0.5), subscriptions=count)]


def _place(
    dice: Dice,
    kind: FaultKind,
    brokers: tuple[str, ...],
    between: Sequence[LinkPlan],
    clients: tuple[ClientPlan, ...],
) -> tuple[str, str]:
    """Where a fault is: a link has two ends, everything else one."""
    if PLACES[kind] == "link":
        link = dice.one_of(between)
        return (link.one, link.other) if dice.happens(0.5) else (link.other, link.one)
    if kind in HARMLESS:
        return dice.one_of(brokers), dice.one_of(clients).name
    if PLACES[kind] == "publisher":
        place = dice.one_of([client.name for client in clients if client.advertises])
    elif PLACES[kind] == "client" or (PLACES[kind] == "anybody" and dice.happens(0.5)):
        place = dice.one_of(clients).name
    else:
        place = dice.one_of(brokers)
    return place, place


def _apart(faults: list[Fault]) -> list[Fault]:
    """Drop faults of something that is already faulty."""
    kept: list[Fault] = []
    for fault in faults:
        is_harmless = fault.kind in HARMLESS
        if is_harmless or not any(
            fault.place in (k.place, k.other) and k.until_ns >= fault.at_ns for k in kept if k.kind not in HARMLESS
        ):
            kept.append(fault)
    return kept
