"""Quantities and laws as they are written in a scenario.

A law is a table such as `{ law = "exponential", mean = "2 ms" }`; a plain quantity stands for the constant. Parameters
that have the dimension of the variable itself (a mean, a bound, a scale) take a quantity with a unit; shapes and
exponents are plain numbers. Where the variable is plain itself (content, prices) all parameters are plain numbers.

A dimensioned parameter may be a law again: it is then drawn once for each link, broker or client that the law is given
to. Paper C's links are `{ law = "normal", mean = { law = "uniform", low = "50 ms/kB", high = "100 ms/kB" },
sd = "20 ms/kB" }`.
"""

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from tidings.errors import InputError, TidingsError
from tidings.model.scenario._decoding import describe, refuse, suggestion
from tidings.model.scenario._recorded import RECORDED, REPLAY, capacity_values, recorded_quantiles, recorded_values
from tidings.model.scenario._source import Place
from tidings.model.units import Dimension, parse_quantity

if TYPE_CHECKING:
    import numpy as np

    from tidings.model.distributions import DelayDistribution, Distribution

__all__ = ["LIKE_THE_VARIABLE", "PER_VARIABLE", "LawTemplate", "LawWritten", "Quantity", "plain_number"]

# The parameters of the laws that are in the unit of the variable, and those in its inverse.
LIKE_THE_VARIABLE = frozenset({"value", "mean", "low", "high", "sd", "shift", "scale", "median", "quantiles", "values"})
PER_VARIABLE = frozenset({"rates", "sub_generator"})
_MAY_BE_NEGATIVE = frozenset({"sub_generator"})
_NESTING_MAX = 3


class Quantity:
    """Marker of a field that is written as a quantity and held as a float in the base unit."""

    def __init__(self, dimension: Dimension, *, above_zero: bool = True) -> None:
        self.dimension = dimension
        self.above_zero = above_zero

    def prepare(self, raw: Any, place: Place) -> float:
        value = _parsed(raw, self.dimension, place)
        if value < 0 or (self.above_zero and value == 0):
            place.fail(f"{raw!r} is not possible: it must be {'above 0' if self.above_zero else 'zero or more'}")
        return value


class LawTemplate(msgspec.Struct, frozen=True, kw_only=True, tag="law", tag_field="template"):
    """A law with some parameters still to be drawn (`drawn`); `make` draws them and gives the distribution. A recording
    is `made` when it is read, and shared by all that replay it."""

    law: str
    fixed: dict[str, Any]
    drawn: dict[str, "LawTemplate"] = {}
    made: Any = None

    def make(self, generator: "np.random.Generator", place: Place) -> "DelayDistribution":
        """The distribution, with the parameters in `drawn` drawn now; only plain numbers may follow Zipf's law."""
        return cast("DelayDistribution", self.make_plain(generator, place))

    def make_plain(self, generator: "np.random.Generator", place: Place) -> "Distribution":
        if self.made is not None:
            return cast("Distribution", self.made)
        drawn = {name: inner.draw(generator, 1, place / name)[0] for name, inner in self.drawn.items()}
        try:
            return _build(self.law, self.fixed | drawn)
        except TidingsError as error:
            what = ", ".join(f"{name} = {value:g}" for name, value in drawn.items())
            place.fail(f"with the drawn {what}: {_without_remedy(error)}; draw it from a narrower law")

    def draw(self, generator: "np.random.Generator", count: int, place: Place) -> list[float]:
        """One value for each of `count` things, each with its own drawn parameters."""
        if self.drawn:
            return [float(self.make_plain(generator, place).sample(generator, 1)[0]) for _ in range(count)]
        return [float(value) for value in self.make_plain(generator, place).sample(generator, count)]


class LawWritten:
    """Marker of a field that is written as a law or a constant and held as a LawTemplate; `replays` if it may follow a
    recording value by value."""

    def __init__(
        self, dimension: Dimension | Literal["number"], *, above_zero: bool = False, replays: bool = False
    ) -> None:
        self.dimension = dimension
        self.above_zero = above_zero
        self.replays = replays

    def prepare(self, raw: Any, place: Place) -> LawTemplate:
        if isinstance(raw, dict) and raw.get("law") == REPLAY:
            return _replay(raw, self.dimension, place, replays=self.replays)
        return _template(raw, self.dimension, place, above_zero=self.above_zero, nesting=0)


def _template(
    raw: Any, dimension: Dimension | Literal["number"], place: Place, *, above_zero: bool, nesting: int
) -> LawTemplate:
    if not isinstance(raw, dict):
        value = _parameter(raw, dimension, place, signed=above_zero)
        if above_zero and value <= 0:
            place.fail(f"{raw!r} is not possible: it must be above 0")
        return LawTemplate(law="deterministic", fixed={"value": value})
    if nesting == _NESTING_MAX:
        place.fail(f"laws within laws go at most {_NESTING_MAX} deep")
    if raw.get("law") == REPLAY:
        place.fail("a parameter that is drawn once for each link or broker cannot be replayed; write another law")
    if raw.get("law") == RECORDED:
        return LawTemplate(law="empirical", fixed={"quantiles": recorded_quantiles(raw, dimension, place)})
    name, known = _law_named(raw, place, _laws(plain=dimension == "number"))
    fixed: dict[str, Any] = {}
    drawn: dict[str, LawTemplate] = {}
    for key, value in raw.items():
        if key == "law":
            continue
        here = place / key
        if key not in known:
            here.fail(f"law `{name}` has no parameter `{key}`; {suggestion(key, known, otherwise='it takes')}")
        if isinstance(value, dict) and key in LIKE_THE_VARIABLE:
            drawn[key] = _template(value, dimension, here, above_zero=False, nesting=nesting + 1)
        else:
            fixed[key] = _written_parameter(key, value, dimension, here)
    missing = [key for key, required in known.items() if required and key not in raw]
    if missing:
        place.fail(f"law `{name}` needs `{missing[0]}`; it takes {', '.join(known)}")
    template = LawTemplate(law=name, fixed=fixed, drawn=drawn)
    _try_out(template, dimension, place)
    return template


def _replay(
    raw: dict[str, Any], dimension: Dimension | Literal["number"], place: Place, *, replays: bool
) -> LawTemplate:
    from tidings.model.distributions import Replay

    if not replays:
        place.fail(
            "only the slowness and propagation of links and the service and processing of brokers are replayed; write "
            f'law = "{RECORDED}" to draw from recorded values in any order'
        )
    then = raw.get("then", "repeat")
    if then not in ("repeat", "last"):
        (place / "then").fail(f'{then!r} is not possible: write "repeat" to begin again, or "last" to keep the last')
    if "values" in raw and "file" not in raw:
        for key in raw:
            if key not in ("law", "values", "then"):
                (place / key).fail(f"law `{REPLAY}` has no parameter `{key}` beside `values`")
        values = _written_parameter("values", raw["values"], dimension, place / "values")
    elif "packets" in raw:
        if dimension != "slowness":
            (place / "packets").fail("packets that could cross a link are a slowness; write them there")
        values = capacity_values(raw, place)
    else:
        values = recorded_values(raw, dimension, place)
    try:
        return LawTemplate(law=REPLAY, fixed={}, made=Replay(values=values, then=then))
    except TidingsError as error:
        place.fail(_without_remedy(error))


def _law_named(raw: dict[str, Any], place: Place, laws: dict[str, dict[str, bool]]) -> tuple[str, dict[str, bool]]:
    known = [*laws, RECORDED]
    if "law" not in raw:
        place.fail(f"`law` is missing; write law = one of {', '.join(known)}")
    name = raw["law"]
    if not isinstance(name, str) or name not in laws:
        (place / "law").fail(f"there is no law {name!r}; {suggestion(str(name), known, otherwise='write one of')}")
    return name, laws[name]


@cache
def _laws(*, plain: bool) -> dict[str, dict[str, bool]]:
    """Each law's parameters as written, and whether they are required; ranks (Zipf) are no times or sizes."""
    from tidings.model.distributions import DelayDistribution, Distribution

    return {
        str(law.__struct_config__.tag): {field.encode_name: field.required for field in msgspec.structs.fields(law)}
        for law in get_args(Distribution if plain else DelayDistribution)
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
    value = plain_number(raw, place) if dimension == "number" else _parsed(raw, dimension, place)
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


def _try_out(template: LawTemplate, dimension: Dimension | Literal["number"], place: Place) -> None:
    """Build the law once with its drawn parameters at their means, so that bad parameters are found while reading."""
    means = {name: _at_means(inner).mean() for name, inner in template.drawn.items()}
    try:
        _build(template.law, template.fixed | means)
    except msgspec.ValidationError as error:
        refuse(error, place)
    except TidingsError as error:
        place.fail(_without_remedy(error) if dimension != "number" else str(error))


def _without_remedy(error: TidingsError) -> str:
    """The remedies of the laws speak of plain numbers and of Python, which is wrong advice where a unit is due."""
    return re.sub(r" \(in Python `\w+`\)", "", str(error).partition("; ")[0])


def _at_means(template: LawTemplate) -> "Distribution":
    return _build(
        template.law, template.fixed | {name: _at_means(inner).mean() for name, inner in template.drawn.items()}
    )


def _build(law: str, parameters: dict[str, Any]) -> "Distribution":
    from tidings.model.distributions import Distribution

    try:
        return msgspec.convert({"law": law, **parameters}, Distribution)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, TidingsError):  # what the law itself said, before msgspec wrapped it
            raise error.__cause__ from None
        raise


def _parsed(raw: Any, dimension: Dimension, place: Place) -> float:
    try:
        return parse_quantity(raw, dimension)
    except InputError as error:
        place.fail(str(error))
