"""Rows that were seen rarely borrow from those beside them; others, and groups that do not fit, stay as they are."""

import numpy as np

from tidings.statistics import pooled_shares

GROUPS, ROWS, EVENTS = 20, 50, 25
GROUP = np.repeat(np.arange(GROUPS), ROWS)


def seen(truth: np.ndarray, events: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    many = np.full(len(truth), events)
    return np.random.default_rng(seed).binomial(int(events), truth) / events, many


def test_rare_rows_are_known_better_together() -> None:
    """What was expected is .1 to .2 too low everywhere, a different amount in each group: rows of 25 events are off by
    .07 on average, and a group of 50 of them by .01."""
    dice = np.random.default_rng(3)
    truth = np.clip(dice.uniform(0.5, 0.8, GROUPS)[GROUP] + dice.normal(0.0, 0.02, len(GROUP)), 0.0, 1.0)
    expected = truth - dice.uniform(0.1, 0.2, GROUPS)[GROUP]
    share, events = seen(truth, EVENTS, 4)
    found = pooled_shares(share, events, events, expected, GROUP)
    assert found.is_pooled.all()
    assert np.abs(found.share - truth).mean() < 0.4 * np.abs(share - truth).mean()
    # 1,000 rows, of which those of a group go together: 95 % within five standard errors of 20 groups.
    assert (np.abs(found.share - truth) <= found.half_width).mean() > 0.95 - 5.0 * np.sqrt(0.05 * 0.95 / GROUPS)
    assert (found.effective >= events).all()


def test_rows_of_groups_that_do_not_fit_stay() -> None:
    dice = np.random.default_rng(5)
    truth = dice.uniform(0.05, 0.95, len(GROUP))  # nothing that a group has in common
    share, events = seen(truth, EVENTS, 6)
    found = pooled_shares(share, events, events, np.full(len(GROUP), 0.5), GROUP)
    assert found.spread > 0.2
    assert not found.is_pooled.any()
    assert (found.share == share).all()
    assert (found.effective == events).all()


def test_rows_with_many_events_stay() -> None:
    truth = np.clip(0.7 + np.random.default_rng(7).normal(0.0, 0.05, len(GROUP)), 0.0, 1.0)
    share, events = seen(truth, EVENTS, 8)
    often, many = seen(truth, 10_000, 9)
    share[::2], events[::2] = often[::2], many[::2]
    found = pooled_shares(share, events, events, np.full(len(GROUP), 0.7), GROUP)
    assert not found.is_pooled[::2].any()
    assert found.is_pooled[1::2].all()


def test_what_was_never_seen_stays_unknown() -> None:
    share = np.array([np.nan, 0.5, 0.25])
    events = np.array([0.0, 4.0, 4.0])
    found = pooled_shares(share, events, events, np.array([0.4, np.nan, 0.3]), np.zeros(3, np.int32))
    assert np.isnan(found.share[0])
    assert found.is_pooled.tolist() == [False, False, True]
