"""Profiles of a simulated trace against the parameters of the simulation, and against plain arithmetic on its rows.

Intervals are of level 1 - 1e-7: a right formula misses the truth once in ten million, and the seed is fixed. Quantiles
are within 3 % in rank, more than twice the sketch's bound.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.pipeline.facts import PROFILES, Facts, tables_of_facts

from tidings.pipeline.measures import PROBABILITIES

LEVEL = 1 - 1e-7
Z = 5.33
RANK = 0.03
Rows = dict[str, list[dict[str, Any]]]
Tables = dict[str, dict[Any, dict[str, Any]]]
KEYS = {
    "publishers": ("publisher",),
    "content": ("publisher", "subscriptions"),
    "brokers": ("broker",),
    "arrivals": ("broker",),
    "links": ("source", "target"),
    "components": ("kind", "source", "target"),
    "pairs": ("publisher", "subscription"),
}


def keyed(table: Any, keys: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    """A small table as dictionaries by key."""

    def key(row: dict[str, Any]) -> Any:
        parts = tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in keys)
        return parts[0] if len(parts) == 1 else parts

    rows = table.to_pylist()
    assert len({key(row) for row in rows}) == len(rows)
    return {key(row): row for row in rows}


@pytest.fixture(scope="module")
def tables(known: Facts) -> Tables:
    """All profiles of the known network."""
    found = {**tables_of_facts(known, level=LEVEL), "components": tables_of_facts(known)["components"]}
    return {name: keyed(found[name], KEYS[name]) for name in PROFILES}


def assert_quantiles(quantiles_ns: list[int], values: np.ndarray) -> None:
    ordered = np.sort(values)
    for p, quantile in zip(PROBABILITIES, quantiles_ns, strict=True):
        below, upto = np.searchsorted(ordered, quantile, "left"), np.searchsorted(ordered, quantile, "right")
        assert below / len(ordered) - RANK < p < upto / len(ordered) + RANK


def assert_duration(row: dict[str, Any], name: str, values_ns: np.ndarray) -> None:
    assert row[f"{name}_count"] == len(values_ns)
    assert row[f"{name}_mean_s"] == pytest.approx(values_ns.mean() / 1e9, rel=1e-12)
    assert row[f"{name}_scv"] == pytest.approx(values_ns.var(ddof=1) / values_ns.mean() ** 2, rel=1e-9)
    assert (row[f"{name}_min_ns"], row[f"{name}_max_ns"]) == (values_ns.min(), values_ns.max())
    assert_quantiles(row[f"{name}_quantiles_ns"], values_ns)


def test_publishers(tables: Tables, known_rows: Rows) -> None:
    assert set(tables["publishers"]) == {"p-1", "p-2"}
    for name, row in tables["publishers"].items():
        events = [event for event in known_rows["events"] if event["publisher"] == name]
        assert (row["events"], row["brokers"]) == (len(events), ["a"])
        assert row["rate_low_per_s"] < 10.0 < row["rate_high_per_s"]
        assert row["rate_high_per_s"] - row["rate_low_per_s"] < 2.5
        assert row["gap_scv_low"] < 1.0 < row["gap_scv_high"]
        assert row["gap_scv_high"] - row["gap_scv_low"] < 0.5
        departures = np.array([event["departure_ns"] for event in events])
        chunks = np.array([event["chunk"] for event in events])
        assert_duration(row, "gap", np.diff(departures)[np.diff(chunks) == 0])
        # Sizes are uniform from 200 to 1800 bytes.
        assert abs(row["size_mean_bytes"] - 1000.0) < Z * 1600.0 / np.sqrt(12 * len(events))
        assert row["size_mean_bytes"] == pytest.approx(np.mean([event["size_bytes"] for event in events]), rel=1e-12)


def test_content(tables: Tables, known_rows: Rows) -> None:
    names = [row["subscription"] for row in known_rows["subscriptions"]]
    wanted = Counter(
        (event["publisher"], tuple(sorted(names[number] for number in event["matches"])))
        for event in known_rows["events"]
    )
    found = {key: row["events"] for key, row in tables["content"].items()}
    assert found == wanted
    for publisher in ("p-1", "p-2"):
        shares = {key[1]: row["share"] for key, row in tables["content"].items() if key[0] == publisher}
        assert sum(shares.values()) == pytest.approx(1.0)
        # Both subscriptions want three of four equally likely values, one of them the fourth as well.
        assert abs(shares[tuple(sorted(names))] - 0.75) < Z * np.sqrt(0.75 * 0.25 / 2900)
    assert not any(row["is_crowded"] for row in tables["content"].values())


def test_brokers(tables: Tables, known_rows: Rows) -> None:
    assert set(tables["brokers"]) == {"a", "b"}
    for name, row in tables["brokers"].items():
        received = [hop for hop in known_rows["transmissions"] if hop["target"] == name and hop["received_ns"]]
        count = len(received)
        assert row["arrivals"] == count
        # Service is uniform from 0 to 20 ms: mean 10 ms, scv 1/3.
        assert abs(row["service_mean_s"] - 0.010) < Z * 0.010 / np.sqrt(3 * count)
        assert row["service_scv_low"] < 1 / 3 < row["service_scv_high"] < 0.5
        assert_duration(row, "service", np.array([hop["ended_ns"] - hop["began_ns"] for hop in received]))
        assert_duration(row, "waiting", np.array([hop["began_ns"] - hop["received_ns"] for hop in received]))
        assert row["utilisation"] == pytest.approx(row["arrival_rate_per_s"] * row["service_mean_s"], rel=0.01)
    assert tables["brokers"]["a"]["utilisation"] == pytest.approx(0.2, abs=0.03)


def test_arrivals(tables: Tables, known_rows: Rows) -> None:
    for name, row in tables["arrivals"].items():
        times = _received(known_rows, name)
        gaps = np.diff(times)
        assert row["arrivals"] == len(times)
        assert row["gap_mean_s"] == pytest.approx(gaps.mean() / 1e9, rel=1e-12)
        assert row["gap_scv"] == pytest.approx(gaps.var(ddof=1) / gaps.mean() ** 2, rel=1e-9)
    # Two Poisson publishers of 10 events/s each make a Poisson stream of 20/s.
    home = tables["arrivals"]["a"]
    assert home["rate_low_per_s"] < 20.0 < home["rate_high_per_s"] < 22.0
    assert home["gap_scv_low"] < 1.0 < home["gap_scv_high"] < 1.3


def _received(rows: Rows, broker: str) -> np.ndarray:
    times = [hop["received_ns"] for hop in rows["transmissions"] if hop["target"] == broker]
    return np.sort([time for time in times if time is not None])


def test_links(tables: Tables, known_rows: Rows) -> None:
    assert set(tables["links"]) == {("a", "b"), (None, "a")}
    row = tables["links"]["a", "b"]
    hops = [hop for hop in known_rows["transmissions"] if hop["source"] == "a"]
    outcomes = Counter(hop["outcome"] for hop in hops)
    assert row["copies"] == len(hops)
    for outcome in ("received", "lost", "expired", "hopeless", "in-flight", "failed"):
        assert row[outcome.replace("-", "_")] == outcomes[outcome]
    assert row["bytes"] == sum(hop["size_bytes"] for hop in hops if hop["sent_ns"] is not None)
    assert row["loss_low"] < 0.05 < row["loss_high"] < 0.08
    assert row["slowness_low_s_per_kb"] < 0.020 < row["slowness_high_s_per_kb"]
    assert row["slowness_high_s_per_kb"] - row["slowness_low_s_per_kb"] < 0.004
    assert np.sqrt(row["slowness_variance"]) == pytest.approx(0.004, rel=0.1)
    # The intercept's standard error is below 0.15 ms: a deviation of 4 ms per kB, 4000 sizes of 200 to 1800 bytes.
    assert row["propagation_s"] == pytest.approx(0.003, abs=Z * 0.00015)
    received = [hop for hop in hops if hop["received_ns"] is not None]
    assert_duration(row, "delay", np.array([hop["received_ns"] - hop["sent_ns"] for hop in received]))
    assert_duration(row, "wait", np.array([hop["sent_ns"] - hop["enqueued_ns"] for hop in hops]))
    access = tables["links"][None, "a"]
    assert (access["loss"], access["slowness_mean_s_per_kb"], access["propagation_s"]) == (0.0, 0.0, 0.0)


def test_components_that_never_fail(tables: Tables) -> None:
    assert set(tables["components"]) == {("broker", "a", None), ("broker", "b", None), ("link", "a", "b")}
    for row in tables["components"].values():
        assert (row["availability"], row["failures"], row["failure_rate_per_s"]) == (1.0, 0, 0.0)
        assert row["failure_rate_low_per_s"] == 0.0
        # At 95 %: with no failure in 300 s the rate is below 3.69 / 300 s.
        assert row["failure_rate_high_per_s"] == pytest.approx(3.688879 / row["up_s"], rel=1e-6)
        assert row["repair_rate_per_s"] is None
        assert row["up_p_value"] is None


def test_pairs(tables: Tables, known_rows: Rows) -> None:
    assert len(tables["pairs"]) == 4
    for (publisher, subscription), row in tables["pairs"].items():
        fates = [
            fate
            for fate in known_rows["fates"]
            if fate["publisher"] == publisher and fate["subscription"] == subscription
        ]
        arrived = [fate for fate in fates if fate["arrived_ns"] is not None]
        assert row["matched"] == len(fates)
        assert row["arrived"] == pytest.approx(len(arrived) / len(fates), rel=1e-12)
        if subscription.startswith("far"):
            assert row["arrived_low"] < 0.95 < row["arrived_high"] < 0.99
        delays = np.array([fate["arrived_ns"] - fate["departure_ns"] for fate in arrived])
        assert_duration(row, "delay", delays)
        chunks = np.array([fate["chunk"] for fate in arrived])
        differences = np.diff(delays)[np.diff(chunks) == 0]
        assert row["difference_count"] == len(differences)
        assert row["two_laplace_scale_s"] == pytest.approx(np.abs(differences).mean() * 2 / 3 / 1e9, rel=1e-12)
        assert_quantiles(row["difference_quantiles_ns"], differences)
        means = [1 / rate for rate in row["hypoexponential_rates_per_s"]]
        assert row["hypoexponential_shift_s"] + sum(means) == pytest.approx(row["delay_mean_s"], rel=1e-9)
        assert sum(mean**2 for mean in means) == pytest.approx(delays.var(ddof=1) / 1e18, rel=1e-6)
        assert 0.0 < row["hypoexponential_distance"] < 0.2
