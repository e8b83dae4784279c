"""From the TOML table to a typed value, strictly, with every error at its place.

Two passes over the same types. The first walks the table beside the type annotations and reports what msgspec cannot
report well: unknown keys with a suggestion, a `kind` that does not exist, quantities and shorthands (the markers in the
annotations). The second is msgspec's own strict conversion; its errors are reworded.
"""

import difflib
import re
import typing
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypeVar, Union, runtime_checkable

import msgspec

from tidings.errors import InputError
from tidings.model.documents._source import Place
from tidings.model.units import Dimension, parse_quantity

__all__ = [
    "Marker",
    "Quantity",
    "closest",
    "decode",
    "describe",
    "key_written",
    "parsed_quantity",
    "refuse",
    "suggestion",
]

T = TypeVar("T")


@runtime_checkable
class Marker(Protocol):
    """An annotation that converts the written value to the field's type, or fails at the place."""

    def prepare(self, raw: Any, place: Place) -> Any: ...


class Quantity:
    """Marker of a field that is written as a quantity and held as a float in the base unit."""

    def __init__(self, dimension: Dimension, *, above_zero: bool = True) -> None:
        self.dimension = dimension
        self.above_zero = above_zero

    def prepare(self, raw: Any, place: Place) -> float:
        value = parsed_quantity(raw, self.dimension, place)
        if value < 0 or (self.above_zero and value == 0):
            place.fail(f"{raw!r} is not possible: it must be {'above 0' if self.above_zero else 'zero or more'}")
        return value


def parsed_quantity(raw: Any, dimension: Dimension, place: Place) -> float:
    """A written quantity in the base unit of its dimension; a ScenarioError at the place if it is none."""
    try:
        return parse_quantity(raw, dimension)
    except InputError as error:
        place.fail(str(error))


def decode(raw: Any, annotation: type[T], place: Place) -> T:
    """The value of the annotated type; a ScenarioError at the key that is wrong."""
    prepared = _prepare(raw, annotation, place)
    try:
        return msgspec.convert(prepared, annotation)
    except msgspec.ValidationError as error:
        refuse(error, place)


def refuse(error: msgspec.ValidationError, place: Place) -> NoReturn:
    """Raise an error of msgspec in plain words, at its place inside this one."""
    message, path = _split(str(error))
    for step in path:
        place = place / step
    place.fail(_in_plain_words(message))


def suggestion(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """`did you mean ...?` if a known word is close, otherwise the list of known words."""
    known = list(known)
    close = closest(word, known)
    return f"did you mean `{close}`?" if close else f"{otherwise} {', '.join(known)}"


def closest(word: str, known: list[str]) -> str | None:
    """The known word that was most likely meant, if any."""
    same = [name for name in known if name.casefold() == word.casefold()]
    close = same or difflib.get_close_matches(word, known, n=1)
    return close[0] if close else None


def key_written(raw: dict[str, Any], name: str, former: str, place: Place) -> str | None:
    """Which of the two names of a renamed key is in the table, if any; both at once is an error."""
    if name in raw and former in raw:
        (place / former).fail(
            f"both `{name}` and `{former}` are written, and `{former}` is its former name; keep `{name}`"
        )
    return name if name in raw else former if former in raw else None


def describe(raw: Any) -> str:
    """The type of a TOML value in words."""
    names = {str: "a string", bool: "a boolean", int: "a whole number", float: "a number", list: "an array"}
    return names.get(type(raw), "a table" if isinstance(raw, dict) else f"a {type(raw).__name__}")


def _prepare(raw: Any, annotation: Any, place: Place) -> Any:
    if typing.get_origin(annotation) is Annotated:
        base, *metadata = typing.get_args(annotation)
        for marker in metadata:
            if isinstance(marker, Marker):
                raw = marker.prepare(raw, place)
        return _prepare(raw, base, place)
    if typing.get_origin(annotation) in (Union, UnionType):
        return _prepare_union(raw, typing.get_args(annotation), place)
    if typing.get_origin(annotation) is Literal:
        _check_literal(raw, typing.get_args(annotation), place)
        return raw
    if isinstance(raw, list) and typing.get_origin(annotation) in (list, tuple):
        element = typing.get_args(annotation)[0]
        return [_prepare(item, element, place / number) for number, item in enumerate(raw)]
    if isinstance(raw, dict) and typing.get_origin(annotation) is dict:
        # msgspec does not say under which key of a dict an error is, so each value is decoded on its own.
        element = typing.get_args(annotation)[1]
        return {key: decode(value, element, place / key) for key, value in raw.items()}
    if isinstance(raw, dict) and _is_struct(annotation):
        return _prepare_struct(raw, annotation, place)
    return raw


def _prepare_union(raw: Any, members: tuple[Any, ...], place: Place) -> Any:
    members = tuple(member for member in members if member is not NoneType)
    if len(members) == 1:
        return _prepare(raw, members[0], place)
    if isinstance(raw, dict):
        structs = [member for member in members if _is_struct(member)]
        if len(structs) > 1:
            return _prepare_struct(raw, _tagged(raw, structs, place), place)
        if structs:
            return _prepare_struct(raw, structs[0], place)
    literals = [member for member in members if typing.get_origin(member) is Literal]
    if isinstance(raw, str) and literals and str not in members:
        return _prepare(raw, literals[0], place)
    if isinstance(raw, list):
        arrays = [member for member in members if typing.get_origin(member) in (list, tuple)]
        return _prepare(raw, arrays[0], place) if arrays else raw
    return raw


def _tagged(raw: dict[str, Any], structs: list[Any], place: Place) -> Any:
    field = structs[0].__struct_config__.tag_field
    known = {struct.__struct_config__.tag: struct for struct in structs}
    if field not in raw:
        place.fail(f"`{field}` is missing; write {field} = one of {', '.join(known)}")
    if not isinstance(raw[field], str) or raw[field] not in known:
        hint = suggestion(str(raw[field]), known, otherwise="write one of")
        (place / field).fail(f"there is no {field} {raw[field]!r}; {hint}")
    return known[raw[field]]


def _prepare_struct(raw: dict[str, Any], struct: Any, place: Place) -> dict[str, Any]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    tag_field = struct.__struct_config__.tag_field
    prepared = {}
    for key, value in raw.items():
        if key == tag_field:
            prepared[key] = value
            continue
        if key not in fields:
            (place / key).fail(f"unknown key `{key}`; {suggestion(key, fields, otherwise='known here are')}")
        prepared[key] = _prepare(value, fields[key].type, place / key)
    missing = [key for key, field in fields.items() if field.required and key not in raw]
    if missing:
        examples: dict[str, str] = getattr(struct, "EXAMPLES", {})
        example = f"; write for example {examples[missing[0]]}" if missing[0] in examples else ""
        place.fail(f"`{missing[0]}` is missing{example}")
    return prepared


def _check_literal(raw: Any, known: tuple[Any, ...], place: Place) -> None:
    if raw not in known:
        hint = suggestion(raw, known, otherwise="write one of") if isinstance(raw, str) else f"write one of {known}"
        place.fail(f"{raw!r} is not possible here; {hint}")


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


_PATH = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `([^`]*)`| (>=|>|<=|<) (\S+)| of length (>=|<=) (\d+))?")
_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "a table",
}


def _split(message: str) -> tuple[str, list[str | int]]:
    found = _PATH.fullmatch(message)
    if found is None:
        return message, []
    steps: list[str | int] = [
        int(number) if number else name for name, number in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", found.group(2))
    ]
    return found.group(1), steps


def _in_plain_words(message: str) -> str:
    found = _EXPECTED.fullmatch(message)
    if found is None:
        return message
    kind, got, relation, bound, length_relation, length = found.groups()
    expected = " or ".join(_NAMES.get(part, part) for part in kind.split(" | ") if part != "null")
    if relation:
        words = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}[relation]
        return f"must be {expected}, {words} {float(bound):g}"
    if length:
        words = "at least" if length_relation == ">=" else "at most"
        what = "character" if kind == "str" else "element"
        return f"must have {words} {length} {what}{'' if length == '1' else 's'}"
    return f"expected {expected}, got {_NAMES.get(got, got)}" if got else f"expected {expected}"
