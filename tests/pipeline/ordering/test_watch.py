"""The watch: the processor by Spark's own tester, pairs against the replay, and a real stream that is restarted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import TwsTester

from tidings.errors import ConfigurationError, InputError
from tidings.ordering import COUNTS, Policy, replay
from tidings.pipeline.ordering import OrderTotals, WatchOrders, watch_orders
from tidings.pipeline.ordering._monitor import FIGURES, KEPT_PUBLICATIONS, MAX_WAITING, Known, PairMonitor
from tidings.pipeline.ordering._processor import OrderProcessor

NAMES = ("P-0.05-0", "P-0.05-25", "CST-3", "ours-record", "ours-quantile")
POLICIES = tuple(Policy.parse(name) for name in NAMES)
Make = Callable[..., Any]


def published_of(trace: Any, publisher: int) -> list[tuple[int, int, list[int]]]:
    return [
        (event, int(departure), np.flatnonzero(trace.matched[:, publisher, event]).tolist())
        for event, departure in enumerate(trace.departure[publisher])
    ]


def arrived_of(trace: Any, publisher: int) -> list[tuple[int, int, int]]:
    reader, event = np.nonzero(trace.came[:, publisher])
    arrival = trace.arrival[reader, publisher, event]
    order = np.lexsort((event, reader, arrival))
    return [(int(reader[i]), int(event[i]), int(arrival[i])) for i in order]


def test_a_pair_that_is_stored_and_taken_up_again_counts_what_the_replay_counts(make_trace: Make) -> None:
    trace = make_trace(1, publishers=1)
    known = Known()
    ready = known.add(published_of(trace, 0), arrived_of(trace, 0))
    found = replay(trace.streams(0), POLICIES)
    for reader in range(4):
        monitor = PairMonitor(POLICIES)
        for turn, (subscription, number, arrival) in enumerate(ready):
            if subscription == reader:
                monitor.receive(known.stamp(number, reader, 25), arrival)
                if turn % 7 == 0:
                    monitor = PairMonitor(POLICIES, monitor.state())
        monitor.finish()
        for name, figures in zip(NAMES, monitor.figures(), strict=True):
            counts = dict(zip(COUNTS, found[name].counts[reader].tolist(), strict=True))
            assert dict(zip(FIGURES, figures, strict=True)) == {
                **{key: counts[key] for key in FIGURES if key != "delivered"},
                "delivered": counts["received"],
            }


def test_deliveries_wait_for_their_publications_but_not_for_ever() -> None:
    known = Known()
    assert known.add([], [(0, 5, 100), (0, 6, 90)]) == []
    assert known.add([(5, 50, [0])], []) == [(0, 5, 100)]
    assert known.waiting == [(0, 6, 90)]
    known.add([], [(0, 10 + n, 200 + n) for n in range(MAX_WAITING)])
    assert (len(known.waiting), known.unknown) == (MAX_WAITING, 1)
    assert known.waiting[0] == (0, 10, 200)
    known.add([(n, n, []) for n in range(KEPT_PUBLICATIONS + 50)], [])
    known.trim()
    assert len(known.published) == KEPT_PUBLICATIONS
    assert min(known.published) == 50


def rows_of(published: list[tuple[int, int, list[int]]], arrived: list[tuple[int, int, int]]) -> list[Row]:
    return [Row(subscription=-1, sequence=n, time_ns=at, matches=matches) for n, at, matches in published] + [
        Row(subscription=reader, sequence=n, time_ns=at, matches=[]) for reader, n, at in arrived
    ]


def test_the_processor_counts_alike_in_one_batch_and_in_many(make_trace: Make) -> None:
    trace = make_trace(2, publishers=1, readers=2)
    published, arrived = published_of(trace, 0), arrived_of(trace, 0)
    key = ("p0", 0)
    once = TwsTester(OrderProcessor(POLICIES)).test(key, rows_of(published, arrived))
    tester = TwsTester(OrderProcessor(POLICIES))
    parts = [
        *tester.test(key, rows_of([], arrived[:100])),  # before anything of it is known
        *tester.test(key, rows_of(published[:200], [])),
        *tester.test(key, rows_of(published[200:], arrived[100:])),
    ]
    last = {(row.subscription, row.policy): row for row in parts}
    assert len(once) == len(last) == 2 * len(POLICIES)
    for row in once:
        other = last[row.subscription, row.policy]
        assert [row[name] for name in FIGURES] == [other[name] for name in FIGURES]
        added = sum(
            part.new_received for part in parts if (part.subscription, part.policy) == (row.subscription, row.policy)
        )
        assert added == row.received > 100


@pytest.mark.spark
@pytest.mark.full
def test_a_watch_that_is_restarted_goes_on_where_it_was(
    spark: Any, make_trace: Make, put_rows: Make, tmp_path: Path
) -> None:
    trace = make_trace(3, publishers=2, events=120, readers=3)
    place, out = tmp_path / "trace", tmp_path / "out"
    rows, policies = trace.delivery_rows(), POLICIES[:2]
    cut = len(rows) // 2
    trace.write(place, rows[:cut])
    told: list[OrderTotals] = []

    def watch() -> OrderTotals | None:
        return watch_orders(spark, place, out, policies, WatchOrders(is_once=True, buckets=2), listener=told.append)

    first = watch()
    assert first is not None
    assert [row.received for row in first.policies] == [cut, cut]
    put_rows(place, "deliveries", rows[cut:], part=1)
    last = watch()
    assert last is not None
    assert last.batch > first.batch
    found = [replay(trace.streams(publisher), policies) for publisher in range(2)]
    for row in last.policies:
        for name in ("received", "out_of_order", "violations", "assessed_ns"):
            assert getattr(row, name) == sum(int(each[row.policy].total(name).sum()) for each in found)
    assert watch() == last  # nothing new
    table = pq.read_table(out / "pairs", partitioning="hive").to_pandas()
    newest = table.sort_values("batch").groupby(["publisher", "subscription", "policy"]).last()
    assert newest.received.sum() == 2 * len(rows)
    with pytest.raises(ConfigurationError, match=r"was begun with the policies P-0\.05-0, P-0\.05-25"):
        watch_orders(spark, place, out, POLICIES[:1], WatchOrders(is_once=True), listener=told.append)


def test_what_cannot_work_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no policy to watch"):
        watch_orders(None, tmp_path, tmp_path, [], listener=print)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no files of a trace"):
        watch_orders(None, tmp_path, tmp_path, POLICIES, listener=print)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="buckets"):
        WatchOrders(buckets=0)
    with pytest.raises(ConfigurationError, match="every"):
        WatchOrders(every_s=0.0)
