"""Records of arrays that kernels take by reference: one pointer, however many arrays there are.

A kernel that takes a NamedTuple of arrays gets each array as seven numbers. With thirty arrays that is what calls spend
their time on, and compilation even more. `lend` writes down where the arrays are, once; kernels get the address of that
note and look up in it what they need. In a kernel

- ``w.name`` is an array, or a record within the record;
- ``w.name[i]`` and ``w.name[i, j]`` are elements, for reading and writing; of a structured array the record there, as
  in NumPy. ``w.name[i]`` of an array with two axes is its row. An index counts from 0: a negative one is a bug;
- ``len(w.name)`` is the length of the first axis.

Type checkers see the NamedTuple. Whoever lends keeps the loan, and with it the arrays, until the kernel is back; arrays
are contiguous. The note never changes, and is marked so:
the compiler looks up an array once for a whole loop.
"""

import operator
from functools import cache
from hashlib import sha256
from typing import Any, Final, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import (
    NativeValue,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import from_dtype

from tidings._scalars import FirstTemplate

__all__ = ["lend"]

Record = TypeVar("Record", bound=tuple[Any, ...])

ADDRESS, LENGTH, COLUMNS, WORDS = range(4)
"""What is noted of an array, in words of eight bytes."""

_WORD: Final = ir.IntType(64)
_BYTE: Final = ir.IntType(8)


def lend(record: Record, last: Record | None = None) -> Record:
    """A NamedTuple of arrays, and of such NamedTuples, as a kernel takes it by reference.

    `last` is what was lent before: it is given again if the record still has the same arrays, which is much quicker.
    """
    if last is not None and all(map(operator.is_, cast(Any, last).record, record)):
        return last
    return cast(Record, Loan(record))


class Loan:
    """The note of where the arrays of a record are, and the record itself, which keeps them alive."""

    def __init__(self, record: tuple[Any, ...]) -> None:
        self.record = record
        words: list[int] = []
        self.numba_type = _write_down(record, words)
        self._note = np.array(words, np.int64)
        self.address = self._note.ctypes.data


def _write_down(record: tuple[Any, ...], words: list[int]) -> "LentRecord":
    kinds: list[Any] = []
    for name, value in zip(cast(Any, record)._fields, record, strict=True):
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous, f"{name} is not contiguous"
            kinds.append((value.dtype, value.ndim))
            words += (value.ctypes.data, len(value), value.shape[1] if value.ndim > 1 else 1)
        else:
            kinds.append(_write_down(value, words))
    return _record_type(type(record), tuple(kinds))


@cache
def _record_type(record: Any, kinds: tuple[Any, ...]) -> "LentRecord":
    fields = [
        (name, kind if isinstance(kind, LentRecord) else LentArray(from_dtype(kind[0]), kind[1]))
        for name, kind in zip(record._fields, kinds, strict=True)
    ]
    return LentRecord(record.__name__, tuple(fields))


# Types. Their names become part of the names of all functions that take them, so they are short.


class LentArray(types.Type):
    """An array with one or two axes; a value is the address of what is noted of it."""

    words = WORDS

    def __init__(self, dtype: types.Type, axes: int) -> None:
        self.dtype, self.axes = dtype, axes
        super().__init__(name=f"Lent{axes}{_short(str(dtype))}")


class LentRow(types.Type):
    """A row of an array with two axes; a value is the address of its first element."""

    axes = 1

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"LentRow{_short(str(dtype))}")


class LentRecord(types.Type):
    """A record of arrays; a value is the address of what is noted of the first one."""

    def __init__(self, title: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = dict(fields)
        self.places: dict[str, int] = {}
        self.words = 0
        for name, field in fields:
            self.places[name] = self.words
            self.words += field.words
        super().__init__(name=f"{title}{_short(str(fields))}")


def _short(description: str) -> str:
    return sha256(description.encode()).hexdigest()[:12]


@typeof_impl.register(Loan)
def _typeof_loan(value: Loan, _: object) -> LentRecord:
    return value.numba_type


@register_model(LentArray)
@register_model(LentRow)
@register_model(LentRecord)
class _AddressModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: types.Type) -> None:
        super().__init__(manager, numba_type, _WORD.as_pointer())


@unbox(LentRecord)
def _unbox_record(_: LentRecord, value: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.builder.bitcast(c.pyapi.long_as_voidptr(number), _WORD.as_pointer())
    c.pyapi.decref(number)
    return NativeValue(address, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@unbox(LentArray)
@unbox(LentRow)
def _unbox_array(_: types.Type, __: Any, c: Any) -> NativeValue:
    """A kernel that is called from Python too, with other arrays: what was lent does not come from there."""
    c.pyapi.err_set_string("PyExc_TypeError", "an array is lent with its record")
    return NativeValue(ir.Constant(_WORD.as_pointer(), None), is_error=cgutils.true_bit)


# What kernels may do with them.


@infer_getattr
class _RecordAttributes(AttributeTemplate):
    key = LentRecord

    def generic_resolve(self, record: LentRecord, name: str) -> types.Type | None:  # type: ignore[override]
        return record.fields.get(name)


@lower_getattr_generic(LentRecord)
def _lower_field(_: Any, builder: Any, record: LentRecord, value: Any, name: str) -> Any:
    return builder.gep(value, [ir.Constant(_WORD, record.places[name])], inbounds=True)


@infer_global(len)
class _Length(FirstTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        (array,) = arguments
        return signature(types.int64, array) if isinstance(array, LentArray) else None


@lower_builtin(len, LentArray)
def _lower_length(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
    return _noted(builder, arguments[0], LENGTH)


def _element(array: Any, index: types.Type) -> tuple[types.Type, types.Type] | None:
    """The type of what stands at an index, and that which the index is brought to."""
    if not isinstance(array, LentArray | LentRow):
        return None
    if isinstance(index, types.Integer):
        return (array.dtype if array.axes == 1 else LentRow(array.dtype)), types.int64
    if isinstance(index, types.BaseTuple) and len(index) == array.axes == 2:
        return array.dtype, types.UniTuple(types.int64, 2)
    return None


@infer_global(operator.getitem)
class _GetItem(FirstTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        found = _element(*arguments)
        return None if found is None else signature(found[0], arguments[0], found[1])


@infer_global(operator.setitem)
class _SetItem(FirstTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        found = _element(*arguments[:2])
        return None if found is None else signature(types.none, arguments[0], found[1], found[0])


@lower_builtin(operator.getitem, LentArray, types.Any)
@lower_builtin(operator.getitem, LentRow, types.Any)
def _lower_get(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    array, index = sig.args
    place = _place(context, builder, array, index, *arguments)
    if isinstance(sig.return_type, LentRow):
        return builder.bitcast(place, _WORD.as_pointer())
    return context.unpack_value(builder, sig.return_type, place)


@lower_builtin(operator.setitem, LentArray, types.Any, types.Any)
@lower_builtin(operator.setitem, LentRow, types.Any, types.Any)
def _lower_set(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
    array, index, dtype = sig.args
    place = _place(context, builder, array, index, *arguments[:2])
    if isinstance(dtype, types.Record):
        cgutils.raw_memcpy(builder, place, arguments[2], ir.Constant(_WORD, dtype.size), 1)
    else:
        context.pack_value(builder, dtype, arguments[2], place)
    return context.get_dummy_value()


def _noted(builder: Any, array: Any, word: int) -> Any:
    """A word of what is noted of an array; loads of it may be made wherever the compiler likes."""
    loaded = builder.load(builder.gep(array, [ir.Constant(_WORD, word)], inbounds=True))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


def _place(context: Any, builder: Any, array: Any, index: types.Type, value: Any, at: Any) -> Any:
    """The address of an element, or of the first element of a row."""
    element = context.get_data_type(array.dtype)
    if isinstance(array, LentRow):
        first = builder.bitcast(value, element.as_pointer())
    else:
        slot = builder.bitcast(
            builder.gep(value, [ir.Constant(_WORD, ADDRESS)], inbounds=True), element.as_pointer().as_pointer()
        )
        first = builder.load(slot)
        first.set_metadata("invariant.load", builder.module.add_metadata([]))
        if array.axes == 2:
            row, column = (at, None) if isinstance(index, types.Integer) else cgutils.unpack_tuple(builder, at, 2)
            at = builder.mul(row, _noted(builder, value, COLUMNS), flags=["nsw"])
            if column is not None:
                at = builder.add(at, column, flags=["nsw"])
    return builder.gep(first, [at], inbounds=True)
