"""Which events are traced, if not all are: a matter of an event's identity, so every broker decides alike.

A publisher's life (name and epoch) is hashed once; a sequence number is then mixed into it by two multiplications and a
shift (the first half of the finalizer of MurmurHash3), which is as good as random here and costs a fraction of a
microsecond.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tidings.protocol._effects import EventId

__all__ = ["sampler"]

_BITS: Final = (1 << 32) - 1
_LIVES: Final = 65_536


@lru_cache(maxsize=_LIVES)
def _origin(publisher: str, epoch: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{epoch}/{publisher}".encode(), digest_size=4).digest(), "big")


def sampler(share: float) -> Callable[[EventId], bool]:
    """Whether an event is among this share of all."""
    below = round(share * (_BITS + 1))
    if not 0 < below <= _BITS:
        return lambda _: below > 0

    def is_sampled(event: EventId) -> bool:
        publisher, epoch, sequence = event
        mixed = (_origin(publisher, epoch) + sequence * 0x9E3779B1) & _BITS
        return ((mixed ^ mixed >> 16) * 0x85EBCA6B) & _BITS < below

    return is_sampled
