"""The content of events: a generator for each attribute, and for each parameter of a filter template.

| written                                              | value of the attribute                                      |
| ---------------------------------------------------- | ----------------------------------------------------------- |
| `"XETRA"`, `5`, `true`                               | always this one                                             |
| `{ values = ["A", "B"], weights = [3, 1] }`          | one of these; equally likely, or by `weights`, or Zipf      |
| `{ range = [1, 10], zipf = 1.0 }`                    | a whole number; k-th value with weight 1 / k^zipf           |
| `{ distribution = "uniform", low = 0, high = 10 }`   | a number; `offset` is added, `decimals` rounds it           |
| `{ distribution = ..., plus = "low" }`               | a number, on top of what the client drew for that parameter |
| `{ parameter = "topic" }` (attributes only)          | what this client drew for that parameter                    |
"""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.model.documents import Place, describe, suggestion
from tidings.model.scenario._distributions import (
    FORMER_KEY,
    KEY,
    DistributionTemplate,
    WrittenDistribution,
    plain_number,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidings.model.distributions import Distribution

__all__ = [
    "AttributeValue",
    "Choice",
    "Constant",
    "Content",
    "Numeric",
    "NumericTemplate",
    "ParameterReference",
    "WrittenContent",
]

AttributeValue = int | float | str | bool
"""The types of an attribute."""

VALUES_MAX = 1_000_000
DECIMALS_MAX = 12
_WHOLE_MAX = 2**63 - 1


class Constant(msgspec.Struct, frozen=True, kw_only=True, tag="constant", tag_field="content"):
    """Always the same value."""

    value: AttributeValue

    def sample(self, generator: "np.random.Generator", count: int) -> list[AttributeValue]:  # noqa: ARG002
        return [self.value] * count


class Choice(msgspec.Struct, frozen=True, kw_only=True, tag="choice", tag_field="content"):
    """One of the values; `probabilities` is empty when all are equally likely."""

    values: tuple[AttributeValue, ...]
    probabilities: tuple[float, ...] = ()

    def sample(self, generator: "np.random.Generator", count: int) -> list[AttributeValue]:
        import numpy as np

        if not self.probabilities:
            return [self.values[number] for number in generator.integers(len(self.values), size=count).tolist()]
        # NumPy's choice also searches the cumulated chances, but may change with its version.
        edges = np.array(list(accumulate(self.probabilities)))
        chosen = np.searchsorted(edges / edges[-1], generator.random(count), side="right")
        return [self.values[number] for number in np.minimum(chosen, len(self.values) - 1).tolist()]


class Numeric(msgspec.Struct, frozen=True, kw_only=True, tag="numeric", tag_field="content"):
    """A number: a draw of the distribution, plus `offset`, rounded to `decimals` (0 decimals: a whole number)."""

    distribution: "Distribution"
    offset: float = 0.0
    decimals: int | None = None

    def sample(self, generator: "np.random.Generator", count: int) -> list[AttributeValue]:
        values: list[AttributeValue] = self.settled(self.distribution.sample(generator, count)).tolist()
        return values

    def settled(self, drawn: "NDArray[Any]") -> "NDArray[Any]":
        """Draws of the distribution as values: with the offset, and rounded."""
        import numpy as np

        if self.decimals is None:
            return np.asarray(drawn + self.offset)
        rounded = np.round(drawn + self.offset, self.decimals)
        return rounded if self.decimals else rounded.astype(np.int64)


Content = Constant | Choice | Numeric


class NumericTemplate(msgspec.Struct, frozen=True, kw_only=True, tag="template", tag_field="content"):
    """A Numeric whose distribution has parameters still to be drawn for each client; `plus` names one that is added."""

    distribution: DistributionTemplate
    offset: float = 0.0
    decimals: int | None = None
    plus: str | None = None

    @property
    def is_same_for_all(self) -> bool:
        """Whether every client of a group has the same distribution."""
        return self.plus is None and not self.distribution.drawn

    def make(self, generator: "np.random.Generator", values: Mapping[str, AttributeValue], place: Place) -> Numeric:
        """The distribution of a client that drew these values for its parameters."""
        offset = self.offset
        if self.plus is not None:
            added = values.get(self.plus)
            if isinstance(added, bool) or not isinstance(added, int | float):
                got = "there is no such parameter before this one" if added is None else f"it is {added!r}"
                (place / "plus").fail(f"`{self.plus}` is not a number that can be added: {got}")
            offset += added
        return Numeric(
            distribution=self.distribution.make_plain(generator, place), offset=offset, decimals=self.decimals
        )


class ParameterReference(msgspec.Struct, frozen=True, kw_only=True, tag="parameter", tag_field="content"):
    """Stands for what the client drew for this parameter."""

    name: str


class WrittenContent:
    """Marker of a field that is written as one row of the table above."""

    def prepare(self, raw: Any, place: Place) -> "Constant | Choice | NumericTemplate | ParameterReference":
        if isinstance(raw, str | bool | int | float):
            return Constant(value=_value(raw, place))
        if not isinstance(raw, dict):
            place.fail(f"expected a value or a table such as {{ values = [1, 2, 3] }}, got {describe(raw)}")
        if KEY in raw or FORMER_KEY in raw:
            return _numeric(raw, place)
        if "parameter" in raw:
            _only(raw, ("parameter",), place)
            return ParameterReference(name=str(raw["parameter"]))
        return _choice(raw, place)


def _numeric(raw: dict[str, Any], place: Place) -> NumericTemplate:
    parameters = {key: value for key, value in raw.items() if key not in ("offset", "decimals", "plus")}
    offset = plain_number(raw.get("offset", 0.0), place / "offset")
    decimals = raw.get("decimals")
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= DECIMALS_MAX):
        (place / "decimals").fail(f"expected a whole number from 0 to {DECIMALS_MAX}, got {decimals!r}")
    plus = raw.get("plus")
    if plus is not None and not isinstance(plus, str):
        (place / "plus").fail(f"expected the name of a parameter, got {describe(plus)}")
    distribution = WrittenDistribution("number").prepare(parameters, place)
    return NumericTemplate(distribution=distribution, offset=float(offset), decimals=decimals, plus=plus)


def _choice(raw: dict[str, Any], place: Place) -> Choice:
    _only(raw, ("values", "range", "weights", "zipf"), place)
    if ("values" in raw) == ("range" in raw):
        place.fail("the values are missing: write one of `values`, `range` or `distribution`")
    values = _values(raw["values"], place / "values") if "values" in raw else _whole(raw["range"], place / "range")
    if "weights" in raw and "zipf" in raw:
        (place / "zipf").fail("both `weights` and `zipf` are given; keep one of them")
    weights: list[float] = []
    if "weights" in raw:
        weights = _weights(raw["weights"], len(values), place / "weights")
    elif "zipf" in raw:
        exponent = _weights([raw["zipf"]], 1, place / "zipf")[0]
        weights = [rank**-exponent for rank in range(1, len(values) + 1)]
    total = math.fsum(weights)
    if weights and not 0 < total < math.inf:
        (place / "weights").fail("the weights must add up to more than 0, and to a finite number")
    return Choice(values=values, probabilities=tuple(weight / total for weight in weights))


def _only(raw: dict[str, Any], known: tuple[str, ...], place: Place) -> None:
    for key in raw:
        if key not in known:
            (place / key).fail(f"unknown key `{key}`; {suggestion(key, (*known, KEY), otherwise='known here are')}")


def _values(raw: Any, place: Place) -> tuple[AttributeValue, ...]:
    if not isinstance(raw, list) or not raw:
        place.fail("expected an array of at least one value")
    return tuple(_value(value, place / number) for number, value in enumerate(raw))


def _value(raw: Any, place: Place) -> AttributeValue:
    if not isinstance(raw, str | bool | int | float):
        place.fail(f"expected a string, a number or a boolean, got {describe(raw)}")
    if isinstance(raw, float) and not math.isfinite(raw):
        place.fail(f"{raw!r} cannot be the value of an attribute; write a finite number")
    if isinstance(raw, int) and not -_WHOLE_MAX - 1 <= raw <= _WHOLE_MAX:
        place.fail("a whole number has at most 64 bits; write it as a string, or with a decimal point")
    return raw


def _whole(raw: Any, place: Place) -> tuple[AttributeValue, ...]:
    if not isinstance(raw, list) or len(raw) != 2 or any(type(end) is not int for end in raw) or raw[0] > raw[1]:
        place.fail("expected the first and the last whole number, such as [1, 10]")
    for number, end in enumerate(raw):
        _value(end, place / number)
    if raw[1] - raw[0] >= VALUES_MAX:
        place.fail(
            f'over {VALUES_MAX:,} values; write {{ distribution = "uniform", low = ..., high = ..., decimals = 0 }}'
        )
    return tuple(range(raw[0], raw[1] + 1))


def _weights(raw: Any, count: int, place: Place) -> list[float]:
    if not isinstance(raw, list) or len(raw) != count:
        place.fail(f"expected an array of {count} weights, one for each value")
    for number, weight in enumerate(raw):
        if plain_number(weight, place / number) < 0:
            (place / number).fail(f"{weight!r} is negative, but must be zero or more")
    return [float(weight) for weight in raw]
