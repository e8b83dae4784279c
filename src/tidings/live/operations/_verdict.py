"""What is wrong with a network, from its status alone: one line, and the troubles in order of gravity.

Every subscription whose home broker is down, and every one that was late in the last minute (fewer than ON_TIME_LEAST
of its events on time), belongs to exactly one trouble: the most likely cause. Causes are sought where events are lost
or wait, in this order:

1. a broker upstream dropped most of them: its link towards the subscriber is too slow, or the broker is too busy;
2. events wait for the reader at its own home: it reads too slowly, unless its home is too busy to send;
3. events wait for a link on a path from a publisher;
4. a broker on such a path is too busy;
5. nothing waits: the deadline is shorter than events take, or the cause has passed.

How long it has lasted is read from the brokers' histories (`_history`). Fields that brokers of earlier versions do not
report may be missing.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from tidings.model.units import percent
from tidings.protocol import breadth_first

__all__ = ["KINDS", "Trouble", "Verdict", "links_of", "trees_of", "verdict_of"]

ON_TIME_LEAST: Final = 0.99
BUSY: Final = 0.9
"""A broker that uses this share of a processor is too busy."""
ROWS_MINUTE: Final = 12
"""Rows of history that are the last minute."""
GAP_ROWS: Final = 2
"""A condition that pauses for so many rows has not ended."""
STUCK_S: Final = 30.0
STARTING_S: Final = 60.0
TREES_MAX: Final = 8
"""From how many brokers with publishers paths are followed, the busiest first."""

KINDS: Final = {
    "broker-down": "critical",
    "store-full": "critical",
    "link-down": "critical",
    "link-slow": "warning",
    "broker-busy": "warning",
    "reader-slow": "warning",
    "deadline-short": "warning",
    "late": "warning",
    "parked": "warning",
    "move-stuck": "warning",
    "copies-missing": "warning",
    "broker-stuck": "warning",
    "store-damaged": "notice",
    "broker-starting": "notice",
    "broker-draining": "notice",
    "client-away": "notice",
    "budget": "notice",
}
"""The kinds of trouble, the gravest first. A notice alone leaves the network OK."""
_LATE: Final = ("link-slow", "broker-busy", "reader-slow", "deadline-short", "late")

Facts = Mapping[str, Any]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble: what is wrong, why, for how long, who is affected, what to do, and the command to type."""

    kind: str
    gravity: str
    what: str
    why: str
    remedy: str
    command: str = ""
    since_s: float | None = None
    brokers: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    subscriptions_left_off: int = 0
    publishers: tuple[str, ...] = ()

    @property
    def affected(self) -> int:
        """How many subscriptions are affected."""
        return len(self.subscriptions) + self.subscriptions_left_off


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a network: `OK`, `late`, `down` or `trouble`; in one line; and its troubles, the gravest first."""

    state: str
    line: str
    on_time_reliability: float | None
    subscriptions: int
    late: int
    affected: int
    troubles: tuple[Trouble, ...]


def verdict_of(status: Mapping[str, Any], *, file: str = "network.toml") -> Verdict:
    """The verdict on the status of a network (`network_status`); commands name the network's file."""
    view = _View(status, file)
    found = [trouble for finder in _FINDERS for trouble in finder(view)]
    order = list(KINDS)
    found.sort(key=lambda each: (order.index(each.kind), -each.affected, each.what))
    state = _state(found)
    return Verdict(
        state=state,
        line=_line(view, state, found),
        on_time_reliability=_recent_share(view),
        subscriptions=view.total,
        late=sum(each.affected for each in found if each.kind in _LATE),
        affected=sum(each.affected for each in found if each.kind == "broker-down"),
        troubles=tuple(found),
    )


def _state(troubles: Sequence[Trouble]) -> str:
    kinds = {each.kind for each in troubles if each.gravity != "notice"}
    if kinds & {"broker-down", "link-down"}:
        return "down"
    return "OK" if not kinds else "late" if kinds <= {*_LATE} else "trouble"


def _line(view: "_View", state: str, troubles: Sequence[Trouble]) -> str:
    grave = [each for each in troubles if each.gravity != "notice"]
    share = _recent_share(view)
    if not grave:
        parts = [_count(len(view.brokers), "broker"), _count(len(view.links), "link")]
        parts.append(_count(view.total, "subscription"))
        parts += [] if share is None else [f"{percent(share)} on time in the last minute"]
        line = f"OK: {', '.join(parts)}"
        return f"{line}; {_count(len(troubles), 'notice')}" if troubles else line
    first, *others = grave
    line = f"{state}: {first.what}"
    if first.affected:
        line += f", {first.affected:,} of {_count(view.total, 'subscription')} affected"
    line += f"; {others[0].what}" if others else ""
    return f"{line}; and {len(others) - 1} more" if len(others) > 1 else line


def links_of(brokers: Sequence[Facts]) -> dict[tuple[str, str], bool]:
    """By the names of both ends, in order: whether they hear each other."""
    found: dict[tuple[str, str], bool] = {}
    for broker in brokers:
        heard = {name: peer["up"] for name, peer in broker.get("neighbours", {}).items()}
        for other, is_heard in (dict.fromkeys(broker["absent"], False) | heard).items():
            one, two = sorted((broker["name"], other))
            found[one, two] = found.get((one, two), True) and is_heard
    return found


def trees_of(brokers: Sequence[Facts]) -> dict[str, dict[str, str]]:
    """By broker with publishers, the busiest first: the parent of every broker on the paths of its events."""
    rates = {
        broker["name"]: sum(each["rate_per_s"] for each in broker["publishers"])
        for broker in brokers
        if broker.get("publishers")
    }
    neighbours = _neighbours(brokers)
    return {
        root: breadth_first(neighbours, root)
        for root in sorted(rates, key=lambda name: (-rates[name], name))[:TREES_MAX]
    }


def _neighbours(brokers: Sequence[Facts]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {broker["name"]: [] for broker in brokers}
    for (one, other), is_up in sorted(links_of(brokers).items()):
        if is_up and one in found and other in found:
            found[one].append(other)
            found[other].append(one)
    return {name: sorted(others) for name, others in found.items()}


class _View:
    """A status, arranged for questions."""

    def __init__(self, status: Mapping[str, Any], file: str) -> None:
        self.brokers: Sequence[Facts] = status["brokers"]
        self.subscribers: Mapping[str, Facts] = status["subscribers"]
        self.file = shlex.quote(file)
        self.by_name = {broker["name"]: broker for broker in self.brokers}
        self.up = [broker for broker in self.brokers if broker["up"]]
        self.links = links_of(self.brokers)
        self.neighbours = _neighbours(self.brokers)
        self.trees = trees_of(self.brokers)
        left_off = sum(broker["subscribers_left_off"] for broker in self.brokers)
        self.total = len(self.subscribers) + left_off

    def at(self, broker: str) -> tuple[str, ...]:
        """The listed subscriptions at a broker."""
        return tuple(name for name, each in self.subscribers.items() if each["broker"] == broker)

    def publishers(self, broker: str) -> tuple[str, ...]:
        """The publishers at a broker."""
        return tuple(each["client"] for each in self.by_name[broker].get("publishers", ()))

    def path(self, root: str, target: str) -> list[str]:
        """The brokers from one to another; empty if there is no path."""
        tree = self.trees.get(root) or breadth_first(self.neighbours, root)
        if target not in tree or root not in tree:
            return []
        found = [target]
        while found[-1] != root:
            found.append(tree[found[-1]])
        return found[::-1]

    def hops(self, home: str) -> list[tuple[str, str]]:
        """The links on the paths from publishers to a home broker, each in the direction of its events."""
        found: dict[tuple[str, str], None] = {}
        for root in self.trees:
            path = self.path(root, home)
            found |= dict.fromkeys(pairwise(path))
        return list(found)

    def queued(self, broker: str, neighbour: str) -> int:
        """The most events that waited for a link in the last minute."""
        facts = self.by_name[broker]
        now = facts.get("neighbours", {}).get(neighbour, {}).get("queued", 0)
        return int(max([now, *_rows(facts, "links").get(neighbour, [])[-ROWS_MINUTE:]]))

    def busy(self, broker: str) -> float:
        """The largest utilisation of a broker in the last minute; of the last second if there is no history yet."""
        facts = self.by_name[broker]
        recent = _rows(facts, "utilisation")[-ROWS_MINUTE:]
        return float(max(recent, default=facts.get("utilisation", 0.0)))


def _rows(broker: Facts, column: str) -> Any:
    """A column of a broker's history; `links` are several."""
    return broker.get("history", {}).get(column, {} if column == "links" else [])


def _lasted_s(broker: Facts, values: Sequence[float], holds: Callable[[float], bool]) -> float | None:
    """For how long a condition has held up to now, by a column of history; None if it does not hold."""
    times_s = _rows(broker, "at_s")
    spans_s = _rows(broker, "span_s")
    first, gap = None, 0
    for number in range(min(len(values), len(times_s)) - 1, -1, -1):
        if holds(values[number]):
            first, gap = number, 0
        elif (gap := gap + 1) > GAP_ROWS:
            break
    return None if first is None else round(times_s[-1] - times_s[first] + spans_s[first], 1)


def _missing_s(broker: Facts) -> float | None:
    """For how long a broker's subscribers have missed more than they should."""
    columns = [_rows(broker, key) for key in ("on_time", "late", "dropped", "lost")]
    shares = [(late + dropped + lost, on_time) for on_time, late, dropped, lost in zip(*columns, strict=False)]
    missed = [bad / (bad + good) if bad + good > 0 else 0.0 for bad, good in shares]
    return _lasted_s(broker, missed, lambda share: share > 1.0 - ON_TIME_LEAST)


def _recent_share(view: _View) -> float | None:
    recent = [broker["deliveries"]["last_minute"] for broker in view.up]
    settled = sum(each["on_time"] + each["late"] + each["dropped"] + each["lost"] for each in recent)
    return min(sum(each["on_time"] for each in recent) / settled, 1.0) if settled > 0 else None


def _made(kind: str, what: str, why: str, remedy: str, command: str = "", **who: Any) -> Trouble:
    return Trouble(kind=kind, gravity=KINDS[kind], what=what, why=why, remedy=remedy, command=command, **who)


# -- brokers and links ---------------------------------------------------------------------------------------------


def _down(view: _View) -> Iterator[Trouble]:
    if len(view.brokers) > 1 and not view.up:
        yield _made(
            "broker-down",
            "no broker answers",
            str(view.brokers[0]["why"]),
            "start the network, or ask from a machine that reaches its brokers",
            f"tidings up {view.file}",
            brokers=tuple(broker["name"] for broker in view.brokers),
            subscriptions=tuple(name for name, each in view.subscribers.items() if each["affected"]),
            subscriptions_left_off=sum(broker["subscribers_left_off"] for broker in view.brokers),
        )
        return
    for broker in view.brokers:
        if broker["up"]:
            continue
        name = broker["name"]
        silent_s = [each.get("silent_s", {}).get(name) for each in view.up]
        waiting = sum(each.get("parked", {}).get(name, {}).get("events", 0) for each in view.up)
        yield _made(
            "broker-down",
            f"broker {name} is down",
            str(broker["why"]) + (f"; {_count(waiting, 'event')} wait for it" if waiting else ""),
            "`tidings up` restarts it automatically; otherwise start it, and read the end of its log",
            f"tidings broker {view.file} --name {shlex.quote(name)}",
            since_s=min((each for each in silent_s if each is not None), default=None),
            brokers=(name,),
            subscriptions=tuple(each for each in view.at(name) if view.subscribers[each]["affected"]),
            subscriptions_left_off=broker["subscribers_left_off"],
        )


def _links_down(view: _View) -> Iterator[Trouble]:
    for (one, other), is_up in sorted(view.links.items()):
        ends = [view.by_name.get(name) for name in (one, other)]
        if is_up or not all(end is not None and end["up"] and end["ready"] for end in ends):
            continue  # a broker that is down or starts has no links, which is its own trouble
        reached = breadth_first(view.neighbours, one)
        is_cut = other not in reached
        apart = view.neighbours.keys() - reached.keys() if is_cut else set()
        smaller = min(apart, reached.keys(), key=len) if is_cut else set()
        silent_s = [
            end.get("silent_s", {}).get(name) for end, name in zip(ends, (other, one), strict=True) if end is not None
        ]
        why = "they do not hear each other"
        why += "; events between both sides wait" if is_cut else "; events take another path"
        host = view.by_name[other].get("address", "")
        yield _made(
            "link-down",
            f"link {one} - {other} is down",
            why,
            f"check the network between them, and that {one} can connect to {host or other}",
            f"tidings status {view.file}",
            since_s=min((each for each in silent_s if each is not None), default=None),
            brokers=(one, other),
            subscriptions=tuple(name for name, each in view.subscribers.items() if each["broker"] in smaller),
        )


def _states(view: _View) -> Iterator[Trouble]:
    """Brokers that start or drain, and their stores."""
    for broker in view.up:
        name, store = broker["name"], broker["store"]
        who: dict[str, Any] = {"brokers": (name,)}
        if store["full"]:
            yield _made(
                "store-full",
                f"the store of {name} is full",
                "no event is acknowledged until there is room: publishers wait",
                "free space on its disk, raise [limits] stored_size, or find the client that does not take its events",
                f"tidings status {view.file} --json",
                publishers=view.publishers(name),
                **who,
            )
        if store["damaged"]:
            yield _made(
                "store-damaged",
                f"the store of {name} was damaged",
                f"{_count(store['damaged'], 'record')} could not be read when it started",
                "check its disk; events of these records are lost unless a neighbour keeps copies (copies = 2)",
                **who,
            )
        copies = broker.get("copies")
        if copies and copies["waiting"] and not copies["keeper"]:
            yield _made(
                "copies-missing",
                f"events at {name} have no second copy",
                f"{_count(copies['waiting'], 'event')} wait for a neighbour that can keep one; no event is accepted",
                f"bring back a neighbour of {name}",
                publishers=view.publishers(name),
                **who,
            )
        if broker["draining"]:
            yield _made(
                "broker-draining",
                f"broker {name} is draining",
                "it accepts no more events, and exits when it has handed over those that it holds",
                "wait; its clients continue at other brokers if they know their addresses",
                **who,
            )
        elif not broker["ready"]:
            kind = "broker-starting" if broker["up_s"] < STARTING_S else "broker-stuck"
            yield _made(
                kind,
                f"broker {name} is starting",
                "it accepts no events until it knows the subscriptions at other brokers",
                "wait, or bring back its neighbours",
                since_s=broker["up_s"],
                **who,
            )


def _parked(view: _View) -> Iterator[Trouble]:
    """Events for a home that is up and cannot be reached; those for a broker that is down are part of that trouble."""
    homes: dict[str, list[tuple[str, Facts]]] = defaultdict(list)
    for broker in view.up:
        for home, parked in broker.get("parked", {}).items():
            if home not in view.by_name or view.by_name[home]["up"]:
                homes[home].append((broker["name"], parked))
    for home, found in sorted(homes.items()):
        many = sum(parked["events"] for _, parked in found)
        is_gone = home not in view.by_name
        yield _made(
            "parked",
            f"{_count(many, 'event')} wait for {home}",
            f"{'it is no longer in the file' if is_gone else 'it cannot be reached'} from "
            f"{', '.join(name for name, _ in found)}",
            "bring back the links to it; events wait until they expire",
            f"tidings status {view.file}",
            since_s=max(parked["oldest_s"] for _, parked in found),
            brokers=(home, *(name for name, _ in found)),
            subscriptions=view.at(home),
        )


def _moves(view: _View) -> Iterator[Trouble]:
    for broker in view.up:
        for move in broker["moves"]["under_way"]:
            if move["phase_s"] > STUCK_S:
                yield _made(
                    "move-stuck",
                    f"client {move['client']} does not complete its move from {move['from']} to {move['to']}",
                    f"it has been in phase `{move['phase']}` for {move['phase_s']:,.0f} s (by {move['by']})",
                    f"check that {move['client']} runs and reaches {move['to']}; otherwise the move is called off",
                    since_s=move["phase_s"],
                    brokers=(move["from"], move["to"]),
                    publishers=(move["client"],),
                )


def _away(view: _View) -> Iterator[Trouble]:
    """Clients that are away, by home broker."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, each in view.subscribers.items():
        if not each["connected"] and not each["affected"]:
            homes[each["broker"]].append(name)
    for home, names in homes.items():
        clients = sorted({view.subscribers[name]["client"] for name in names})
        away_s = [view.by_name[home].get("away_s", {}).get(client) for client in clients]
        yield _made(
            "client-away",
            f"{_named('client', clients)} of {home} {'is' if len(clients) == 1 else 'are'} away",
            "not connected: events wait for them until they expire or the client is forgotten",
            "start them again if they should run; unsubscribe those that are gone for good",
            since_s=max((each for each in away_s if each is not None), default=None),
            brokers=(home,),
            subscriptions=tuple(names),
        )


def _budgets(view: _View) -> Iterator[Trouble]:
    for broker in view.up:
        budgets, name = broker.get("budgets"), broker["name"]
        if not budgets:
            continue
        held = tuple(each["client"] for each in budgets["clients"] if each["held_back"] or each["share"] >= 1.0)
        refused = budgets["refused"]
        if held or refused:
            parts = [f"{_count(len(held), 'client')} held back"] if held else []
            parts += [f"{_count(refused, 'filter')} refused since the start"] if refused else []
            yield _made(
                "budget",
                f"clients of {name} exceed their budgets",
                ", ".join(parts),
                "have them send less or write simpler filters, or raise rate, traffic or matching in [limits]",
                f"tidings reload {view.file}",
                brokers=(name,),
                publishers=held,
            )


# -- subscriptions that are late -----------------------------------------------------------------------------------


def _late(view: _View) -> Iterator[Trouble]:
    causes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, each in view.subscribers.items():
        recent = each["last_minute"]
        share = None if recent is None else recent["on_time_reliability"]
        if not each["affected"] and share is not None and share < ON_TIME_LEAST:
            causes[_cause(view, each, recent)].append(name)
    for (kind, one, other), names in causes.items():
        yield _EXPLAIN[kind](view, one, other, tuple(names))


def _cause(view: _View, subscriber: Facts, recent: Facts) -> tuple[str, str, str]:
    """The kind of the most likely cause, and where it is."""
    home = subscriber["broker"]
    hops = view.hops(home)
    upstream = {by: many for by, many in recent["dropped_by"].items() if by in view.by_name and by != home}
    missed = recent["late"] + recent["dropped"] + recent["lost"]
    if upstream and 2 * sum(upstream.values()) >= missed:
        by = max(upstream, key=lambda name: (upstream[name], name))
        after = [to for at, to in hops if at == by] or view.path(by, home)[1:2]
        if after and (view.queued(by, after[0]) or view.busy(by) < BUSY):
            return "link-slow", by, after[0]
        return "broker-busy", by, ""
    if subscriber["queued"]:
        return ("broker-busy", home, "") if view.busy(home) >= BUSY else ("reader-slow", subscriber["client"], home)
    waiting = [(view.queued(at, to), at, to) for at, to in hops]
    if waiting and max(waiting)[0] > 0:
        return "link-slow", *max(waiting)[1:]
    passed = dict.fromkeys([home, *(name for hop in hops for name in hop)])
    busiest = max(passed, key=lambda name: (view.busy(name), name))
    if view.busy(busiest) >= BUSY:
        return "broker-busy", busiest, ""
    is_short = subscriber.get("max_delay_s") is not None and (recent["on_time_reliability"] or 0.0) < 0.5
    return "deadline-short" if is_short else "late", home, ""


def _slow_link(view: _View, one: str, other: str, names: tuple[str, ...]) -> Trouble:
    broker, queued = view.by_name[one], view.queued(one, other)
    column = _rows(broker, "links").get(other, [])
    return _made(
        "link-slow",
        f"link {one} -> {other} is too slow",
        (f"up to {_count(queued, 'event')} waited for it in the last minute" if queued else "events wait for it")
        + f"; {_late_words(view, names)}",
        "move publishers nearer to their subscribers, or give the link more bandwidth",
        f"tidings profile {view.file} --out profiles && tidings place profiles --objective on-time --apply {view.file}",
        since_s=_lasted_s(broker, column, lambda value: value > 0),
        brokers=(one, other),
        subscriptions=names,
        publishers=_sources(view, (one, other)),
    )


def _busy_broker(view: _View, one: str, other: str, names: tuple[str, ...]) -> Trouble:  # noqa: ARG001
    broker = view.by_name[one]
    return _made(
        "broker-busy",
        f"broker {one} is too busy",
        f"it used up to {view.busy(one):.0%} of a processor in the last minute; {_late_words(view, names)}",
        "add a broker to the file and have some of its clients connect there, or give it a faster machine",
        f"tidings reload {view.file}",
        since_s=_lasted_s(broker, _rows(broker, "utilisation"), lambda value: value >= BUSY),
        brokers=(one,),
        subscriptions=names,
        publishers=view.publishers(one),
    )


def _slow_reader(view: _View, one: str, other: str, names: tuple[str, ...]) -> Trouble:
    queued = max(view.subscribers[name]["queued"] for name in names)
    return _made(
        "reader-slow",
        f"client {one} reads too slowly",
        f"{_count(queued, 'event')} wait for it at {other}; {_late_words(view, names)}",
        "have it read faster or in several processes, or subscribe to less; others are not affected",
        since_s=_missing_s(view.by_name[other]),
        brokers=(other,),
        subscriptions=names,
    )


def _short_deadline(view: _View, one: str, other: str, names: tuple[str, ...]) -> Trouble:  # noqa: ARG001
    shortest_s = min(view.subscribers[name]["max_delay_s"] for name in names)
    medians = [view.subscribers[name]["last_minute"]["delay_ms_p50"] for name in names]
    known = [each for each in medians if each is not None]
    take = f", and events take {max(known):,.3g} ms (median)" if known else ""
    return _made(
        "deadline-short",
        f"deadlines at {one} are shorter than the delay of events",
        f"nothing waits and no broker is busy; the shortest deadline is {shortest_s * 1e3:,.3g} ms{take}; "
        f"{_late_words(view, names)}",
        "allow more time (max_delay), or have publisher and subscriber use the same broker",
        since_s=_missing_s(view.by_name[one]),
        brokers=(one,),
        subscriptions=names,
    )


def _plainly_late(view: _View, one: str, other: str, names: tuple[str, ...]) -> Trouble:  # noqa: ARG001
    return _made(
        "late",
        f"{_count(len(names), 'subscription')} at {one} {'was' if len(names) == 1 else 'were'} late",
        f"nothing waits and no broker is busy now, so the cause may have passed; {_late_words(view, names)}",
        "watch whether it returns",
        f"tidings top {view.file}",
        since_s=_missing_s(view.by_name[one]),
        brokers=(one,),
        subscriptions=names,
    )


_EXPLAIN: Final = {
    "link-slow": _slow_link,
    "broker-busy": _busy_broker,
    "reader-slow": _slow_reader,
    "deadline-short": _short_deadline,
    "late": _plainly_late,
}


def _late_words(view: _View, names: tuple[str, ...]) -> str:
    """How many events of these subscriptions were not on time in the last minute, and what became of them."""
    recent = [view.subscribers[name]["last_minute"] for name in names]
    total = {key: sum(each[key] for each in recent) for key in ("on_time", "late", "dropped", "lost")}
    settled = sum(total.values())
    parts = [f"{total[key]:,} {key}" for key in ("late", "dropped", "lost") if total[key]]
    return f"of {_count(settled, 'event')} {', '.join(parts)}" if parts else "events were late"


def _sources(view: _View, link: tuple[str, str]) -> tuple[str, ...]:
    """The publishers whose events take a link."""
    found: dict[str, None] = {}
    for root, tree in view.trees.items():
        if tree.get(link[1]) == link[0]:
            found |= dict.fromkeys(view.publishers(root))
    return tuple(found)


def _named(what: str, names: Sequence[str]) -> str:
    return f"{what} {names[0]}" if len(names) == 1 else f"{len(names):,} {what}s"


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


_FINDERS: Final = (_down, _links_down, _states, _late, _parked, _moves, _away, _budgets)
