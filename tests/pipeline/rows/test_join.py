"""Where the rows of an event meet, against plain Python: random rows, few events, everything that can be wrong."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

from tidings.pipeline.rows import GATHERED as SCHEMA
from tidings.pipeline.rows import OWN, Counting, FateRows, JoinedRows, audience_of, join_rows
from tidings.pipeline.rows._gathered import TABLES
from tidings.pipeline.rows._join import PAIRS_MOST

AUDIENCE = audience_of(
    pa.table(
        {
            "number": pa.array([0, 1], pa.int32()),
            "subscription": ["s", "t"],
            "subscriber": ["me", "you"],
            "price": [1.0, 2.0],
            "max_delay_ns": pa.array([30, None], pa.int64()),
        }
    )
)
COUNTING = Counting(counted_from_ns=5, clock_tolerance_ns=2)

Row = dict[str, Any]
PUBLISHERS = st.sampled_from(["p", "q"])
SEQUENCES = st.sampled_from([0, 1, 20_000])
TIMES = st.sampled_from([0, 4, 7, 8, 12, 60])
BROKERS = st.sampled_from(["a", "b"])
EVENT = {"publisher": PUBLISHERS, "sequence": SEQUENCES}


def rows_of(of: int, **columns: Any) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({"of": st.just(of), **EVENT, **columns})


PUBLICATIONS = rows_of(
    0,
    departure_ns=TIMES,
    size_bytes=st.just(10),
    lifetime_ns=st.sampled_from([None, 20]),
    broker=BROKERS,
    matches=st.sampled_from([[], [0], [0, 1]]),
)
HOPS = rows_of(
    1,
    enqueued_ns=TIMES,
    sent_ns=st.sampled_from([None, 70]),
    outcome=st.just(0),
    source=st.none() | BROKERS,
    target=BROKERS,
)
DELIVERIES = rows_of(2, arrived_ns=TIMES, delivered_ns=TIMES, number=st.sampled_from([0, 1]), broker=BROKERS)
BROKEN = st.fixed_dictionaries(
    {
        "of": st.sampled_from([0, 1, 2]),
        "publisher": st.none() | PUBLISHERS,
        "sequence": st.none() | SEQUENCES,
        "bad": st.just({"file": "f", "reasons": ["missing-id"], "row": "{}"}),
    }
)
TIMED = {1: ("enqueued_ns", "sent_ns", "source"), 2: ("arrived_ns", "delivered_ns", "broker")}
ALL = st.lists(PUBLICATIONS | HOPS | DELIVERIES | BROKEN, max_size=25)


def joined(rows: list[Row], *, pairs_most: int = PAIRS_MOST) -> tuple[JoinedRows, list[FateRows], pa.Table]:
    """The facts, with the fates used up, and the faults."""
    table = pa.Table.from_pylist([{field.name: row.get(field.name) for field in SCHEMA} for row in rows], SCHEMA)
    found = join_rows(table, AUDIENCE, COUNTING, pairs_most=pairs_most)
    return found, list(found.fates), found.found.table()


def values(row: Row) -> tuple[Any, ...]:
    return tuple(repr(row.get(name)) for name in OWN)


def plain(rows: list[Row]) -> tuple[dict[Any, Any], list[Any], list[Any]]:
    """Events, what became of pairs, and faults, one row at a time."""
    events: dict[Any, Row] = {}
    faults: list[Any] = []
    good = [row for row in rows if "bad" not in row]
    for of in range(3):
        groups: dict[Any, list[Row]] = {}
        for row in good:
            if row["of"] == of:
                groups.setdefault((row["publisher"], row["sequence"]), []).append(row)
        for key, group in groups.items():
            if of == 0:
                order = sorted(group, key=rank)
                events[key] = order[0]
                faults += [(key, 0, "duplicate", values(row)) for row in order[1:]]
                continue
            faults += faulty(of, key, group, events.get(key))
    fates = []
    for key, event in events.items():
        if event["departure_ns"] < COUNTING.counted_from_ns:
            continue
        for number in event["matches"]:
            mine = arrivals(good, key, event, number)
            limits = [limit for limit in (event["lifetime_ns"], [30, None][number]) if limit is not None]
            delay = mine[0]["arrived_ns"] - event["departure_ns"] if mine else None
            is_on_time = delay is not None and (not limits or delay < min(limits))
            fates.append((*key, number, delay, is_on_time, len(mine[1:])))
    return events, fates, faults


def rank(row: Row) -> tuple[Any, ...]:
    """The order among publications of an event, the first of which is kept."""
    lifetime_ns = row["lifetime_ns"]
    return row["departure_ns"], row["broker"], lifetime_ns is not None, lifetime_ns or 0, row["matches"]


def arrivals(good: list[Row], key: Any, event: Row, number: int) -> list[Row]:
    """The deliveries of a pair that are in time with its departure, the first one first."""
    mine = [
        row for row in good if row["of"] == 2 and (row["publisher"], row["sequence"]) == key and row["number"] == number
    ]
    return sorted(
        (row for row in mine if row["arrived_ns"] >= event["departure_ns"] - 2),
        key=lambda row: (row["arrived_ns"], row["delivered_ns"], row["broker"]),
    )


def faulty(of: int, key: Any, group: list[Row], event: Row | None) -> list[Any]:
    if event is None:
        return [(key, of, "unknown-publication", values(row)) for row in group]
    time, after, where = TIMED[of]
    faults, kept = [], []
    for row in group:
        is_wanted = of == 1 or row["number"] in event["matches"]
        reason = (
            "not-matching" if not is_wanted else "negative-delay" if row[time] < event["departure_ns"] - 2 else None
        )
        if reason is None:
            kept.append(row)
        else:
            faults.append((key, of, reason, values(row)))
    seen: set[Any] = set()
    for row in sorted(kept, key=lambda row: (row[time], row[after] or 0, row[where] or "")):
        identity = values(row) if of == 1 else row["number"]
        if identity in seen:
            faults.append((key, of, "duplicate", values(row)))
        seen.add(identity)
    return faults


@settings(max_examples=200, deadline=None)
@given(ALL, st.sampled_from([1, 2, PAIRS_MOST]))
def test_facts_and_faults_are_those_of_plain_python(rows: list[Row], pairs_most: int) -> None:
    """However many subscriptions are looked at together."""
    if not rows:
        return
    events, fates, faults = plain(rows)
    found, pieces, faulty_rows = joined(rows, pairs_most=pairs_most)
    assert len(pieces) == 1 or all(len(piece.sequence) <= max(pairs_most, len(events)) for piece in pieces)
    counted = {key for key, event in events.items() if event["departure_ns"] >= COUNTING.counted_from_ns}
    names = found.events.publisher.to_arrow().to_pylist()
    assert set(zip(names, found.events.sequence.tolist(), strict=True)) == counted
    columns = [
        row
        for piece in pieces
        for row in zip(
            piece.publisher.to_arrow().to_pylist(),
            piece.sequence.tolist(),
            piece.number.tolist(),
            piece.delay_ns.to_arrow().to_pylist(),
            piece.is_on_time.tolist(),
            piece.duplicates.tolist(),
            strict=True,
        )
    ]
    assert sorted(columns, key=repr) == sorted(fates, key=repr)
    told = [
        ((row["publisher"], row["sequence"]), TABLES.index(row["table"]), row["reason"], values(row))
        for row in faulty_rows.to_pylist()
    ]
    assert sorted(told, key=repr) == sorted(faults, key=repr)
    good_hops = sum(row["of"] == 1 and "bad" not in row for row in rows)
    bad_hops = sum(fault[1] == 1 for fault in faults)
    early = [row for row in rows if row["of"] == 1 and (row["publisher"], row["sequence"]) not in counted]
    assert len(found.hops.chunk) <= good_hops - bad_hops
    assert early or len(found.hops.chunk) == good_hops - bad_hops
    assert sum(found.rows["rows"].to_pylist()) == len(rows)
    assert found.quarantined.num_rows == sum("bad" in row for row in rows)


@settings(max_examples=50, deadline=None)
@given(ALL, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], generator: Any) -> None:
    if not rows:
        return
    shuffled = [*rows]
    generator.shuffle(shuffled)

    def shown(given: list[Row]) -> list[str]:
        found, (fates,), faults = joined(given)
        tables = (faults, found.quarantined, found.rows)
        arrays = (fates.sequence, fates.number, fates.delay_ns.values, fates.delivered_ns.values)
        pairs = zip(*(array.tolist() for array in arrays), strict=True)
        return [*(repr(sorted(map(repr, table.to_pylist()))) for table in tables), repr(sorted(map(repr, pairs)))]

    assert shown(rows) == shown(shuffled)


def test_what_clocks_leave_open_is_counted_at_both_ends() -> None:
    """Four delays around a deadline of 30, from host 0 to host 1, whose clocks may make them 6 longer or 4 shorter."""
    delays = [23, 25, 31, 34]
    event = {"publisher": "p", "broker": "a"}
    sends = [
        {**event, "of": 0, "sequence": number, "departure_ns": 100, "size_bytes": 1, "clock": 0, "matches": [0]}
        for number in range(len(delays))
    ]
    gets = [
        {**event, "of": 2, "sequence": number, "arrived_ns": 100 + delay, "delivered_ns": 200, "number": 0, "clock": 1}
        for number, delay in enumerate(delays)
    ]
    table = pa.Table.from_pylist([*sends, *gets], SCHEMA)
    low, high = np.array([[0, -4], [0, 0]]), np.array([[0, 6], [0, 0]])
    (fates,) = join_rows(table, AUDIENCE, Counting(clock_low_ns=low, clock_high_ns=high)).fates
    assert fates.is_on_time.tolist() == [True, True, False, False]
    assert fates.is_surely_on_time.tolist() == [True, False, False, False]
    assert fates.is_maybe_on_time.tolist() == [True, True, True, False]
    unknown = table.set_column(table.schema.get_field_index("clock"), "clock", pa.nulls(len(table), pa.int64()))
    (fates,) = join_rows(unknown, AUDIENCE, Counting(clock_low_ns=low, clock_high_ns=high)).fates
    assert fates.is_surely_on_time.tolist() == fates.is_maybe_on_time.tolist() == fates.is_on_time.tolist()
