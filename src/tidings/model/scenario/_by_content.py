"""Laws that depend on what an event says: an alarm lives for seconds, a report for an hour.

    lifetime = { by = "kind", laws = { alarm = "2 s", report = "1 h" }, otherwise = "1 min" }

`by` names an attribute of a few values (`values`, `range`, or one value); `laws` has a law for each of them, under the
value as text, and `otherwise` is for those that are not named. The law over all events is their mixture: who cannot
follow single events (the predictor) takes that.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tidings.model.scenario._content import AttributeValue, Choice, Constant, Content
from tidings.model.scenario._decoding import describe, suggestion
from tidings.model.scenario._laws import LawTemplate, LawWritten
from tidings.model.scenario._source import Place
from tidings.model.units import Dimension

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidings.model.distributions import DelayDistribution

__all__ = ["ByContent", "ByContentTemplate", "ByContentWritten", "value_name"]

_KEYS: Final = ("by", "laws", "otherwise")
_MIXED: Final = 4_096
"""A mixture of laws that are not all constants is tabulated from about so many of their quantiles."""


class ByContent(msgspec.Struct, frozen=True, kw_only=True):
    """A law for each value of an attribute, by the value as text; every value that can occur has one."""

    attribute: str
    laws: dict[str, "DelayDistribution"]

    def sample(self, generator: "np.random.Generator", values: Sequence[AttributeValue]) -> "NDArray[np.float64]":
        """A draw for each event, given what it says."""
        import numpy as np

        names = np.array([value_name(value) for value in values], dtype=object)
        drawn = np.zeros(len(names))
        for name, law in self.laws.items():
            mine = names == name
            if mine.any():
                drawn[mine] = law.sample(generator, int(mine.sum()))
        return drawn


class ByContentTemplate(msgspec.Struct, frozen=True, kw_only=True, tag="by", tag_field="template"):
    """As written; parameters that are laws are drawn for each client."""

    by: str
    laws: dict[str, LawTemplate]
    otherwise: LawTemplate | None = None

    def make(
        self, generator: "np.random.Generator", contents: Mapping[str, Content], place: Place
    ) -> "tuple[ByContent, DelayDistribution]":
        """The laws of one publisher with this content, and their mixture."""
        if self.by not in contents:
            hint = suggestion(self.by, contents, otherwise="it has")
            (place / "by").fail(f"the publisher has no attribute `{self.by}`; {hint}")
        chances = _chances(contents[self.by], place / "by")
        for name in self.laws:
            if name not in chances:
                known = suggestion(name, chances, otherwise="it can be")
                (place / "laws" / name).fail(f"`{self.by}` is never {name!r}; {known}")
        laws: dict[str, DelayDistribution] = {}
        for name in chances:
            template = self.laws.get(name, self.otherwise)
            if template is None:
                place.fail(f"nothing is said for {self.by} = {name!r}; add it to `laws`, or write `otherwise`")
            where = place / "laws" / name if name in self.laws else place / "otherwise"
            laws[name] = template.make(generator, where)
        return ByContent(attribute=self.by, laws=laws), _mixture([(laws[name], chances[name]) for name in chances])


class ByContentWritten:
    """Marker of a field that is written as a law, or as a table with `by`."""

    def __init__(self, dimension: Dimension | Literal["number"], *, above_zero: bool = False) -> None:
        self._law = LawWritten(dimension, above_zero=above_zero)

    def prepare(self, raw: Any, place: Place) -> LawTemplate | ByContentTemplate:
        if not isinstance(raw, dict) or "by" not in raw:
            return self._law.prepare(raw, place)
        for key in raw:
            if key not in _KEYS:
                (place / key).fail(f"unknown key `{key}`; {suggestion(key, _KEYS, otherwise='known here are')}")
        if not isinstance(raw["by"], str):
            (place / "by").fail(f"expected the name of an attribute, got {describe(raw['by'])}")
        laws = raw.get("laws")
        if not isinstance(laws, dict) or not laws:
            place.fail('`laws` is missing: write a law for each value, such as laws = { alarm = "2 s" }')
        return ByContentTemplate(
            by=raw["by"],
            laws={str(name): self._law.prepare(law, place / "laws" / name) for name, law in laws.items()},
            otherwise=self._law.prepare(raw["otherwise"], place / "otherwise") if "otherwise" in raw else None,
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
            return place.fail("this attribute follows a law; `by` takes one with `values`, a `range`, or one value")


def _mixture(parts: "Sequence[tuple[DelayDistribution, float]]") -> "DelayDistribution":
    import numpy as np

    from tidings.model.distributions import Deterministic, Discrete, Empirical

    if len(parts) == 1:
        return parts[0][0]
    constants = [(law.value, chance) for law, chance in parts if isinstance(law, Deterministic)]
    if len(constants) == len(parts):
        return Discrete(values=tuple(value for value, _ in constants), weights=tuple(each for _, each in constants))
    samples: list[float] = []
    for law, chance in parts:
        count = max(1, round(_MIXED * chance))
        samples += law.quantile((np.arange(count) + 0.5) / count).tolist()
    return Empirical.from_samples(samples)
