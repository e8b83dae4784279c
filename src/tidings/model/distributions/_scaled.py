"""A distribution stretched: if X has it, factor * X has the scaled one, of the same kind."""

from typing import Any

import msgspec

from tidings.model.distributions._union import DelayDistribution

__all__ = ["scaled"]

_LIKE_THE_VARIABLE = frozenset({"value", "scale", "low", "high", "location", "shift", "median", "quantiles", "values"})
_PER_VARIABLE = frozenset({"rates", "sub_generator"})  # the others are shapes, and stay


def scaled(law: DelayDistribution, factor: float) -> DelayDistribution:
    """The distribution of `factor` times the variable."""
    changed = {}
    for field in msgspec.structs.fields(law):
        value = getattr(law, field.name)
        if field.name in _LIKE_THE_VARIABLE:
            changed[field.name] = _times(value, factor)
        elif field.name in _PER_VARIABLE:
            changed[field.name] = _times(value, 1.0 / factor)
    return msgspec.structs.replace(law, **changed)


def _times(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_times(item, factor) for item in value)
    return value * factor
