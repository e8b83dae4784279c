"""From the tables of a trace to streams: what was published and what arrived, in columns, as `replay` takes it.

- A publisher's table runs over its sequence numbers, from the least that is known. A number without a publication is
  taken to have left with the one before it and to match nothing. A hole of more than WINDOW numbers is shortened to
  WINDOW: whatever comes from before it is forgotten in either case, so no policy differs, and a table
  is never much longer than what it is made of.
- Of publications with the same number the earliest counts. Arrivals of events that were not published, or before they
  were, are left out and counted.
- A summary matches the events that the subscription wants, those that arrived, and by mistake a share of the others,
  drawn by a counter-based generator: they depend on publisher, subscription and seed, not on what else is replayed at
  the same time.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidings.compiled import compiled, compiled_inline
from tidings.ordering._kernels import WINDOW, IntArray
from tidings.ordering._replay import Streams

__all__ = ["FALSE_MATCHES", "Arrivals", "Publications", "Recorded", "recorded_streams"]

FALSE_MATCHES: Final = 0.001
"""The share of other events that a summary wrongly matches, as measured for filters on a topic and two ranges."""

_UNKNOWN: Final = -1

CountArray = NDArray[np.uint64]
FloatArray = NDArray[np.float64]


class Publications(NamedTuple):
    """What was published, in any order; `publisher` counts from 0. `key` names each publisher in draws.

    `wanted_row` and `wanted_by` say in pairs which of the rows each subscription wants.
    """

    publisher: IntArray
    sequence: IntArray
    departure_ns: IntArray
    key: IntArray
    wanted_row: IntArray
    wanted_by: IntArray


class Arrivals(NamedTuple):
    """What arrived, in any order; subscriptions are numbers that are not negative."""

    publisher: IntArray
    subscription: IntArray
    sequence: IntArray
    arrival_ns: IntArray


class Recorded(NamedTuple):
    """The streams, whose they are, which arrival each of their rows is, and how many arrivals were left out."""

    streams: Streams
    publisher: IntArray
    subscription: IntArray
    row: IntArray
    unknown: int
    early: int


class _Tables(NamedTuple):
    """The publishers' tables end to end: of each publisher where it starts, and where its sorted rows do."""

    starts: IntArray
    departure_ns: IntArray
    row_starts: IntArray
    sequence: IntArray  # of the sorted rows
    number: IntArray  # of the sorted rows, counted within the table
    sorted_row: IntArray  # of each row as given


def recorded_streams(
    published: Publications,
    arrived: Arrivals,
    *,
    records: bool = True,
    clock_tolerance_ns: int = 0,
    false_matches: float = 0.0,
    seed: int = 0,
) -> Recorded:
    """Every publisher and subscription's stream, by publisher, subscription and arrival.

    Without `records` nothing is worked out that only policies with a record read.
    """
    tables = _tables(published)
    place = locate(tables.row_starts, tables.sequence, arrived.publisher, arrived.sequence)
    known = place != _UNKNOWN
    number = np.where(known, tables.number[place] if tables.number.size else 0, 0)
    position = np.where(known, tables.starts[arrived.publisher] + number, 0)
    departure = tables.departure_ns[position] if tables.departure_ns.size else np.zeros(place.size, np.int64)
    early = known & (arrived.arrival_ns + clock_tolerance_ns < departure)
    kept = np.flatnonzero(known & ~early)
    order = np.lexsort((number[kept], arrived.arrival_ns[kept], arrived.subscription[kept], arrived.publisher[kept]))
    row = kept[order]
    publisher, subscription = arrived.publisher[row], arrived.subscription[row]
    is_first = np.ones(row.size, np.bool_)
    is_first[1:] = (publisher[1:] != publisher[:-1]) | (subscription[1:] != subscription[:-1])
    firsts = np.flatnonzero(is_first)
    position, number = position[row], number[row]
    whose = publisher[firsts], subscription[firsts]
    streams = Streams(
        starts=np.append(firsts, row.size).astype(np.int64),
        sequence=number,
        departure_ns=departure[row],
        previous_departure_ns=tables.departure_ns[position - (number > 0)],
        arrival_ns=arrived.arrival_ns[row],
        table_starts=tables.starts[whose[0]],
        table_departure_ns=tables.departure_ns,
        wanted_starts=np.zeros(firsts.size + 1, np.int64),
        wanted=np.empty(0, np.int64),
    )
    if records:
        stream = np.cumsum(is_first) - 1
        mistaken = _mistaken(published.key, whose, tables, false_matches, seed)
        streams = _with_wanted(streams, published, tables, whose, [(stream, number), mistaken])
    return Recorded(streams, *whose, row, int((~known).sum()), int(early.sum()))


def _tables(published: Publications) -> _Tables:
    publisher, sequence = published.publisher, published.sequence
    order = np.lexsort((published.departure_ns, sequence, publisher))
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = (np.diff(publisher[order]) != 0) | (np.diff(sequence[order]) != 0)
    sorted_row = np.empty(order.size, np.int64)
    sorted_row[order] = np.cumsum(is_new) - 1
    order = order[is_new]
    publisher, sequence = publisher[order], sequence[order]
    row_starts = np.searchsorted(publisher, np.arange(published.key.size + 1)).astype(np.int64)
    steps = np.zeros(order.size, np.int64)
    steps[1:] = np.minimum(np.diff(sequence), WINDOW + 1)
    used = row_starts[:-1][np.diff(row_starts) > 0]
    steps[used] = 0
    total = np.cumsum(steps)
    number = total - np.repeat(total[used], np.diff(np.append(used, order.size)))
    sizes = np.zeros(published.key.size, np.int64)
    np.maximum.at(sizes, publisher, number + 1)
    starts = np.cumsum(sizes) - sizes
    filled = np.zeros(int(sizes.sum()), np.int64)
    filled[starts[publisher] + number] = np.arange(order.size)
    departure = published.departure_ns[order][np.maximum.accumulate(filled)]
    return _Tables(starts, departure, row_starts, sequence, number, sorted_row)


def _with_wanted(
    streams: Streams,
    published: Publications,
    tables: _Tables,
    whose: tuple[IntArray, IntArray],
    more: list[tuple[IntArray, IntArray]],
) -> Streams:
    """With the numbers that summaries match: what is wanted, and more as pairs of stream and number."""
    publisher = published.publisher[published.wanted_row]
    width = max(int(published.wanted_by.max(initial=0)), int(whose[1].max(initial=0))) + 1
    names, name = whose[0] * width + whose[1], publisher * width + published.wanted_by
    stream = np.searchsorted(names, name)
    has_stream = stream < names.size
    has_stream[has_stream] = names[stream[has_stream]] == name[has_stream]
    number = tables.number[tables.sorted_row[published.wanted_row[has_stream]]]
    owners = np.concatenate([stream[has_stream], *(some for some, _ in more)])
    numbers = np.concatenate([number, *(some for _, some in more)])
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(len(streams) + 1)).astype(np.int64)
    return Streams(*streams[:7], wanted_starts=starts, wanted=numbers[order].astype(np.int64))


def _mistaken(
    key: IntArray, whose: tuple[IntArray, IntArray], tables: _Tables, share: float, seed: int
) -> tuple[IntArray, IntArray]:
    """The pairs of stream and number that summaries wrongly match."""
    sizes = np.diff(np.append(tables.starts, tables.departure_ns.size))[whose[0]]
    if share <= 0.0 or not sizes.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts, numbers = sparse_draws(draw_names(key[whose[0]], whose[1], seed), sizes, np.log1p(-share))
    return np.repeat(np.arange(sizes.size), np.diff(starts)), numbers


def draw_names(key: IntArray, subscription: IntArray, seed: int) -> CountArray:
    """What the draws of each stream begin with: its publisher's key, its subscription and the seed."""
    names = key.view(np.uint64) ^ subscription.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(names ^ np.uint64(seed & 0xFFFFFFFFFFFFFFFF))


@compiled
def locate(row_starts: IntArray, sequence: IntArray, publisher: IntArray, wanted: IntArray) -> IntArray:
    """The sorted row of each publisher's number; -1 if there is none. Without holes the first look finds it."""
    found = np.full(len(wanted), _UNKNOWN, np.int64)
    for row in range(len(wanted)):
        low, high = row_starts[publisher[row]], row_starts[publisher[row] + 1]
        number = wanted[row]
        if low == high or number < sequence[low]:
            continue
        guess = low + (number - sequence[low])
        if guess < high and sequence[guess] == number:
            found[row] = guess
            continue
        while low < high:
            middle = (low + high) // 2
            if sequence[middle] < number:
                low = middle + 1
            else:
                high = middle
        if low < row_starts[publisher[row] + 1] and sequence[low] == number:
            found[row] = low
    return found


@compiled
def sparse_draws(names: CountArray, sizes: IntArray, log_rest: float) -> tuple[IntArray, IntArray]:
    """Of each stream the numbers below its size that are drawn, each with the same small probability p.

    `log_rest` is ln(1 - p): the gaps between what is drawn are geometric, so the others cost nothing. Returns where
    each stream's numbers start, and the numbers.
    """
    starts = np.zeros(len(names) + 1, np.int64)
    for fill in range(2):
        numbers = np.empty(starts[-1] if fill else 0, np.int64)
        count = 0
        for stream in range(len(names)):
            state, place = names[stream], -1.0
            while True:
                state += np.uint64(0x9E3779B97F4A7C15)
                place += 1.0 + np.floor(np.log(_uniform(state)) / log_rest)
                if place >= sizes[stream]:
                    break
                if fill:
                    numbers[count] = np.int64(place)
                count += 1
            starts[stream + 1] = count
    return starts, numbers


@compiled
def sparse_draws_between(
    states: CountArray, last: FloatArray, low: IntArray, high: IntArray, log_rest: float
) -> tuple[IntArray, IntArray]:
    """Of each stream the numbers that `sparse_draws` has from `low` to before `high`.

    `states` and `last` say how far each stream is, at first its name and -1; they go on to before `low`, which never
    falls. Returns where each stream's numbers start, and the numbers.
    """
    starts = np.zeros(len(states) + 1, np.int64)
    for fill in range(2):
        numbers = np.empty(starts[-1] if fill else 0, np.int64)
        count = 0
        for stream in range(len(states)):
            state, place = states[stream], last[stream]
            while True:
                state += np.uint64(0x9E3779B97F4A7C15)
                place += 1.0 + np.floor(np.log(_uniform(state)) / log_rest)
                if place >= high[stream]:
                    break
                if place < low[stream]:
                    states[stream], last[stream] = state, place
                    continue
                if fill:
                    numbers[count] = np.int64(place)
                count += 1
            starts[stream + 1] = count
    return starts, numbers


@compiled_inline
def _uniform(state: np.uint64) -> float:
    """Above 0 and at most 1, from a 64-bit state (the finaliser of SplitMix64)."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return float((mixed >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
