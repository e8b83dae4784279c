"""The load of a bench: who publishes what, how fast, and who subscribes to what.

A load has a bounded number of different events, published in turn, so the expected deliveries of each are computed
once, by the filters themselves. The first bytes of a payload hold the event's number and when it was due, by the clock
that all processes of a machine share: so publishers and subscribers may be in different processes.
"""

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidings.errors import ConfigurationError, InputError
from tidings.model.filters import Filter

__all__ = ["HEADER", "BenchEvent", "Load", "default_events", "filters_of"]

HEADER: Final = struct.Struct("<QI")
"""When an event was due (ns), and its number in the load: the first bytes of its payload."""
SYMBOLS: Final = 10
DEFAULT_FILTER: Final = "symbol = '{symbol}' AND price > 50 AND volume < 500000"
_DIFFERENT: Final = 1_000
_VOLUMES: Final = 555_555  # 0.5 x 0.9 x a tenth of the subscribers want an event


class BenchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One of the events of a load."""

    attributes: Mapping[str, int | float | str | bool]
    payload: bytes
    lifetime_s: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The whole load. `rate_per_s` is that of all publishers together (None: as fast as events are accepted); addresses
    are dealt out in turn; `connection` holds the arguments of `connect`."""

    publish_at: tuple[str, ...]
    subscribe_at: tuple[str, ...]
    events: tuple[BenchEvent, ...]
    filters: tuple[str, ...]
    publishers: int = 1
    rate_per_s: float | None = None
    seconds: float = 10.0
    warmup_s: float = 1.0
    max_delay_s: float | None = None
    in_flight: int = 1_024
    advertise: str = "TRUE"
    name: str = "bench"
    connection: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not 0.0 <= self.warmup_s < self.seconds:
            raise ConfigurationError(
                f"a warm-up of {self.warmup_s:g} s in a run of {self.seconds:g} s leaves nothing to measure"
            )
        if not self.events:
            raise InputError("there is no event to publish: give at least one line")

    def deadline_s(self, event: BenchEvent) -> float | None:
        """How old this event may be to be on time; None if it has no deadline."""
        given = [limit_s for limit_s in (event.lifetime_s, self.max_delay_s) if limit_s is not None]
        return min(given, default=None)

    def wanted(self, subscribers: Sequence[int]) -> list[int]:
        """By event: how many of these subscribers want it."""
        filters = [Filter.parse(self.filters[number]) for number in subscribers]
        return [sum(filter.matches(event.attributes) for filter in filters) for event in self.events]


def default_events(size_kb: float, lifetime_s: float | None, *, seed: int = 1) -> tuple[BenchEvent, ...]:
    """Quotes: a symbol of SYMBOLS, a price, a volume, and a payload of the given size."""
    dice = random.Random(seed)
    payload = bytes(max(round(size_kb * 1000), HEADER.size))
    return tuple(
        BenchEvent(
            attributes={
                "symbol": f"S{dice.randrange(SYMBOLS)}",
                "price": round(dice.uniform(0.0, 100.0), 2),
                "volume": dice.randrange(_VOLUMES),
            },
            payload=payload,
            lifetime_s=lifetime_s,
        )
        for _ in range(_DIFFERENT)
    )


def filters_of(template: str, subscribers: int) -> tuple[str, ...]:
    """The filter of each subscriber: `{n}` is its number from 0, `{symbol}` one of the symbols in turn."""
    found = tuple(
        template.replace("{n}", str(number)).replace("{symbol}", f"S{number % SYMBOLS}")
        for number in range(subscribers)
    )
    for text in dict.fromkeys(found):
        Filter.parse(text)
    return found
