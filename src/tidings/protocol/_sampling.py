"""Which events are traced, if not all are: a matter of an event's identity, so every broker decides alike.

A publisher's life (name and epoch) is hashed once; with a sequence number it makes one step of SplitMix64, whose result
is as good as random and costs a fraction of a microsecond.
"""

import hashlib
from functools import lru_cache
from typing import Final

from tidings.protocol._effects import EventId

__all__ = ["is_sampled"]

_BITS: Final = (1 << 64) - 1
_LIVES: Final = 65_536


@lru_cache(maxsize=_LIVES)
def _origin(publisher: str, epoch: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{epoch}/{publisher}".encode(), digest_size=8).digest(), "big")


def is_sampled(event: EventId, sample: float) -> bool:
    """Whether an event is among a share of all."""
    if sample >= 1.0:
        return True
    publisher, epoch, sequence = event
    mixed = (_origin(publisher, epoch) + sequence * 0x9E3779B97F4A7C15) & _BITS
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _BITS
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _BITS
    return (mixed ^ mixed >> 31) < sample * 2.0**64
