"""The rights of clients: rules by identity, and what follows from them."""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.protocol._errors import PeerError
from tidings.protocol._filters import parsed

if TYPE_CHECKING:
    from tidings.model.filters import Filter
    from tidings.protocol.wire import Entry

__all__ = ["Rights", "Rule"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of an identity: False is nothing, True everything, a filter what it accepts.

    A subscription may offer at most `max_price` for an event, an event may live for `max_lifetime_ns`, and a client may
    send `rate_per_s` events and requests; None: no limit of its own.
    """

    identity: str
    publish: "Filter | bool"
    advertise: "Filter | bool"
    subscribe: "Filter | bool"
    max_price: float | None = None
    max_lifetime_ns: int | None = None
    rate_per_s: float | None = None


class Rights:
    """The rights of a client, by the rules that name it."""

    def __init__(self, rules: Collection[Rule]) -> None:
        self._rules = tuple(rules)

    @property
    def rate_per_s(self) -> float | None:
        """The rate that a client may send at: that of its most generous rule."""
        rates = [rule.rate_per_s for rule in self._rules]
        return max((rate for rate in rates if rate is not None), default=None) if None not in rates else None

    def lifetime_ns(self, client: str, attributes: Mapping[str, Any], asked_ns: int | None, most_ns: int) -> int:
        """How long an event may live by the most generous rule that allows it; PeerError if none does.

        One that asks for more is refused, one that asks for nothing gets the most.
        """
        allowed = [rule.max_lifetime_ns for rule in self._rules if _matches(rule.publish, attributes)]
        if not allowed:
            raise PeerError("denied", f"no rule allows {client!r} to publish this: ask the operator of the network")
        may_ns = min(most_ns, max(most_ns if each is None else each for each in allowed))
        if asked_ns is not None and min(asked_ns, most_ns) > may_ns:
            raise PeerError(
                "lifetime",
                f"events of {client!r} may live for {may_ns * 1e-9:g} s, but this one asks for {asked_ns * 1e-9:g}: "
                "give it a shorter lifetime",
            )
        return min(asked_ns or may_ns, may_ns)

    def require_subscribe(self, client: str, wanted: "Entry") -> None:
        """PeerError unless a rule allows a subscription at its price."""
        filter = parsed(wanted.filter)
        allowed = [rule.max_price for rule in self._rules if _covers(rule.subscribe, filter)]
        if not allowed:
            raise PeerError(
                "denied", f"no rule allows {client!r} to subscribe to this: ask the operator of the network"
            )
        most = max((math.inf if price is None else price) for price in allowed)
        if wanted.price > most:
            raise PeerError("price", f"{client!r} offers {wanted.price:g} for an event, but may offer {most:g} at most")

    def may_advertise(self, promised: "Filter") -> bool:
        """Whether a rule allows an advertisement."""
        return any(_covers(rule.advertise, promised) for rule in self._rules)


def _matches(allowed: "Filter | bool", attributes: Mapping[str, Any]) -> bool:
    return allowed if isinstance(allowed, bool) else allowed.matches(attributes)


def _covers(allowed: "Filter | bool", wanted: "Filter") -> bool:
    return allowed if isinstance(allowed, bool) else allowed.covers(wanted) is True
