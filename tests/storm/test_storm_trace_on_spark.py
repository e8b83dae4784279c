"""A storm's trace through the pipeline: what it counts is what the storm itself knows, subscription by subscription.

By the engine that is quick to start; that Spark counts alike is the subject of tests/pipeline/test_engines.py.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tidings.matching import PlainIndex
from tidings.model.filters import Filter
from tidings.pipeline import PipelineResult, run_in_process, run_pipeline
from tidings.storm import KINDS, History, Storm, StormSettings, write_trace

# A client that starts anew may get an event again, and confirms its subscriptions again; a trace knows one life of it.
NOT_LASTING = ("client-restart", "large-state", "long-outage", "mqtt-away", "mqtt-garbage")
LASTING = tuple(kind for kind in KINDS if kind not in NOT_LASTING)
SEED = 12
SETTINGS = StormSettings(brokers=4, clients=12, duration_s=40, rate_per_s=5, kinds=LASTING, mqtt=False)


def own_counts(history: History) -> dict[str, tuple[int, int, int]]:
    """By subscription, of events that left while it stood: matched, arrived within the deadline, arrived later.

    Both judge the arrival at the client; what was then held for too long is marked late to the application alone.
    """
    index: PlainIndex[tuple[str, str]] = PlainIndex()
    for known in history.subscribed.values():
        if known.confirmed_ns is not None:
            index.put(known.key, Filter.parse(known.filter))
    arrived = {((d.client, d.subscription), d.event): d.at_ns - d.held_ns for d in history.deliveries}
    matched: Counter[tuple[str, str]] = Counter()
    on_time: Counter[tuple[str, str]] = Counter()
    late: Counter[tuple[str, str]] = Counter()
    for published in history.published.values():
        for key in index.match(published.attributes):
            known = history.subscribed[key]
            assert known.confirmed_ns is not None
            if not known.confirmed_ns <= published.departed_ns < (known.until_ns or published.departed_ns + 1):
                continue
            matched[key] += 1
            at_ns = arrived.get((key, published.id))
            if at_ns is not None:
                limits = [limit for limit in (published.lifetime_ns, known.max_delay_ns) if limit is not None]
                is_on_time = at_ns - published.departed_ns < min(limits, default=at_ns)
                (on_time if is_on_time else late)[key] += 1
    return {f"{key[0]}/{key[1]}": (matched[key], on_time[key], late[key]) for key in index.filters}


def test_the_pipeline_counts_what_the_storm_knows(tmp_path: Path) -> None:
    check(run_in_process, tmp_path)


@pytest.mark.full
@pytest.mark.spark
def test_spark_counts_what_the_storm_knows(spark: Any, tmp_path: Path) -> None:
    check(partial(run_pipeline, spark), tmp_path)


def check(run: Callable[..., PipelineResult], tmp_path: Path) -> None:
    storm = Storm(SETTINGS, SEED)
    result = storm.run()
    assert result.deliveries > 100
    assert any(delivery.held_ns > 0 for delivery in storm.history.deliveries)
    write_trace(tmp_path / "trace", storm.plan, storm.history)
    found = run([tmp_path / "trace"], tmp_path / "out")
    expected = own_counts(storm.history)
    assert {id: (each.matched, each.on_time, each.late) for id, each in found.subscribers.items()} == expected
    assert sum(matched for matched, _, _ in expected.values()) > 100
    # What left before a subscription was confirmed may come all the same: the trace says that it was not there yet.
    early = sum(_is_outside(storm.history, delivery) for delivery in storm.history.deliveries)
    assert found.quarantined == ({"not-matching": early} if early else {})


def _is_outside(history: History, delivery: Any) -> bool:
    known = history.subscribed[delivery.client, delivery.subscription]
    departed_ns = history.published[delivery.event].departed_ns
    return known.confirmed_ns is None or departed_ns < known.confirmed_ns
