"""The guarantees: each is a named check over the history of a storm that gives a sentence for every violation.

Whether an event was owed to a subscription is decided from outside, by the plan and the true time alone:

- its publisher was informed that it is accepted;
- whenever its home broker accepted it, the subscription had been confirmed and had existed through a calm of `settle_s`
  at some time before, so that all brokers knew of it, whatever has been down since and for however long;
- a calm of `recover_s` lies between acceptance and its deadline for that subscription, and the subscription lasted.

A subscription that wants the latest value alone is owed a newer event of the same key in place of a replaced one.

These events are not owed: those that a broker dropped because a queue to the subscriber, or to a broker on the path,
was full (counted and traced); those that a subscription under `drop` discarded because a later event had already been
delivered; and those on a lost disk, in a damaged record, or on the disk of a broker whose clock had jumped (`Loss`), or
under way to clients whose subscriptions were lost or damaged.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from tidings.matching import PlainIndex
from tidings.model.filters import Filter
from tidings.protocol import EventId, LinkStateMap, View, is_address
from tidings.storm._history import Delivery, History, Loss, Published, Report, Subscribed
from tidings.storm._mqtt_invariants import (
    mqtt_accepted,
    mqtt_in_time,
    mqtt_no_mismatch,
    mqtt_qos_2_once,
    mqtt_session_present,
)
from tidings.storm._plan import StormPlan
from tidings.storm._settings import LONGEST_LIFE_S, StormSettings

__all__ = ["CHECKS", "Evidence", "differences", "view_of_fresh_network"]

SECOND: Final = 10**9
_REPORTED_MAX: Final = 5
_LARGE_TABLE: Final = 1_000
_ENTRY_BYTES: Final = 90
"""What a subscription of a large state takes in a frame between brokers."""
_LINKS_IN_A_ROW: Final = 2
"""Over how many consecutive links a large table may have to be sent."""
_ESTIMATE_NS: Final = SECOND
"""How much an event's age may be overestimated along its path before all links on it have been measured."""
_ROUNDING_NS: Final = 1_000
"""Clocks count whole nanoseconds, and each machine on the path rounds."""
_REPORTED_NS: Final = 2 * SECOND
"""How long a client may take to report what it got, and a broker what it has accepted."""


class Evidence(NamedTuple):
    """The input of the checks."""

    settings: StormSettings
    plan: StormPlan
    history: History


def at_most_once(evidence: Evidence) -> Iterator[str]:
    """No subscription gets an event twice in one process of its client."""
    seen: set[tuple[str, int, str, EventId]] = set()
    for delivery in evidence.history.deliveries:
        key = (delivery.client, delivery.life, delivery.subscription, delivery.event)
        if key in seen:
            yield f"{delivery.event} came twice to {delivery.client}/{delivery.subscription}, at {_s(delivery.at_ns)}"
        seen.add(key)


def last_hop_once(evidence: Evidence) -> Iterator[str]:
    """No broker takes an event for its clients twice, unless it crashed before it had written that it did, or its disk
    was lost, or its clock jumped."""
    history = evidence.history
    unwritten: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by broker: intervals
    for at_ns, broker, written_ns in history.crashes:
        unwritten[broker].append((written_ns, at_ns))
    for loss in history.losses:
        if loss.forgets:
            unwritten[loss.broker].append((0, loss.at_ns))
    last: dict[tuple[str, EventId], int] = {}
    for at_ns, broker, event in history.local:
        before_ns = last.get((broker, event))
        if before_ns is not None and not any(
            begin <= before_ns <= crashed <= at_ns for begin, crashed in unwritten[broker]
        ):
            yield f"{broker} took {event} for its clients at {_s(before_ns)} and again at {_s(at_ns)}"
        last[broker, event] = at_ns


def no_mismatch(evidence: Evidence) -> Iterator[str]:
    """Nobody gets an event that does not match, or that differs from what was published."""
    yield from evidence.history.corrupted[:_REPORTED_MAX]
    history = evidence.history
    for delivery in history.deliveries:
        text = history.subscribed[delivery.client, delivery.subscription].filter
        if not _filter(text).matches(history.published[delivery.event].attributes):
            yield f"{delivery.event} came to {delivery.client}/{delivery.subscription}, which wants {text}"


def in_order(evidence: Evidence) -> Iterator[str]:
    """Under `drop`, the events of one epoch of a publisher never go backwards."""
    last: dict[tuple[str, str, int, str, int], int] = {}
    for delivery in evidence.history.deliveries:
        if evidence.history.subscribed[delivery.client, delivery.subscription].drops:
            publisher, epoch, sequence = delivery.event
            key = (delivery.client, delivery.subscription, delivery.life, publisher, epoch)
            if sequence <= last.get(key, -1):
                yield f"{delivery.event} came to {key[:2]} after {last[key]}, at {_s(delivery.at_ns)}"
            last[key] = max(sequence, last.get(key, -1))


def sent_in_sequence(evidence: Evidence) -> Iterator[str]:
    """No broker sends an event while an earlier one of its publisher waits for the same peer, if a receiver of both
    there wants order: one of the client's subscriptions, or, behind a neighbour, a subscription that all brokers knew
    when both were accepted. Faults are no excuse: they may change what arrives first, not what is sent first."""
    history, reported = evidence.history, 0
    calms = _Calms(_calms(evidence))
    ordered = [known for known in history.subscribed.values() if known.is_ordered]
    for overtaking in history.overtakings:
        events = [history.published[event] for event in (overtaking.event, overtaking.earlier)]
        wanting = (
            known
            for known in ordered
            if (known.client == overtaking.peer and known.name in overtaking.common)
            or (
                known.home in overtaking.common
                and known.client not in history.movers
                and (known.until_ns is None or known.until_ns > max(each.accepted_ns[-1:] or [0] for each in events)[0])
                and all(_is_known(evidence, calms, published, known) for published in events)
                and all(_filter(known.filter).matches(published.attributes) for published in events)
            )
        )
        known = next(wanting, None)
        if known is not None and reported < _REPORTED_MAX:
            reported += 1
            yield (
                f"{overtaking.broker} sent {overtaking.event} to {overtaking.peer} at {_s(overtaking.at_ns)} before "
                f"{overtaking.earlier}, which waited too: {known.client}/{known.name} wants order"
            )


def within_bounds(evidence: Evidence) -> Iterator[str]:
    """No queue, store or table outgrows its bound."""
    yield from evidence.history.bounds_broken[:_REPORTED_MAX]


def converges(evidence: Evidence) -> Iterator[str]:
    """After faults stop, every broker learns what the brokers of a fresh network would know."""
    history, plan, settings = evidence.history, evidence.plan, evidence.settings
    if settings.scheme == "static":
        return  # what was lost is not sent again
    if history.converged_ns is None:
        yield "not at the end: " + "; ".join(history.differences[:_REPORTED_MAX])
    elif history.converged_ns - _calms(evidence)[-1][0] > settings.converge_s * SECOND + _telling_ns(evidence):
        yield f"only {(history.converged_ns - plan.heal_ns) / SECOND:.1f} s after the last fault was repaired"


def _telling_ns(evidence: Evidence) -> float:
    """How long the slowest link between brokers takes for all large tables: a client with many subscriptions may start
    to move when faults are over, and a broker that missed a change requests the whole table, link after link."""
    plan, tables = evidence.plan, evidence.history.tables.values()
    entries = sum(size for size in tables if size >= _LARGE_TABLE)
    slowest = max(link.ns_per_byte for link in plan.links if link.other in plan.brokers and link.one in plan.brokers)
    return _LINKS_IN_A_ROW * entries * _ENTRY_BYTES * slowest if entries else 0.0


def reconnects(evidence: Evidence) -> Iterator[str]:
    """After the last fault, neighbours are connected again in time, and so are clients with their home brokers."""
    history, heal_ns = evidence.history, evidence.plan.heal_ns
    settled_ns = history.settled_ns.get(heal_ns)
    if history.unconnected:
        yield f"not at the end: {', '.join(history.unconnected[:_REPORTED_MAX])}"
    elif settled_ns is None or settled_ns - heal_ns > evidence.settings.reconnect_s * SECOND:
        yield f"not within {evidence.settings.reconnect_s:g} s after the last fault was repaired: {settled_ns}"


def store_recovers(evidence: Evidence) -> Iterator[str]:
    """A full store erases what its broker has released, and serves again when there is room."""
    yield from evidence.history.unerased[:_REPORTED_MAX]
    for broker in evidence.history.still_full:
        yield f"{broker} counts as full at the end, although it has room"


def nobody_else(evidence: Evidence) -> Iterator[str]:
    """Nobody is admitted under a name without its token."""
    yield from evidence.history.intruders[:_REPORTED_MAX]


def damage_found(evidence: Evidence) -> Iterator[str]:
    """Every damaged record is found when its broker starts, and no other record counts as damaged."""
    yield from evidence.history.damage_missed[:_REPORTED_MAX]


def nothing_lost(evidence: Evidence) -> Iterator[str]:
    """With buffering, an accepted event reaches every subscription that it is owed to.

    What would be owed but for a loss is counted (`History.excused`), by its cause.
    """
    if "buffer" not in evidence.settings.scheme:
        return
    history = evidence.history
    got = {(delivery.event, delivery.client, delivery.subscription) for delivery in history.deliveries} | history.held
    got |= _got_by_mqtt(evidence)
    alike: dict[str, list[Subscribed]] = defaultdict(list)
    for known in history.subscribed.values():
        if not known.drops:
            alike[known.filter].append(known)
    wanted: PlainIndex[str] = PlainIndex()
    for text in alike:
        wanted.put(text, _filter(text))
    calms = _Calms(_calms(evidence))
    reported = 0
    for published in history.published.values():
        if published.confirmed_ns is None:
            continue
        for known in chain.from_iterable(alike[text] for text in wanted.match(published.attributes)):
            if (published.id, *known.key) in got or _is_dropped(evidence, published, known):
                continue
            if (published.id, *known.key) in history.replaced:
                why = _why_not_replaced(evidence, published, known, got)
                if why:
                    reported += 1
                    if reported <= _REPORTED_MAX:
                        yield f"{published.id} was replaced for {known.client}/{known.name}: {why}"
                continue
            if _is_owed(evidence, calms, published, known):
                loss = _loss_of(evidence, published, known)
                if loss is not None:
                    history.excused[loss.what] += 1
                    continue
                if _has_lost_its_session(evidence, published, known):
                    history.excused["mqtt"] += 1
                    continue
                reported += 1
                if reported <= _REPORTED_MAX:
                    accepted = ", ".join(_s(at_ns) for at_ns in published.accepted_ns)
                    yield (
                        f"{published.id} from {published.broker}, accepted at {accepted}, lifetime "
                        f"{published.lifetime_ns}, never came to {known.client}/{known.name} at {known.home}"
                    )


def _got_by_mqtt(evidence: Evidence) -> set[tuple[EventId, str, str]]:
    """By MQTT clients: a message that was published again is several events, of which one has to come."""
    clients = {client.name: client for client in evidence.plan.mqtt.clients}
    return {
        (event, got.client, clients[got.client].wishes[got.number - 1].topic_filter)
        for got in evidence.history.mqtt.got
        for event in evidence.history.mqtt.events.get(got.payload, ())
    }


def _has_lost_its_session(evidence: Evidence, published: Published, known: Subscribed) -> bool:
    """Whether the door of an MQTT client has lost its sessions, or some of their records, since an event departed."""
    doors = {client.name: client.broker for client in evidence.plan.mqtt.clients}
    door = doors.get(known.client)
    losses = evidence.history.mqtt.losses
    return any(loss.broker == door and loss.at_ns > published.departed_ns for loss in losses)


def ages_are_true(evidence: Evidence) -> Iterator[str]:
    """A delivery's age is right within the error that it states, from the first event on, and it is marked late exactly
    if its age is beyond the deadline."""
    history = evidence.history
    jumped_ns: dict[EventId, int] = {}  # from when on an event may be older or younger than its broker believes
    for loss in history.losses:
        if loss.what == "clock":
            held = loss.events | loss.copied
            jumped_ns |= {event: min(loss.at_ns, jumped_ns.get(event, loss.at_ns)) for event in held}
    reported = 0
    for delivery in history.deliveries:
        published = history.published[delivery.event]
        known = history.subscribed[delivery.client, delivery.subscription]
        allowed_ns = _allowed_ns(published, known)
        true_ns = delivery.at_ns - published.departed_ns
        if delivery.late != (delivery.age_ns >= allowed_ns):
            yield f"{delivery.event} came to {known.key} {_s(delivery.age_ns)} old, late: {delivery.late}"
        if delivery.at_ns >= jumped_ns.get(delivery.event, delivery.at_ns + 1):
            continue
        stated_ns = delivery.error_ns
        if stated_ns is None or abs(delivery.age_ns - true_ns) > stated_ns + _ROUNDING_NS:
            reported += 1
            if reported <= _REPORTED_MAX:
                yield (
                    f"{delivery.event} came to {known.key} at {_s(delivery.at_ns)}, {_s(true_ns)} old, and claimed to "
                    f"be {_s(delivery.age_ns)}, give or take {'nobody knows' if stated_ns is None else _s(stated_ns)}"
                )


def accounts_balance(evidence: Evidence) -> Iterator[str]:
    """A home's account of a subscription is true: on time and late as the application got the events, and under way
    exactly what is still held for it."""
    history = evidence.history
    started_ns = {place: at_ns for at_ns, kind, place, _, up in history.transitions if kind == "broker" and up}
    got: dict[tuple[str, str, str, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        # From a connection to this process: a client that was paused may yet read what the one before has sent.
        begun_ns, connected_ns = started_ns.get(delivery.home, 0), history.connected[delivery.client, delivery.home]
        if any(begun_ns <= at_ns <= delivery.at_ns - delivery.held_ns for at_ns in connected_ns):
            got[delivery.client, delivery.subscription, delivery.home, delivery.home_epoch].append(delivery)
    left = history.left | {(move.client, move.source) for move in history.moves}
    damaged = {client for loss in history.losses for client in loss.clients}
    # A home hears of an event that was accepted elsewhere with the event itself, or with the next page of the ledger.
    recent = {
        published.id
        for published in history.published.values()
        if published.accepted_ns and published.accepted_ns[0] > evidence.plan.end_ns - _REPORTED_NS
    }
    for report in history.reports:
        if (report.client, report.home) in left or report.client in damaged:
            continue  # it has returned or asked again: its account started anew, in the middle of periods
        if report.client in history.movers and history.subscribed[report.client, report.subscription].is_ordered:
            continue  # what it holds may have come from its previous home
        mine = got[report.client, report.subscription, report.home, report.home_epoch]
        shown, name = report.shown, f"{report.client}/{report.subscription}"
        if not (mine or report.owed or shown.matched):
            continue  # as most of many
        counts = ((shown.on_time, "on time", False), (shown.late, "late", True))
        # A client may have handed over what it held without reporting it before it died: that counts as lost, too.
        last_life = max((each.life for each in mine), default=0)
        for many, what, is_late in () if report.client in history.movers else counts:
            such = [each for each in mine if each.late == is_late]
            surely = sum(
                each.at_ns <= evidence.plan.end_ns - _REPORTED_NS and (each.life == last_life or not each.held_ns)
                for each in such
            )
            if not surely <= many <= len(such):
                yield f"{name} got {surely} to {len(such)} events {what}, and {report.home} shows {many}"
        delivered = {each.event for each in mine}
        owed = report.owed - delivered
        doubtful = _doubtful(history, report) - delivered
        unreported = sum(each.at_ns > evidence.plan.end_ns - _REPORTED_NS for each in mine)
        if not len(owed - doubtful - recent) <= shown.under_way <= len(owed | doubtful) + unreported:
            yield (
                f"{report.home} shows {shown.under_way} events under way to {name}, and {len(owed)} are held for it: "
                f"{shown._replace(delays={}, holds={})}"
            )


def _doubtful(history: History, report: Report) -> set[EventId]:
    """Events that a broker may have held when it crashed. What it no longer knows of them counts as under way until
    their period is over; what it does know is counted when they move on."""
    wanted = _filter(history.subscribed[report.client, report.subscription].filter)
    crashed_ns = max((at_ns for at_ns, kind, _, _, up in history.transitions if kind == "broker" and not up), default=0)
    return {
        published.id
        for published in history.published.values()
        if published.accepted_ns and published.accepted_ns[0] < crashed_ns and wanted.matches(published.attributes)
    }


def _calms(evidence: Evidence) -> list[tuple[int, int]]:
    """The planned calms, each from when everybody was connected again, or should have been."""
    latest_ns = round(evidence.settings.reconnect_s * SECOND)
    settled_ns = evidence.history.settled_ns
    found = []
    for begin, end in evidence.plan.calms():
        from_ns = min(settled_ns.get(begin, end), begin + latest_ns)
        if from_ns < end:
            found.append((from_ns, end))
    return found


class _Calms:
    """The calms of a storm, by time."""

    def __init__(self, calms: Sequence[tuple[int, int]]) -> None:
        self._begins = [begin for begin, _ in calms]
        self._calms = calms

    def last_before(self, at_ns: int) -> tuple[int, int] | None:
        """The calm that `at_ns` lies in, or the last one before."""
        place = bisect_right(self._begins, at_ns) - 1
        return self._calms[place] if place >= 0 else None

    def longest_within(self, from_ns: int, until_ns: int) -> int:
        """The longest undisturbed part of an interval."""
        return max((min(end, until_ns) - max(begin, from_ns) for begin, end in self._calms), default=0)


def _is_owed(evidence: Evidence, calms: _Calms, published: Published, known: Subscribed) -> bool:
    if not _is_known(evidence, calms, published, known):
        return False
    allowed_ns = _allowed_ns(published, known)
    until_ns = min(evidence.plan.end_ns, published.departed_ns + allowed_ns + known.late_ns - _ESTIMATE_NS)
    if known.until_ns is not None:
        until_ns = min(until_ns, known.until_ns)
        if known.is_ordered and published.departed_ns + allowed_ns > known.until_ns:
            return False  # it may be held until its deadline to restore order, and the subscription had ended by then
    needed_ns = evidence.settings.recover_s * SECOND
    return calms.longest_within(published.accepted_ns[-1], until_ns) >= needed_ns


def _why_not_replaced(
    evidence: Evidence, published: Published, known: Subscribed, got: Container[tuple[EventId, str, str]]
) -> str:
    """Why an event should not have been replaced; empty if the last of the newer ones came, or is under way, or need
    not come: its time is over, or it was dropped or lost."""
    history, wanted = evidence.history, _filter(known.filter)
    if not known.conflate:
        return "it wants all events"
    event, before = published, {published.id}
    while (event.id, *known.key) in history.replaced and (event.id, *known.key) not in got:
        newer = history.published[history.replaced[event.id, *known.key]]
        keys = [[each.attributes.get(name) for name in known.conflate] for each in (event, newer)]
        if None in keys[0] or keys[0] != keys[1] or not wanted.matches(newer.attributes):
            return f"{newer.id} has another key than {event.id}, or does not match"
        if event.id[0] == newer.id[0] and event.id[1:] >= newer.id[1:]:
            return f"{newer.id} is not newer than {event.id}"
        if newer.id in before:
            return f"{newer.id} was replaced by {event.id} itself"
        before.add(newer.id)
        event = newer
    until_ns = event.departed_ns + _allowed_ns(event, known) + known.late_ns
    reports = (each for each in history.reports if (each.client, each.subscription) == known.key)
    if (
        (event.id, *known.key) in got
        or any(event.id in report.owed for report in reports)
        or until_ns - _ESTIMATE_NS <= evidence.plan.end_ns
        or (known.until_ns is not None and known.until_ns <= evidence.plan.end_ns)
        or _is_dropped(evidence, event, known)
        or _loss_of(evidence, event, known) is not None
    ):
        return ""
    return f"{event.id}, which is newer, has not come and is not under way"


def _is_known(evidence: Evidence, calms: _Calms, published: Published, known: Subscribed) -> bool:
    """Whether all brokers knew the subscription whenever the event was accepted."""
    if known.confirmed_ns is None or not published.accepted_ns:
        return False
    settle_ns = evidence.settings.settle_s * SECOND
    for at_ns in published.accepted_ns:
        from_ns = max(known.confirmed_ns, _forgotten_ns(evidence, published, known, at_ns))
        if calms.longest_within(from_ns, at_ns) < settle_ns:
            return False
    return True


def _grave(evidence: Evidence) -> list[Loss]:
    """Losses without another copy: with two copies only what was lost at two brokers at about the same time."""
    losses = evidence.history.losses
    if evidence.plan.copies == 1:
        return losses
    apart_ns = evidence.settings.recover_s * SECOND
    return [
        loss
        for loss in losses
        if loss.what == "clock"
        or any(
            other.broker != loss.broker and other.what != "clock" and abs(other.at_ns - loss.at_ns) < apart_ns
            for other in losses
        )
    ]


def _loss_of(evidence: Evidence, published: Published, known: Subscribed) -> Loss | None:
    """The loss that excuses an event: it was lost, its age was wrong, or its subscriber was no longer known."""
    return next(
        (
            loss
            for loss in _grave(evidence)
            if loss.at_ns > published.departed_ns and (published.id in loss.events or known.client in loss.clients)
        ),
        None,
    )


def _forgotten_ns(evidence: Evidence, published: Published, known: Subscribed, at_ns: int) -> int:
    """When the subscription was lost with a disk before this time, at home or where the event came in; 0: never."""
    lost = (loss for loss in _grave(evidence) if loss.at_ns <= at_ns)
    return max(
        (
            loss.at_ns
            for loss in lost
            if known.client in loss.clients or (loss.what == "disk" and loss.broker == published.broker)
        ),
        default=0,
    )


@lru_cache(maxsize=4_096)
def _filter(text: str) -> Filter:
    return Filter.parse(text)


def _is_dropped(evidence: Evidence, published: Published, known: Subscribed) -> bool:
    """Whether a queue to the subscriber, or to a broker on the path, had no room for the event."""
    dropped, id = evidence.history.dropped, published.id
    return (id, known.client) in dropped or any((id, broker) in dropped for broker in evidence.plan.brokers)


def _allowed_ns(published: Published, known: Subscribed) -> int:
    limits = [limit for limit in (published.lifetime_ns, known.max_delay_ns) if limit is not None]
    return min(limits, default=round(LONGEST_LIFE_S * SECOND))


def view_of_fresh_network(graph: Mapping[str, frozenset[str]], subscribed: Sequence[Subscribed]) -> View:
    """What every broker of an undisturbed network would know; routes are each broker's own."""
    interests: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for known in subscribed:
        interests[known.home].add((f"{known.client}/{known.name}", known.filter))
    links = {broker: tuple(sorted(others)) for broker, others in graph.items()}
    return View(links, {home: frozenset(wanted) for home, wanted in interests.items()}, {})


def differences(
    graph: Mapping[str, frozenset[str]], fresh: View, views: Iterable[tuple[str, View | None]]
) -> Iterator[str]:
    """Where brokers know something else, or would send an event elsewhere, than the brokers of a fresh network."""
    overlay = tuple(graph.items())
    for broker, view in views:
        if view is not None:
            view = view._replace(interests=_of_clients_here(view.interests))
        if view is None or view.links != fresh.links:
            yield f"{broker} sees links {None if view is None else view.links}"
        elif view.interests != fresh.interests:
            wrong = {
                origin: sorted(view.interests.get(origin, frozenset()) ^ fresh.interests.get(origin, frozenset()))
                for origin in sorted(view.interests.keys() | fresh.interests.keys())
            }
            yield f"{broker} knows other interests: { {o: w for o, w in wrong.items() if w} }"
        else:
            routes = _fresh_routes(broker, overlay)
            wrong_ways = [ends for ends, hop in routes.items() if view.routes.get(ends) != hop]
            if wrong_ways:
                yield f"{broker} has other routes for (root, target) {wrong_ways[:_REPORTED_MAX]}"


@lru_cache(maxsize=256)
def _fresh_routes(broker: str, overlay: tuple[tuple[str, frozenset[str]], ...]) -> Mapping[tuple[str, str], str]:
    """The next hop for every root and target, at a broker that knows the whole overlay; cached."""
    return LinkStateMap(broker, graph=dict(overlay)).routes()


def _of_clients_here(interests: Mapping[str, frozenset[tuple[str, str]]]) -> dict[str, frozenset[tuple[str, str]]]:
    """The interests without those of clients that moved away, which are announced until all know their new home."""
    here = {home: frozenset(each for each in known if not is_address(each[0])) for home, known in interests.items()}
    return {home: known for home, known in here.items() if known}


def _s(at_ns: int) -> str:
    return f"{at_ns / SECOND:.3f} s"


def one_home(evidence: Evidence) -> Iterator[str]:
    """At the end every client is registered at exactly one broker, the one it is connected to."""
    for client, residence in evidence.history.residence.items():
        if residence.is_moving or {*residence.registered, *residence.connected} != {residence.home}:
            yield (
                f"{client} is at home at {residence.home}{', moving' if residence.is_moving else ''}, registered at "
                f"{', '.join(residence.registered) or 'none'}, connected to {', '.join(residence.connected) or 'none'}"
            )


def moves_complete(evidence: Evidence) -> Iterator[str]:
    """A move that is requested in a calm and disturbed by no fault completes in time.

    The message that ends it comes after all that the client has sent to its old home, which reads it at the rate of
    the client's budget.
    """
    needed_ns = round(evidence.settings.move_s * SECOND)
    settle_ns = round(evidence.settings.settle_s * SECOND)
    calms = _Calms(_calms(evidence))
    for move in evidence.history.moves:
        calm = calms.last_before(move.at_ns)
        if (move.failed or "").startswith("refused"):
            continue  # it was moving already
        by_ns = move.at_ns + needed_ns + move.budgeted_ns
        if calm is None or calm[0] + settle_ns > move.at_ns or by_ns > calm[1]:
            continue
        if move.done_ns is None or move.done_ns > by_ns:
            how = move.failed or "never"
            how = how if move.done_ns is None else f"{(move.done_ns - move.at_ns) / SECOND:.1f} s later"
            yield f"{move.client} was asked at {_s(move.at_ns)} to move from {move.source} to {move.target}: {how}"


CHECKS: Final[Mapping[str, Callable[[Evidence], Iterator[str]]]] = {
    "at-most-once": at_most_once,
    "last-hop-once": last_hop_once,
    "no-mismatch": no_mismatch,
    "in-order": in_order,
    "sent-in-sequence": sent_in_sequence,
    "within-bounds": within_bounds,
    "converges": converges,
    "nothing-lost": nothing_lost,
    "ages-are-true": ages_are_true,
    "accounts-balance": accounts_balance,
    "one-home": one_home,
    "moves-complete": moves_complete,
    "reconnects": reconnects,
    "store-recovers": store_recovers,
    "nobody-else": nobody_else,
    "damage-found": damage_found,
    "mqtt-accepted": mqtt_accepted,
    "mqtt-in-time": mqtt_in_time,
    "mqtt-no-mismatch": mqtt_no_mismatch,
    "mqtt-qos-2-once": mqtt_qos_2_once,
    "mqtt-session-present": mqtt_session_present,
}
"""Every guarantee by name. That equal seeds give equal histories is checked by running a seed twice (`digest`)."""
