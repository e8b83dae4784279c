import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.scheduling import (
    allowed_delay_s,
    benefit,
    ebpc,
    expected_benefit,
    postponed_benefit,
    postponing_cost,
    success_probability,
)

# Two subscriptions one hop and two hops away, of 75 ms/kB and 20 ms/kB a hop; .25 s of processing a broker.
CASE: dict[str, Any] = {
    "now_s": 105.0,
    "published_s": 100.0,
    "size_kb": 50.0,
    "allowed_s": [10.0, 10.0],
    "nodes": [1, 2],
    "mean_s_per_kb": [0.075, 0.15],
    "sd_s_per_kb": [0.02, 0.02 * math.sqrt(2)],
    "processing_s": 0.25,
}
NEAR, FAR = 0.8413447460685429, 0.016947426762344636  # z = 1 and z = -3 / sqrt(2)
NEAR_LATER, FAR_LATER = 0.15865525393145707, 0.00020347600872247637  # 2 s later: z = -1 and z = -5 / sqrt(2)


def random_case(seed: int, events: int = 7, subscriptions: int = 5) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        "now_s": 100.0,
        "published_s": 100.0 - generator.exponential(5.0, events),
        "size_kb": generator.uniform(0.0, 60.0, events),
        "allowed_s": generator.choice([10.0, 30.0, 60.0, np.inf, -np.inf], (events, subscriptions)),
        "nodes": generator.integers(0, 5, subscriptions),
        "mean_s_per_kb": generator.uniform(0.05, 0.3, subscriptions),
        "sd_s_per_kb": generator.choice([0.0, 0.02, 0.04], subscriptions),
        "processing_s": 0.002,
    }


def test_numbers_worked_by_hand() -> None:
    assert success_probability(**CASE) == pytest.approx([NEAR, FAR], abs=1e-12)
    assert success_probability(extra_s=2.0, **CASE) == pytest.approx([NEAR_LATER, FAR_LATER], abs=1e-12)
    now, later = 3 * NEAR + 2 * FAR, 3 * NEAR_LATER + 2 * FAR_LATER
    assert expected_benefit(price=[3, 2], **CASE) == pytest.approx(now, abs=1e-12)
    assert postponed_benefit(turn_s=2.0, price=[3, 2], **CASE) == pytest.approx(later, abs=1e-12)
    assert postponing_cost(turn_s=2.0, price=[3, 2], **CASE) == pytest.approx(now - later, abs=1e-12)
    assert ebpc(0.6, turn_s=2.0, price=[3, 2], **CASE) == pytest.approx(0.6 * now + 0.4 * (now - later), abs=1e-12)


def test_prices_default_to_one_as_in_the_publishers_scenario() -> None:
    assert expected_benefit(**CASE) == pytest.approx(NEAR + FAR, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_ebpc_is_eb_at_one_and_pc_at_zero_exactly(seed: int) -> None:
    case, price = random_case(seed), np.random.default_rng(seed).uniform(0, 3, 5)
    assert (ebpc(1.0, turn_s=3.75, price=price, **case) == expected_benefit(price=price, **case)).all()
    assert (ebpc(0.0, turn_s=3.75, price=price, **case) == postponing_cost(turn_s=3.75, price=price, **case)).all()


@pytest.mark.parametrize("seed", range(5))
def test_vectorised_equals_the_scalar_kernel(seed: int) -> None:
    case, price = random_case(seed), np.random.default_rng(seed).uniform(0, 3, 5)
    together = expected_benefit(price=price, extra_s=1.5, **case)
    paths = (price, case["nodes"].astype(float), case["mean_s_per_kb"], case["sd_s_per_kb"])
    for event, total in enumerate(together):
        alone = benefit(
            100.0,
            case["published_s"][event],
            case["size_kb"][event],
            0,
            5,
            np.arange(5),
            np.ascontiguousarray(case["allowed_s"][event]),
            *paths,
            0.002,
            1.5,
        )
        assert total == pytest.approx(alone, abs=1e-12)


def test_shapes() -> None:
    case = random_case(1)
    assert success_probability(**case).shape == (7, 5)
    assert expected_benefit(**case).shape == (7,)
    # Several moments at once: one more axis in front of the events'.
    case["now_s"] = np.array([[100.0], [101.0], [102.0]])
    assert success_probability(**case).shape == (3, 7, 5)
    assert ebpc(0.5, turn_s=np.full(7, 3.0), **case).shape == (3, 7)


@given(st.integers(0, 10_000), st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_eb_never_rises_with_time(seed: int, first_s: float, second_s: float) -> None:
    case = random_case(seed, events=3)
    earlier, later = sorted((first_s, second_s))
    before = expected_benefit(**(case | {"now_s": 100.0 + earlier}))
    after = expected_benefit(**(case | {"now_s": 100.0 + later}))
    assert (after <= before + 1e-12).all()


@given(st.integers(0, 10_000))
def test_the_order_of_subscriptions_and_events_changes_nothing(seed: int) -> None:
    case = random_case(seed)
    generator = np.random.default_rng(seed)
    events, subscriptions = generator.permutation(7), generator.permutation(5)
    turned = dict(case)
    for name in ("published_s", "size_kb"):
        turned[name] = case[name][events]
    for name in ("nodes", "mean_s_per_kb", "sd_s_per_kb"):
        turned[name] = case[name][subscriptions]
    turned["allowed_s"] = case["allowed_s"][events][:, subscriptions]
    assert success_probability(**turned) == pytest.approx(success_probability(**case)[events][:, subscriptions])
    assert ebpc(0.3, turn_s=3.0, **turned) == pytest.approx(ebpc(0.3, turn_s=3.0, **case)[events], abs=1e-12)


def test_deadlines_from_both_sides() -> None:
    publishers, subscribers = [10.0, 30.0], [60.0, 20.0, np.inf]
    assert allowed_delay_s(lifetime_s=publishers).tolist() == [[10.0], [30.0]]
    assert allowed_delay_s(max_delay_s=subscribers).tolist() == subscribers
    both = allowed_delay_s(lifetime_s=publishers, max_delay_s=subscribers)
    assert both.tolist() == [[10.0, 10.0, 10.0], [30.0, 20.0, 30.0]]
    assert allowed_delay_s().tolist() == [np.inf]


def test_no_deadline_is_always_met_and_no_match_never() -> None:
    case = CASE | {"allowed_s": [np.inf, -np.inf]}
    assert success_probability(**case).tolist() == [1.0, 0.0]
    assert success_probability(**(case | {"sd_s_per_kb": 0.0})).tolist() == [1.0, 0.0]


def test_without_spread_the_deadline_itself_is_met() -> None:
    case = CASE | {"sd_s_per_kb": 0.0, "allowed_s": [9.0, 8.999]}
    assert success_probability(**(case | {"mean_s_per_kb": 0.075, "nodes": 1})).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_kb": -1.0}, "size_kb holds -1.0"),
        ({"sd_s_per_kb": [0.1, -0.1]}, "sd_s_per_kb holds -0.1"),
        ({"allowed_s": [np.nan, 1.0]}, "allowed_s holds NaN"),
        ({"nodes": -1}, "nodes holds -1"),
    ],
)
def test_impossible_figures_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        expected_benefit(**(CASE | change))


def test_impossible_weights_prices_and_turns_are_refused() -> None:
    with pytest.raises(InputError, match="r is the weight of EB"):
        ebpc(1.5, turn_s=1.0, **CASE)
    with pytest.raises(InputError, match="turn_s holds -1"):
        postponing_cost(turn_s=-1.0, **CASE)
    with pytest.raises(InputError, match="price holds -2"):
        expected_benefit(price=-2.0, **CASE)
