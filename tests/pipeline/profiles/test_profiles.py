"""Profiles of small made-up facts: laws that are known, components that fail, values at the edges."""

from typing import Any

import numpy as np
import pytest
from tests.pipeline.facts import tables_of_facts

from .conftest import Rows, make_facts

MS = 1_000_000
SECOND = 1_000_000_000


def table_of(name: str, **rows: Rows) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables_of_facts(make_facts(**rows))[name].to_pylist()
    return found


def test_delays_of_two_stages_fit_both_distributions() -> None:
    """Two exponential stages of 1 ms after 5 ms: their differences are two-Laplace of scale 1 ms.

    With 4,000 samples and the sketch's 1.33 % a distance of .06 is far out; a scale that is wrong by 3/2 makes .08.
    """
    rng = np.random.default_rng(1)
    delays = np.rint(5 * MS + rng.exponential(MS, (2, 4000)).sum(axis=0)).astype(int)
    fates = [
        {"publisher": "p", "sequence": n, "chunk": 0, "subscription": "s", "departure_ns": n, "arrived_ns": n + int(d)}
        for n, d in enumerate(delays)
    ]
    (row,) = table_of("pairs", fates=fates)
    assert row["hypoexponential_shift_s"] == pytest.approx(0.005, abs=0.0001)
    assert 2 <= len(row["hypoexponential_rates_per_s"]) <= 3
    assert row["hypoexponential_distance"] < 0.06
    assert row["two_laplace_scale_s"] == pytest.approx(0.001, rel=0.1)
    assert row["two_laplace_distance"] < 0.06


def test_a_distribution_that_does_not_fit_is_far() -> None:
    delays = [MS if n % 2 else 100 * MS for n in range(2000)]
    fates = [
        {"publisher": "p", "sequence": n, "chunk": 0, "subscription": "s", "departure_ns": 0, "arrived_ns": d}
        for n, d in enumerate(delays)
    ]
    (row,) = table_of("pairs", fates=fates)
    assert row["hypoexponential_distance"] > 0.2
    assert row["two_laplace_distance"] > 0.2


def test_pairs_with_little_to_say() -> None:
    """Nothing arrived; one event arrived; all took the same time."""
    fates = [
        {"publisher": "p", "sequence": 0, "chunk": 0, "subscription": "none", "departure_ns": 0},
        {"publisher": "p", "sequence": 0, "chunk": 0, "subscription": "one", "departure_ns": 0, "arrived_ns": 7},
        *(
            {
                "publisher": "p",
                "sequence": n,
                "chunk": 0,
                "subscription": "same",
                "departure_ns": n,
                "arrived_ns": n + 9,
            }
            for n in range(5)
        ),
    ]
    found = {row["subscription"]: row for row in table_of("pairs", fates=fates)}
    assert found["none"]["arrived"] == 0.0
    assert found["none"]["delay_mean_s"] is None
    assert found["none"]["delay_quantiles_ns"] is None
    assert found["none"]["hypoexponential_rates_per_s"] is None
    assert found["none"]["two_laplace_distance"] is None
    assert found["one"]["delay_mean_s"] == 7e-9
    assert found["one"]["delay_scv"] is None
    assert found["same"]["hypoexponential_rates_per_s"] == []
    assert (found["same"]["hypoexponential_distance"], found["same"]["two_laplace_distance"]) == (0.0, 0.0)


def hop(number: int, **changes: Any) -> dict[str, Any]:
    usual = {
        "publisher": "p",
        "sequence": number,
        "chunk": 0,
        "source": "a",
        "target": "b",
        "enqueued_ns": 0,
        "sent_ns": 0,
        "received_ns": 40 * MS,
        "began_ns": 40 * MS,
        "ended_ns": 40 * MS,
        "outcome": "received",
        "departure_ns": 0,
        "size_bytes": 500,
    }
    return {**usual, **changes}


def test_equal_sizes_leave_slowness_and_propagation_open() -> None:
    hops = [
        *(hop(n) for n in range(3)),
        *(
            hop(n, source="x", sent_ns=None, received_ns=None, began_ns=None, ended_ns=None, outcome="expired")
            for n in range(2)
        ),
    ]
    found = {row["source"]: row for row in table_of("links", transmissions=hops)}
    assert found["a"]["delay_mean_s"] == 0.04
    for name in ("slowness_mean_s_per_kb", "slowness_variance", "propagation_s"):
        assert found["a"][name] is None
    assert (found["x"]["expired"], found["x"]["bytes"], found["x"]["loss"]) == (2, 0, None)
    assert found["x"]["delay_sketch"] is not None
    assert found["x"]["delay_quantiles_ns"] is None


def test_durations_at_the_edges() -> None:
    """A clock that runs backwards a little, and a wait of 40 days: a negative value counts, a long one is bounded."""
    hops = [hop(0, began_ns=40 * MS - 5, ended_ns=40 * MS), hop(1, began_ns=40 * 86_400 * SECOND, ended_ns=2**62)]
    (row,) = table_of("brokers", transmissions=hops)
    assert row["waiting_min_ns"] == -5
    assert row["waiting_max_ns"] == 2**48 - 1
    assert row["waiting_mean_s"] == pytest.approx((2**48 - 6) / 2e9, rel=1e-12)


def test_components() -> None:
    """A link that fails every 100 s for 10 s, and one that was down when the trace began."""
    moves = [
        {"kind": "link", "source": "a", "target": "b", "at_ns": at * SECOND, "up": up}
        for n in range(10)
        for at, up in ((100 * n + 90, False), (100 * n + 100, True))
    ]
    moves += [moves[0], {"kind": "broker", "source": "a", "target": None, "at_ns": 250 * SECOND, "up": True}]
    topology = [
        {"kind": "link", "source": "a", "target": "b"},
        {"kind": "broker", "source": "a"},
        {"kind": "broker", "source": "b"},
    ]
    events = [{"publisher": "p", "sequence": 0, "chunk": 0, "departure_ns": 0, "matches": []}]
    rows = table_of("components", events=events, topology=topology, transitions=moves)
    found = {(row["kind"], row["source"]): row for row in rows}
    assert len(found) == 3
    link = found["link", "a"]
    assert (link["first_ns"], link["last_ns"]) == (0, 1000 * SECOND)
    assert (link["failures"], link["up_s"], link["repairs"], link["down_s"]) == (10, 900.0, 10, 100.0)
    assert (link["availability"], link["failure_rate_per_s"], link["repair_rate_per_s"]) == (0.9, 10 / 900, 0.1)
    assert link["down_score"] > 0  # constant times are as regular as can be
    assert link["down_p_value"] < 0.01
    broker = found["broker", "a"]
    assert (broker["failures"], broker["repairs"], broker["availability"]) == (0, 1, 0.75)
    assert found["broker", "b"]["availability"] == 1.0


def test_content_keeps_names_in_order_and_lifetimes_apart() -> None:
    events = [
        {
            "publisher": "p",
            "sequence": n,
            "chunk": n // 2,
            "size_bytes": 10 * n,
            "lifetime_ns": life,
            "matches": matches,
        }
        for n, (matches, life) in enumerate([([0, 1], 5), ([0, 1], None), ([], 5), ([0, 1], 5), ([1], 5)])
    ]
    subscriptions = [{"subscription": "z", "number": 0}, {"subscription": "a", "number": 1}]
    rows = table_of("content", events=events, subscriptions=subscriptions)
    found = {(tuple(row["subscriptions"]), row["lifetime_ns"]): row for row in rows}
    assert {key: row["events"] for key, row in found.items()} == {
        (("a", "z"), 5): 2,
        (("a", "z"), None): 1,
        ((), 5): 1,
        (("a",), 5): 1,
    }
    assert found[("a", "z"), 5]["share"] == 0.4
    assert found[("a", "z"), 5]["size_mean_bytes"] == 15.0


def test_content_of_an_unknown_subscription_is_an_error() -> None:
    events = [{"publisher": "p", "sequence": 0, "chunk": 0, "size_bytes": 1, "matches": [7]}]
    with pytest.raises(Exception, match="subscription number 7"):
        table_of("content", events=events, subscriptions=[{"subscription": "a", "number": 0}])
