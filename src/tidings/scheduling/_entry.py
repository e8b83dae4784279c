"""What goes into an output queue and what comes out of it."""

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import msgspec

from tidings.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tidings.scheduling._kernels import FloatArray

__all__ = ["Deleted", "OutputQueue", "Reason", "Waiting"]

T = TypeVar("T")

Reason = Literal["expired", "hopeless", "full"]

_ROWS = ("allowed_s", "price", "nodes", "mean_s_per_kb", "sd_s_per_kb")


class Waiting(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """An event that waits for a link, with the subscriptions behind that link; make it with `Waiting.of`.

    `rows` has a column per subscription: the tighter deadline (counted from publication, infinite: none), the price of
    an on-time delivery, and what is left of the path: nodes, mean and standard deviation of its slowness. Events of one
    `chain` leave in the order of their `place` (`_chains`).
    """

    event: T
    published_s: float
    size_kb: float
    rows: "FloatArray"
    chain: Hashable = None
    place: int = 0

    @classmethod
    def of(
        cls,
        event: T,
        *,
        published_s: float,
        size_kb: float,
        allowed_s: "ArrayLike",
        nodes: "ArrayLike",
        mean_s_per_kb: "ArrayLike",
        sd_s_per_kb: "ArrayLike",
        price: "ArrayLike" = 1.0,
        chain: Hashable = None,
        place: int = 0,
    ) -> "Waiting[T]":
        """One value per subscription, or one for all of them."""
        import numpy as np

        if not (math.isfinite(published_s) and math.isfinite(size_kb) and size_kb >= 0.0):
            raise InputError(
                f"an event needs a finite published_s and a finite size_kb of at least 0, not {published_s!r} and "
                f"{size_kb!r}"
            )
        given = (allowed_s, price, nodes, mean_s_per_kb, sd_s_per_kb)
        sizes = [np.size(values) for values in given]
        rows = np.empty((len(given), max(sizes) if min(sizes) > 0 else 0))
        for name, row, values in zip(_ROWS, rows, given, strict=True):
            try:
                row[:] = values
            except (TypeError, ValueError):
                raise InputError(
                    f"{name} of an event is {values!r}; give one number, or one for each of {len(row)} subscriptions"
                ) from None
        rest = rows[1:]
        if np.isnan(rows[0]).any() or not ((rest >= 0.0) & (rest < math.inf)).all():
            raise InputError(_what_is_wrong(rows))
        rows.flags.writeable = False
        return cls(event, published_s, size_kb, rows, chain, place)


def _what_is_wrong(rows: "FloatArray") -> str:
    import numpy as np

    if np.isnan(rows[0]).any():
        return "allowed_s of an event holds NaN; write an infinite deadline where there is none"
    for name, row in zip(_ROWS[1:], rows[1:], strict=True):
        for value in row[~((row >= 0.0) & (row < math.inf))].tolist():
            return f"{name} of an event holds {value!r}; every value must be finite and at least 0"
    raise AssertionError("nothing is wrong with these rows")


class Deleted(msgspec.Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """An event that will not be sent: every deadline has passed, no chance is left, or the queue was full."""

    waiting: Waiting[T]
    reason: Reason


class OutputQueue(Protocol[T]):
    """The events that wait for one link. Time comes in with every call and must not run backwards.

    Bound: at most `max_queued` events wait; beyond it the one with the least expected benefit (of equals the one whose
    deletion time comes first, then the last enqueued) is deleted as "full". With room to spare nothing is.

    Of a chain the first that waits leaves, whichever of them was chosen (`_chains`).
    """

    def push(self, waiting: Waiting[T], now_s: float) -> tuple[Deleted[T], ...]:
        """Enqueue; returns what had to go because the queue was full."""

    def pop(self, now_s: float) -> tuple[Waiting[T] | None, tuple[Deleted[T], ...]]:
        """What to send now, if anything, and what was deleted at this moment, in the order it was enqueued."""

    def __len__(self) -> int: ...


def reason_of(waiting: Waiting[T], now_s: float) -> Reason:
    """Why an event whose deletion time has come is deleted."""
    last_s = max(waiting.rows[0].tolist(), default=-math.inf)
    return "expired" if now_s >= waiting.published_s + last_s else "hopeless"
