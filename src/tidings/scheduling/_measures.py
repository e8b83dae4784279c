"""Success probability, EB, EB', PC and EBPC of many events at once (paper C, Equations 3 to 10), in NumPy.

Shapes: figures of an event (now_s, published_s, size_kb, extra_s) have any shape E, such as () or (events,); figures of
a subscription or of an (event, subscription) pair (allowed_s, price, nodes, mean_s_per_kb, sd_s_per_kb) have the
subscriptions in their last axis and broadcast against E before it: (subscriptions,) or (events, subscriptions). Success
has the shape E + (subscriptions,); EB, EB', PC and EBPC sum over the last axis and have the shape E.

Deadlines: `allowed_delay_s` joins the publisher's and the subscriber's (either or both). An infinite allowed delay is
always met; minus infinity stands for a pair that does not match, and is never met.
"""

from typing import NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from tidings.errors import InputError
from tidings.scheduling._kernels import FloatArray

__all__ = [
    "Figures",
    "allowed_delay_s",
    "ebpc",
    "expected_benefit",
    "postponed_benefit",
    "postponing_cost",
    "success_probability",
]


class Figures(TypedDict):
    """The events, the subscriptions and the paths between them; all by keyword."""

    now_s: ArrayLike
    published_s: ArrayLike
    size_kb: ArrayLike
    allowed_s: ArrayLike
    nodes: ArrayLike
    mean_s_per_kb: ArrayLike
    sd_s_per_kb: ArrayLike
    processing_s: NotRequired[float]


def allowed_delay_s(*, lifetime_s: ArrayLike | None = None, max_delay_s: ArrayLike | None = None) -> FloatArray:
    """The tighter of the publisher's deadlines (shape E) and the subscribers' (last axis), shape E + (subscriptions,).

    None stands for "sets no deadline": only the publisher's is paper C's PSD, only the subscribers' its SSD.
    """
    lifetime = _figure("lifetime_s", np.inf if lifetime_s is None else lifetime_s, least=0.0)
    max_delay = _figure("max_delay_s", np.inf if max_delay_s is None else max_delay_s, least=0.0)
    return np.minimum(lifetime[..., None], max_delay)


def success_probability(*, extra_s: ArrayLike = 0.0, **figures: Unpack[Figures]) -> FloatArray:
    """The chance of each pair to be on time if the event leaves `extra_s` from now and never waits again (Eq. 5, 7)."""
    now, published = _figure("now_s", figures["now_s"]), _figure("published_s", figures["published_s"])
    elapsed_s = (now - published + _figure("extra_s", extra_s, least=0.0))[..., None]
    size = _figure("size_kb", figures["size_kb"], least=0.0)[..., None]
    processing_s = _figure("processing_s", figures.get("processing_s", 0.0), least=0.0)
    path_s = _figure("nodes", figures["nodes"], least=0.0) * processing_s
    path_s = path_s + size * _figure("mean_s_per_kb", figures["mean_s_per_kb"], least=0.0)
    slack_s = _figure("allowed_s", figures["allowed_s"]) - elapsed_s - path_s
    spread_s = size * _figure("sd_s_per_kb", figures["sd_s_per_kb"], least=0.0)
    slack_s, spread_s = np.broadcast_arrays(slack_s, spread_s)
    standard = np.divide(slack_s, spread_s, out=np.zeros(slack_s.shape), where=spread_s > 0.0)
    return np.where(spread_s > 0.0, ndtr(standard), (slack_s >= 0.0).astype(np.float64))


def expected_benefit(*, price: ArrayLike = 1.0, extra_s: ArrayLike = 0.0, **figures: Unpack[Figures]) -> FloatArray:
    """EB: the sum of price x success over the subscriptions behind the link (Equation 3). In PSD every price is 1."""
    success = success_probability(extra_s=extra_s, **figures)
    return np.asarray((success * _figure("price", price, least=0.0)).sum(axis=-1))


def postponed_benefit(*, turn_s: ArrayLike, price: ArrayLike = 1.0, **figures: Unpack[Figures]) -> FloatArray:
    """EB': the expected benefit in second place, behind a transmission of `turn_s` = FT (Equation 8)."""
    return expected_benefit(price=price, extra_s=_figure("turn_s", turn_s, least=0.0), **figures)


def postponing_cost(*, turn_s: ArrayLike, price: ArrayLike = 1.0, **figures: Unpack[Figures]) -> FloatArray:
    """PC = EB - EB' (Equation 9)."""
    return expected_benefit(price=price, **figures) - postponed_benefit(turn_s=turn_s, price=price, **figures)


def ebpc(r: float, *, turn_s: ArrayLike, price: ArrayLike = 1.0, **figures: Unpack[Figures]) -> FloatArray:
    """EBPC = r EB + (1 - r) PC (Equation 10), computed as EB - (1 - r) EB': at r = 1 it is EB, at r = 0 PC, exactly."""
    if not 0.0 <= r <= 1.0:
        raise InputError(f"r is the weight of EB, from 0 to 1, not {r!r}")
    later = postponed_benefit(turn_s=turn_s, price=price, **figures)
    return expected_benefit(price=price, **figures) - (1.0 - r) * later


def _figure(name: str, values: ArrayLike, least: float = -np.inf) -> FloatArray:
    array = np.asarray(values, np.float64)
    if np.isnan(array).any():
        raise InputError(f"{name} holds NaN; every value must be a number")
    if (array < least).any():
        raise InputError(f"{name} holds {array.min()}; every value must be at least {least:g}")
    return array
