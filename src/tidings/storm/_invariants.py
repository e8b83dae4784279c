"""The promises, each a named check over what happened in a storm; a check gives a sentence for every breach.

Whether an event was owed to a subscription is decided from outside, by the plan and the true time alone:

- its publisher was told that it is accepted;
- whenever its home broker accepted it, the subscription had been confirmed and had stood through a calm of `settle_s`
  at some time before, so that everybody knew of it: whatever has been down since, and for however long;
- a calm of `recover_s` lies between acceptance and its deadline for that subscription, and the subscription lasted.

Not owed is what a broker dropped because a queue to the subscriber, or to a broker on the way, was full (counted and
traced); what a subscription under `drop` discarded because a later event had already been delivered; and what was on a
disk that was lost, in a record that was damaged, or on a disk whose broker went on by a clock that had jumped (`Loss`):
those events and no others, and what was on its way to clients whose subscriptions were lost or damaged.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from tidings.matching import PlainIndex
from tidings.model.filters import Filter
from tidings.protocol import EventId, LinkStateMap, View, is_address
from tidings.storm._history import Delivery, History, Loss, Published, Report, Subscribed
from tidings.storm._plan import Plan
from tidings.storm._settings import LONGEST_LIFE_S, StormSettings

__all__ = ["CHECKS", "Evidence", "differences", "view_of_fresh_network"]

SECOND: Final = 10**9
_MOST_TOLD: Final = 5
_LARGE_TABLE: Final = 1_000
_ENTRY_BYTES: Final = 90
"""What a subscription of a large state takes in a frame between brokers."""
_LINKS_IN_A_ROW: Final = 2
"""Over how many links one after the other a large table may have to be told before somebody knows it."""
_ESTIMATE_NS: Final = SECOND
"""By so much an event's age may be overestimated along its way, before all links on it have been measured."""
_ROUNDING_NS: Final = 1_000
"""Clocks count whole nanoseconds, and each machine on the way rounds."""
_REPORTED_NS: Final = 2 * SECOND
"""What a client got it has reported after so long."""


class Evidence(NamedTuple):
    """Everything that a verdict may rest on."""

    settings: StormSettings
    plan: Plan
    history: History


def at_most_once(evidence: Evidence) -> Iterator[str]:
    """No subscription gets an event twice in one life of its client."""
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
    unwritten: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by broker: from when to when
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
    """Nobody gets what does not match, or was not published so."""
    yield from evidence.history.corrupted[:_MOST_TOLD]
    history = evidence.history
    for delivery in history.deliveries:
        text = history.subscribed[delivery.client, delivery.subscription].filter
        if not _filter(text).matches(history.published[delivery.event].attributes):
            yield f"{delivery.event} came to {delivery.client}/{delivery.subscription}, which wants {text}"


def in_order(evidence: Evidence) -> Iterator[str]:
    """Under `drop`, the events of one life of a publisher never go backwards."""
    last: dict[tuple[str, str, int, str, int], int] = {}
    for delivery in evidence.history.deliveries:
        if evidence.history.subscribed[delivery.client, delivery.subscription].drops:
            publisher, epoch, sequence = delivery.event
            key = (delivery.client, delivery.subscription, delivery.life, publisher, epoch)
            if sequence <= last.get(key, -1):
                yield f"{delivery.event} came to {key[:2]} after {last[key]}, at {_s(delivery.at_ns)}"
            last[key] = max(sequence, last.get(key, -1))


def sent_in_sequence(evidence: Evidence) -> Iterator[str]:
    """No broker sends an event while an earlier one of its publisher waits for the same peer, if somebody there who
    gets both wants order: of a client one of its subscriptions, behind a neighbour one that everybody knew of when both
    were accepted. Faults are no excuse: they may change what comes first, not what leaves first."""
    history, told = evidence.history, 0
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
        if known is not None and told < _MOST_TOLD:
            told += 1
            yield (
                f"{overtaking.broker} sent {overtaking.event} to {overtaking.peer} at {_s(overtaking.at_ns)} before "
                f"{overtaking.earlier}, which waited too: {known.client}/{known.name} wants order"
            )


def within_bounds(evidence: Evidence) -> Iterator[str]:
    """No queue, store or table outgrows its bound."""
    yield from evidence.history.bounds_broken[:_MOST_TOLD]


def converges(evidence: Evidence) -> Iterator[str]:
    """After faults stop, every broker comes to know what those of a fresh network would."""
    history, plan, settings = evidence.history, evidence.plan, evidence.settings
    if settings.scheme == "static":
        return  # what was lost is not told again
    if history.converged_ns is None:
        yield "not at the end: " + "; ".join(history.differences[:_MOST_TOLD])
    elif history.converged_ns - _calms(evidence)[-1][0] > settings.converge_s * SECOND + _telling_ns(evidence):
        yield f"only {(history.converged_ns - plan.heal_ns) / SECOND:.1f} s after the last fault was mended"


def _telling_ns(evidence: Evidence) -> float:
    """How long the slowest link between brokers takes for all large tables: a client with many subscriptions may begin
    to move when faults are over, and who missed a change asks for the table whole, over one link after the other."""
    plan, tables = evidence.plan, evidence.history.tables.values()
    entries = sum(size for size in tables if size >= _LARGE_TABLE)
    slowest = max(link.ns_per_byte for link in plan.links if link.other in plan.brokers and link.one in plan.brokers)
    return _LINKS_IN_A_ROW * entries * _ENTRY_BYTES * slowest if entries else 0.0


def reconnects(evidence: Evidence) -> Iterator[str]:
    """After the last fault is mended, neighbours, and clients with their homes, are connected again in time."""
    history, heal_ns = evidence.history, evidence.plan.heal_ns
    settled_ns = history.settled_ns.get(heal_ns)
    if history.unconnected:
        yield f"not at the end: {', '.join(history.unconnected[:_MOST_TOLD])}"
    elif settled_ns is None or settled_ns - heal_ns > evidence.settings.reconnect_s * SECOND:
        yield f"not within {evidence.settings.reconnect_s:g} s after the last fault was mended: {settled_ns}"


def store_recovers(evidence: Evidence) -> Iterator[str]:
    """A full store gets rid of what its broker has let go of, and serves again when there is room."""
    yield from evidence.history.unerased[:_MOST_TOLD]
    for broker in evidence.history.still_full:
        yield f"{broker} counts as full at the end, and has room"


def nobody_else(evidence: Evidence) -> Iterator[str]:
    """Nobody is admitted under a name whose token it does not have."""
    yield from evidence.history.intruders[:_MOST_TOLD]


def damage_found(evidence: Evidence) -> Iterator[str]:
    """Every damaged record is found when its broker starts, and nothing else is taken for one."""
    yield from evidence.history.damage_missed[:_MOST_TOLD]


def nothing_lost(evidence: Evidence) -> Iterator[str]:
    """With buffering, an accepted event reaches every subscription that it is owed to.

    What would be owed but for a loss is counted (`History.excused`), by what was lost.
    """
    if "buffer" not in evidence.settings.scheme:
        return
    history = evidence.history
    got = {(delivery.event, delivery.client, delivery.subscription) for delivery in history.deliveries} | history.held
    alike: dict[str, list[Subscribed]] = defaultdict(list)
    for known in history.subscribed.values():
        if not known.drops:
            alike[known.filter].append(known)
    wanted: PlainIndex[str] = PlainIndex()
    for text in alike:
        wanted.put(text, _filter(text))
    calms = _Calms(_calms(evidence))
    told = 0
    for published in history.published.values():
        if published.confirmed_ns is None:
            continue
        for known in chain.from_iterable(alike[text] for text in wanted.match(published.attributes)):
            if (published.id, *known.key) in got or _is_dropped(evidence, published, known):
                continue
            if _is_owed(evidence, calms, published, known):
                loss = _loss_of(evidence, published, known)
                if loss is not None:
                    history.excused[loss.what] += 1
                    continue
                told += 1
                if told <= _MOST_TOLD:
                    accepted = ", ".join(_s(at_ns) for at_ns in published.accepted_ns)
                    yield (
                        f"{published.id} from {published.broker}, accepted at {accepted}, lifetime "
                        f"{published.lifetime_ns}, never came to {known.client}/{known.name} at {known.home}"
                    )


def ages_are_true(evidence: Evidence) -> Iterator[str]:
    """A delivery's age is right but for the error that it states, from the first event on, and it is late if the age
    says so."""
    history = evidence.history
    jumped_ns: dict[EventId, int] = {}  # since when an event may be older, or younger, than its broker holds it to be
    for loss in history.losses:
        if loss.what == "clock":
            jumped_ns |= {event: min(loss.at_ns, jumped_ns.get(event, loss.at_ns)) for event in loss.events}
    told = 0
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
            told += 1
            if told <= _MOST_TOLD:
                yield (
                    f"{delivery.event} came to {known.key} at {_s(delivery.at_ns)}, {_s(true_ns)} old, and was said to "
                    f"be {_s(delivery.age_ns)}, give or take {'nobody knows' if stated_ns is None else _s(stated_ns)}"
                )


def accounts_balance(evidence: Evidence) -> Iterator[str]:
    """What a home shows of a subscription is what became of its events: on time and late as the application got them,
    and under way no more and no less than what somebody still holds for it."""
    history = evidence.history
    started_ns = {place: at_ns for at_ns, kind, place, _, up in history.transitions if kind == "broker" and up}
    got: dict[tuple[str, str, str, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        if delivery.at_ns - delivery.held_ns >= started_ns.get(delivery.home, 0):  # else it is of the life before
            got[delivery.client, delivery.subscription, delivery.home, delivery.home_epoch].append(delivery)
    left = history.left | {(move.client, move.source) for move in history.moves}
    damaged = {client for loss in history.losses for client in loss.clients}
    for report in history.reports:
        if (report.client, report.home) in left or report.client in damaged:
            continue  # it has come back, or has asked again: its account began anew, in the middle of periods
        if report.client in history.movers and history.subscribed[report.client, report.subscription].is_ordered:
            continue  # what it holds may have come from its home before
        mine = got[report.client, report.subscription, report.home, report.home_epoch]
        shown, name = report.shown, f"{report.client}/{report.subscription}"
        if not (mine or report.owed or shown.matched):
            continue  # as most of many
        told = ((shown.on_time, "on time", False), (shown.late, "late", True))
        # What a client held, and gave away before it died, it may not have reported: it counts as lost with the rest.
        last_life = max((each.life for each in mine), default=0)
        for many, what, is_late in () if report.client in history.movers else told:
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
        if not len(owed - doubtful) <= shown.under_way <= len(owed | doubtful) + unreported:
            yield (
                f"{report.home} shows {shown.under_way} events under way to {name}, and {len(owed)} are held for it: "
                f"{shown._replace(delays={}, holds={})}"
            )


def _doubtful(history: History, report: Report) -> set[EventId]:
    """Events that may have been with a broker when it crashed. What it then does not know of them counts as under way
    until their period is over; what it does know counts when they go on."""
    wanted = _filter(history.subscribed[report.client, report.subscription].filter)
    crashed_ns = max((at_ns for at_ns, kind, _, _, up in history.transitions if kind == "broker" and not up), default=0)
    return {
        published.id
        for published in history.published.values()
        if published.accepted_ns and published.accepted_ns[0] < crashed_ns and wanted.matches(published.attributes)
    }


def _calms(evidence: Evidence) -> list[tuple[int, int]]:
    """The calms as planned, each from when everybody was connected again, or should have been."""
    latest_ns = round(evidence.settings.reconnect_s * SECOND)
    settled_ns = evidence.history.settled_ns
    found = []
    for begin, end in evidence.plan.calms():
        from_ns = min(settled_ns.get(begin, end), begin + latest_ns)
        if from_ns < end:
            found.append((from_ns, end))
    return found


class _Calms:
    """The calms of a storm, asked by time."""

    def __init__(self, calms: Sequence[tuple[int, int]]) -> None:
        self._begins = [begin for begin, _ in calms]
        self._calms = calms

    def last_before(self, at_ns: int) -> tuple[int, int] | None:
        """The calm that `at_ns` lies in, or the last one before."""
        place = bisect_right(self._begins, at_ns) - 1
        return self._calms[place] if place >= 0 else None

    def longest_within(self, from_ns: int, until_ns: int) -> int:
        """How long the longest undisturbed stretch in an interval is."""
        return max((min(end, until_ns) - max(begin, from_ns) for begin, end in self._calms), default=0)


def _is_owed(evidence: Evidence, calms: _Calms, published: Published, known: Subscribed) -> bool:
    if not _is_known(evidence, calms, published, known):
        return False
    allowed_ns = _allowed_ns(published, known)
    until_ns = min(evidence.plan.end_ns, published.departed_ns + allowed_ns + known.late_ns - _ESTIMATE_NS)
    if known.until_ns is not None:
        until_ns = min(until_ns, known.until_ns)
        if known.is_ordered and published.departed_ns + allowed_ns > known.until_ns:
            return False  # until its deadline it may be held to restore order, and nobody wanted it any more
    needed_ns = evidence.settings.recover_s * SECOND
    return calms.longest_within(published.accepted_ns[-1], until_ns) >= needed_ns


def _is_known(evidence: Evidence, calms: _Calms, published: Published, known: Subscribed) -> bool:
    """Whether everybody knew of the subscription whenever the event was accepted."""
    if known.confirmed_ns is None or not published.accepted_ns:
        return False
    settle_ns = evidence.settings.settle_s * SECOND
    for at_ns in published.accepted_ns:
        from_ns = max(known.confirmed_ns, _forgotten_ns(evidence, published, known, at_ns))
        if calms.longest_within(from_ns, at_ns) < settle_ns:
            return False
    return True


def _grave(evidence: Evidence) -> list[Loss]:
    """What was lost and is nowhere else: with two copies only what was lost at two brokers at about the same time."""
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
    """With what the event was lost, or its age was wrong, or its subscriber was not known any more."""
    return next(
        (
            loss
            for loss in _grave(evidence)
            if loss.at_ns > published.departed_ns and (published.id in loss.events or known.client in loss.clients)
        ),
        None,
    )


def _forgotten_ns(evidence: Evidence, published: Published, known: Subscribed, at_ns: int) -> int:
    """When the subscription was lost with a disk before this time, there or where the event was accepted; 0: never."""
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
    """Whether a queue to the subscriber, or to a broker on the way, had no room for the event."""
    dropped, id = evidence.history.dropped, published.id
    return (id, known.client) in dropped or any((id, broker) in dropped for broker in evidence.plan.brokers)


def _allowed_ns(published: Published, known: Subscribed) -> int:
    limits = [limit for limit in (published.lifetime_ns, known.max_delay_ns) if limit is not None]
    return min(limits, default=round(LONGEST_LIFE_S * SECOND))


def view_of_fresh_network(graph: Mapping[str, frozenset[str]], subscribed: Sequence[Subscribed]) -> View:
    """What every broker of a network that was never disturbed would know; routes are each broker's own."""
    interests: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for known in subscribed:
        interests[known.home].add((f"{known.client}/{known.name}", known.filter))
    links = {broker: tuple(sorted(others)) for broker, others in graph.items()}
    return View(links, {home: frozenset(wanted) for home, wanted in interests.items()}, {})


def differences(
    graph: Mapping[str, frozenset[str]], fresh: View, views: Iterable[tuple[str, View | None]]
) -> Iterator[str]:
    """Where brokers know something else, or would send an event elsewhere, than those of a fresh network."""
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
                yield f"{broker} has other routes for (root, target) {wrong_ways[:_MOST_TOLD]}"


@lru_cache(maxsize=256)
def _fresh_routes(broker: str, overlay: tuple[tuple[str, frozenset[str]], ...]) -> Mapping[tuple[str, str], str]:
    """The next hop for every root and target, at a broker that knows the whole overlay; asked for again and again."""
    return LinkStateMap(broker, graph=dict(overlay)).routes()


def _of_clients_here(interests: Mapping[str, frozenset[tuple[str, str]]]) -> dict[str, frozenset[tuple[str, str]]]:
    """Without what is still told of clients that have moved away, until everybody knows their new home."""
    here = {home: frozenset(each for each in told if not is_address(each[0])) for home, told in interests.items()}
    return {home: told for home, told in here.items() if told}


def _s(at_ns: int) -> str:
    return f"{at_ns / SECOND:.3f} s"


def one_home(evidence: Evidence) -> Iterator[str]:
    """In the end every client is registered at exactly one broker, the one it is connected to."""
    for client, residence in evidence.history.residence.items():
        if residence.is_moving or {*residence.registered, *residence.connected} != {residence.home}:
            yield (
                f"{client} is at home at {residence.home}{', moving' if residence.is_moving else ''}, registered at "
                f"{', '.join(residence.registered) or 'none'}, connected to {', '.join(residence.connected) or 'none'}"
            )


def moves_complete(evidence: Evidence) -> Iterator[str]:
    """A move that is asked for in a calm, and that no fault disturbs, is done in time."""
    needed_ns = round(evidence.settings.move_s * SECOND)
    settle_ns = round(evidence.settings.settle_s * SECOND)
    calms = _Calms(_calms(evidence))
    for move in evidence.history.moves:
        calm = calms.last_before(move.at_ns)
        if (move.failed or "").startswith("refused"):
            continue  # it was moving already
        if calm is None or calm[0] + settle_ns > move.at_ns or move.at_ns + needed_ns > calm[1]:
            continue
        if move.done_ns is None or move.done_ns > move.at_ns + needed_ns:
            how = move.failed or "never"
            how = how if move.done_ns is None else f"{(move.done_ns - move.at_ns) / SECOND:.1f} s later"
            yield f"{move.client} was told at {_s(move.at_ns)} to go from {move.source} to {move.target}: {how}"


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
}
"""Every promise by name. That the same seed gives the same history is checked by running it twice (`digest`)."""
