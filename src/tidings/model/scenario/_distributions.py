"""Distributions as written in a scenario.

A distribution is a table such as `{ distribution = "exponential", mean = "2 ms" }`; a plain quantity is a constant.
Parameters that have the dimension of the variable itself (a mean, a bound, a scale) take a quantity with a unit; shapes
and exponents are plain numbers. Where the variable is plain itself (content, prices) all parameters are plain numbers.

A dimensioned parameter may itself be a distribution: it is then drawn once for each link, broker or client. Paper C's
links are `{ distribution = "normal", mean = { distribution = "uniform", low = "50 ms/kB", high = "100 ms/kB" }, sd =
"20 ms/kB" }`.
"""

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

import msgspec

from tidings.errors import TidingsError
from tidings.model.documents import Place, describe, key_written, parsed_quantity, refuse, suggestion
from tidings.model.scenario._recorded import RECORDED, REPLAY, capacity_values, recorded_quantiles, recorded_values
from tidings.model.units import Dimension

if TYPE_CHECKING:
    import numpy as np

    from tidings.model.distributions import DelayDistribution, Distribution

__all__ = [
    "FORMER_KEY",
    "KEY",
    "LIKE_THE_VARIABLE",
    "PER_VARIABLE",
    "DistributionTemplate",
    "WrittenDistribution",
    "plain_number",
]

KEY: Final = "distribution"
FORMER_KEY: Final = "law"
"""The key that names a distribution; scenarios written before the rename are still read."""

# The parameters of the distributions that are in the unit of the variable, and those in its inverse.
LIKE_THE_VARIABLE = frozenset({"value", "mean", "low", "high", "sd", "shift", "scale", "median", "quantiles", "values"})
PER_VARIABLE = frozenset({"rates", "sub_generator"})
_MAY_BE_NEGATIVE = frozenset({"sub_generator"})
_NESTING_MAX = 3


class DistributionTemplate(msgspec.Struct, frozen=True, kw_only=True, tag="distribution", tag_field="template"):
    """A distribution with some parameters still to be drawn (`drawn`); `make` draws them and returns the distribution.
    A recording is `made` when it is read, and shared."""

    name: str
    fixed: dict[str, Any]
    drawn: dict[str, "DistributionTemplate"] = {}
    made: Any = None

    def make(self, generator: "np.random.Generator", place: Place) -> "DelayDistribution":
        """The distribution, with the parameters in `drawn` drawn now; only plain numbers may follow Zipf."""
        return cast("DelayDistribution", self.make_plain(generator, place))

    def make_plain(self, generator: "np.random.Generator", place: Place) -> "Distribution":
        if self.made is not None:
            return cast("Distribution", self.made)
        drawn = {name: inner.draw(generator, 1, place / name)[0] for name, inner in self.drawn.items()}
        try:
            return _build(self.name, self.fixed | drawn)
        except TidingsError as error:
            what = ", ".join(f"{name} = {value:g}" for name, value in drawn.items())
            place.fail(f"with the drawn {what}: {_without_remedy(error)}; draw it from a narrower distribution")

    def draw(self, generator: "np.random.Generator", count: int, place: Place) -> list[float]:
        """One value for each of `count` things, each with its own drawn parameters."""
        if self.drawn:
            return [float(self.make_plain(generator, place).sample(generator, 1)[0]) for _ in range(count)]
        return [float(value) for value in self.make_plain(generator, place).sample(generator, count)]


class WrittenDistribution:
    """Marker of a field that is written as a distribution or a constant and held as a DistributionTemplate; `replays`
    if it may follow a recording value by value."""

    def __init__(
        self, dimension: Dimension | Literal["number"], *, above_zero: bool = False, replays: bool = False
    ) -> None:
        self.dimension = dimension
        self.above_zero = above_zero
        self.replays = replays

    def prepare(self, raw: Any, place: Place) -> DistributionTemplate:
        if isinstance(raw, dict):
            _, name, parameters = _split(raw, place)
            if name == REPLAY:
                return _replay(parameters, self.dimension, place, replays=self.replays)
        return _template(raw, self.dimension, place, above_zero=self.above_zero, nesting=0)


def _template(
    raw: Any, dimension: Dimension | Literal["number"], place: Place, *, above_zero: bool, nesting: int
) -> DistributionTemplate:
    if not isinstance(raw, dict):
        value = _parameter(raw, dimension, place, signed=above_zero)
        if above_zero and value <= 0:
            place.fail(f"{raw!r} is not possible: it must be above 0")
        return DistributionTemplate(name="deterministic", fixed={"value": value})
    if nesting == _NESTING_MAX:
        place.fail(f"distributions can be nested at most {_NESTING_MAX} deep; write a quantity here")
    key_of_name, name, parameters = _split(raw, place)
    if name == REPLAY:
        place.fail(
            "a parameter that is drawn once for each link or broker cannot be replayed; use another distribution"
        )
    if name == RECORDED:
        quantiles = recorded_quantiles(parameters, dimension, place)
        return DistributionTemplate(name="empirical", fixed={"quantiles": quantiles})
    known = _parameters_of(name, place / key_of_name, _distributions(plain=dimension == "number"))
    fixed: dict[str, Any] = {}
    drawn: dict[str, DistributionTemplate] = {}
    for key, value in parameters.items():
        here = place / key
        if key not in known:
            here.fail(f"distribution `{name}` has no parameter `{key}`; {suggestion(key, known, otherwise='it takes')}")
        if isinstance(value, dict) and key in LIKE_THE_VARIABLE:
            drawn[key] = _template(value, dimension, here, above_zero=False, nesting=nesting + 1)
        else:
            fixed[key] = _written_parameter(key, value, dimension, here)
    missing = [key for key, required in known.items() if required and key not in raw]
    if missing:
        place.fail(f"distribution `{name}` needs `{missing[0]}`; it takes {', '.join(known)}")
    template = DistributionTemplate(name=name, fixed=fixed, drawn=drawn)
    _try_out(template, dimension, place)
    return template


def _replay(
    raw: dict[str, Any], dimension: Dimension | Literal["number"], place: Place, *, replays: bool
) -> DistributionTemplate:
    from tidings.model.distributions import Replay

    if not replays:
        place.fail(
            "only the slowness and propagation of links and the service and processing of brokers are replayed; write "
            f'distribution = "{RECORDED}" to draw from recorded values in any order'
        )
    then = raw.get("then", "repeat")
    if then not in ("repeat", "last"):
        (place / "then").fail(f'{then!r} is not possible: write "repeat" to begin again, or "last" to keep the last')
    if "values" in raw and "file" not in raw:
        for key in raw:
            if key not in ("values", "then"):
                (place / key).fail(f"distribution `{REPLAY}` has no parameter `{key}` beside `values`")
        values = _written_parameter("values", raw["values"], dimension, place / "values")
    elif "packets" in raw:
        if dimension != "slowness":
            (place / "packets").fail("packets that could cross a link are a slowness; write them there")
        values = capacity_values(raw, place)
    else:
        values = recorded_values(raw, dimension, place)
    try:
        return DistributionTemplate(name=REPLAY, fixed={}, made=Replay(values=values, then=then))
    except TidingsError as error:
        place.fail(_without_remedy(error))


def _split(raw: dict[str, Any], place: Place) -> tuple[str, Any, dict[str, Any]]:
    """The key that names the distribution, the name, and the parameters; the name is None if no key does."""
    key = key_written(raw, KEY, FORMER_KEY, place)
    if key is None:
        return KEY, None, raw
    return key, raw[key], {name: value for name, value in raw.items() if name != key}


def _parameters_of(name: Any, place: Place, distributions: dict[str, dict[str, bool]]) -> dict[str, bool]:
    known = [*distributions, RECORDED]
    if name is None:
        # The key itself is missing, so the error belongs to the table around it.
        Place(place.source, place.path[:-1]).fail(f"`{KEY}` is missing; write {KEY} = one of {', '.join(known)}")
    if not isinstance(name, str) or name not in distributions:
        place.fail(f"there is no distribution {name!r}; {suggestion(str(name), known, otherwise='write one of')}")
    return distributions[name]


@cache
def _distributions(*, plain: bool) -> dict[str, dict[str, bool]]:
    """Each distribution's parameters as written, and whether they are required; ranks (Zipf) are neither times nor
    sizes."""
    from tidings.model.distributions import DelayDistribution, Distribution

    return {
        str(distribution.__struct_config__.tag): {
            field.encode_name: field.required for field in msgspec.structs.fields(distribution)
        }
        for distribution in get_args(Distribution if plain else DelayDistribution)
    }


def _written_parameter(key: str, value: Any, dimension: Dimension | Literal["number"], place: Place) -> Any:
    if isinstance(value, list):
        return [_written_parameter(key, item, dimension, place / number) for number, item in enumerate(value)]
    signed = key in _MAY_BE_NEGATIVE
    if key in LIKE_THE_VARIABLE:
        return _parameter(value, dimension, place, signed=signed)
    if key in PER_VARIABLE and dimension == "time":
        return _parameter(value, "rate", place, signed=signed)
    return _parameter(value, "number", place, signed=signed)


def _parameter(raw: Any, dimension: Dimension | Literal["number"], place: Place, *, signed: bool = False) -> float:
    value = plain_number(raw, place) if dimension == "number" else parsed_quantity(raw, dimension, place)
    if value < 0 and not signed:
        place.fail(f"{raw!r} is negative, but must be zero or more")
    return value


def plain_number(raw: Any, place: Place) -> float:
    """A finite number without a unit."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        place.fail(f"expected a plain number, got {describe(raw)}")
    if not abs(raw) <= sys.float_info.max:  # also NaN, and whole numbers too large for a double
        place.fail(f"{raw!r:.40} is not a finite number")
    return raw


def _try_out(template: DistributionTemplate, dimension: Dimension | Literal["number"], place: Place) -> None:
    """Build the distribution once with its drawn parameters at their means, so that bad parameters are found while
    reading."""
    means = {name: _at_means(inner).mean() for name, inner in template.drawn.items()}
    try:
        _build(template.name, template.fixed | means)
    except msgspec.ValidationError as error:
        refuse(error, place)
    except TidingsError as error:
        place.fail(_without_remedy(error) if dimension != "number" else str(error))


def _without_remedy(error: TidingsError) -> str:
    """The error without its remedy, which is about plain numbers and Python, and wrong where a unit is needed."""
    return re.sub(r" \(in Python `\w+`\)", "", str(error).partition("; ")[0])


def _at_means(template: DistributionTemplate) -> "Distribution":
    return _build(
        template.name, template.fixed | {name: _at_means(inner).mean() for name, inner in template.drawn.items()}
    )


def _build(distribution: str, parameters: dict[str, Any]) -> "Distribution":
    from tidings.model.distributions import Distribution

    try:
        return msgspec.convert({"law": distribution, **parameters}, Distribution)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, TidingsError):  # the error of the distribution, before msgspec wrapped it
            raise error.__cause__ from None
        raise
