"""What accounts say about a span of time."""

import pytest

from tidings.autopilot import Account, Observation, measure
from tidings.autopilot._measure import OVERDUE_S, with_overdue
from tidings.planning import Objective

OBJECTIVE = Objective(reliability=0.9)


def account(on_time: int, settled: int, matched: int = 0) -> Account:
    return Account(on_time=on_time, settled=settled, matched=matched or settled, max_delay_s=1.0)


def test_the_span_between_two_observations_counts() -> None:
    found = measure(
        {"good": account(90, 100), "bad": account(10, 10), "new": account(0, 0)},
        {"good": account(290, 300), "bad": account(60, 110), "new": account(0, 0), "newer": account(0, 50)},
        OBJECTIVE,
    )
    assert (found.subscriptions, found.below, found.worst) == (2, 1, {"bad": 0.5})
    assert found.on_time_share == pytest.approx((1.0 + 0.5) / 2.0)
    assert found.shortfall == pytest.approx(0.4)
    assert found.is_short


def test_few_events_do_not_put_a_subscription_below_the_objective() -> None:
    few = measure({"s": account(0, 0)}, {"s": account(3, 4)}, OBJECTIVE)
    assert (few.below, few.is_short) == (0, False)
    many = measure({"s": account(0, 0)}, {"s": account(300, 400)}, OBJECTIVE)
    assert (many.below, many.is_short) == (1, True)
    assert many.error < few.error


def test_a_share_of_the_subscriptions_may_be_below() -> None:
    before = {f"s{number}": account(0, 0) for number in range(10)}
    after = {f"s{number}": account(100 if number else 0, 100) for number in range(10)}
    assert measure(before, after, OBJECTIVE).is_short
    assert not measure(before, after, Objective(reliability=0.9, share=0.9)).is_short


def test_accounts_that_have_begun_again_or_took_a_drop_back_do_not_mislead() -> None:
    restarted = measure({"s": account(500, 900)}, {"s": account(5, 5)}, OBJECTIVE)
    assert (restarted.subscriptions, restarted.on_time_share) == (0, None)
    taken_back = measure({"s": account(10, 20)}, {"s": account(40, 45)}, OBJECTIVE)
    assert taken_back.on_time_share == 1.0


def test_events_that_wait_beyond_their_deadline_are_late() -> None:
    seen: list[Observation] = []
    for at_s in range(0, 20, 2):
        accounts = {"s": account(10, 10, 10 + 5 * at_s)}
        seen.append(with_overdue(Observation(at_s=float(at_s), accounts=accounts), seen))
    due = [each.accounts["s"].settled for each in seen]
    late_s = 1.0 + OVERDUE_S
    assert due == [10 if at_s < late_s else 10 + 5 * int(at_s - late_s) for at_s in range(0, 20, 2)]
    after = with_overdue(Observation(at_s=20.0, accounts={"s": account(0, 0, 3)}), seen)
    assert after.accounts["s"].settled == 0, "the account has begun again"
