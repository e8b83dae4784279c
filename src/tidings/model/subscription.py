"""Subscriptions: a filter, a deadline, and the price of an on-time delivery."""

import math
from typing import TYPE_CHECKING

import msgspec

from tidings.errors import InputError

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["Subscription"]


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A filter with the subscriber's deadline (`max_delay_s`, None: none) and the price of an on-time delivery."""

    id: str
    subscriber: str
    filter: "Filter"
    max_delay_s: float | None = None
    price: float = 1.0

    def __post_init__(self) -> None:
        if self.max_delay_s is not None and not (0.0 < self.max_delay_s < math.inf):
            raise InputError(
                f"subscription {self.id!r}: max_delay_s is {self.max_delay_s!r}, but must be positive and finite; "
                "leave it out for no deadline"
            )
        if not (0.0 <= self.price < math.inf):
            raise InputError(f"subscription {self.id!r}: price is {self.price!r}, but must be 0 or more, and finite")

    def lifetime_left_s(self, *, lifetime_s: float | None, elapsed_s: float) -> float:
        """How long an event may still travel for this subscription: the tighter of the two deadlines, less `elapsed_s`.

        Infinite when neither the publisher nor the subscriber has a deadline; negative once it is too late.
        """
        allowed_s = min(
            math.inf if lifetime_s is None else lifetime_s,
            math.inf if self.max_delay_s is None else self.max_delay_s,
        )
        return allowed_s - elapsed_s
