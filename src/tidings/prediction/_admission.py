"""May a newcomer come in? What it would get, and what it would cost everybody else.

A subscription costs in two ways: events that nobody wanted so far travel to it, and where service is per stored
subscription every broker that stores it gets slower. Both are in the prediction of the network with it.
"""

import math
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from tidings.errors import InputError, TidingsError
from tidings.model.filters import Filter
from tidings.model.scenario import Network, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.units import parse_quantity
from tidings.prediction._network import from_network
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Model
from tidings.prediction._unmodelled import Unmodelled

__all__ = ["Admission", "Change", "Newcomer", "admit", "load_newcomer"]

AT_LEAST = 0.9
SHOWN_MAX = 20


class Newcomer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subscription that asks to be let in: at which broker, for what, how late is too late."""

    broker: str
    filter: str
    max_delay: str | float | None = None
    id: str = "newcomer"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription's R', before and after."""

    subscription: str
    before: float
    after: float


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The advice. `falls_below` are those that had at least `at_least` before and have less after; `costs` those that
    lose most, `mean_cost` what a subscription loses on average; `unmodelled` what the predictions leave out."""

    newcomer: str
    advice: Literal["admit", "refuse"]
    reason: str
    at_least: float
    on_time_reliability: float | None
    falls_below: tuple[Change, ...]
    costs: tuple[Change, ...]
    mean_cost: float
    unmodelled: tuple[Unmodelled, ...]


def load_newcomer(path: str | PathLike[str]) -> Newcomer:
    """Read a newcomer from TOML: `broker`, `filter`, and if wanted `max_delay` and `id`."""
    place = Path(path)
    try:
        return msgspec.toml.decode(place.read_bytes(), type=Newcomer)
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        example = 'write broker = "b3", filter = "price > 20" and, if there is a deadline, max_delay = "2 s"'
        raise InputError(f"{place}: {error}; {example}") from None


def admit(
    network: Network,
    newcomer: Newcomer,
    *,
    model: Model = "ours",
    alpha: float = 1.0,
    at_least: float = AT_LEAST,
) -> Admission:
    """Predict the network without and with the newcomer, and advise: refuse if it or anybody else would get less than
    `at_least` (those who have less already do not count)."""
    if not 0.0 <= at_least <= 1.0:
        raise InputError(f"at_least is {at_least!r}, but must be a share from 0 to 1")
    larger = _with(network, newcomer)
    before = predict(from_network(network, alpha=alpha), model=model)
    after = predict(from_network(larger, alpha=alpha), model=model)
    had, has = before.reliability, after.reliability[:-1]
    own = float(after.reliability[-1])
    lost = np.where(np.isnan(had), 0.0, had - has)
    by_loss = np.argsort(-lost, kind="stable")
    names = before.knowledge.subscriptions

    def change(number: int) -> Change:
        return Change(subscription=names[number], before=float(had[number]), after=float(has[number]))

    fallen = [int(n) for n in by_loss if had[n] >= at_least > has[n]]
    costly = [int(n) for n in by_loss[:SHOWN_MAX] if lost[n] > 1e-6]
    if fallen:
        advice, reason = "refuse", f"{len(fallen):,} would fall below {at_least:g}, first {names[fallen[0]]}"
    elif not math.isnan(own) and own < at_least:
        advice, reason = "refuse", f"it would get {own:.3f} itself, less than {at_least:g}"
    else:
        advice, reason = "admit", "nobody would fall below " + f"{at_least:g}"
        if math.isnan(own):
            reason += "; but no publisher can match it"
    return Admission(
        newcomer=newcomer.id,
        advice="refuse" if advice == "refuse" else "admit",
        reason=reason,
        at_least=at_least,
        on_time_reliability=None if math.isnan(own) else own,
        falls_below=tuple(change(n) for n in fallen[:SHOWN_MAX]),
        costs=tuple(change(n) for n in costly),
        mean_cost=float(lost.mean()) if len(lost) else 0.0,
        unmodelled=after.unmodelled,
    )


def _with(network: Network, newcomer: Newcomer) -> Network:
    if newcomer.broker not in network.topology.index:
        known = ", ".join(broker.name for broker in network.topology.brokers[:12])
        raise InputError(f"newcomer {newcomer.id!r}: there is no broker {newcomer.broker!r}; there are {known}")
    if any(subscription.id == newcomer.id for subscription in network.subscriptions):
        raise InputError(f"newcomer {newcomer.id!r}: a subscription of this id is there already; give another `id`")
    name = newcomer.id
    while name in network.homes:
        name += "'"
    try:
        wanted = Filter.parse(newcomer.filter)
        max_delay_s = None if newcomer.max_delay is None else parse_quantity(newcomer.max_delay, "time")
    except TidingsError as error:
        raise InputError(f"newcomer {newcomer.id!r}: {error}") from None
    subscription = Subscription(id=newcomer.id, subscriber=name, filter=wanted, max_delay_s=max_delay_s)
    return msgspec.structs.replace(
        network,
        subscribers=(*network.subscribers, Subscriber(name=name, group=name, broker=newcomer.broker)),
        subscriptions=(*network.subscriptions, subscription),
    )
