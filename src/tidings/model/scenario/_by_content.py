"""Distributions that depend on the content of an event: an alarm lives for seconds, a report for an hour.

    lifetime = { by = "kind", distributions = { alarm = "2 s", report = "1 h" }, otherwise = "1 min" }

`by` names an attribute of a few values (`values`, `range`, or one value); `distributions` has a distribution for each
of them, under the value as text, and `otherwise` is for the values that are not named. The distribution over all events
is their mixture, which the predictor uses because it does not follow single events.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tidings.model.documents import Place, describe, key_written, suggestion
from tidings.model.scenario._content import AttributeValue, Choice, Constant, Content
from tidings.model.scenario._distributions import DistributionTemplate, WrittenDistribution
from tidings.model.units import Dimension

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidings.model.distributions import DelayDistribution

__all__ = ["ByContent", "ByContentTemplate", "WrittenByContent", "value_name"]

_KEY: Final = "distributions"
_FORMER_KEY: Final = "laws"
_KEYS: Final = ("by", _KEY, "otherwise")
_MIXED: Final = 4_096
"""Approximate number of quantiles in the table of a mixture that has other parts than constants."""


class ByContent(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution for each value of an attribute, by the value as text; every value that can occur has one."""

    attribute: str
    distributions: dict[str, "DelayDistribution"]

    def sample(self, generator: "np.random.Generator", values: Sequence[AttributeValue]) -> "NDArray[np.float64]":
        """A draw for each event, given its value of the attribute."""
        import numpy as np

        names = np.array([value_name(value) for value in values], dtype=object)
        drawn = np.zeros(len(names))
        for name, distribution in self.distributions.items():
            mine = names == name
            if mine.any():
                drawn[mine] = distribution.sample(generator, int(mine.sum()))
        return drawn


class ByContentTemplate(msgspec.Struct, frozen=True, kw_only=True, tag="by", tag_field="template"):
    """As written; parameters that are distributions are drawn for each client."""

    by: str
    distributions: dict[str, DistributionTemplate]
    key: str = _KEY
    """The key under which they were written."""
    otherwise: DistributionTemplate | None = None

    def make(
        self, generator: "np.random.Generator", contents: Mapping[str, Content], place: Place
    ) -> "tuple[ByContent, DelayDistribution]":
        """The distributions of one publisher with this content, and their mixture."""
        if self.by not in contents:
            hint = suggestion(self.by, contents, otherwise="it has")
            (place / "by").fail(f"the publisher has no attribute `{self.by}`; {hint}")
        chances = _chances(contents[self.by], place / "by")
        for name in self.distributions:
            if name not in chances:
                known = suggestion(name, chances, otherwise="it can be")
                (place / self.key / name).fail(f"`{self.by}` is never {name!r}; {known}")
        distributions: dict[str, DelayDistribution] = {}
        for name in chances:
            template = self.distributions.get(name, self.otherwise)
            if template is None:
                place.fail(
                    f"there is no distribution for {self.by} = {name!r}; add it to `{self.key}`, or write `otherwise`"
                )
            where = place / self.key / name if name in self.distributions else place / "otherwise"
            distributions[name] = template.make(generator, where)
        return ByContent(attribute=self.by, distributions=distributions), _mixture(
            [(distributions[name], chances[name]) for name in chances]
        )


class WrittenByContent:
    """Marker of a field that is written as a distribution, or as a table with `by`."""

    def __init__(self, dimension: Dimension | Literal["number"], *, above_zero: bool = False) -> None:
        self._distribution = WrittenDistribution(dimension, above_zero=above_zero)

    def prepare(self, raw: Any, place: Place) -> DistributionTemplate | ByContentTemplate:
        if not isinstance(raw, dict) or "by" not in raw:
            return self._distribution.prepare(raw, place)
        for key in raw:
            if key not in (*_KEYS, _FORMER_KEY):
                (place / key).fail(f"unknown key `{key}`; {suggestion(key, _KEYS, otherwise='known here are')}")
        if not isinstance(raw["by"], str):
            (place / "by").fail(f"expected the name of an attribute, got {describe(raw['by'])}")
        key = key_written(raw, _KEY, _FORMER_KEY, place) or _KEY
        distributions = raw.get(key)
        if not isinstance(distributions, dict) or not distributions:
            place.fail(f'`{_KEY}` is missing: write one for each value, such as {_KEY} = {{ alarm = "2 s" }}')
        return ByContentTemplate(
            by=raw["by"],
            key=key,
            distributions={
                str(name): self._distribution.prepare(distribution, place / key / name)
                for name, distribution in distributions.items()
            },
            otherwise=self._distribution.prepare(raw["otherwise"], place / "otherwise") if "otherwise" in raw else None,
        )


def value_name(value: AttributeValue) -> str:
    """A value of an attribute as it is written as a key."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _chances(content: Content, place: Place) -> dict[str, float]:
    match content:
        case Constant(value=value):
            return {value_name(value): 1.0}
        case Choice(values=values, probabilities=probabilities):
            even = [1.0 / len(values)] * len(values)
            found: dict[str, float] = {}
            for value, chance in zip(values, probabilities or even, strict=True):
                if chance > 0.0:
                    found[value_name(value)] = found.get(value_name(value), 0.0) + chance
            return found
        case _:
            return place.fail("this attribute is continuous; `by` takes one with `values`, a `range`, or one value")


def _mixture(parts: "Sequence[tuple[DelayDistribution, float]]") -> "DelayDistribution":
    import numpy as np

    from tidings.model.distributions import Deterministic, Discrete, Empirical

    if len(parts) == 1:
        return parts[0][0]
    constants = [
        (distribution.value, chance) for distribution, chance in parts if isinstance(distribution, Deterministic)
    ]
    if len(constants) == len(parts):
        return Discrete(values=tuple(value for value, _ in constants), weights=tuple(each for _, each in constants))
    samples: list[float] = []
    for distribution, chance in parts:
        count = max(1, round(_MIXED * chance))
        samples += distribution.quantile((np.arange(count) + 0.5) / count).tolist()
    return Empirical.from_samples(samples)
