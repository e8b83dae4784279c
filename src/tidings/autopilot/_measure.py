"""What the accounts of subscriptions say about a span of time, and how sure that is.

An account counts the settled events of a subscription since its start; the difference of two observations is the span
between them. A subscription that only one of them has, or whose account has begun again, does not count.

Late events come in bursts, so n events tell as much as n / DISPERSION independent ones. A subscription is below the
objective if the whole interval of its share is, at a level at which RISK is the chance that this happens to any of the
subscriptions by chance. The shortfall is that of plans (`Objective.shortfall`), so measured and predicted gains can be
compared.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from tidings.planning import Objective
from tidings.statistics import wilson_interval

__all__ = ["Account", "Measure", "Observation", "measure", "with_overdue"]

DISPERSION: Final = 4.0
RISK: Final = 0.01
OVERDUE_S: Final = 5.0
"""Outcomes are reported within a second or two; after so long without one, an event counts as late."""
NAMES_MAX: Final = 100


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Of the events that `matched` a subscription with this deadline: how many were on time, and how many are settled
    at all."""

    on_time: int
    settled: int
    matched: int = 0
    max_delay_s: float | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A look at the network: accounts by subscription, the brokers that publishers are connected to, the strategy of
    all brokers (None if they differ), and the brokers that do not answer. `at_s` is in seconds since 1970."""

    at_s: float
    accounts: Mapping[str, Account]
    homes: Mapping[str, str] = {}
    strategy: str | None = None
    down: frozenset[str] = frozenset()


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """The mean on-time share of subscriptions with events (None: there are none), the shortfall added up over them and
    its standard error, how many there are, and how many of them are below the objective; `is_short` if too many are.
    `worst` are the shares of those below by name, of NAMES_MAX at most."""

    on_time_share: float | None
    shortfall: float
    error: float
    subscriptions: int
    below: int
    is_short: bool
    worst: dict[str, float] = {}


def with_overdue(seen: Observation, before: Sequence[Observation]) -> Observation:
    """Count events that are still under way as settled, and so as not on time, once they are late: those that were
    matched longer ago than the deadline and OVERDUE_S. Events that wait for ever would hide otherwise."""
    if not before:
        return seen
    times, last = [each.at_s for each in before], before[-1].accounts
    accounts = {}
    for name, account in seen.accounts.items():
        due, previous = account.settled, last.get(name)
        if account.max_delay_s is not None and previous is not None and previous.matched <= account.matched:
            place = bisect_right(times, seen.at_s - account.max_delay_s - OVERDUE_S) - 1
            then = before[place].accounts.get(name) if place >= 0 else None
            due = max(due, previous.settled, 0 if then is None else min(then.matched, account.matched))
        accounts[name] = account if due == account.settled else msgspec.structs.replace(account, settled=due)
    return msgspec.structs.replace(seen, accounts=accounts)


def measure(before: Mapping[str, Account], now: Mapping[str, Account], objective: Objective) -> Measure:
    """What was settled from one observation to the other."""
    spans = [
        (name, each.on_time - first.on_time, each.settled - first.settled)
        for name, each in now.items()
        if (first := before.get(name)) is not None
    ]
    # A drop may be taken back, and an account that has begun again counts less than before.
    counted = [(min(max(good, 0), many), many) for _, good, many in spans if many > 0]
    names = [name for name, _, many in spans if many > 0]
    if not counted:
        return Measure(on_time_share=None, shortfall=0.0, error=0.0, subscriptions=0, below=0, is_short=False)
    on_time, settled = np.array(counted, np.float64).T
    share = on_time / settled
    level = 1.0 - 2.0 * RISK / len(counted)
    high = wilson_interval(on_time / DISPERSION, settled / DISPERSION, level=level).high
    is_below = high < objective.reliability
    below = int(is_below.sum())
    worst = [place for place in np.argsort(share, kind="stable").tolist() if is_below[place]][:NAMES_MAX]
    guess = (on_time + 1.0) / (settled + 2.0)
    variance = DISPERSION * guess * (1.0 - guess) / settled
    return Measure(
        on_time_share=float(share.mean()),
        shortfall=objective.shortfall(share),
        error=math.sqrt(float(variance[share < objective.reliability].sum())),
        subscriptions=len(counted),
        below=below,
        is_short=below > len(counted) - objective.count(len(counted)),
        worst={names[place]: round(float(share[place]), 6) for place in worst},
    )
