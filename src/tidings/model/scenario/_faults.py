"""Failures and fault tolerance as written in a scenario (paper D).

`failures` of brokers and links come in three forms: an availability with a period, two rates, or two distributions.
An availability, a period or a rate that is a distribution is drawn once for each component. `faults` is the policy:
one of the schemes of paper D, and its intervals.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import field

from tidings.errors import ConfigurationError, ScenarioError
from tidings.model.documents import Place, Quantity
from tidings.model.failures import Failures
from tidings.model.policies import BUFFERING, BYPASSING, DEFAULT_SCHEME, Scheme
from tidings.model.scenario._distributions import DistributionTemplate, WrittenDistribution

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Faults", "FaultsShorthand", "LinkFailuresWritten", "NodeFailuresWritten", "Scheme", "make_failures"]

Problems = Iterator[tuple[str, str]]
_Seconds = Annotated[float, Quantity("time")]
_SecondsFromZero = Annotated[float, Quantity("time", above_zero=False)]
_TimeDistribution = Annotated[DistributionTemplate, WrittenDistribution("time", above_zero=True)]
_RateDistribution = Annotated[DistributionTemplate, WrittenDistribution("rate", above_zero=True)]
_NumberDistribution = Annotated[DistributionTemplate, WrittenDistribution("number")]

_FORMS = (("availability", "period"), ("failure_rate", "repair_rate"), ("up", "down"))
_EXAMPLE = 'write for example failures = { availability = 0.99, period = "60000 s" }'


class NodeFailuresWritten(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The failures of a broker: one of the three pairs of keys."""

    availability: _NumberDistribution | None = None
    period: _TimeDistribution | None = None
    failure_rate: _RateDistribution | None = None
    repair_rate: _RateDistribution | None = None
    up: _TimeDistribution | None = None
    down: _TimeDistribution | None = None

    def checks(self) -> Problems:
        given = [form for form in _FORMS if any(getattr(self, name) is not None for name in form)]
        if not given:
            yield "", f"the failures are empty; {_EXAMPLE}"
            return
        if len(given) > 1:
            first, second = (next(name for name in form if getattr(self, name) is not None) for form in given[:2])
            pairs = ", or ".join(" and ".join(f"`{name}`" for name in form) for form in _FORMS)
            yield second, f"both `{first}` and `{second}` are given; failures are written as {pairs}"
        for name in given[0]:
            if getattr(self, name) is None:
                other = next(each for each in given[0] if each != name)
                yield "", f"`{name}` is missing beside `{other}`; {_EXAMPLE}"
        value = None if self.availability is None else self.availability.fixed.get("value")
        if value is not None and not 0.0 < value < 1.0:
            remedy = "leave the failures out" if value >= 1.0 else "leave the component out"
            yield "availability", f"{value!r} is not possible: it must be above 0 and below 1; {remedy}"


class LinkFailuresWritten(NodeFailuresWritten, frozen=True, kw_only=True):
    """The failures of a link; the two directions of a pair fail together unless `together` is false."""

    together: bool = True


def make_failures(
    written: NodeFailuresWritten | Literal["never"], generator: "np.random.Generator", place: Place
) -> Failures | None:
    """The failures of one component, with all distributions drawn; None for "never"."""
    if written == "never":
        return None
    try:
        if written.availability is not None and written.period is not None:
            return Failures.exponential(
                availability=written.availability.draw(generator, 1, place / "availability")[0],
                period_s=written.period.draw(generator, 1, place / "period")[0],
            )
        if written.failure_rate is not None and written.repair_rate is not None:
            return Failures.by_rates(
                failure_per_s=written.failure_rate.draw(generator, 1, place / "failure_rate")[0],
                repair_per_s=written.repair_rate.draw(generator, 1, place / "repair_rate")[0],
            )
        assert written.up is not None, "the document is checked before it is expanded"
        assert written.down is not None, "the document is checked before it is expanded"
        return Failures(up=written.up.make(generator, place / "up"), down=written.down.make(generator, place / "down"))
    except ScenarioError:
        raise
    except ConfigurationError as error:
        place.fail(str(error))


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fault tolerance of brokers (paper D, section 2.4); the default is the scheme that is best everywhere.

    Every `refresh_s` a subscriber's home broker issues its subscriptions again. A failed neighbour is retried every
    `retry_s`. A neighbour's failure or recovery is detected after `detection_s`, for detours only.

    `tables` are the subscriptions that brokers know. Live brokers keep them on disk: "durable". In paper D they are
    "volatile": a crash empties them until the next refresh, and a subscription that was not refreshed for `timeout_s`
    is forgotten.

    Two settings show the cost of mistakes: `ack = "early"` acknowledges an event before its forwarding set is known,
    and `queues = "volatile"` loses the stored events of a broker at a crash.
    """

    scheme: Scheme = DEFAULT_SCHEME
    refresh_s: _Seconds = field(default=600.0, name="refresh")
    timeout_s: _Seconds = field(default=86_400.0, name="timeout")
    retry_s: _Seconds = field(default=1.0, name="retry")
    detection_s: _SecondsFromZero = field(default=0.0, name="detection")
    ack: Literal["late", "early"] = "late"
    queues: Literal["durable", "volatile"] = "durable"
    tables: Literal["durable", "volatile"] = "durable"

    def checks(self) -> Problems:
        if self.timeout_s < self.refresh_s:
            yield (
                "timeout",
                f"a subscription would be forgotten after {self.timeout_s:g} s, before it is refreshed after "
                f"{self.refresh_s:g} s; write a longer timeout, or a shorter refresh",
            )
        if not self.is_buffering:
            for name, usual in (("ack", "late"), ("queues", "durable")):
                if getattr(self, name) != usual:
                    yield name, f'`{name}` belongs to "buffer" and "bypass+buffer"; leave it out with "{self.scheme}"'

    @property
    def is_buffering(self) -> bool:
        return self.scheme in BUFFERING

    @property
    def is_bypassing(self) -> bool:
        return self.scheme in BYPASSING

    @property
    def is_refreshing(self) -> bool:
        return self.scheme != "static"

    @property
    def has_durable_tables(self) -> bool:
        """Whether brokers keep their subscriptions over a crash; then even `static` tables last."""
        return self.tables == "durable"


class FaultsShorthand:
    """`faults = "buffer"` is short for the table with that scheme."""

    def prepare(self, raw: Any, place: Place) -> Any:  # noqa: ARG002
        return {"scheme": raw} if isinstance(raw, str) else raw
