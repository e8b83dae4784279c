"""Operators on plain numbers in kernels, typed without a search.

The compiler types ``a + b`` by asking every template registered for ``+``, those of arrays and strings included, which
takes half a millisecond; a first simulation has thousands of operators. The templates here serve two whole numbers or
two real numbers, and are asked first. Types and machine code are those of the compiler itself. ``min``, ``max`` and
``int`` become a few instructions in place, where the compiler would compile a function for each pair of types.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

__all__ = ["FirstTemplate"]

_NUMBERS: Final = (types.int64, types.float64)
_ARITHMETIC: Final = (operator.add, operator.sub, operator.mul, operator.iadd, operator.isub, operator.imul, min, max)
_COMPARISONS: Final = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


class FirstTemplate(AbstractTemplate):
    """Asked before the templates for any target, of which there are dozens for an operator."""

    metadata = {"target": "cpu"}  # noqa: RUF012


def _operator_template(result: types.Type | None) -> type[FirstTemplate]:
    class OfTwoNumbers(FirstTemplate):
        def generic(self, arguments: Any, _: Any) -> Any:
            if len(arguments) == 2 and arguments[0] is arguments[1] and arguments[0] in _NUMBERS:
                return signature(result or arguments[0], *arguments)
            return None

    return OfTwoNumbers


for _function in _ARITHMETIC:
    infer_global(_function)(_operator_template(None))
for _function in _COMPARISONS:
    infer_global(_function)(_operator_template(types.boolean))


@infer_global(bool)
class _Bool(FirstTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        return signature(types.boolean, *arguments) if arguments == (types.boolean,) else None


@infer_global(int)
class _Int(FirstTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        return signature(types.int64, *arguments) if len(arguments) == 1 and arguments[0] in _NUMBERS else None


@lower_builtin(int, types.int64)
@lower_builtin(int, types.float64)
def _lower_int(context: Any, builder: Any, sig: Any, arguments: Sequence[Any]) -> Any:
    return context.cast(builder, arguments[0], sig.args[0], sig.return_type)


def _select(is_better: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def lower(context: Any, builder: Any, sig: Any, arguments: Sequence[Any]) -> Any:
        """As in Python, the second only if it is truly better: `min(1.0, nan)` is 1.0."""
        first, second = arguments
        compare = context.get_function(is_better, signature(types.boolean, *sig.args))
        return builder.select(compare(builder, (second, first)), second, first)

    return lower


for _number in _NUMBERS:
    lower_builtin(min, _number, _number)(_select(operator.lt))
    lower_builtin(max, _number, _number)(_select(operator.gt))
