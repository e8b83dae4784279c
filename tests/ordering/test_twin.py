"""The compiled receiver and the state machine decide alike: thousands of random streams, zero differences."""

import numpy as np
import pytest

from tidings.ordering import (
    STILL_HELD,
    OngoingReplay,
    Policy,
    Receiver,
    RecordEntry,
    Sequencer,
    Stamp,
    Streams,
    replay,
)
from tidings.ordering._kernels import COUNTS

POLICIES = ("P-0.05-0", "P-0.05-5", "P-0.2-25", "CST-2", "CST-0", "ours-record", "ours-quantile", "Q-0.6")
STREAMS_PER_POLICY = 400
MS = 1_000_000


def random_streams(rng: np.random.Generator, count: int) -> Streams:
    """Short streams of every kind: loss, duplicates, restarts, clocks that step, bursts of equal arrivals."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    tables, wanted = [], []
    for _ in range(count):
        events = int(rng.integers(1, 60))
        gap_ms = rng.choice([0.2, 1.0, 20.0])
        departure = np.cumsum(rng.exponential(gap_ms, events) * MS).astype(np.int64) + int(rng.integers(10**15))
        if rng.random() < 0.2:  # the publisher's clock is set
            departure[rng.integers(events) :] += int(rng.choice([-30_000, -50, 50, 30_000])) * MS
        delay = rng.choice([0.0, 0.5, 5.0]) * rng.exponential(1.0, events) + rng.choice([0.0, 40.0]) * (
            rng.random(events) < 0.05
        )
        arrival = np.maximum.accumulate(departure) + (rng.integers(-5, 5) + delay * MS).astype(np.int64)
        if rng.random() < 0.3:
            arrival = arrival // MS * MS  # ties
        matches = rng.random(events) < rng.choice([0.1, 0.5, 1.0])
        sequence = np.flatnonzero(matches & (rng.random(events) > 0.05))
        if rng.random() < 0.2:
            sequence = np.concatenate([sequence, rng.choice(sequence, 3)]) if sequence.size else sequence
        came = arrival[sequence] + (rng.integers(0, 20 * MS, sequence.size) * (rng.random(sequence.size) < 0.02))
        order = np.argsort(came, kind="stable")
        sequence, came = sequence[order], came[order]
        left, before = departure[sequence], departure[np.maximum(sequence - 1, 0)]
        if rng.random() < 0.2 and sequence.size > 4:  # the publisher begins again at 0
            cut = sequence.size // 2
            sequence = np.concatenate([sequence[:cut], sequence[cut:] - sequence[cut:].min()])
        if rng.random() < 0.1 and sequence.size:  # a jump beyond the window
            jump = int(rng.choice([1000, 1024, 5000]))
            sequence = np.where(rng.random(sequence.size) < 0.3, sequence + jump, sequence)
        if rng.random() < 0.1 and sequence.size:  # the receiver's clock is set
            came = came.copy()
            came[rng.integers(sequence.size) :] += int(rng.choice([-20_000, -5, 20_000])) * MS
        parts.append((sequence, left, before, came))
        size = int(sequence.max()) + 1 if sequence.size else 1
        tables.append(np.concatenate([departure, np.full(max(size - events, 0), departure[-1])])[: max(size, 1)])
        wanted.append(
            np.flatnonzero(
                (rng.random(tables[-1].size) < 0.02) | np.isin(np.arange(tables[-1].size), np.flatnonzero(matches))
            )
        )
    sizes = np.array([part[0].size for part in parts])
    return Streams(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        *(np.concatenate([part[k] for part in parts]).astype(np.int64) for k in range(4)),
        table_starts=np.concatenate([[0], np.cumsum([t.size for t in tables])[:-1]]).astype(np.int64),
        table_departure_ns=np.concatenate(tables),
        wanted_starts=np.concatenate([[0], np.cumsum([w.size for w in wanted])]).astype(np.int64),
        wanted=np.concatenate(wanted),
        until_ns=_limits(rng, np.concatenate([part[3] for part in parts])),
    )


def _limits(rng: np.random.Generator, came: np.ndarray) -> np.ndarray:
    """By when events have to leave: a few at once, some within milliseconds, the others in an hour."""
    return (came + rng.choice([0, 2 * MS, 3_600_000 * MS], came.size, p=[0.05, 0.25, 0.7])).astype(np.int64)


def run_plainly(streams: Streams, stream: int, policy: Policy) -> tuple[list[int], list[int], dict[str, int]]:
    """The state machine over one stream, with every timer on time."""
    start, stop = int(streams.starts[stream]), int(streams.starts[stream + 1])
    table = streams.table_departure_ns[streams.table_starts[stream] :].tolist()
    wanted = set(streams.wanted[streams.wanted_starts[stream] : streams.wanted_starts[stream + 1]].tolist())
    sequencer: Sequencer[int] = Sequencer(policy, lambda summary: int.from_bytes(summary, "big") in wanted)
    delivered, assessed = [-1] * (stop - start), []

    def note(deliveries, now_ns: int) -> None:
        for delivery in deliveries:
            assert delivered[delivery.item] == -1, "delivered twice"
            delivered[delivery.item] = now_ns

    for row in range(start, stop):
        now_ns, number = int(streams.arrival_ns[row]), int(streams.sequence[row])
        while (timer := sequencer.next_timer_ns) is not None and timer <= now_ns:
            note(sequencer.advance(timer), timer)
        stamp = Stamp(
            sequence=number,
            departure_ns=int(streams.departure_ns[row]),
            previous_departure_ns=int(streams.previous_departure_ns[row]),
            record=tuple(
                RecordEntry(other.to_bytes(16, "big"), table[other])
                for other in range(number - 1, max(number - policy.record, 0) - 1, -1)
            ),
        )
        note(sequencer.receive(row - start, stamp, now_ns, until_ns=int(streams.until_ns[row])), now_ns)
        assessed.append(sequencer.assessed_ns)
    while (timer := sequencer.next_timer_ns) is not None:
        note(sequencer.advance(timer), timer)
    counts = {name: getattr(sequencer.counts, name) for name in COUNTS if hasattr(sequencer.counts, name)}
    return delivered, assessed, counts


@pytest.mark.parametrize("late", ["deliver", "drop"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_kernel_and_the_state_machine_decide_alike(name: str, late: str) -> None:
    policy = Policy.parse(name, late=late)
    rng = np.random.default_rng([len(name), sum(name.encode()), late == "drop"])
    streams = random_streams(rng, STREAMS_PER_POLICY)
    found = replay(streams, [policy])[name]
    seen = dict.fromkeys(COUNTS, 0)
    for stream in range(STREAMS_PER_POLICY):
        rows = slice(int(streams.starts[stream]), int(streams.starts[stream + 1]))
        delivered, assessed, counts = run_plainly(streams, stream, policy)
        assert found.delivered_ns[rows].tolist() == delivered
        assert found.assessed_ns[rows].tolist() == assessed
        for key, value in counts.items():
            assert found.total(key)[stream] == value
            seen[key] += value
    # The streams are worth comparing: everything that can happen does.
    assert min(seen[key] for key in ("out_of_order", "violations", "duplicates", "restarts", "forgotten")) > 0


def shared_streams(rng: np.random.Generator) -> Streams:
    """Four receivers of five publishers each, all at the same time: stalls, loss, copies, tables of their own."""
    columns, tables, wanted = [], [], []
    for _ in range(20):
        events = int(rng.integers(50, 400))
        departure = np.cumsum(rng.exponential(rng.choice([1.0, 5.0]), events) * MS).astype(np.int64)
        delay = rng.choice([0.5, 5.0]) * rng.exponential(1.0, events)
        if rng.random() < 0.5:  # half of what is sent within some time comes when that is over
            begin = departure[rng.integers(events)]
            over = begin + int(rng.integers(50, 500)) * MS
            stuck = (departure >= begin) & (departure < over) & (rng.random(events) < 0.5)
            delay = np.where(stuck, (over - departure) / MS + delay / 10.0, delay)
        arrival = departure + (delay * MS).astype(np.int64)
        matches = rng.random(events) < rng.choice([0.3, 0.8])
        sequence = np.flatnonzero(matches & (rng.random(events) > 0.02))
        sequence = np.concatenate([sequence, sequence[:2]])
        sequence = sequence[np.argsort(arrival[sequence], kind="stable")]
        columns.append((sequence, departure[sequence], departure[np.maximum(sequence - 1, 0)], arrival[sequence]))
        tables.append(departure)
        wanted.append(np.flatnonzero(matches))
    starts, table_starts, wanted_starts = (
        np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64)
        for parts in ([column[0] for column in columns], tables, wanted)
    )
    came = np.concatenate([column[3] for column in columns])
    return Streams(
        starts,
        *(np.concatenate([column[k] for column in columns]).astype(np.int64) for k in range(4)),
        table_starts=table_starts[:-1],
        table_departure_ns=np.concatenate(tables),
        wanted_starts=wanted_starts,
        wanted=np.concatenate(wanted),
        until_ns=_limits(rng, came),
        receiver=rng.permutation(np.repeat(np.arange(4), 5)),
    )


def receive_plainly(streams: Streams, receiver: int, policy: Policy) -> dict[int, int]:
    """A Receiver over the arrivals of all its publishers, with every timer on time: by row, when it was delivered."""
    own = np.flatnonzero(streams.receiver == receiver)
    stream = np.repeat(np.arange(len(streams)), np.diff(streams.starts))
    wanted = {
        int(one): set(streams.wanted[streams.wanted_starts[one] : streams.wanted_starts[one + 1]].tolist())
        for one in own
    }

    def wants(summary: bytes) -> bool:
        one, number = divmod(int.from_bytes(summary, "big"), 2**32)
        return number in wanted[one]

    plain: Receiver[int] = Receiver(policy, wants)
    rows = np.flatnonzero(np.isin(stream, own))
    delivered = {}
    for row in rows[np.argsort(streams.arrival_ns[rows], kind="stable")].tolist():
        one, now_ns, number = int(stream[row]), int(streams.arrival_ns[row]), int(streams.sequence[row])
        while (timer := plain.next_timer_ns) is not None and timer <= now_ns:
            delivered |= {delivery.item: timer for delivery in plain.advance(timer)}
        table = streams.table_departure_ns[streams.table_starts[one] :]
        stamp = Stamp(
            sequence=number,
            departure_ns=int(streams.departure_ns[row]),
            previous_departure_ns=int(streams.previous_departure_ns[row]),
            record=tuple(
                RecordEntry((one * 2**32 + other).to_bytes(16, "big"), int(table[other]))
                for other in range(number - 1, max(number - policy.record, 0) - 1, -1)
            ),
        )
        left = plain.receive(str(one), row, stamp, now_ns, until_ns=int(streams.until_ns[row]))
        delivered |= {delivery.item: now_ns for delivery in left}
    while (timer := plain.next_timer_ns) is not None:
        delivered |= {delivery.item: timer for delivery in plain.advance(timer)}
    return delivered


@pytest.mark.parametrize("name", ["P-0.05-5", "ours-record", "ours-quantile", "Q-0.6"])
def test_the_kernel_and_a_receiver_of_many_publishers_decide_alike(name: str) -> None:
    policy = Policy.parse(name)
    shared = 0
    for seed in range(4):
        streams = shared_streams(np.random.default_rng([5, seed]))
        found = replay(streams, [policy])[name].delivered_ns
        delivered = {}
        for receiver in range(4):
            delivered |= receive_plainly(streams, receiver, policy)
        assert {row: int(found[row]) for row in np.flatnonzero(found >= 0)} == delivered
        alone = replay(streams.shared_by(np.zeros(0, np.int64)), [policy])[name].delivered_ns
        shared += int((alone != found).sum())
    assert (shared > 100) == name.startswith(("ours", "Q"))  # and it matters whose they are


def test_a_full_queue_lets_the_first_go_alike() -> None:
    policy = Policy(name="tight", kind="static", latch_ns=50 * MS, max_held=3)
    streams = random_streams(np.random.default_rng(3), 400)
    found = replay(streams, [policy])["tight"]
    assert found.total("forced").sum() > 100
    for stream in range(400):
        rows = slice(int(streams.starts[stream]), int(streams.starts[stream + 1]))
        assert found.delivered_ns[rows].tolist() == run_plainly(streams, stream, policy)[0]


@pytest.mark.parametrize("late", ["deliver", "drop"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_replay_in_blocks_decides_as_one_of_the_whole(name: str, late: str) -> None:
    policy = Policy.parse(name, late=late)
    rng = np.random.default_rng([len(name), late == "drop"])
    streams = shared_streams(rng)
    whole = replay(streams, [policy])[name]
    stream = np.repeat(np.arange(len(streams)), np.diff(streams.starts))
    cuts = np.sort(rng.integers(0, int(streams.arrival_ns.max()), 25))
    block = np.searchsorted(cuts, streams.arrival_ns, side="right")
    ongoing = OngoingReplay(policy)
    ongoing.insert(np.zeros(len(streams), np.int64), np.zeros(4, np.int64))
    delivered = np.empty(streams.sequence.size, np.int64)
    waiting = np.empty(0, np.int64)
    for number in range(cuts.size + 1):
        rows = np.flatnonzero(block == number)
        part = Streams(
            np.searchsorted(stream[rows], np.arange(len(streams) + 1)).astype(np.int64),
            *(column[rows] for column in streams[1:5]),
            *streams[5:9],
            until_ns=streams.until_ns[rows],
            receiver=streams.receiver,
        )
        found = ongoing.go_on(part, int(cuts[number]) if number < cuts.size else 2**62)
        rows = np.concatenate([rows, waiting])
        delivered[rows] = found
        waiting = rows[found == STILL_HELD]
        assert ongoing.waiting == waiting.size
    assert waiting.size == 0
    assert (delivered == whole.delivered_ns).all()
    at = COUNTS.index("hold_ns")
    assert (np.delete(ongoing.counts, at, axis=1) == np.delete(whole.counts, at, axis=1)).all()
    assert whole.total("out_of_order").sum() > 100


def test_a_stream_that_begins_later_stands_in_its_place() -> None:
    """Inserting before others moves what is known of them along."""
    policy = Policy.parse("ours-quantile")
    streams = shared_streams(np.random.default_rng(5))
    whole = replay(streams, [policy])[policy.name]
    half = int(np.median(streams.arrival_ns))
    late = np.arange(len(streams)) % 3 == 0  # these begin in the second block
    stream = np.repeat(np.arange(len(streams)), np.diff(streams.starts))
    first = streams.arrival_ns < half
    kept = np.flatnonzero(~(late[stream] & first))
    starts = np.searchsorted(stream[kept], np.arange(len(streams) + 1)).astype(np.int64)
    alone = Streams(starts, *(column[kept] for column in streams[1:5]), *streams[5:9], streams.until_ns[kept])
    expected = replay(alone, [policy])[policy.name].delivered_ns  # nobody learns from others
    assert whole.delivered_ns.size > expected.size
    ongoing, early = OngoingReplay(policy), np.flatnonzero(~late)
    ongoing.insert(np.zeros(early.size, np.int64), np.zeros(early.size, np.int64))
    delivered = np.empty(kept.size, np.int64)
    rows = np.flatnonzero(first[kept])
    number = np.searchsorted(early, stream[kept[rows]])
    part = Streams(
        np.searchsorted(number, np.arange(early.size + 1)).astype(np.int64),
        *(column[rows] for column in alone[1:5]),
        *(
            streams.table_starts[early],
            streams.table_departure_ns,
            np.zeros(early.size + 1, np.int64),
            alone.wanted[:0],
        ),
        until_ns=alone.until_ns[rows],
        receiver=np.arange(early.size),
    )
    delivered[rows] = found = ongoing.go_on(part, half)
    waiting = rows[found == STILL_HELD]
    places = np.searchsorted(early, np.flatnonzero(late))
    ongoing.insert(places, places)
    rows = np.flatnonzero(~first[kept])
    rest = Streams(
        np.searchsorted(stream[kept[rows]], np.arange(len(streams) + 1)).astype(np.int64),
        *(column[rows] for column in alone[1:5]),
        *streams[5:9],
        until_ns=alone.until_ns[rows],
        receiver=np.arange(len(streams)),
    )
    delivered[np.concatenate([rows, waiting])] = ongoing.go_on(rest, 2**62)
    assert (delivered == expected).all()
