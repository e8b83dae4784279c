"""The one error of this package, and the checks that raise it.

The error is a ``ValueError`` too, because msgspec turns a ``ValueError`` raised while a value is being built into a
``ValidationError`` with the place in the document (``... - at `$.links[3].delay` ``). So a scenario
reader gets the place and the message, and a caller in Python gets a ``ConfigurationError``.

The checks also settle the fields of a frozen value: whatever number or sequence came in (an int, a NumPy scalar, a
list), a plain float or a tuple of floats is stored, so that equal distributions compare, hash and encode alike.
"""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidings.errors import ConfigurationError

FloatArray = NDArray[np.float64]
Samples = Sequence[float] | NDArray[Any]


class DistributionError(ConfigurationError, ValueError):
    """Raised when a distribution is given parameters it cannot have, or samples it cannot be fitted to."""


def name_of(distribution: type[msgspec.Struct] | msgspec.Struct) -> str:
    """The distribution's name as written in a scenario, such as ``log-normal``."""
    return str(distribution.__struct_config__.tag)


def _spelling(distribution: msgspec.Struct, field: str) -> str:
    """The field as the user writes it in TOML, and in Python where that differs."""
    key = dict(zip(distribution.__struct_fields__, distribution.__struct_encode_fields__, strict=True))[field]
    return f"`{key}`" if key == field else f"`{key}` (in Python `{field}`)"


def refuse(distribution: msgspec.Struct, field: str, rule: str, value: object, remedy: str) -> DistributionError:
    """The error for one bad field: names the distribution, the field, the value and the remedy."""
    place = f"{name_of(distribution)}: {_spelling(distribution, field)}"
    return DistributionError(f"{place} must be {rule}, not {value!r}; {remedy}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def check_whole(place: str, value: object, *, at_least: int) -> None:
    """Check an argument that counts something."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < at_least:
        raise DistributionError(f"{place} must be a whole number >= {at_least}, not {value!r}")


def settle_number(
    distribution: msgspec.Struct,
    field: str,
    *,
    remedy: str,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> float:
    """Check one field against its bounds and store it as a float."""
    value = getattr(distribution, field)
    if not _is_number(value) or not (above < value and at_least <= value <= at_most):
        bounds = [
            f"> {above:g}" if above > -math.inf else "",
            f">= {at_least:g}" if at_least > -math.inf else "",
            f"<= {at_most:g}" if at_most < math.inf else "",
        ]
        rule = " ".join(["a finite number", " and ".join(bound for bound in bounds if bound)]).rstrip()
        raise refuse(distribution, field, rule, value, remedy)
    settled = float(value)
    msgspec.structs.force_setattr(distribution, field, settled)
    return settled


def settle_numbers(
    distribution: msgspec.Struct, field: str, *, remedy: str, minimum_length: int = 1
) -> tuple[float, ...]:
    """Check that one field is a sequence of finite numbers and store it as a tuple of floats."""
    value = getattr(distribution, field)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refuse(distribution, field, "a list of numbers", value, remedy)
    items = tuple(value)
    if len(items) < minimum_length:
        raise refuse(distribution, field, f"a list of at least {minimum_length} numbers", list(items), remedy)
    for position, item in enumerate(items):
        if not _is_number(item):
            raise refuse(distribution, field, f"finite numbers throughout (position {position})", item, remedy)
    settled = tuple(float(item) for item in items)
    msgspec.structs.force_setattr(distribution, field, settled)
    return settled


def settle_samples(distribution: type[msgspec.Struct], samples: Samples, *, distinct: int = 1) -> FloatArray:
    """The samples as a sorted float array, or an error that names a bad sample and the reason."""
    name = name_of(distribution)
    try:
        values = np.sort(np.asarray(samples, dtype=np.float64).ravel())
    except (TypeError, ValueError) as error:
        raise DistributionError(f"{name}: samples must be numbers: {error}") from error
    if values.size == 0:
        raise DistributionError(f"{name}: there are no samples; give at least {distinct}")
    bad = values[~np.isfinite(values) | (values < 0.0)]
    if bad.size:
        raise DistributionError(
            f"{name}: samples must be finite and >= 0, but {bad.size} of {values.size} are not "
            f"(such as {float(bad[0])!r}); leave them out"
        )
    if distinct > 1:
        found = int(np.unique(values).size)
        if found < distinct:
            raise DistributionError(
                f"{name}: fitting needs at least {distinct} different samples, not {found}; "
                "give more samples or use the deterministic distribution"
            )
    return values
