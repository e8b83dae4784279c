"""Summaries: what an event was about, in 16 bytes, and which filters it cannot have matched (paper A, section 3.6).

A summary is a Bloom filter. Of every attribute it holds the pair of name and value, and of a number also the name and
the bucket that the value lies in (sign, exponent and the first two bits of the double: four buckets to the octave),
so that short ranges can be distinguished and not only values. The first four bits say how many of the other 124 each
item sets: as many as suit the number of items, so that events with few attributes are distinguished best.

A subscription is matched by the tests of its clauses (`Filter.clauses`), which are necessary conditions: a clause may
match if each of its tests may hold, a filter if one of its clauses may. What a summary cannot refute (a negation, a
missing attribute, a wide range, a residual such as LIKE) counts as held. So an event that matches is never taken for
one that does not; the reverse happens, and costs a needless wait.
"""

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidings.model.filters import OneOf, Test, Within, check_value

if TYPE_CHECKING:
    from tidings.model.filters import Filter

__all__ = ["SUMMARY_BYTES", "SummaryMatcher", "summarise"]

SUMMARY_BYTES: Final = 16
_COUNT_BITS: Final = 4
_BITS: Final = 8 * SUMMARY_BYTES - _COUNT_BITS
_MAX_HASHES: Final = 2**_COUNT_BITS - 1
_BUCKET_SHIFT: Final = 50  # of the 52 bits of a double's fraction, 2 are left
_MAX_BUCKETS: Final = 16
"""A range over more buckets than this is not refuted by a summary."""


def summarise(attributes: Mapping[str, object]) -> bytes:
    """The summary of an event with these attributes; None is a missing one."""
    items: list[bytes] = []
    for name, given in attributes.items():
        value = check_value(name, given)
        if isinstance(value, (bool, str)):
            items.append(_item(name, value))
        elif value is not None:
            number = float(value) + 0.0
            items += (_item(name, number), _bucket_item(name, _bucket(number)))
    hashes = min(max(round(_BITS * math.log(2.0) / max(len(items), 1)), 1), _MAX_HASHES)
    bits = 0
    for item in items:
        bits |= _mask(item, hashes)
    return (hashes << _BITS | bits).to_bytes(SUMMARY_BYTES, "big")


class SummaryMatcher:
    """Tells from a summary whether one of a receiver's filters may match the event."""

    def __init__(self, filters: "Iterable[Filter]") -> None:
        # By filter and clause: the tests that can be refuted, each a list of items of which one must be there.
        self._clauses = [
            [items for test in clause.tests if (items := _items_of(test)) is not None]
            for one in filters
            for clause in one.clauses
        ]
        self._masks: dict[int, list[list[list[int]]]] = {}

    def __call__(self, summary: bytes) -> bool:
        """False only if no filter matches the event that the summary was made of."""
        bits = int.from_bytes(summary, "big")
        hashes = bits >> _BITS
        clauses = self._masks.get(hashes)
        if clauses is None:
            clauses = self._masks[hashes] = [
                [[_mask(item, hashes) for item in items] for items in clause] for clause in self._clauses
            ]
        for clause in clauses:
            for masks in clause:
                for mask in masks:
                    if bits & mask == mask:
                        break
                else:
                    break
            else:
                return True
        return False


def _items_of(test: Test) -> list[bytes] | None:
    """The items of which one is in the summary of every event that passes the test; None if there are no such."""
    if isinstance(test, OneOf) and not test.negated:
        return [_item(test.attribute, value) for value in test.values]
    if isinstance(test, Within):
        if test.low == test.high:
            return [_item(test.attribute, test.low)]
        first, last = _bucket(test.low), _bucket(test.high)
        if last - first < _MAX_BUCKETS:
            return [_bucket_item(test.attribute, bucket) for bucket in range(first, last + 1)]
    return None


def _item(name: str, value: bool | float | str) -> bytes:
    if isinstance(value, bool):
        return b"b%s\0%d" % (name.encode(), value)
    if isinstance(value, str):
        return b"s%s\0%s" % (name.encode(), value.encode())
    return b"n%s\0%s" % (name.encode(), struct.pack(">d", value + 0.0))


def _bucket_item(name: str, bucket: int) -> bytes:
    return b"r%s\0%d" % (name.encode(), bucket)


def _bucket(number: float) -> int:
    """The bucket of a number; it never falls as the number rises, so a range covers a range of buckets."""
    bits = int.from_bytes(struct.pack(">d", abs(number)), "big") >> _BUCKET_SHIFT
    return -bits - 1 if number < 0.0 else bits


@lru_cache(maxsize=65_536)
def _mask(item: bytes, hashes: int) -> int:
    """The bits that an item sets."""
    digest = int.from_bytes(hashlib.blake2b(item, digest_size=2 * _MAX_HASHES).digest(), "big")
    mask = 0
    for _ in range(hashes):
        digest, rest = divmod(digest, 1 << 16)
        mask |= 1 << rest % _BITS
    return mask
