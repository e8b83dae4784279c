"""Events and advertisements: what a publisher sends, and what it promises to send.

Times are integer nanoseconds, as on the wire and in traces; models that speak seconds convert at their edge.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tidings.errors import EventError

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["Advertisement", "AttributeValue", "Event"]

AttributeValue = int | float | str | bool


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One publication: `sequence` counts per publisher from 0, `lifetime_ns` is the publisher's deadline (None: none).

    A payload has a size of its own; in a model, where no bytes are carried, `size_bytes` alone says how large it is.
    """

    publisher: str
    sequence: int
    departure_ns: int
    attributes: Mapping[str, AttributeValue]
    lifetime_ns: int | None = None
    payload: bytes = b""
    size_bytes: int = -1

    def __post_init__(self) -> None:
        if self.sequence < 0:
            raise EventError(f"event of {self.publisher!r}: sequence is {self.sequence}, but counts from 0")
        if self.lifetime_ns is not None and self.lifetime_ns <= 0:
            raise EventError(
                f"event {self.sequence} of {self.publisher!r}: lifetime_ns is {self.lifetime_ns}, "
                "but must be positive; leave it out for an event that never expires"
            )
        if self.size_bytes == -1:
            msgspec.structs.force_setattr(self, "size_bytes", len(self.payload))
        elif self.size_bytes < len(self.payload):
            raise EventError(
                f"event {self.sequence} of {self.publisher!r}: size_bytes is {self.size_bytes}, "
                f"less than its payload of {len(self.payload)} bytes"
            )

    @property
    def expiry_ns(self) -> int | None:
        """When the publisher's deadline falls, on the publisher's clock; None for an event that never expires."""
        return None if self.lifetime_ns is None else self.departure_ns + self.lifetime_ns


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """The filter that every event of this publisher will satisfy."""

    publisher: str
    filter: "Filter"
