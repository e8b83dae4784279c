"""What a run says of how sure it is: its intervals cover what is so in the long run."""

import math

import msgspec
import numpy as np
import pytest

from tidings.model.filters import Filter
from tidings.model.scenario import Scenario
from tidings.simulation import simulate

SERVICE_S = 0.1
LATE = {"tight": 0.2, "easy": 0.04}


def queue(load: float, duration_s: float, **policies: str) -> Scenario:
    """One M/M/1 link, where P[delay >= t] is exp(-t (1 - load) / service), and deadlines that shares LATE miss."""
    sojourn_s = SERVICE_S / (1.0 - load)
    subscribers = [
        f'{{ name = "{name}", at = "b", filter = "{wanted}", max_delay = "{-math.log(late) * sojourn_s} s" }}'
        for (name, late), wanted in zip(LATE.items(), ("x >= 0", "x < 0.3"), strict=True)
    ]
    lines = "\n".join(f'{name} = "{value}"' for name, value in policies.items())
    return Scenario.parse(f"""
        duration = "{duration_s} s"
        warmup = "100 s"
        topology = {{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }}
        links.slowness = {{ law = "exponential", mean = "{SERVICE_S} s/kB" }}
        subscribers = [{", ".join(subscribers)}]

        [[publishers]]
        name = "p"
        at = "a"
        rate = "{load / SERVICE_S} /s"
        size = "1 kB"
        attributes.x = {{ law = "uniform", low = 0, high = 1 }}

        [policies]
        scheduling = "fifo"
        expired = "forward"
        {lines}
    """)


def coverage(load: float, duration_s: float, runs: int) -> list[float]:
    """How often the intervals of runs with other seeds cover the truth, by subscription."""
    network = queue(load, duration_s).expand()
    covers = []
    for seed in range(runs):
        result = simulate(msgspec.structs.replace(network, seed=1_000 + seed))
        found = {name: result.subscribers[name].interval for name in LATE}
        covers.append([each.low <= 1.0 - LATE[name] <= each.high for name, each in found.items()])
    return np.mean(covers, axis=0).tolist()


# The share that covers has a standard error of .0154 over 200 runs; .93 to .97 were asked, and 2 of them are allowed.
@pytest.mark.full
@pytest.mark.parametrize(("load", "duration_s"), [(0.3, 2_000), (0.5, 2_000), (0.8, 4_000), (0.9, 8_000)])
def test_intervals_cover_at_every_load(load: float, duration_s: float) -> None:
    assert all(0.9 <= share <= 1.0 for share in coverage(load, duration_s, runs=200))


# Of 60 runs the standard error is .028: 3 of them below .93 are .845. Events taken as independent cover .3 here.
def test_intervals_cover_under_load() -> None:
    assert all(share >= 0.845 for share in coverage(0.8, 3_000, runs=60))


def test_what_is_late_together_counts_for_few() -> None:
    result = simulate(queue(0.9, 3_000).expand())
    tight = result.subscribers["tight"]
    assert tight.interval.effective_events < tight.matched / 20
    assert tight.interval.low < tight.on_time_reliability < tight.interval.high


def test_receivers_that_order_have_intervals_of_what_applications_get() -> None:
    plain = simulate(queue(0.5, 1_000).expand())
    ordered = simulate(queue(0.5, 1_000, ordering="P-0.05-25").expand())
    for name in LATE:
        # One link keeps events in order, so that nothing is held.
        assert ordered.subscribers[name].on_time == plain.subscribers[name].on_time
        one, other = plain.subscribers[name].interval, ordered.subscribers[name].interval
        # Events count in the batch of their publication, and without ordering in that of their arrival.
        assert math.isclose(one.effective_events, other.effective_events, rel_tol=0.25)


def test_nobody_matched_has_no_interval() -> None:
    network = queue(0.5, 200).expand()
    nobody = msgspec.structs.replace(network.subscriptions[0], filter=Filter.parse("x > 2"))
    result = simulate(msgspec.structs.replace(network, subscriptions=(nobody,)))
    (row,) = result.subscribers.values()
    assert row.matched == 0
    assert row.interval is None
