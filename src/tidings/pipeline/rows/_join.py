"""Where the rows of an event meet: publications, hops and deliveries of whole units in, facts and faults out.

What is good in itself is judged here by the other rows of its event:

- Of the publications of an event the least in (departure, broker, size, lifetime, matches, topic) is kept.
- A delivery or hop of an event that was not published is of an unknown publication.
- A delivery to a subscription that the event does not match is not matching.
- What arrives, or enters a queue, before the departure by more than the clock tolerance has a negative delay.
- Of the deliveries of an event to a subscription that are left the first arrival is kept, ties being decided by the
  other columns; of hops that are the same in every column one. The others are duplicates.

Pairs of an event and a subscription are far more than rows where an event has a thousand subscriptions. They are made
for some subscriptions at a time, PAIRS_MOST of them: what is computed of a subscription's pairs needs no other's.

Nothing depends on the order of the rows. Rows that are alike differ by their turn (1, 2, ...), so each can be found in
the files again; of those that are alike the first is the one that is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.compiled import compiled
from tidings.pipeline.ingest._reasons import DUPLICATE, NEGATIVE_DELAY, NOT_MATCHING, UNKNOWN_PUBLICATION
from tidings.pipeline.rows._columns import Values, table_of
from tidings.pipeline.rows._facts import TIMES, Audience, EventRows, FateRows, HopRows
from tidings.pipeline.rows._gathered import (
    DELIVERIES,
    HOPS,
    PUBLICATIONS,
    TABLES,
    Faults,
    GatheredRows,
    gathered_rows,
    one_array,
)
from tidings.pipeline.rows._groups import grouped, stable_order, turns

__all__ = ["QUARANTINED", "ROWS", "Counting", "JoinedRows", "join_rows"]

Array = npt.NDArray[Any]

PAIRS_MOST: Final = 1 << 19
"""Pairs of an event and a subscription that are held at a time."""
QUARANTINED: Final = (
    "publisher string, chunk bigint, table string, file string, reasons array<string>, row string, rows bigint"
)
"""A row of the quarantine and the unit that it belongs to."""
ROWS: Final = "publisher string, chunk bigint, table string, rows bigint"
"""How many rows a table has in a unit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counting:
    """What is counted: events that depart from `counted_from_ns` on; clocks may differ by `clock_tolerance_ns`.

    Where clocks were corrected, the delay of what went from host a to host b is known up to an error between
    `clock_low_ns[a, b]` and `clock_high_ns[a, b]`.
    """

    counted_from_ns: int = 0
    clock_tolerance_ns: int = 0
    clock_low_ns: Array | None = None
    clock_high_ns: Array | None = None


class JoinedRows(NamedTuple):
    """The facts of a partition, and its rows that are bad (QUARANTINED) or counted (ROWS).

    `fates` come for some subscriptions at a time; when they are used up, `found` has the FAULTS.
    """

    events: EventRows
    fates: Iterator[FateRows]
    hops: HopRows
    quarantined: pa.Table
    rows: pa.Table
    found: Faults


class _Events(NamedTuple):
    """The events that are kept, in the order of their numbers, and which of the pairs are theirs."""

    rows: Array
    events: Array
    departure_ns: Array
    deadline_ns: Values
    starts: Array
    numbers: Array

    def find(self, events: Array) -> Array:
        """Where each of these is; -1 for one that is not here."""
        return _found(self.events, events)


def join_rows(table: pa.Table, audience: Audience, counting: Counting, *, pairs_most: int = PAIRS_MOST) -> JoinedRows:
    """The facts of rows (GATHERED) that are all there is of their units."""
    rows = gathered_rows(table)
    faults = Faults(rows)
    events = _events(rows, audience, faults)
    is_counted = events.departure_ns >= counting.counted_from_ns
    return JoinedRows(
        fates=(
            _fates(rows, _wanted_by(events, low, high), (low, high), is_counted, audience, counting, faults)
            for low, high in _spans(events.numbers, len(audience), pairs_most)
        ),
        hops=_hops(rows, events, is_counted, counting, faults),
        events=_event_rows(rows, events, np.flatnonzero(is_counted)),
        quarantined=_quarantined(rows),
        rows=_counts(rows),
        found=faults,
    )


def _spans(numbers: Array, subscriptions: int, most: int) -> list[tuple[int, int]]:
    """Ranges of subscriptions, from the first to the last, that these have at most so many pairs of, or one has."""
    if len(numbers) <= most:
        return [(0, subscriptions)]
    part = (np.cumsum(counted(numbers, subscriptions)) - 1) // most
    begins = np.flatnonzero(np.diff(part, prepend=part[0]))
    return list(pairwise([0, *begins.tolist(), subscriptions]))


@compiled
def counted(numbers: Array, length: int) -> Array:
    """How often each number comes; NumPy's own function copies them first, eight bytes for four."""
    counts = np.zeros(length, np.int64)
    for number in numbers:
        counts[number] += 1
    return counts


def _wanted_by(events: _Events, low: int, high: int) -> _Events:
    """The events with those of their pairs whose subscriptions are in a range."""
    starts, numbers = within(events.starts, events.numbers, low, high)
    return events if len(numbers) == len(events.numbers) else events._replace(starts=starts, numbers=numbers)


@compiled
def within(starts: Array, numbers: Array, low: int, high: int) -> tuple[Array, Array]:
    """The numbers in a range, and where those of each event start."""
    ends = np.zeros(len(starts), np.int64)
    for event in range(len(starts) - 1):
        ends[event + 1] = ends[event]
        for place in range(starts[event], starts[event + 1]):
            ends[event + 1] += low <= numbers[place] < high
    found = np.empty(ends[-1], numbers.dtype)
    count = 0
    for number in numbers:
        if low <= number < high:
            found[count] = number
            count += 1
    return ends, found


def _found(known: Array, wanted: Array) -> Array:
    """Where each wanted number is among known ones, which ascend; -1 if it is not."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, places, -1)


def _events(rows: GatheredRows, audience: Audience, faults: Faults) -> _Events:
    mine = rows.good(PUBLICATIONS)
    mine = mine[stable_order(rows.event[mine])]
    is_again = np.zeros(len(mine), np.bool_)
    is_again[1:] = rows.event[mine[1:]] == rows.event[mine[:-1]]
    kept = _least_publications(rows, mine, is_again, faults) if is_again.any() else mine
    matches = one_array(rows.table["matches"]).take(pa.array(kept))
    numbers = np.asarray(matches.flatten())
    starts = np.concatenate(([0], np.cumsum(np.asarray(matches.value_lengths().fill_null(0))))).astype(np.int64)
    return _Events(
        rows=kept,
        events=rows.event[kept],
        departure_ns=rows.numbers["departure_ns"].values[kept],
        deadline_ns=_loosest(rows.numbers["lifetime_ns"].at(kept), starts, numbers, audience.delays_ns),
        starts=starts,
        numbers=numbers,
    )


def _least_publications(rows: GatheredRows, mine: Array, is_again: Array, faults: Faults) -> Array:
    """One publication of each event; `mine` are in the order of the events. Few events have more than one."""
    first = np.flatnonzero(~is_again)
    several = np.flatnonzero(np.diff(first, append=len(mine)) > 1)
    kept = mine[first]
    others: list[int] = []
    turn: list[int] = []
    for event in several.tolist():
        end = first[event + 1] if event + 1 < len(first) else len(mine)
        candidates = mine[first[event] : end]
        names = ("departure_ns", "broker", "size_bytes", "lifetime_ns", "matches", "topic")
        values = rows.table.select(names).take(pa.array(candidates)).to_pylist()
        # NULL comes first, as it does in Spark's order.
        keys = [tuple((row[name] is not None, row[name]) for name in names) for row in values]
        order = sorted(range(len(keys)), key=lambda i: _comparable(keys[i]))
        kept[event] = candidates[order[0]]
        seen: dict[str, int] = {}
        for place, i in enumerate(order):
            seen[repr(keys[i])] = seen.get(repr(keys[i]), 0) + 1
            if place:
                others.append(int(candidates[i]))
                turn.append(seen[repr(keys[i])])
    faults.add(np.array(others, np.int64), DUPLICATE, np.array(turn, np.int64))
    return kept


def _comparable(key: tuple[tuple[bool, Any], ...]) -> tuple[tuple[bool, Any], ...]:
    return tuple((known, value if known else 0) for known, value in key)


def _loosest(lifetime: Values, starts: Array, numbers: Array, delays: Values) -> Values:
    """The loosest deadline of the subscriptions that want each event: whatever comes later is on time for nobody."""
    return _sooner(lifetime, Values(*longest_delays(starts, numbers, delays.values, delays.known)))


@compiled
def longest_delays(starts: Array, numbers: Array, delays: Array, known: Array) -> tuple[Array, Array]:
    """The longest delay of the subscriptions of each event; not known where one of them has none."""
    longest, has_longest = np.zeros(len(starts) - 1, np.int64), np.zeros(len(starts) - 1, np.bool_)
    for event in range(len(starts) - 1):
        for place in range(starts[event], starts[event + 1]):
            number = numbers[place]
            is_first = place == starts[event]
            longest[event] = delays[number] if is_first else max(longest[event], delays[number])
            has_longest[event] = known[number] and (is_first or has_longest[event])
    return longest, has_longest


def _sooner(one: Values, other: Values) -> Values:
    """The lesser of what is known."""
    both = one.known & other.known
    values = np.where(both, np.minimum(one.values, other.values), np.where(one.known, one.values, other.values))
    known = one.known | other.known
    return Values(np.where(known, values, 0), known)


def _is_early(at_ns: Array, departure_ns: Array, counting: Counting) -> Array:
    """Whether something is before the departure of its event, beyond the tolerance."""
    # Times are within 2**62 of 0, so neither side leaves 64 bits.
    return at_ns < departure_ns - min(counting.clock_tolerance_ns, 1 << 61)


def _fates(
    rows: GatheredRows,
    events: _Events,
    span: tuple[int, int],
    is_counted: Array,
    audience: Audience,
    counting: Counting,
    faults: Faults,
) -> FateRows:
    """What became of the pairs of these events, which are those of a range of subscriptions."""
    lengths = np.diff(events.starts)
    of_event = np.repeat(np.arange(len(events.rows)), lengths)
    stride = max(1, len(audience))
    pairs = of_event * stride + events.numbers
    first, duplicates = _first_arrivals(rows, events, pairs, span, stride, counting, faults)
    chosen = np.flatnonzero(is_counted[of_event])
    event, arrival = of_event[chosen], first[chosen]
    row, number = events.rows[event], events.numbers[chosen].astype(np.int64)
    has_arrived = arrival >= 0
    departure = events.departure_ns[event]
    delay = np.where(has_arrived, rows.numbers["arrived_ns"].values[arrival] - departure, 0)
    deadline = _sooner(rows.numbers["lifetime_ns"].at(row), audience.delays_ns.at(number))

    def within(error_ns: Array | int) -> Array:
        return has_arrived & (~deadline.known | (delay + error_ns < deadline.values))

    is_on_time = within(0)
    clocks = rows.numbers["clock"]
    sent_by, received_by = clocks.at(row), clocks.at(arrival)
    low, high = (_clock_error(ends, sent_by, received_by) for ends in (counting.clock_low_ns, counting.clock_high_ns))
    return FateRows(
        publisher=rows.publisher.at(row),
        chunk=rows.chunk[row],
        sequence=rows.sequence[row],
        number=number,
        topic=rows.strings["topic"].at(row),
        departure_ns=departure,
        delay_ns=Values(delay, has_arrived),
        delivered_ns=Values(np.where(has_arrived, rows.numbers["delivered_ns"].values[arrival], 0), has_arrived),
        is_on_time=is_on_time,
        is_surely_on_time=is_on_time if high is None else within(high),
        is_maybe_on_time=is_on_time if low is None else within(low),
        is_late=has_arrived & ~is_on_time,
        duplicates=duplicates[chosen],
    )


def _clock_error(ends: Array | None, sent_by: Values, received_by: Values) -> Array | None:
    """The possible error of delays at one end, by the hosts that report them; 0 where a host is unknown."""
    if ends is None:
        return None
    return np.where(sent_by.known & received_by.known, ends[sent_by.values, received_by.values], 0)


def _first_arrivals(
    rows: GatheredRows,
    events: _Events,
    pairs: Array,
    span: tuple[int, int],
    stride: int,
    counting: Counting,
    faults: Faults,
) -> tuple[Array, Array]:
    """For each pair the row of its first arrival (-1: none), and how many more there are."""
    mine = rows.good(DELIVERIES)
    number = rows.numbers["number"].values[mine]
    mine = mine[(number >= span[0]) & (number < span[1])]
    event = events.find(rows.event[mine])
    pair = _found(pairs, event * stride + rows.numbers["number"].values[mine])
    is_known = event >= 0
    has_pair = is_known & (pair >= 0)
    early = has_pair & _is_early(rows.numbers["arrived_ns"].values[mine], _at(events.departure_ns, event), counting)
    for is_bad, reason in (
        (~is_known, UNKNOWN_PUBLICATION),
        (is_known & ~has_pair, NOT_MATCHING),
        (early, NEGATIVE_DELAY),
    ):
        bad = mine[is_bad]
        faults.add(bad, reason, turns(*rows.identity(DELIVERIES, bad)))
    is_fine = has_pair & ~early
    mine, pair = mine[is_fine], pair[is_fine]
    copies = np.bincount(pair, minlength=len(pairs))
    first = np.full(len(pairs), -1, np.int64)
    if len(mine) and copies.max() > 1:
        is_repeated = copies[pair] > 1
        chosen, others = _earliest(rows, mine[is_repeated], pair[is_repeated])
        turn = turns(*rows.identity(DELIVERIES, np.concatenate((chosen, others))))[len(chosen) :]
        faults.add(others, DUPLICATE, turn)
        keep = ~np.isin(mine, others)
        mine, pair = mine[keep], pair[keep]
    first[pair] = mine
    return first, np.maximum(copies - 1, 0)


def _earliest(rows: GatheredRows, mine: Array, pair: Array) -> tuple[Array, Array]:
    """Of deliveries of the same pair the first, and the others."""
    broker = rows.strings["broker"]
    words = broker.names.to_pylist()
    rank = np.empty(len(words) + 1, np.int64)
    rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    rank[-1] = -1
    delivered, arrived = (rows.numbers[name].values[mine] for name in ("delivered_ns", "arrived_ns"))
    keys = (rank[broker.codes[mine]], delivered, arrived, pair)
    order = np.lexsort(keys)
    ordered = pair[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    return mine[order[is_first]], mine[order[~is_first]]


def _at(values: Array, places: Array) -> Array:
    """Values at these places; any at all where the place is -1."""
    return values[places] if len(values) else np.zeros(len(places), np.int64)


def _hops(rows: GatheredRows, events: _Events, is_counted: Array, counting: Counting, faults: Faults) -> HopRows:
    mine = rows.good(HOPS)
    event = events.find(rows.event[mine])
    is_known = event >= 0
    early = is_known & _is_early(rows.numbers["enqueued_ns"].values[mine], _at(events.departure_ns, event), counting)
    for is_bad, reason in ((~is_known, UNKNOWN_PUBLICATION), (early, NEGATIVE_DELAY)):
        bad = mine[is_bad]
        faults.add(bad, reason, turns(*rows.identity(HOPS, bad)))
    is_fine = is_known & ~early
    mine, event = mine[is_fine], event[is_fine]
    again = _repeated(rows, mine, faults)
    kept = ~again & is_counted[event] if len(mine) else again
    mine, event = mine[kept], event[kept]
    return HopRows(
        publisher=rows.publisher.at(mine),
        chunk=rows.chunk[mine],
        source=rows.strings["source"].at(mine),
        target=rows.strings["target"].at(mine),
        times_ns={name: rows.numbers[name].at(mine) for name in TIMES},
        outcome=rows.numbers["outcome"].values[mine],
        departure_ns=Values(_at(events.departure_ns, event), np.ones(len(mine), np.bool_)),
        size_bytes=rows.numbers["size_bytes"].at(events.rows[event]),
        deadline_ns=events.deadline_ns.at(event),
    )


def _repeated(rows: GatheredRows, mine: Array, faults: Faults) -> Array:
    """Which hops are the same as one before them. Hashes are compared first: equal rows have equal ones."""
    again = np.zeros(len(mine), np.bool_)
    mixed = np.zeros(len(mine), np.uint64)
    for column in rows.identity(HOPS, mine):
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    hashes = np.sort(mixed)
    if (hashes[1:] == hashes[:-1]).any():
        order = np.argsort(mixed, kind="stable")
        is_equal = mixed[order][1:] == mixed[order][:-1]
        suspect = np.zeros(len(mine), np.bool_)
        suspect[order[1:][is_equal]] = True
        suspect[order[:-1][is_equal]] = True
        turn = turns(*rows.identity(HOPS, mine[suspect]))
        again[np.flatnonzero(suspect)[turn > 1]] = True
        faults.add(mine[suspect][turn > 1], DUPLICATE, turn[turn > 1])
    return again


def _event_rows(rows: GatheredRows, events: _Events, counted: Array) -> EventRows:
    mine = events.rows[counted]
    lengths = np.diff(events.starts)[counted]
    is_counted = np.zeros(len(events.rows), np.bool_)
    is_counted[counted] = True
    return EventRows(
        publisher=rows.publisher.at(mine),
        chunk=rows.chunk[mine],
        sequence=rows.sequence[mine],
        departure_ns=rows.numbers["departure_ns"].at(mine),
        broker=rows.strings["broker"].at(mine),
        size_bytes=rows.numbers["size_bytes"].at(mine),
        lifetime_ns=rows.numbers["lifetime_ns"].at(mine),
        starts=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        numbers=events.numbers if is_counted.all() else events.numbers[np.repeat(is_counted, np.diff(events.starts))],
    )


def _quarantined(rows: GatheredRows) -> pa.Table:
    """The rows that were bad when they were read."""
    mine = np.flatnonzero(rows.is_bad)
    bad = one_array(rows.table["bad"].take(pa.array(mine, pa.int64())))
    columns = {
        "publisher": rows.publisher.at(mine),
        "chunk": rows.chunk[mine],
        "table": [TABLES[kind] for kind in rows.of[mine].tolist()],
        **{name: bad.field(name) for name in ("file", "reasons", "row")},
        "rows": np.ones(len(mine), np.int64),
    }
    return table_of(columns, QUARANTINED)


def _counts(rows: GatheredRows) -> pa.Table:
    groups = grouped(rows.publisher.codes, rows.chunk, rows.of)
    columns = {
        "publisher": rows.publisher.at(groups.firsts),
        "chunk": rows.chunk[groups.firsts],
        "table": [TABLES[kind] for kind in rows.of[groups.firsts].tolist()],
        "rows": groups.counts(),
    }
    return table_of(columns, ROWS)
