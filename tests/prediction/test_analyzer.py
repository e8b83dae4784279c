"""Whitt's analyzer against its formulas worked out by hand, on a row of brokers and on a fork."""

import numpy as np
import pytest

from tidings.model.distributions import Deterministic, Exponential, Uniform
from tidings.prediction import from_network, predict
from tidings.prediction._analyzer import _sweep, arrival_scvs
from tidings.prediction._flows import layout_of, load


def scvs(network):
    knowledge = from_network(network)
    layout = layout_of(knowledge)
    stations = load(layout, np.ones(layout.mass.shape), np.ones(layout.service.shape[1]))
    return knowledge, arrival_scvs(knowledge, layout, stations)


def superposed(load, flows):
    total = sum(rate for rate, _ in flows)
    shares = [rate / total for rate, _ in flows]
    v = 1.0 / sum(share**2 for share in shares)
    w = 1.0 / (1.0 + 4.0 * (1.0 - load) ** 2 * (v - 1.0))
    return 1.0 - w + w * sum(share * scv for share, (_, scv) in zip(shares, flows, strict=True))


def behind(arrival, load, service):
    return 1.0 + (1.0 - load**2) * (arrival - 1.0) + load**2 * (max(service, 0.2) - 1.0)


def test_a_row_with_a_thinned_and_lossy_flow(chain) -> None:
    """Periodic, rate 5, uniform service of 100 ms; 70 % of the events go on, of which a tenth is lost."""
    network = chain(
        2,
        interval=Deterministic(value=0.2),
        service=Uniform(low=0.0, high=0.2),
        filters=("x <= 2",),
        loss=0.1,
    )
    _, found = scvs(network)
    first = superposed(0.5, [(5.0, 0.0)])
    sent = 0.7 * behind(first, 0.5, 1.0 / 3.0) + 0.3
    assert found[0] == pytest.approx(first, abs=1e-12)
    assert found[1] == pytest.approx(0.9 * sent + 0.1, abs=1e-12)


def test_where_two_flows_meet_only_upstream_counts(chain) -> None:
    """Publishers at both ends of a row of three: the link out of the middle is fed by the other side alone."""
    network = chain(
        3,
        interval=Uniform(low=0.0, high=0.8),
        publishers_at=(0, 2),
        filters=("x >= 1", "x >= 1"),
        homes=(0, 2),
        service=Exponential(scale=0.1),
    )
    knowledge, found = scvs(network)
    end_load, middle_load, scv = 0.5, 0.5, 1.0 / 3.0
    end = superposed(end_load, [(2.5, scv)])
    out = behind(end, end_load, 1.0)
    middle = superposed(middle_load, [(2.5, out), (2.5, out)])
    through = behind(superposed(middle_load, [(2.5, out)]), middle_load, 1.0)
    assert found[1] == pytest.approx(middle, abs=1e-9)
    assert found[0] == pytest.approx(superposed(end_load, [(2.5, scv), (2.5, through)]), abs=1e-9)
    assert knowledge.link_name(0) == "b0 -> b1"


def test_exponential_everything_stays_1_and_gg1_is_mm1(chain) -> None:
    network = chain(3, publishers_at=(0, 1), filters=("x >= 1", "x = 2"), homes=(2, 0), loss=0.05)
    knowledge, found = scvs(network)
    assert found == pytest.approx(np.ones(len(found)), abs=1e-12)
    gg1, mm1 = (predict(knowledge, model=model) for model in ("gg1", "mm1"))
    assert gg1.reliability == pytest.approx(mm1.reliability, abs=1e-12)
    for name in ("b0", "b1", "b2"):
        assert gg1.brokers[name].wait_s == pytest.approx(mm1.brokers[name].wait_s, rel=1e-12)


def test_compiled_and_plain_agree() -> None:
    """A fork 0 -> 1, 0 -> 2 and back, two publishers."""
    source, target = np.array([0, 1, 0, 2]), np.array([1, 0, 2, 0])
    by_target = np.argsort(target, kind="stable")
    offsets = np.searchsorted(target[by_target], np.arange(4))
    found = []
    for kernel in (_sweep, _sweep.py_func):
        arrivals, flows = np.ones(7), np.ones(4)
        for _ in range(4):
            kernel(
                source,
                target,
                np.full(4, 0.95),
                offsets,
                by_target,
                np.array([0, 1, 2, 2]),
                np.array([0, 1]),
                np.array([3.0, 2.0]),
                np.array([0.0, 0.4]),
                np.array([4.0, 3.5, 2.0, 3.0, 1.0, 2.0, 0.0]),
                np.array([0.4, 0.35, 0.2, 0.0, 0.1, 0.0, 0.0]),
                np.array([True, True, True, False, True, False, False]),
                np.array([1.0, 0.5, 0.2, 1.0, 0.3, 1.0, 1.0]),
                arrivals,
                flows,
            )
        found.append(arrivals)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
