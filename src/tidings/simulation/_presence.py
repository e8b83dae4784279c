"""Subscribers that come and go: when each of them is there, drawn ahead.

A subscriber is there for a draw of `stay`, then away for one of `away`, again and again, from a stream of its own. Runs
begin in the long run: the first stay began some cycles before the run, at a random time. An event counts for who is
there when it is published; who leaves meanwhile gets it all the same.
"""

import numpy as np

from tidings.model.scenario import Churn, Network
from tidings.simulation._layout import NANOSECONDS, Array

__all__ = ["Presence"]

_PART = 101  # apart from the streams of publishers
_CYCLES_BEFORE = 20.0


class Presence:
    """Who is there; `is_always` if nobody ever goes."""

    def __init__(self, network: Network) -> None:
        churns = {subscriber.name: subscriber.churn for subscriber in network.subscribers}
        self._changes: dict[int, Array] = {}
        for number, subscription in enumerate(network.subscriptions):
            churn = churns[subscription.subscriber]
            if churn is not None:
                self._changes[number] = _changes(churn, network.seed, number, network.duration_s)
        self.is_always = not self._changes

    def there(self, subscriptions: Array, times_ns: Array) -> Array:
        """Of pairs of a subscription and a time: whether it is there then."""
        found = np.ones(len(subscriptions), np.bool_)
        order = np.argsort(subscriptions, kind="stable")
        numbers, first = np.unique(subscriptions[order], return_index=True)
        for number, mine in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
            if number in self._changes:
                found[mine] = np.searchsorted(self._changes[number], times_ns[mine], side="right") % 2 == 1
        return found


def _changes(churn: Churn, seed: int, number: int, duration_s: float) -> Array:
    """When a subscriber comes (the first, the third, ...) and goes, in nanoseconds, to beyond the end of the run."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _PART, number])))
    cycle_s = churn.stay.mean() + churn.away.mean()
    at_s = -generator.random() * _CYCLES_BEFORE * cycle_s
    changes = [np.array([at_s])]
    while at_s <= duration_s:
        cycles = 16 + int((duration_s - at_s) / cycle_s)
        lengths = np.stack((churn.stay.sample(generator, cycles), churn.away.sample(generator, cycles)), axis=1)
        more = at_s + np.cumsum(lengths.ravel())
        changes.append(more)
        at_s = float(more[-1])
    return np.rint(np.concatenate(changes) * NANOSECONDS).astype(np.int64)
