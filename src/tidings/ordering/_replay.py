"""Replay: what a receiver would have done with a recorded stream of arrivals, under any policies.

A stream is what one subscription received of one publisher. `Streams` holds many of them end to end, in columns; it
is what a group of a trace becomes, and what the simulator and the experiments make. Records are not stored with every
event: the record of event n is the rows before n of its publisher's table, and `wanted` says which of them the
summary matches.

The static latch that is as good as another policy needs no search over replays. Under a static latch an event is a
violation if, and only if, the first of those that overtook it had come at least the latch before: that one is held for
its whole latch, as it waits for the event itself, and whatever else overtook it cannot leave sooner (but if `max_held`
events wait, or the receiver's clock is set back). What was sent before the first event of a stream to arrive is one
under any latch, as that one is not held. So the violations of every latch are known from how long overtaking
lasted, and that is found in one pass (`overtaken_ns`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tidings.errors import InputError
from tidings.ordering._kernels import COUNTS, PAIR, WINDOW, Columns, Groups, IntArray, Memory, Out, replay_streams
from tidings.ordering._policies import Policy

__all__ = ["Replayed", "Streams", "optimal_static_latch", "overtaken_ns", "replay"]

MOST_SHARING: Final = 256
"""The pairs of a receiver that learn from each other; if there are more, so many at a time do."""


class Streams(NamedTuple):
    """Rows starts[i] to starts[i + 1] are stream i, in order of arrival; times are nanoseconds.

    `table_departure_ns[table_starts[i] + n]` is when the publisher of stream i sent event n; the numbers
    `wanted[wanted_starts[i]:wanted_starts[i + 1]]` are those of the events whose summaries match the subscription, in
    any order. Policies without a record read neither, and both may then be empty. `until_ns` is by row when an event
    has to be delivered at the latest, if it is held; empty if there is no such time. `receiver` is by stream whose it
    is: the streams of a receiver learn from each other, as in `Receiver`; empty if each is alone, as in `Sequencer`.
    `table_first` is by stream the first number of its table, if that is not 0: nothing before it is asked for.
    """

    starts: IntArray
    sequence: IntArray
    departure_ns: IntArray
    previous_departure_ns: IntArray
    arrival_ns: IntArray
    table_starts: IntArray
    table_departure_ns: IntArray
    wanted_starts: IntArray
    wanted: IntArray
    until_ns: IntArray = np.zeros(0, np.int64)
    receiver: IntArray = np.zeros(0, np.int64)
    table_first: IntArray = np.zeros(0, np.int64)

    @classmethod
    def of_one_publisher(
        cls,
        *,
        departure_ns: ArrayLike,
        stream: ArrayLike,
        sequence: ArrayLike,
        arrival_ns: ArrayLike,
        wanted: ArrayLike,
    ) -> "Streams":
        """From one publisher's departures and the arrivals at its readers, by stream and then by arrival.

        `wanted[stream, sequence]` says what the summaries match.
        """
        departures = np.ascontiguousarray(departure_ns, np.int64)
        flags = np.asarray(wanted, np.bool_)
        wanting, matching = np.nonzero(flags)
        numbers, streams = np.asarray(sequence, np.int64), np.asarray(stream, np.int64)
        count = flags.shape[0]
        return cls(
            starts=np.searchsorted(streams, np.arange(count + 1)).astype(np.int64),
            sequence=numbers,
            departure_ns=departures[numbers],
            previous_departure_ns=departures[np.maximum(numbers - 1, 0)],
            arrival_ns=np.asarray(arrival_ns, np.int64),
            table_starts=np.zeros(count, np.int64),
            table_departure_ns=departures,
            wanted_starts=np.searchsorted(wanting, np.arange(count + 1)).astype(np.int64),
            wanted=matching.astype(np.int64),
        )

    @classmethod
    def of_one_stream(
        cls,
        *,
        sequence: ArrayLike,
        departure_ns: ArrayLike,
        arrival_ns: ArrayLike,
        previous_departure_ns: ArrayLike,
        table_departure_ns: ArrayLike = (),
        wanted: ArrayLike = (),
    ) -> "Streams":
        """One stream in order of arrival; with records, the publisher's departures and whether each event matches."""
        numbers = np.asarray(sequence, np.int64)
        matching = np.flatnonzero(np.asarray(wanted, np.bool_)).astype(np.int64)
        return cls(
            starts=np.array([0, numbers.size], np.int64),
            sequence=numbers,
            departure_ns=np.asarray(departure_ns, np.int64),
            previous_departure_ns=np.asarray(previous_departure_ns, np.int64),
            arrival_ns=np.asarray(arrival_ns, np.int64),
            table_starts=np.zeros(1, np.int64),
            table_departure_ns=np.asarray(table_departure_ns, np.int64),
            wanted_starts=np.array([0, matching.size], np.int64),
            wanted=matching,
        )

    def held_until(self, until_ns: IntArray) -> "Streams":
        """The same streams, no event of which is held beyond its time."""
        return Streams(*self[:9], until_ns, *self[10:])

    def shared_by(self, receiver: IntArray) -> "Streams":
        """The same streams; those with the same receiver learn from each other."""
        return Streams(*self[:10], receiver, *self[11:])

    def __len__(self) -> int:
        """How many streams there are."""
        return len(self.starts) - 1


class Replayed(NamedTuple):
    """What one policy did: `delivered_ns` and `assessed_ns` by row (-1: not delivered), `counts` by stream."""

    delivered_ns: IntArray
    assessed_ns: IntArray
    counts: IntArray

    def total(self, name: str) -> IntArray:
        """One of COUNTS, by stream."""
        return np.asarray(self.counts[:, COUNTS.index(name)])

    @property
    def mitigation(self) -> float | None:
        """The share of out-of-order receptions that were put right; None if there was none."""
        late = int(self.total("out_of_order").sum())
        return 1.0 - int(self.total("violations").sum()) / late if late else None

    @property
    def mean_hold_ns(self) -> float:
        """Delivery less arrival, over all that was delivered."""
        return float(self.total("hold_ns").sum()) / max(int((self.delivered_ns >= 0).sum()), 1)


def replay(streams: Streams, policies: Sequence[Policy]) -> Mapping[str, Replayed]:
    """Every policy over the same streams, by name."""
    return {policy.name: _replay(streams, policy, np.empty(0, np.int64)) for policy in policies}


def overtaken_ns(streams: Streams) -> IntArray:
    """By row, how long before it the first that overtook it had come; -1: none had; 2^62: no latch could have helped.

    As many of them are at least as long as a static latch as that latch has violations.
    """
    lasted = np.full(streams.sequence.size, -1, np.int64)
    _replay(streams, Policy.static(0), lasted)
    return lasted


def optimal_static_latch(
    streams: Sequence[Streams], violations: int, *, longest_ns: int = 2_000_000_000, precision_ns: int = 10_000
) -> int:
    """The least static latch with at most so many violations, by bisection to `precision_ns` (paper A, section 5.2).

    `longest_ns` if even that allows more.
    """

    def violated(latch_ns: int) -> int:
        policy = Policy.static(latch_ns)
        return sum(int(replay(some, [policy])[policy.name].total("violations").sum()) for some in streams)

    low, high = -1, longest_ns
    if violated(longest_ns) > violations:
        return longest_ns
    while high - low > precision_ns:
        middle = (low + high) // 2
        low, high = (low, middle) if violated(middle) <= violations else (middle, high)
    return high


def _replay(streams: Streams, policy: Policy, lasted: IntArray) -> Replayed:
    _check(streams, policy)
    rows = streams.sequence.size
    delivered, assessed = np.empty(rows, np.int64), np.empty(rows, np.int64)
    counts = np.zeros((len(streams), len(COUNTS)), np.int64)
    rule = policy.rule()
    columns, groups, memory = prepared(streams, policy)
    replay_streams(rule, columns, groups, memory, Out(delivered, assessed, lasted, counts), None)
    return Replayed(delivered, assessed, counts)


def prepared(streams: Streams, policy: Policy) -> tuple[Columns, Groups, Memory]:
    """The streams as a kernel takes them, who learns from whom, and room for the largest group."""
    receiver = (
        streams.receiver if policy.rule().margin > 0.0 else np.zeros(0, np.int64)
    )  # others teach the rest nothing
    groups, flags = _groups(streams, receiver, _table_sizes(streams) if policy.record else None)
    columns = Columns(*streams[:10])
    if streams.table_first.size:
        columns = columns._replace(table_starts=streams.table_starts - streams.table_first)
    return columns, groups, _memory(policy, groups, flags)


def _table_sizes(streams: Streams) -> IntArray:
    """Of each stream, how many numbers its flags run over."""
    sizes = np.zeros(len(streams), np.int64)
    for starts, numbers in ((streams.starts, streams.sequence), (streams.wanted_starts, streams.wanted)):
        used = np.diff(starts) > 0
        if used.any():
            sizes[used] = np.maximum(sizes[used], np.maximum.reduceat(numbers, starts[:-1][used]) + 1)
    return np.maximum(sizes - streams.table_first, 0) if streams.table_first.size else sizes


def _groups(streams: Streams, receiver: IntArray, sizes: IntArray | None) -> tuple[Groups, int]:
    """Who learns from whom, and how many flags the largest group needs."""
    nothing, count = np.zeros(0, np.int64), len(streams)
    if not receiver.size:
        alone = Groups(np.arange(count + 1), nothing, nothing, nothing, nothing, -streams.table_first)
        return alone, 0 if sizes is None else int(sizes.max(initial=0))
    members = np.argsort(receiver, kind="stable").astype(np.int64)
    owner = receiver[members]
    firsts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    within = np.arange(count) - np.repeat(firsts, np.diff(np.append(firsts, count)))
    starts = np.append(np.flatnonzero(within % MOST_SHARING == 0), count).astype(np.int64)
    place_of, group_of = np.empty(count, np.int64), np.empty(count, np.int64)
    group_of[members] = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    place_of[members] = within % MOST_SHARING
    stream = np.repeat(np.arange(count), np.diff(streams.starts))
    # A stream's rows stay in their order even if its receiver's clock was set back.
    time_ns = _rising(streams.arrival_ns, streams.starts)
    rows = np.lexsort((time_ns, group_of[stream])).astype(np.int64)
    row_starts = np.searchsorted(group_of[stream][rows], np.arange(starts.size)).astype(np.int64)
    flag_starts, flags = nothing, 0
    if sizes is not None:
        before = np.cumsum(sizes[members]) - sizes[members]
        flag_starts = np.empty(count, np.int64)
        flag_starts[members] = before - np.repeat(before[starts[:-1]], np.diff(starts))
        flags = int((flag_starts + sizes).max())
        if streams.table_first.size:
            flag_starts -= streams.table_first
    return Groups(starts, members, row_starts, rows, place_of[stream], flag_starts), flags


def _rising(arrival_ns: IntArray, starts: IntArray) -> IntArray:
    """The arrivals, each at least that before it in its stream."""
    rising = arrival_ns.copy()
    if (np.diff(arrival_ns) < 0).sum() >= np.count_nonzero(np.diff(starts)):
        for start, stop in pairwise(starts.tolist()):
            np.maximum.accumulate(rising[start:stop], out=rising[start:stop])
    return rising


def _memory(policy: Policy, groups: Groups, flags: int) -> Memory:
    most = int(np.diff(groups.starts).max(initial=1))
    capacity = 1 << (policy.max_held + 1).bit_length()
    received, resolved, first_arrival, first_delta = (np.empty(most * WINDOW, np.int64) for _ in range(4))
    held_sequence, held_due, held_until, held_row = (np.empty(most * capacity, np.int64) for _ in range(4))
    return Memory(
        capacity=capacity,
        pairs=np.zeros(most + 2, PAIR),
        received=received,
        resolved=resolved,
        first_arrival=first_arrival,
        first_delta=first_delta,
        held_sequence=held_sequence,
        held_due=held_due,
        held_until=held_until,
        held_row=held_row,
        ring=np.empty(most * policy.samples, np.int64),
        flags=np.zeros(flags, np.bool_),
    )


def _check(streams: Streams, policy: Policy) -> None:
    rows = streams.sequence.size
    if any(column.size != rows for column in streams[2:5]):
        raise InputError("streams: sequence, departure_ns, previous_departure_ns and arrival_ns differ in length")
    if streams.until_ns.size not in (0, rows):
        raise InputError(f"streams: until_ns has {streams.until_ns.size} rows, sequence {rows}")
    if streams.receiver.size not in (0, len(streams)):
        raise InputError(f"streams: receiver names {streams.receiver.size} of {len(streams)} streams")
    if rows and int(streams.sequence.min()) < 0:
        raise InputError(f"streams: sequence {int(streams.sequence.min())} is negative; sequences count from 0")
    if policy.record and rows:
        last = np.maximum.reduceat(streams.sequence, streams.starts[:-1][np.diff(streams.starts) > 0])
        used = np.diff(streams.starts) > 0
        if (streams.table_starts[used] + last > streams.table_departure_ns.size).any():
            raise InputError(
                f"policy {policy.name!r} reads records, but the streams' tables end before their sequences"
            )
