"""What clients may do: rules by identity, and the rights that follow from them."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from tidings.model.filters import Filter

__all__ = ["Rights", "Rule"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What an identity may do: False is nothing, True everything, a filter what satisfies it."""

    identity: str
    publish: Filter | bool
    advertise: Filter | bool
    subscribe: Filter | bool


class Rights:
    """What a client may do by the rules that name it."""

    def __init__(self, rules: Collection[Rule]) -> None:
        self._rules = tuple(rules)

    def may_publish(self, attributes: Mapping[str, Any]) -> bool:
        """Whether a rule allows an event."""
        return any(_matches(rule.publish, attributes) for rule in self._rules)

    def may_subscribe(self, wanted: Filter) -> bool:
        """Whether a rule allows a subscription."""
        return any(_covers(rule.subscribe, wanted) for rule in self._rules)

    def may_advertise(self, promised: Filter) -> bool:
        """Whether a rule allows an advertisement."""
        return any(_covers(rule.advertise, promised) for rule in self._rules)


def _matches(allowed: Filter | bool, attributes: Mapping[str, Any]) -> bool:
    return allowed if isinstance(allowed, bool) else allowed.matches(attributes)


def _covers(allowed: Filter | bool, wanted: Filter) -> bool:
    return allowed if isinstance(allowed, bool) else allowed.covers(wanted) is True
