"""Admission of a new subscription: its on-time share, and its cost for all others.

A subscription has two costs: events that matched nobody so far travel to it, and where service is per stored
subscription every broker that stores it becomes slower. The prediction of the network with it contains both.

Profiles record which subscriptions an event matches, not its attributes. The filters of those subscriptions tell what
a new one would match: all events of a filter that its own filter covers, no event outside a filter that covers its own,
and no event of a filter that excludes its own. The remaining events may match or not; they are assumed to match, and
the advice states their share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa

from tidings.errors import InputError, TidingsError
from tidings.model.filters import Filter, covers, intersects
from tidings.model.scenario import Network, Subscriber
from tidings.model.subscription import Subscription
from tidings.model.units import parse_quantity, percent
from tidings.prediction._knowledge import Knowledge, PublisherKnowledge, exact_shares
from tidings.prediction._network import from_network
from tidings.prediction._predict import predict
from tidings.prediction._prediction import Model, Prediction
from tidings.prediction._unmodelled import Unmodelled

__all__ = ["Admission", "Change", "Newcomer", "admit", "admit_measured", "load_newcomer"]

AT_LEAST = 0.9
SHOWN_MAX = 20


class Newcomer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subscription that asks for admission: its broker, filter and deadline."""

    broker: str
    filter: str
    max_delay: str | float | None = None
    id: str = "newcomer"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """R' of one subscription before and after."""

    subscription: str
    before: float
    after: float


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The advice. `falls_below` are the subscriptions at or above `at_least` before and below it after; `costs` those
    that lose most, `mean_cost` the mean loss; `unmodelled` the effects that the predictions leave out."""

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
    """Read a newcomer from TOML: `broker`, `filter`, and optionally `max_delay` and `id`."""
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
    """Predict the network without and with the newcomer, and advise: refuse if its share or that of any other
    subscription would fall below `at_least` (those already below it do not count)."""
    if not 0.0 <= at_least <= 1.0:
        raise InputError(f"at_least is {at_least!r}, but must be a share from 0 to 1")
    larger = _with(network, newcomer)
    before = predict(from_network(network, alpha=alpha), model=model)
    after = predict(from_network(larger, alpha=alpha), model=model)
    return _advice(newcomer, before, after, at_least)


def admit_measured(
    tables: Mapping[str, pa.Table],
    knowledge: Knowledge,
    newcomer: Newcomer,
    *,
    model: Model = "ours",
    at_least: float = AT_LEAST,
) -> Admission:
    """The same from profiles: `knowledge` was made from the `tables`."""
    if not 0.0 <= at_least <= 1.0:
        raise InputError(f"at_least is {at_least!r}, but must be a share from 0 to 1")
    names = [broker.name for broker in knowledge.brokers]
    _check_place(newcomer, names, knowledge.subscriptions)
    wanted, max_delay_s = _read(newcomer)
    publishers, unsure = _with_measured(knowledge, tables, wanted)
    larger = replace(
        knowledge,
        publishers=publishers,
        subscriptions=(*knowledge.subscriptions, newcomer.id),
        homes=np.append(knowledge.homes, np.int32(names.index(newcomer.broker))).astype(np.int32),
        max_delays_s=np.append(knowledge.max_delays_s, math.inf if max_delay_s is None else max_delay_s),
        prices=None if knowledge.prices is None else np.append(knowledge.prices, 1.0),
    )
    if unsure > 0.0:
        unknown = Unmodelled(
            kind="content",
            what=f"whether {percent(unsure)} of the events match {newcomer.id}, which profiles do not record",
            effect="as if they did",
            remedy="predict the scenario, or give the newcomer a filter that another subscription has",
        )
        larger = replace(larger, unmodelled=(*larger.unmodelled, unknown))
    return _advice(newcomer, predict(knowledge, model=model), predict(larger, model=model), at_least)


def _with_measured(
    knowledge: Knowledge, tables: Mapping[str, pa.Table], wanted: Filter
) -> tuple[tuple[PublisherKnowledge, ...], float]:
    """The publishers with the newcomer, the last subscription, in the signatures that it may match; and the share of
    events for which the match is unknown."""
    filters = {row["subscription"]: row["filter"] for row in tables["subscriptions"].to_pylist()}
    known = [Filter.parse(filters[name]) for name in knowledge.subscriptions]
    has = np.array([covers(wanted, each) is True for each in known], np.bool_)  # it matches what they match
    may = np.array([covers(each, wanted) is True for each in known], np.bool_)  # it does not match what they do not
    never = np.array(
        [intersects(wanted, each) is False for each in known], np.bool_
    )  # it does not match what they match
    number, publishers = len(known), []
    unsure_per_s = rate_per_s = 0.0
    for publisher in knowledge.publishers:
        content, lists, weights = publisher.content, [], list(publisher.content.weights)
        for kind, weight in enumerate(content.weights.tolist()):
            inside = content.subscriptions[content.offsets[kind] : content.offsets[kind + 1]]
            is_sure = bool(has[inside].any())
            may_match = is_sure or bool(np.isin(np.flatnonzero(may), inside).all() and not never[inside].any())
            unsure_per_s += publisher.rate_per_s * weight * (may_match and not is_sure)
            lists.append(np.append(inside, number) if may_match else inside)
        rest = 1.0 - float(content.weights.sum())
        if rest > 1e-12 and not may.any():  # no filter says anything about events that match nobody
            is_all = str(wanted).upper() == "TRUE"
            unsure_per_s += 0.0 if is_all else publisher.rate_per_s * rest
            lists.append(np.array([number]))
            weights.append(rest)
        rate_per_s += publisher.rate_per_s
        publishers.append(
            replace(
                publisher,
                content=replace(
                    content,
                    weights=exact_shares(np.array(weights)) if weights else content.weights,
                    offsets=np.cumsum([0, *map(len, lists)]).astype(np.int64),
                    subscriptions=np.concatenate([np.zeros(0, np.int32), *lists]).astype(np.int32),
                ),
            )
        )
    return tuple(publishers), unsure_per_s / rate_per_s if rate_per_s else 0.0


def _subscriptions(count: int) -> str:
    return "1 subscription" if count == 1 else f"{count:,} subscriptions"


def _advice(newcomer: Newcomer, before: Prediction, after: Prediction, at_least: float) -> Admission:
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
        advice, reason = (
            "refuse",
            f"{_subscriptions(len(fallen))} would fall below {percent(at_least)}, first {names[fallen[0]]}",
        )
    elif not math.isnan(own) and own < at_least:
        advice, reason = "refuse", f"its own on-time share would be {percent(own)}, below {percent(at_least)}"
    else:
        advice, reason = "admit", f"no subscription would fall below {percent(at_least)}"
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


def _check_place(newcomer: Newcomer, brokers: Sequence[str], subscriptions: Sequence[str]) -> None:
    if newcomer.broker not in brokers:
        known = ", ".join(brokers[:12])
        raise InputError(f"newcomer {newcomer.id!r}: there is no broker {newcomer.broker!r}; the network has {known}")
    if newcomer.id in subscriptions:
        raise InputError(f"newcomer {newcomer.id!r}: this id is already in use; give another `id`")


def _read(newcomer: Newcomer) -> tuple[Filter, float | None]:
    """Its filter and its deadline."""
    try:
        wanted = Filter.parse(newcomer.filter)
        return wanted, None if newcomer.max_delay is None else parse_quantity(newcomer.max_delay, "time")
    except TidingsError as error:
        raise InputError(f"newcomer {newcomer.id!r}: {error}") from None


def _with(network: Network, newcomer: Newcomer) -> Network:
    brokers = [broker.name for broker in network.topology.brokers]
    _check_place(newcomer, brokers, [subscription.id for subscription in network.subscriptions])
    name = newcomer.id
    while name in network.homes:
        name += "'"
    wanted, max_delay_s = _read(newcomer)
    subscription = Subscription(id=newcomer.id, subscriber=name, filter=wanted, max_delay_s=max_delay_s)
    return msgspec.structs.replace(
        network,
        subscribers=(*network.subscribers, Subscriber(name=name, group=name, broker=newcomer.broker)),
        subscriptions=(*network.subscriptions, subscription),
    )
