"""The one error of this package, and the checks that raise it.

The error is a ``ValueError`` too, because msgspec turns a ``ValueError`` raised while a value is being built into a
``ValidationError`` that says where in the document it happened (``... - at `$.links[3].delay` ``). So a scenario
reader gets the place and the message, and a caller in Python gets a ``ConfigurationError``.

The checks also settle the fields of a frozen value: whatever number or sequence came in (an int, a NumPy scalar, a
list), a plain float or a tuple of floats is stored, so that equal laws compare, hash and encode alike.
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
    """Raised when a law is given parameters it cannot have, or samples it cannot be fitted to."""


def name_of(law: type[msgspec.Struct] | msgspec.Struct) -> str:
    """The law's name as written in a scenario, such as ``log-normal``."""
    return str(law.__struct_config__.tag)


def _spelling(law: msgspec.Struct, field: str) -> str:
    """The field as the user writes it in TOML, and in Python where that differs."""
    key = dict(zip(law.__struct_fields__, law.__struct_encode_fields__, strict=True))[field]
    return f"`{key}`" if key == field else f"`{key}` (in Python `{field}`)"


def refuse(law: msgspec.Struct, field: str, rule: str, value: object, remedy: str) -> DistributionError:
    """The error for one bad field: names the law, the field, the value and the remedy."""
    return DistributionError(f"{name_of(law)}: {_spelling(law, field)} must be {rule}, not {value!r}; {remedy}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def check_whole(place: str, value: object, *, at_least: int) -> None:
    """Check an argument that counts something."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < at_least:
        raise DistributionError(f"{place} must be a whole number >= {at_least}, not {value!r}")


def settle_number(
    law: msgspec.Struct,
    field: str,
    *,
    remedy: str,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> float:
    """Check one field against its bounds and store it as a float."""
    value = getattr(law, field)
    if not _is_number(value) or not (above < value and at_least <= value <= at_most):
        bounds = [
            f"> {above:g}" if above > -math.inf else "",
            f">= {at_least:g}" if at_least > -math.inf else "",
            f"<= {at_most:g}" if at_most < math.inf else "",
        ]
        rule = " ".join(["a finite number", " and ".join(bound for bound in bounds if bound)]).rstrip()
        raise refuse(law, field, rule, value, remedy)
    settled = float(value)
    msgspec.structs.force_setattr(law, field, settled)
    return settled


def settle_numbers(law: msgspec.Struct, field: str, *, remedy: str, minimum_length: int = 1) -> tuple[float, ...]:
    """Check that one field is a sequence of finite numbers and store it as a tuple of floats."""
    value = getattr(law, field)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refuse(law, field, "a list of numbers", value, remedy)
    items = tuple(value)
    if len(items) < minimum_length:
        raise refuse(law, field, f"a list of at least {minimum_length} numbers", list(items), remedy)
    for position, item in enumerate(items):
        if not _is_number(item):
            raise refuse(law, field, f"finite numbers throughout (position {position})", item, remedy)
    settled = tuple(float(item) for item in items)
    msgspec.structs.force_setattr(law, field, settled)
    return settled


def settle_samples(
    law: type[msgspec.Struct], samples: Samples, *, distinct: int = 1, above_zero: bool = False
) -> FloatArray:
    """The samples as a sorted float array, or an error that says which sample will not do and why."""
    name = name_of(law)
    try:
        values = np.sort(np.asarray(samples, dtype=np.float64).ravel())
    except (TypeError, ValueError) as error:
        raise DistributionError(f"{name}: samples must be numbers: {error}") from error
    if values.size == 0:
        raise DistributionError(f"{name}: cannot be fitted to no samples at all; give at least {distinct}")
    bad = values[~np.isfinite(values) | (values < 0.0)]
    if bad.size:
        raise DistributionError(
            f"{name}: samples must be finite and >= 0, but {bad.size} of {values.size} are not "
            f"(such as {float(bad[0])!r}); leave them out before fitting"
        )
    if above_zero and values[0] == 0.0:
        raise DistributionError(
            f"{name}: samples must be > 0, but {int(np.sum(values == 0.0))} of {values.size} are 0; "
            "leave them out or fit a law that allows 0, such as empirical"
        )
    if distinct > 1:
        found = int(np.unique(values).size)
        if found < distinct:
            raise DistributionError(
                f"{name}: fitting needs at least {distinct} different samples, not {found}; "
                "give more samples or use the deterministic law"
            )
    return values
