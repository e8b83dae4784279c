"""Scores of facts made by hand: the border of a chunk, shares and earnings."""

from typing import Any

import numpy as np
import pytest
from tests.pipeline.facts import (
    EVENTS,
    FATES,
    TRANSMISSIONS,
    Facts,
    tables_of_facts,
)
from tests.pipeline.profiles.conftest import TOPOLOGY, TRANSITIONS, frame

from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.measures import BORDER_EVENTS
from tidings.pipeline.rows import BATCHES_MOST
from tidings.statistics import shares_of_batches

SUBSCRIPTIONS = "number int, subscription string, subscriber string, price double"


def rows_of(rows: Any, schema: str) -> list[dict[str, Any]]:
    return [dict(zip((column.split()[0] for column in schema.split(", ")), row, strict=True)) for row in rows]


def facts(*, fates: Any = (), transmissions: Any = ()) -> Facts:
    events = [("p", row[1], row[2], row[4], "a", 1, None, [0], "red") for row in fates]
    subscriptions = [(0, "s", "me", 0.1), (1, "t", "you", 1.0)]
    return Facts(
        events=frame(rows_of(events, EVENTS), EVENTS),
        fates=frame([{**row, "topic": "red"} for row in rows_of(fates, FATES)], FATES),
        transmissions=frame(rows_of(transmissions, TRANSMISSIONS), TRANSMISSIONS),
        subscriptions=frame(rows_of(subscriptions, SUBSCRIPTIONS), SUBSCRIPTIONS),
        topology=frame([], TOPOLOGY),
        transitions=frame([], TRANSITIONS),
    )


def fate(sequence: int, delivered_ns: int | None, *, late: bool = False) -> tuple[Any, ...]:
    word = "lost" if delivered_ns is None else "late" if late else "on-time"
    chunk = sequence // CHUNK_EVENTS
    return ("p", sequence, chunk, "s", 100, 8, 50, delivered_ns, delivered_ns, word, 0, None, 0)


def test_overtaking_across_the_border_of_a_chunk() -> None:
    last = CHUNK_EVENTS - 1
    rows = [
        fate(last - BORDER_EVENTS, 900),  # overtaken inside the chunk
        fate(last - 3, 500),  # likewise
        fate(last - 2, 300, late=True),
        fate(last - 1, None),
        fate(last, 400),  # overtaken by the first of the next chunk
        fate(last + 1, 350),
        fate(last + 2, 360),
    ]
    tables = tables_of_facts(facts(fates=rows), window_ns=60)
    scores = {row["subscription"]: row for row in tables["subscriber_scores"].to_pylist()}
    found = scores["s"]
    assert (found["matched"], found["on_time"], found["late"], found["lost"]) == (7, 5, 1, 1)
    assert found["fifo_violations"] == 3, "two inside the first chunk, one across the border"
    assert found["earnings"] == pytest.approx(0.5, abs=1e-12)
    assert found["on_time_reliability"] == 5 / 7
    assert found["reliability_low"] < 5 / 7 < found["reliability_high"]
    assert found["is_rough"], "all departed at once: one batch"
    assert found["delivered_share"] == 6 / 7
    assert (found["delay_min_ns"], found["delay_max_ns"]) == (200, 800)
    assert scores["t"]["matched"] == 0
    assert scores["t"]["on_time_reliability"] is None
    topics = tables["topic_scores"].to_pylist()
    assert [(row["topic"], row["matched"]) for row in topics] == [("red", 7)]
    windows = tables["window_scores"].to_pylist()
    assert [(row["window_ns"], row["matched"]) for row in windows] == [(60, 7)]


def late_in_bursts(events: int, batch: int) -> Any:
    """Departures a nanosecond apart, and which of them are on time: nearly all in one batch, few in the next."""
    generator = np.random.default_rng(4)
    burst = np.arange(events) // batch % 2
    return np.arange(events) + 3, generator.random(events) < np.where(burst, 0.3, 0.95)


def test_intervals_go_by_batches_of_time_whatever_partials_they_come_of() -> None:
    """The truth is the same computed of the events themselves, in batches of the least 2**k ns of which 16 do."""
    events = 3_000
    departure, on_time = late_in_bursts(events, 256)
    rows = [
        ("p", n, n // 512, "s", int(at), 8, 50, int(at) + 9, int(at) + 9, "on-time" if good else "late", 0, None, 0)
        for n, (at, good) in enumerate(zip(departure, on_time, strict=True))
    ]
    tables = tables_of_facts(facts(fates=rows), window_ns=1_000)
    (found,) = tables["publisher_scores"].to_pylist()
    bits = next(k for k in range(62) if (departure[-1] >> k) - (departure[0] >> k) < BATCHES_MOST)
    number = (departure >> bits) - (departure[0] >> bits)
    hits, trials = np.bincount(number, weights=on_time)[:, None], np.bincount(number)[:, None]
    expected = shares_of_batches(hits, trials, level=0.95)
    assert found["on_time_reliability"] == on_time.mean()
    assert found["effective_events"] == pytest.approx(expected.effective[0])
    assert found["reliability_low"] == pytest.approx(expected.interval.low[0])
    assert found["reliability_high"] == pytest.approx(expected.interval.high[0])
    assert found["effective_events"] < events / 20
    assert found["is_rough"]
    windows = tables["window_scores"].to_pylist()
    assert {row["window_ns"] for row in windows} == {0, 1_000, 2_000, 3_000}
    assert all(row["effective_events"] <= row["matched"] for row in windows)


def test_work_for_nobody() -> None:
    def hop(received_ns: int | None, outcome: str, deadline_ns: int | None) -> tuple[Any, ...]:
        sent_ns = None if outcome == "expired" else 105
        return ("p", 1, 0, "a", "b", 101, sent_ns, received_ns, None, None, outcome, 100, 8, deadline_ns)

    rows = [
        hop(149, "received", 50),
        hop(150, "received", 50),
        hop(900, "received", None),
        hop(None, "lost", 50),
        hop(None, "expired", 50),
    ]
    table = tables_of_facts(facts(transmissions=rows))["traffic"].to_pylist()
    assert table == [
        {
            "source": "a",
            "target": "b",
            "enqueued": 5,
            "sent": 4,
            "received": 3,
            "lost": 1,
            "dropped": 1,
            "sent_bytes": 32,
            "received_bytes": 24,
            "expired": 1,
            "expired_bytes": 8,
        }
    ]
